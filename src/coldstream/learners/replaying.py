"""What every learner that replays has in common: a buffer, how much of it is replayed, and the learning rate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coldstream.labels import Label, as_label, from_json
from coldstream.learners.base import Example
from coldstream.learners.intake import whole
from coldstream.learners.network import NetworkLearner
from coldstream.learners.schedules import get_schedule
from coldstream.replay import Capacity, ReplayBuffer
from coldstream.replay.eviction import get_evictor
from coldstream.replay.rows import check_storage
from coldstream.replay.sampling import get_sampler


class ReplayLearner(NetworkLearner):
    """A network that learns new examples together with replayed ones. A subclass makes `buffer` in its `_build`.

    Parameters
    ----------
    own
        The settings of the method itself, by name; they are kept with those below and with the network's.
    replay
        B, the examples replayed in each update beside the new one.
    capacity
        Of the replay buffer: ``"30MB"``, a number of examples, or None for no bound.
    storage
        ``"memory"``, ``"disk"`` or ``"disk:FOLDER"``, for buffers larger than main memory.
    sample
        ``"uniform"`` or ``"class-balanced"``.
    evict
        ``"largest-class"``, ``"uniform"``, ``"reservoir"``, or ``"consolidate-mixup(1.0, limit=2)"`` (``-cutmix``,
        ``-samplepairing``).
    rate
        ``"inverse-sqrt(0.1)"``, ``"constant(0.01)"``, ``"linear(0.1, 0.001)"`` (needs `counts`) or ``"remind(0.1)"``.
    counts
        Examples of each label that will come, where known.
    **network
        As `coldstream.learners.network.NetworkLearner` has them.
    """

    buffer: ReplayBuffer

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
        **network: Any,
    ) -> None:
        check_storage(storage)
        Capacity.parse(capacity)
        get_evictor(evict)
        get_sampler(sample)
        self.replay = whole("replay", replay, 0)
        self._schedule = get_schedule(rate)
        self._counts = {as_label(label): whole("counts", n, 1) for label, n in (counts or {}).items()}
        if counts is None:
            self._schedule(0, None)
        mine = {"replay": replay, "capacity": capacity, "storage": storage, "sample": sample, "evict": evict}
        super().__init__({**own, **mine, "rate": rate, "counts": counts}, **network)

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
            return self._schedule(0 if row is None else self.classes.updates[row], self._counts.get(label))
        except ValueError:
            raise ValueError(f"label {label!r} is not among the counts that the learning rate follows") from None

    def _begin(self, new: Sequence[Example]) -> tuple[float, list[int]]:
        """Return the rate of an update with these new examples, and their rows of the head, opened if need be."""
        rate = float(np.mean([self._rate(example.label) for example in new]))
        labels = [self.classes.enter(example.label) for example in new]
        self._open_rows()
        return rate, labels

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

    def rename_class(self, old: object, new: object) -> None:
        """Give a class another label, one that no class has."""
        with self._lock:
            super().rename_class(old, new)
            counts, was, now = self._counts, as_label(old), as_label(new)
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
