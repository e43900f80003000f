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
    """A bound in bytes or in examples; both None: no bound.

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
    """The sources of a consolidated entry, (id, label, share) each, and how often it was merged."""

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
    """Return an array (labels, classes) of zeros, with a one where the label is."""
    table = np.zeros((len(labels), classes), np.float32)
    table[np.arange(len(labels)), labels] = 1
    return table


class ReplayBuffer:
    """Examples of one shape, compressed; storing, sampling and evicting cost the same at any size.

    Slots 0..len-1 are the stored examples. `nbytes` counts the compressed bytes really held, which is what a
    capacity in bytes bounds; `overhead_bytes` counts ids, labels and indexes.

    Parameters
    ----------
    shape, dtype
        Shape and type of an item: (height, width, channels) of uint8, or (features,) of float32.
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
        self.extras: dict[int, NDArray[np.float32]] = {}
        """Arrays that a method stores with its examples, by id."""
        self.version = 0
        """Changes with everything that sampling and decoding depend on."""

    def __len__(self) -> int:
        return len(self.index)

    @property
    def nbytes(self) -> int:
        return self.rows.nbytes

    @property
    def overhead_bytes(self) -> int:
        return self.index.nbytes + sum(extra.nbytes for extra in self.extras.values())

    # Algorithm 1's words: sample, compress, store, evict.

    def sample(self, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Draw `count` distinct slots for replay; all of them while there are fewer."""
        slots = self._sample(self.index, count, rng)
        self.rows.prefetch(slots)
        return slots

    def count(self, slots: NDArray[np.int64]) -> None:
        """Count one replay of each of `slots`."""
        self.index.times.view[slots] += 1

    def compress(self, item: NDArray[np.generic]) -> Bytes:
        """Return an item compressed; a ValueError if it alone is over the capacity."""
        packed = self.codec.encode(item)
        self._check_fits(len(packed))
        return packed

    def check(self, item: NDArray[np.generic]) -> None:
        """Refuse an item that alone is over the capacity; compress it only where its size may exceed that."""
        if self.capacity.bytes is not None and self.codec.most_bytes > self.capacity.bytes:
            self.compress(item)

    def store(
        self,
        packed: Bytes,
        label: int,
        id: int,
        *,
        held_out: bool = False,
        extra: NDArray[np.float32] | None = None,
    ) -> None:
        """Store a compressed example; it replaces one with the same id.

        `extra` is an array that a method stores with it (`extra_of`) and that is removed with it.
        """
        self._put(packed, label, id, held_out)
        self.extras.pop(id, None)
        if extra is not None:
            self.extras[id] = extra

    def _put(self, packed: Bytes, label: int, id: int, held_out: bool) -> None:
        self.version += 1
        slot = self.index.find(id)
        if id in self.blended:  # a share of a consolidated entry cannot be taken out of it
            self.forget(id)
            slot = None
        if slot is not None and self.index.is_held_out(slot) == held_out:
            self.rows.replace(slot, packed)
            self.index.renew(slot)
            self.index.relabel(slot, label)
            return
        if slot is not None:
            self.drop(slot)
        self.offered += 1
        self.rows.append(packed)
        self.index.append(id, label, held_out)

    def release(self, id: int) -> None:
        """Release a held-out example to replay."""
        slot = self.index.find(id)
        if slot is not None and self.index.is_held_out(slot):
            self.version += 1
            self.index.release(slot)

    def evict(self, rng: np.random.Generator) -> None:
        """Apply the eviction policy until the buffer is within its capacity."""
        limit = self.capacity
        while (limit.bytes is not None and self.nbytes > limit.bytes) or (
            limit.examples is not None and len(self) > limit.examples
        ):
            self._evict(self, rng)

    # What is in a slot.

    def items(self, slots: NDArray[np.int64]) -> NDArray[np.generic]:
        """Return the decoded items of `slots`, as one array."""
        return self.codec.decode(self.rows.get(slots))

    def targets(self, slots: NDArray[np.int64], classes: int) -> NDArray[np.float32]:
        """Return class probabilities (slots, classes): one-hot, soft for consolidated entries."""
        targets = one_hot(self.index.labels.view[slots], classes)
        if self.blends:
            for i, id in enumerate(self.index.ids.view[slots]):
                if (blend := self.blends.get(int(id))) is not None:
                    targets[i] = 0
                    for _, label, share in blend.sources:
                        targets[i, label] += share
        return targets

    def extra_of(self, slots: NDArray[np.int64]) -> list[NDArray[np.float32] | None]:
        """Return the extra array of the example in each slot, or None."""
        return [self.extras.get(int(id)) for id in self.index.ids.view[slots]]

    def merges(self, slot: int) -> int:
        """Return how many times the entry in `slot` was consolidated."""
        blend = self.blends.get(self.index.ids[slot])
        return blend.merges if blend else 0

    # Changes of what is stored.

    def drop(self, slot: int) -> None:
        """Remove the entry in `slot`; that of the last slot moves there."""
        self.version += 1
        self.extras.pop(self.index.ids[slot], None)
        blend = self.blends.pop(self.index.ids[slot], None)
        for source, _, _ in blend.sources if blend else ():
            del self.blended[source]
        self.index.remove(slot)
        self.rows.remove(slot)

    def merge(self, first: int, second: int, item: NDArray[np.generic], share: float) -> None:
        """Replace the entries in slots `first` (with `share` of the label) and `second` by one, `item`."""
        self.version += 1
        self.extras.pop(self.index.ids[first], None)
        entry = self.index.ids[first]
        parts = []
        for slot, weight in ((first, share), (second, 1 - share)):
            id = self.index.ids[slot]
            blend = self.blends.get(id) or Blend([(id, self.index.labels[slot], 1.0)], 0)
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
        slot = self.index.find(id)
        return None if slot is None else self.index.labels[slot]

    def relabel(self, id: int, label: int) -> bool:
        """Change the label of a stored example; False where it is not stored (any more)."""
        slot = self.index.find(self.blended.get(id, id))
        if slot is None:
            return False
        self.version += 1
        if id in self.blended:
            blend = self.blends[self.blended[id]]
            blend.sources = [(s, label if s == id else old, share) for s, old, share in blend.sources]
            label = blend.label
        self.index.relabel(slot, label)
        return True

    def relabel_class(self, old: int, new: int) -> None:
        """Relabel every stored example of class `old` as `new`."""
        self.version += 1
        for blend in self.blends.values():
            for source, label, _ in blend.sources:
                if label == old:
                    self.relabel(source, new)
        for slot in np.flatnonzero(self.index.labels.view == old):
            self.index.relabel(int(slot), new)

    def forget(self, id: int) -> bool:
        """Remove a stored example, and a consolidated entry of which it is a part; False where there is none."""
        slot = self.index.find(self.blended.get(id, id))
        if slot is None:
            return False
        self.drop(slot)
        return True

    def _check_fits(self, size: int) -> None:
        if self.capacity.bytes is not None and size > self.capacity.bytes:
            raise ValueError(
                f"capacity of {self.capacity.bytes} bytes is smaller than one example ({size} bytes "
                f"with codec {self.codec.text!r}); raise the capacity or compress more"
            )

    # Checkpoints: the packed rows are saved apart, by serial number (coldstream.checkpoint).

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[np.generic]]]:
        """Return all but the packed rows: a JSON-ready dict and named arrays."""
        blends = [
            [entry, blend.merges, [list(source) for source in blend.sources]] for entry, blend in self.blends.items()
        ]
        plain = {"offered": self.offered, "next_serial": self.index.next_serial, "blends": blends}
        arrays = self.index.state()
        if self.extras:
            extras = self.extras.values()
            arrays["extras.ids"] = np.array([*self.extras], np.int64)
            arrays["extras.lengths"] = np.array([len(extra) for extra in extras], np.int64)
            arrays["extras.values"] = np.concatenate([*extras])
        return plain, arrays

    def restore(self, plain: dict[str, Any], arrays: dict[str, NDArray[np.generic]]) -> None:
        """Restore the index of an empty buffer from `state`; the caller appends the packed rows in order."""
        self.offered = int(plain["offered"])
        self.index.restore(arrays, int(plain["next_serial"]))
        if "extras.ids" in arrays:
            ends = np.cumsum(arrays["extras.lengths"], dtype=np.int64)
            values = np.split(arrays["extras.values"].astype(np.float32), ends[:-1])
            self.extras = dict(zip(arrays["extras.ids"].tolist(), values, strict=True))
        for entry, merges, sources in plain["blends"]:
            self.blends[entry] = Blend([(id, label, share) for id, label, share in sources], merges)
            self.blended.update({source[0]: entry for source in sources})
