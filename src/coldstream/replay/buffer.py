"""The replay buffer: compressed examples, bounded in bytes or in number, edited by id."""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coldstream.replay.codecs import Codec
from coldstream.replay.eviction import get_evictor
from coldstream.replay.index import Index
from coldstream.replay.packing import Bytes
from coldstream.replay.rows import open_rows
from coldstream.replay.sampling import get_sampler

_UNITS = {"b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
_UNITS |= {"kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40}
_SIZE = re.compile(r"^\s*(-?[\d_.]+)\s*([a-z]*)\s*$", re.IGNORECASE)


@dataclass(frozen=True)
class Capacity:
    """At most so many bytes or so many examples; without bound where both are None.

    Examples
    --------
    >>> Capacity.parse("30MB")
    Capacity(bytes=30000000, examples=None)
    >>> Capacity.parse(2000) == Capacity.parse("2000 examples")
    True
    """

    bytes: int | None = None
    examples: int | None = None

    @classmethod
    def parse(cls, value: str | int | None) -> Capacity:
        """Read ``"30MB"`` (10**6 bytes each), ``"1.5GiB"``, a number of examples, or None (unlimited)."""
        if value is None or value == "unlimited":
            return cls()
        if isinstance(value, bool) or not isinstance(value, (int, str)):
            raise ValueError(f"capacity is a size such as '30MB', a number of examples or None, not {value!r}")
        match = _SIZE.match(str(value))
        try:
            number, unit = Decimal(match.group(1)), match.group(2).lower()  # type: ignore[union-attr]
        except (AttributeError, InvalidOperation):
            raise ValueError(
                f"capacity {value!r} is not understood; write '30MB', '2000 examples' or 'unlimited'"
            ) from None
        counted = unit in ("", "examples", "example")
        if not counted and unit not in _UNITS:
            raise ValueError(f"capacity {value!r}: unknown unit {unit!r}; valid: KB, MB, GB, MiB, examples")
        size = int(number if counted else number * _UNITS[unit])
        if size < 1:
            raise ValueError(f"capacity {value!r} is smaller than one example")
        if counted and size != number:
            raise ValueError(f"capacity {value!r} is not a whole number of examples")
        return cls(examples=size) if counted else cls(bytes=size)


@dataclass
class Blend:
    """What a consolidated entry is made of: (id, label, share) of each source, and how often it was merged."""

    sources: list[tuple[int, int, float]]
    merges: int

    @property
    def label(self) -> int:
        """The label with the largest share, the first source's where two are equal."""
        shares: dict[int, float] = {}
        for _, label, share in self.sources:
            shares[label] = shares.get(label, 0.0) + share
        return max(shares, key=lambda label: shares[label])


def one_hot(labels: NDArray[np.integer] | list[int], classes: int) -> NDArray[np.float32]:
    """Return a row of `classes` zeros for each label, with a one at its place."""
    rows = np.zeros((len(labels), classes), np.float32)
    rows[np.arange(len(labels)), labels] = 1
    return rows


class ReplayBuffer:
    """Examples of one shape, compressed; storing, sampling and evicting cost the same at any size.

    Rows 0..len-1 are the stored examples. `nbytes` counts the compressed bytes really held, which is what a
    capacity in bytes bounds; `overhead_bytes` counts ids, labels and indexes.

    Parameters
    ----------
    shape, dtype
        Of one item: (height, width, channels) of uint8, or (features,) of float32.
    codec, capacity, evict, sample, storage
        As in `coldstream.CSSL`.
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        dtype: str = "uint8",
        *,
        codec: str = "raw",
        capacity: str | int | None = None,
        evict: str = "largest-class",
        sample: str = "uniform",
        storage: str = "memory",
    ) -> None:
        self.codec = Codec.parse(codec, shape, dtype)
        self.capacity = Capacity.parse(capacity)
        row_bytes = self.codec.row_bytes
        if row_bytes is not None:
            self._check_fits(row_bytes)
        self._evict = get_evictor(evict, images=len(shape) == 3)
        self._sample = get_sampler(sample)
        self.index = Index()
        self.rows = open_rows(row_bytes, storage)
        self.offered = 0
        self.blends: dict[int, Blend] = {}
        self.blended: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self.index)

    @property
    def nbytes(self) -> int:
        return self.rows.nbytes

    @property
    def overhead_bytes(self) -> int:
        return self.index.nbytes

    # Algorithm 1's words: sample, compress, store, evict.

    def sample(self, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Draw `count` distinct rows for replay; all of them while there are fewer."""
        rows = self._sample(self.index, count, rng)
        self.rows.ahead(rows)
        return rows

    def count(self, rows: NDArray[np.int64]) -> None:
        """Note that `rows`, as they were drawn, are being replayed."""
        self.index.times.view[rows] += 1

    def compress(self, item: NDArray[np.generic]) -> Bytes:
        """Return what would be kept of an item; a ValueError if it alone is over the capacity."""
        packed = self.codec.encode(item)
        self._check_fits(len(packed))
        return packed

    def check(self, item: NDArray[np.generic]) -> None:
        """Refuse an item that alone is over the capacity; it is compressed only where that is not sure beforehand."""
        if self.capacity.bytes is not None and self.codec.most_bytes > self.capacity.bytes:
            self.compress(item)

    def store(self, packed: Bytes, label: int, id: int, *, held_out: bool = False) -> None:
        """Keep a compressed example; one with the same id is overwritten, never kept twice."""
        row = self.index.find(id)
        if id in self.blended:  # a share of a consolidated entry cannot be taken out of it
            self.forget(id)
            row = None
        if row is not None and self.index.is_held_out(row) == held_out:
            self.rows.replace(row, packed)
            self.index.renew(row)
            self.index.relabel(row, label)
            return
        if row is not None:
            self.drop(row)
        self.offered += 1
        self.rows.append(packed)
        self.index.append(id, label, held_out)

    def release(self, id: int) -> None:
        """Give an example that was held out to replay."""
        row = self.index.find(id)
        if row is not None and self.index.is_held_out(row):
            self.index.release(row)

    def evict(self, rng: np.random.Generator) -> None:
        """Apply the eviction policy until the buffer is within its capacity."""
        limit = self.capacity
        while (limit.bytes is not None and self.nbytes > limit.bytes) or (
            limit.examples is not None and len(self) > limit.examples
        ):
            self._evict(self, rng)

    # What is in a row.

    def items(self, rows: NDArray[np.int64]) -> NDArray[np.generic]:
        """Return the decoded items of `rows`, as one array."""
        return self.codec.decode(self.rows.get(rows))

    def targets(self, rows: NDArray[np.int64], classes: int) -> NDArray[np.float32]:
        """Return one row of class probabilities for each of `rows`: one-hot, soft for consolidated entries."""
        targets = one_hot(self.index.labels.view[rows], classes)
        if self.blends:
            for i, id in enumerate(self.index.ids.view[rows]):
                if (blend := self.blends.get(int(id))) is not None:
                    targets[i] = 0
                    for _, label, share in blend.sources:
                        targets[i, label] += share
        return targets

    def merges(self, row: int) -> int:
        """Return how many times the entry in `row` was consolidated."""
        blend = self.blends.get(self.index.ids[row])
        return blend.merges if blend else 0

    # Changes of what is stored.

    def drop(self, row: int) -> None:
        """Remove the entry in `row`; the last row takes its place."""
        blend = self.blends.pop(self.index.ids[row], None)
        for source, _, _ in blend.sources if blend else ():
            del self.blended[source]
        self.index.remove(row)
        self.rows.remove(row)

    def merge(self, first: int, second: int, item: NDArray[np.generic], share: float) -> None:
        """Put `item` in the place of rows `first` (with `share` of the label) and `second`."""
        entry = self.index.ids[first]
        parts = []
        for row, weight in ((first, share), (second, 1 - share)):
            id = self.index.ids[row]
            blend = self.blends.get(id) or Blend([(id, self.index.labels[row], 1.0)], 0)
            parts.append((blend, weight))
        sources = [(id, label, part * weight) for blend, weight in parts for id, label, part in blend.sources]
        merged = Blend(sources, 1 + max(blend.merges for blend, _ in parts))
        self.rows.replace(first, self.codec.encode(item))
        self.index.renew(first)
        self.index.relabel(first, merged.label)
        self.drop(second)
        self.blends[entry] = merged
        self.blended.update({source: entry for source, _, _ in sources})

    def label_of(self, id: int) -> int | None:
        """Return the label under which `id` is stored, or None where it is not."""
        if id in self.blended:
            sources = self.blends[self.blended[id]].sources
            return next(label for source, label, _ in sources if source == id)
        row = self.index.find(id)
        return None if row is None else self.index.labels[row]

    def relabel(self, id: int, label: int) -> bool:
        """Change the label of a stored example; False where it is not stored (any more)."""
        row = self.index.find(self.blended.get(id, id))
        if row is None:
            return False
        if id in self.blended:
            blend = self.blends[self.blended[id]]
            blend.sources = [(s, label if s == id else old, share) for s, old, share in blend.sources]
            label = blend.label
        self.index.relabel(row, label)
        return True

    def relabel_class(self, old: int, new: int) -> None:
        """Give every stored example of class `old` the label `new`."""
        for blend in self.blends.values():
            for source, label, _ in blend.sources:
                if label == old:
                    self.relabel(source, new)
        for row in np.flatnonzero(self.index.labels.view == old):
            self.index.relabel(int(row), new)

    def forget(self, id: int) -> bool:
        """Remove a stored example, and a consolidated entry of which it is a part; False where there is none."""
        row = self.index.find(self.blended.get(id, id))
        if row is None:
            return False
        self.drop(row)
        return True

    def _check_fits(self, size: int) -> None:
        if self.capacity.bytes is not None and size > self.capacity.bytes:
            raise ValueError(
                f"capacity of {self.capacity.bytes} bytes is smaller than one example ({size} bytes "
                f"with codec {self.codec.text!r}); raise the capacity or compress more"
            )

    # Checkpoints: the rows are saved apart, by serial number (coldstream.checkpoint).

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[np.generic]]]:
        """Return all but the rows' bytes: a JSON-ready dict and named arrays."""
        blends = [
            [entry, blend.merges, [list(source) for source in blend.sources]] for entry, blend in self.blends.items()
        ]
        plain = {"offered": self.offered, "next_serial": self.index.next_serial, "blends": blends}
        return plain, self.index.state()

    def restore(self, plain: dict[str, Any], arrays: dict[str, NDArray[np.generic]]) -> None:
        """Lay an empty buffer out as `state` had it; the caller appends the rows in order."""
        self.offered = int(plain["offered"])
        self.index.restore(arrays, int(plain["next_serial"]))
        for entry, merges, sources in plain["blends"]:
            self.blends[entry] = Blend([(id, label, share) for id, label, share in sources], merges)
            self.blended.update({source[0]: entry for source in sources})
