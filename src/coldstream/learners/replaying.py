"""Shared by learners that replay: settings, the learning rate of each class, and storing examples."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import BeforeValidator

from coldstream.labels import Label
from coldstream.learners.method import Shape
from coldstream.learners.settings import Counts, NetworkSettings, checked, one_of, whole_from
from coldstream.learners.tasks import STRATEGIES, TaskState, shares
from coldstream.learners.training.schedules import get_schedule
from coldstream.replay import Capacity, ReplayBuffer
from coldstream.replay.eviction import get_evictor
from coldstream.replay.rows import check_storage
from coldstream.replay.sampling import get_sampler


def check_capacity(value: Any) -> Any:
    """Refuse what is not a capacity."""
    Capacity.parse(value)
    return value


Sampler = Annotated[str, checked(get_sampler)]
"""How replayed examples are drawn."""


Rate = Annotated[str | float, checked(get_schedule)]
"""A learning rate, or a schedule of it."""


class ReplaySettings(NetworkSettings):
    """Settings of a network that learns new examples together with replayed ones."""

    replay: Annotated[int, whole_from(0)] = 100
    """B, the examples replayed in each update beside the new one. With tasks, the new one is among the B."""
    capacity: Annotated[str | int | None, BeforeValidator(check_capacity)] = "1GB"
    """Capacity of the replay buffer: ``"30MB"``, a number of examples, or None for no bound. With tasks, each task
    has a buffer of this capacity."""
    storage: Annotated[str, checked(check_storage)] = "memory"
    """``"memory"``, ``"disk"`` or ``"disk:FOLDER"``, for buffers larger than main memory."""
    sample: Sampler = "uniform"
    """``"uniform"``; ``"class-balanced"``; or ``"least-replayed"``, balanced too, and within a class the more likely
    the less often an example was replayed."""
    evict: Annotated[str, checked(get_evictor)] = "largest-class"
    """``"largest-class"``, ``"uniform"``, ``"reservoir"``, or ``"consolidate-mixup(1.0, limit=2)"`` (``-cutmix``,
    ``-samplepairing``)."""
    rate: Rate = "inverse-sqrt(0.1)"
    """``"inverse-sqrt(0.1)"``, ``"constant(0.01)"``, ``"remind(0.1)"``, or with `counts` ``"linear(0.1, 0.001)"``."""
    counts: Counts = None
    """Examples of each label that will come, where known; with tasks, of each (task, label)."""
    strategy: Annotated[str, one_of(STRATEGIES, "strategy")] = "full+separate"
    """With tasks, how an update is shared among them: ``"full"``, B examples for each, or ``"split"``, B for all
    together; ``"+separate"``, a step for each, that of the new example first, or ``"+sum"``, a single step along the
    sum of their gradients."""

    def new_buffer(self, shape: Shape, dtype: str = "uint8", codec: str = "raw") -> ReplayBuffer:
        """Return an empty replay buffer for items of `shape`."""
        names = ("capacity", "evict", "sample", "storage")
        return ReplayBuffer(shape, dtype, codec=codec, **{name: getattr(self, name) for name in names})

    def shares_of(self, task: TaskState, tasks: int) -> dict[int, int]:
        """Return how many examples of an update each task has, by number, the current one first."""
        return shares(self.strategy, self.replay, tasks, task.number)

    def beside(self, task: TaskState, tasks: int, new: int) -> int:
        """Return how many examples are replayed in one batch with `new` new ones."""
        return self.replay if task.name is None else max(0, self.shares_of(task, tasks)[task.number] - new)


Kept = TypeVar("Kept", bound=ReplaySettings)


class Rates:
    """The learning rate of each class: a schedule over the examples of the class so far."""

    def __init__(self, settings: ReplaySettings) -> None:
        self._schedule = get_schedule(settings.rate)
        self.counts: dict[Label, int] = dict(settings.counts or {})
        if settings.counts is None:
            self._schedule(0, None)  # refuses a schedule that needs counts

    def of(self, task: TaskState, label: Label) -> float:
        """Return the learning rate of the next example of a class."""
        row, key = task.classes.row(label), _key(task, label)
        try:
            return self._schedule(0 if row is None else task.classes.updates[row], self.counts.get(key))
        except ValueError:
            what = "label" if task.name is None else "(task, label)"
            raise ValueError(f"{what} {key!r} is not among the counts that the learning rate follows") from None

    def mean(self, task: TaskState, labels: Iterable[Label]) -> float:
        """Return the learning rate of an update with new examples of these labels."""
        return float(np.mean([self.of(task, label) for label in labels]))

    def stored(self, task: TaskState, slots: NDArray[np.int64]) -> list[float]:
        """Return the learning rates of stored examples: those of their classes, where the stream had any of them."""
        rows = task.buffer.index.labels.view[slots].tolist()
        rates = {row: self.of(task, task.classes.labels[row]) for row in {*rows} if task.classes.updates[row]}
        return [rates[row] for row in rows if row in rates]

    def rename(self, task: TaskState, old: Label, new: Label, settings: Kept) -> Kept:
        """Rename a class in the counts; return the settings with the new counts."""
        before, after = _key(task, old), _key(task, new)
        if before in self.counts:
            self.counts[after], displaced = self.counts.pop(before), self.counts.get(after)
            if displaced is not None:  # the new name was that of a class merged earlier, which keeps its count
                self.counts[before] = displaced
        return settings if settings.counts is None else settings.model_copy(update={"counts": dict(self.counts)})


def _key(task: TaskState, label: Label) -> Label:
    """Return the name of a class among the counts."""
    return label if task.name is None else (task.name, label)


def store(task: TaskState, item: NDArray[Any], row: int, key: int, step: int) -> None:
    """Count, compress and store a learned example, then evict down to the capacity."""
    task.count(row, key)
    task.buffer.store(task.buffer.compress(item), row, key)
    task.buffer.evict(task.draw(step, "evict"))


def store_base(task: TaskState, items: NDArray[Any], rows: NDArray[np.int64], keys: list[int]) -> None:
    """Store the examples of base initialisation, which were counted already."""
    draws = task.draw(0, "evict of base")
    for item, row, key in zip(items, rows.tolist(), keys, strict=True):
        task.buffer.store(task.buffer.compress(item), row, key)
        task.buffer.evict(draws)
