"""What an ordering makes: the examples in the order in which they come, where batches end, and the tests."""

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
        How many examples have been streamed by then.
    classes
        Indices into the data set's names: in order of coming for those seen, by name for all.
    scope
        Whether `classes` are those seen so far, or all of the data set, come or not.
    task
        Which task is tested, where there are several: on its own data set, whose names `classes` are indices into.
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
        What is streamed.
    order
        Indices into it.
    events
        The tests on the way, by step; the last is at the end.
    batches
        After how many examples each batch ends: rising, the last is the number of examples.
    """

    dataset: Dataset = field(repr=False)
    order: NDArray[np.int64]
    events: tuple[Event, ...]
    batches: tuple[int, ...]

    def identities(self) -> list[str]:
        """Return what tells each example from the others, in the order of coming."""
        marks = self.dataset.identities()
        return [marks[index] for index in self.order.tolist()]

    def ids(self) -> list[str]:
        """Return an id of each example in the order of coming: its identity, numbered where that has come before.

        So equal images have ids of their own, and no id depends on how the data set is stored.
        """
        return numbered(self.identities())

    def fingerprint(self) -> str:
        """Return a hash of what comes, where batches end and what is tested when.

        Examples are told by class and identity, so the same stream has the same fingerprint however the data
        set is stored. Whether a file was edited in place is for the data set's own fingerprint to say.
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
            digest.update(b"%d:" % len(data) + data)  # lengths, so that no two lists of words read the same
        return digest.hexdigest()
