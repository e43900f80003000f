"""What every learner that replays has in common: a buffer, how much of it is replayed, and the learning rate."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from coldstream.labels import Label, as_label, from_json
from coldstream.learners.base import Example
from coldstream.learners.inputs import whole
from coldstream.learners.network import NetworkLearner
from coldstream.learners.tasks import check_strategy, shares
from coldstream.learners.training.schedules import get_schedule
from coldstream.replay import Capacity, ReplayBuffer
from coldstream.replay.eviction import get_evictor
from coldstream.replay.rows import check_storage
from coldstream.replay.sampling import get_sampler


class ReplayLearner(NetworkLearner):
    """A network that learns new examples together with replayed ones. A subclass makes a buffer in `_new_buffer`.

    Parameters
    ----------
    own
        The settings of the method itself, by name; they are kept with those below and with the network's.
    replay
        B, the examples replayed in each update beside the new one. With tasks, the new one is among the B.
    capacity
        Of the replay buffer: ``"30MB"``, a number of examples, or None for no bound. With tasks, of each one's.
    storage
        ``"memory"``, ``"disk"`` or ``"disk:FOLDER"``, for buffers larger than main memory.
    sample
        ``"uniform"``, ``"class-balanced"`` or ``"least-replayed"`` (`coldstream.replay.sampling`).
    evict
        ``"largest-class"``, ``"uniform"``, ``"reservoir"``, or ``"consolidate-mixup(1.0, limit=2)"`` (``-cutmix``,
        ``-samplepairing``).
    rate
        ``"inverse-sqrt(0.1)"``, ``"constant(0.01)"``, ``"linear(0.1, 0.001)"`` (needs `counts`) or ``"remind(0.1)"``.
    counts
        Examples of each label that will come, where known; with tasks, of each (task, label).
    strategy
        How an update is shared among tasks, where there are some: ``"full"``, B rows for each, or ``"split"``, B for
        all together; ``"+separate"``, a step for each, that of the new example first, or ``"+sum"``, a single step
        along the sum of their gradients.
    **network
        As `coldstream.learners.network.NetworkLearner` has them.
    """

    buffer: ReplayBuffer
    multi_task = True
    _OWN = (*NetworkLearner._OWN, "buffer")

    def __init__(
        self,
        own: dict[str, Any],
        *,
        replay: int = 100,
        capacity: str | int | None = "1GB",
        storage: str = "memory",
        sample: str = "uniform",
        evict: str = "largest-class",
        rate: str | float = "inverse-sqrt(0.1)",
        counts: Mapping[Any, int] | None = None,
        strategy: str = "full+separate",
        **network: Any,
    ) -> None:
        check_storage(storage)
        Capacity.parse(capacity)
        get_evictor(evict)
        get_sampler(sample)
        check_strategy(strategy)
        self.replay = whole("replay", replay, 0)
        self._schedule = get_schedule(rate)
        self._counts = {as_label(label): whole("counts", n, 1) for label, n in (counts or {}).items()}
        if counts is None:
            self._schedule(0, None)
        mine = {"replay": replay, "capacity": capacity, "storage": storage, "sample": sample, "evict": evict}
        super().__init__({**own, **mine, "rate": rate, "counts": counts, "strategy": strategy}, **network)

    @abstractmethod
    def _new_buffer(self, shape: tuple[int, ...]) -> ReplayBuffer:
        """Return an empty buffer for what is kept of items of `shape`, once the network was built."""

    def _build(self, shape: tuple[int, ...]) -> None:
        super()._build(shape)
        self.buffer = self._new_buffer(shape)

    def _build_own(self, shape: tuple[int, ...]) -> None:
        super()._build_own(shape)
        self.buffer = self._new_buffer(shape)

    def _make_buffer(self, shape: tuple[int, ...], dtype: str, codec: str = "raw") -> ReplayBuffer:
        keep = {name: self.settings[name] for name in ("capacity", "evict", "sample", "storage")}
        return ReplayBuffer(shape, dtype, codec=codec, **keep)

    def _buffer(self) -> ReplayBuffer | None:
        return self.__dict__.get("buffer")

    def _forget_network(self) -> None:
        super()._forget_network()
        self.__dict__.pop("buffer", None)

    def _check(self, example: Example) -> None:
        self._rate(example.label)

    def _rate(self, label: Label) -> float:
        """Return the learning rate of the next example of a class."""
        row = self.classes.row(label)
        try:
            return self._schedule(0 if row is None else self.classes.updates[row], self._counts.get(self._key(label)))
        except ValueError:
            what = "(task, label)" if self._tasks else "label"
            raise ValueError(
                f"{what} {self._key(label)!r} is not among the counts that the learning rate follows"
            ) from None

    def _key(self, label: Label) -> Label:
        """Return the name of a class among the counts."""
        return (self._tasks.name, label) if self._tasks else label

    def _begin(self, new: Sequence[Example]) -> tuple[float, list[int]]:
        """Return the rate of an update with these new examples, and their rows of the head, opened if need be."""
        rate = float(np.mean([self._rate(example.label) for example in new]))
        labels = [self.classes.enter(example.label) for example in new]
        self._open_rows()
        return rate, labels

    # Updates. With tasks the new example is one of the B rows of its task's batch, and every other task has a batch.

    def _shares(self) -> dict[int, int]:
        """Return how many rows of an update each task has, that at work first."""
        return shares(self.settings["strategy"], self.replay, len(self._tasks), self._tasks.at)

    def _beside(self, new: int) -> int:
        """Return how many examples are replayed in one batch with `new` new ones."""
        return max(0, self._shares()[self._tasks.at] - new) if self._tasks else self.replay

    def _rehearse(self, count: int, step: int) -> tuple[Tensor, Tensor] | None:
        """Return inputs and targets of a batch of `count` replayed examples alone; None where there are none."""
        return None

    def _update(self, inputs: Tensor, targets: Tensor, rate: float, step: int, **how: Any) -> None:
        """Update the network over a batch and, with tasks, over what every other one replays."""
        engine, here = self.engine, self._tasks.at
        try:
            if self.settings["strategy"].endswith("separate") or len(self._tasks) < 2:
                for x, y in self._batches(inputs, targets, step):
                    engine.update(x, y, rate, self.seed, step, **how)
                return
            gathered: list[int] = []
            for x, y in self._batches(inputs, targets, step):
                engine.gather(x, y, self.seed, step, more=bool(gathered), **how)
                gathered.append(self._tasks.at)
            for task in gathered:  # the body goes with the first head: its gradient is used up then
                self._tasks.turn_to(self, task)
                engine.descend(rate)
        finally:
            self._tasks.turn_to(self, here)

    def _batches(self, inputs: Tensor, targets: Tensor, step: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Give the batch of the task at work, then turn to each other and give its own."""
        yield inputs, targets
        if self._tasks:
            _, *others = self._shares().items()
            for task, count in others:
                self._tasks.turn_to(self, task)
                if count and (batch := self._rehearse(count, step)) is not None:
                    yield batch

    def _count(self, row: int, key: int) -> None:
        """Count an example that was learned; one that is learned anew under its id counts once."""
        self._uncount(self.buffer.label_of(key))
        self.classes.counts[row] += 1
        self.classes.updates[row] += 1

    def _keep(self, item: NDArray[Any], label: int, key: int) -> None:
        """Count, compress and store an example that was learned, and evict what is too much."""
        self._count(label, key)
        self.buffer.store(self.buffer.compress(item), label, key)
        self.buffer.evict(self._draw("evict"))

    def _keep_base(self, items: NDArray[Any], rows: NDArray[np.int64], ids: list[int]) -> None:
        """Store the examples of base initialisation, which were counted already."""
        draws = self._draw("evict of base")
        for item, row, id in zip(items, rows.tolist(), ids, strict=True):
            self.buffer.store(self.buffer.compress(item), row, id)
            self.buffer.evict(draws)

    def rename_class(self, old: object, new: object, *, task: object = None) -> None:
        """Give a class another label, one that no class (of the task) has."""
        with self._lock:
            super().rename_class(old, new, task=task)
            counts, was, now = self._counts, self._key(as_label(old)), self._key(as_label(new))
            if was in counts:
                counts[now], displaced = counts.pop(was), counts.get(now)
                if displaced is not None:  # the new name was that of a class merged earlier, which keeps its count
                    counts[was] = displaced

    def _settings_to_json(self) -> dict[str, Any]:
        counts = None if self.settings["counts"] is None else [list(pair) for pair in self._counts.items()]
        return {**super()._settings_to_json(), "counts": counts}

    @classmethod
    def _settings_from_json(cls, settings: dict[str, Any]) -> dict[str, Any]:
        counts = settings["counts"]
        return {**settings, "counts": None if counts is None else {from_json(label): n for label, n in counts}}
