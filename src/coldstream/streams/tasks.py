"""Streams of several tasks in sequence: each with its data set and order, all tested together."""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from typing import Any

from coldstream.data import Dataset
from coldstream.data.dataset import Pixels, numbered
from coldstream.streams.orderings import make_stream
from coldstream.streams.stream import Event, Stream

Task = str | None
"""The name of a task; None is that of a stream without tasks."""


@dataclass(frozen=True, eq=False)
class TaskStream:
    """The streams of several tasks in sequence. A stream without tasks has one part, whose task is None.

    Parameters
    ----------
    parts
        The stream of each task, in the order of the tasks. Its steps count from its own beginning.

    Examples
    --------
    >>> from coldstream.data import digits, select
    >>> low, high = (select(*digits(), classes=list(names), per_class=9)[0] for names in ("012", "789"))
    >>> stream = make_task_stream({"low": low, "high": high}, "class-incremental", seed=0)
    >>> [(event.step, event.task) for event in stream.events]
    [(27, 'low'), (54, 'low'), (54, 'high')]
    """

    parts: Mapping[Task, Stream]

    def __len__(self) -> int:
        return sum(len(part.order) for part in self.parts.values())

    @property
    def tasks(self) -> list[str]:
        """The names of the tasks in their order; none for a stream without tasks."""
        return [task for task in self.parts if task is not None]

    @cached_property
    def ends(self) -> dict[Task, int]:
        """The number of examples streamed when each task ends."""
        return dict(zip(self.parts, accumulate(len(part.order) for part in self.parts.values()), strict=True))

    @cached_property
    def starts(self) -> dict[Task, int]:
        """The number of examples streamed when each task begins."""
        return {task: self.ends[task] - len(part.order) for task, part in self.parts.items()}

    @cached_property
    def batches(self) -> tuple[int, ...]:
        """The number of examples after which each batch ends; a task ends with a batch."""
        return tuple(self.starts[task] + end for task, part in self.parts.items() for end in part.batches)

    @cached_property
    def events(self) -> tuple[Event, ...]:
        """The tests by step. Each test of a task also tests all earlier tasks, on all of their classes."""
        events: list[Event] = []
        whole: list[Event] = []
        for task, part in self.parts.items():
            for test in part.events:
                step = self.starts[task] + test.step
                events += [replace(event, step=step) for event in whole]
                events.append(replace(test, step=step, task=task))
            whole.append(events[-1])
        return tuple(events)

    def example(self, step: int) -> tuple[Pixels, str, Task]:
        """Return the image, the label and the task of the example at position `step`."""
        task = list(self.parts)[bisect_right(list(self.ends.values()), step)]
        part = self.parts[task]
        index = int(part.order[step - self.starts[task]])
        return part.dataset.images[index], part.dataset.names[part.dataset.labels[index]], task

    def ids(self) -> list[str]:
        """Return a unique id of each example in stream order: its identity, numbered if it occurred before."""
        parts = self.parts.values()
        return numbered(mark for part in parts for mark in part.identities())

    def fingerprint(self) -> str:
        """Return a hash of the examples and their tasks, the ends of batches and the tests."""
        if None in self.parts:
            return self.parts[None].fingerprint()
        words = [(task, part.fingerprint()) for task, part in self.parts.items()]
        return hashlib.sha256(repr(words).encode()).hexdigest()


def make_task_stream(datasets: Mapping[Task, Dataset], ordering: str, seed: int, **options: Any) -> TaskStream:
    """Return the stream of data sets one after another, each in the named order.

    The order of a task is what `make_stream` gives for its data set, independent of the other tasks. A task is one
    batch, tested at its end with all tasks before it, unless an option asks for batches within.

    Parameters
    ----------
    datasets
        What to stream, by task; ``{None: dataset}`` for a stream without tasks, which is what `make_stream` gives.
    ordering, seed, options
        As `make_stream` has them, for each task; a class order, which names the classes of one data set, is only
        for a stream without tasks.
    """
    if not datasets:
        raise ValueError("there is no task to stream")
    if None in datasets:
        if len(datasets) > 1:
            raise ValueError("a stream has tasks, each with a name, or one data set without (None), not both")
        return TaskStream({None: make_stream(datasets[None], ordering, seed, **options)})
    if options.get("class_order") is not None:
        raise ValueError("class_order names the classes of one data set; with tasks the seed orders those of each")
    parts = {task: make_stream(dataset, ordering, seed, **options) for task, dataset in datasets.items()}
    if all(value is None for value in options.values()):
        parts = {task: replace(p, events=p.events[-1:], batches=p.batches[-1:]) for task, p in parts.items()}
    return TaskStream(parts)
