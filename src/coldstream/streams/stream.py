"""A stream: examples in order, ends of batches, and test events."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from coldstream.data import Dataset
from coldstream.data.dataset import numbered


@dataclass(frozen=True)
class Event:
    """A test: after `step` examples, on the test images of `classes`.

    Parameters
    ----------
    step
        The number of examples streamed before it.
    classes
        Indices into the data set's names: in order of coming for those seen, by name for all.
    scope
        Whether `classes` are those seen so far or all of the data set.
    task
        The task that is tested, if there are several; `classes` are indices into the names of its data set.
    """

    step: int
    classes: tuple[int, ...]
    scope: Literal["seen", "all"] = "seen"
    task: str | None = None


@dataclass(frozen=True, eq=False)
class Stream:
    """A data set in streaming order, each example once.

    Parameters
    ----------
    dataset
        The data set that is streamed.
    order
        Indices into it.
    events
        The tests by step; the last is at the end.
    batches
        The number of examples after which each batch ends, ascending; the last is the length of the stream.
    """

    dataset: Dataset = field(repr=False)
    order: NDArray[np.int64]
    events: tuple[Event, ...]
    batches: tuple[int, ...]

    def identities(self) -> list[str]:
        """Return the identity of each example, in stream order."""
        marks = self.dataset.identities()
        return [marks[index] for index in self.order.tolist()]

    def ids(self) -> list[str]:
        """Return a unique id of each example in stream order: its identity, numbered if it occurred before.

        Ids do not depend on how the data set is stored.
        """
        return numbered(self.identities())

    def fingerprint(self) -> str:
        """Return a hash of the examples, the ends of batches and the tests.

        It covers the class and identity of each example, so it does not depend on how the data set is stored. A file
        that was edited in place changes the fingerprint of the data set, not this one.
        """
        names, labels, marks = self.dataset.names, self.dataset.labels, self.dataset.identities()
        words = [f"{len(self.order)} examples"]
        for index in self.order.tolist():
            words += [names[labels[index]], marks[index]]
        words += [f"{len(self.batches)} batches", *map(str, self.batches), f"{len(self.events)} events"]
        for event in self.events:
            words += [f"{event.step} {event.scope} {len(event.classes)}", *(names[label] for label in event.classes)]
        digest = hashlib.sha256()
        for word in words:
            data = word.encode("utf-8", "surrogatepass")
            digest.update(b"%d:" % len(data) + data)  # with its length, so that no two lists of words hash alike
        return digest.hexdigest()
