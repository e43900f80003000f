"""Which slot holds which example: ids, labels and class members in flat arrays, each operation O(1).

The bookkeeping of a slot takes about 44 bytes. A Python dict of ids alone would take over 100, which is
more than 5% of a packed 32x32 image.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_GOLDEN = 0x9E3779B97F4A7C15
_WORD = (1 << 64) - 1


class Column:
    """An array that grows at its end."""

    def __init__(self, dtype: str) -> None:
        self._array: NDArray[np.signedinteger] = np.empty(0, dtype)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> int:
        return int(self._array[index])

    def __setitem__(self, index: int, value: int) -> None:
        self._array[index] = value

    @property
    def view(self) -> NDArray[np.signedinteger]:
        """The values as an array that shares their memory; valid until the next append."""
        return self._array[: self._count]

    def append(self, value: int) -> None:
        if self._count == len(self._array):
            self._array.resize(self._count + max(8, self._count // 16), refcheck=False)
        self._array[self._count] = value
        self._count += 1

    def extend(self, values: NDArray[np.generic]) -> None:
        self._array = np.concatenate([self.view, values.astype(self._array.dtype)])
        self._count = len(self._array)

    def pop(self) -> int:
        self._count -= 1
        return int(self._array[self._count])


class IdTable:
    """An id's slot, by open addressing over the ids column: four bytes per bucket, no Python objects."""

    def __init__(self, ids: Column) -> None:
        self._ids = ids
        self._rebuild()

    def find(self, id: int) -> int | None:
        """Return the slot of `id`, or None."""
        bucket = self._bucket(id)
        entry = int(self._table[bucket])
        return entry - 1 if entry else None

    def add(self, id: int, slot: int) -> None:
        """Enter an id that is not in the table; its slot is in the ids column already."""
        self._used += 1
        if 3 * self._used > 2 * len(self._table):
            self._rebuild()
        else:
            self._table[self._bucket(id)] = slot + 1

    def move(self, id: int, slot: int) -> None:
        """Enter the new slot of a known id; the ids column still has it at the old one."""
        self._table[self._bucket(id)] = slot + 1

    def remove(self, id: int) -> None:
        """Remove an id and close the gap, so that later probes still reach their ids."""
        self._used -= 1
        table, mask = self._table, len(self._table) - 1
        hole = self._bucket(id)
        bucket = hole
        while True:
            bucket = (bucket + 1) & mask
            entry = int(table[bucket])
            if not entry:
                break
            home = self._home(self._ids[entry - 1])
            if (bucket - home) & mask >= (bucket - hole) & mask:
                table[hole] = entry
                hole = bucket
        table[hole] = 0

    def _home(self, id: int) -> int:
        return ((id * _GOLDEN & _WORD) >> 32) & (len(self._table) - 1)

    def _bucket(self, id: int) -> int:
        """Return the bucket that holds `id`, or the empty one where it would go."""
        table, ids, mask = self._table, self._ids, len(self._table) - 1
        bucket = self._home(id)
        while (entry := int(table[bucket])) and ids[entry - 1] != id:
            bucket = (bucket + 1) & mask
        return bucket

    def _rebuild(self) -> None:
        """Lay out a table of at least twice the size needed, all ids at once.

        Sorted by home bucket, each entry goes to its home or next to its predecessor, which is where
        linear probing would put it. The few that run past the end are entered one by one.
        """
        ids = self._ids.view
        self._used = len(ids)
        size = 1 << max(4, (2 * len(ids)).bit_length())
        self._table = np.zeros(size, np.int32)
        homes = ((ids.astype(np.uint64) * np.uint64(_GOLDEN)) >> np.uint64(32)) & np.uint64(size - 1)
        order = np.argsort(homes, kind="stable")
        steps = np.arange(len(ids))
        places = np.maximum.accumulate(homes[order].astype(np.int64) - steps) + steps
        inside = places < size
        self._table[places[inside]] = order[inside] + 1
        for slot in order[~inside]:
            self._table[self._bucket(int(ids[slot]))] = slot + 1


class Index:
    """Slots 0..n-1, each with an id, a label, a serial number, a role and a count; class members in O(1).

    When a slot is emptied, the example in the last slot moves there, so that any slot can be drawn at random.
    `members` and `sizes` are the training slots of each class and their number.
    `serials` number the stored contents: a slot whose serial is unchanged still holds the same bytes.
    `times` is how often what is in a slot was replayed.
    Slots held out for validation belong to no class list: they are neither sampled nor evicted first.
    """

    COLUMNS = ("ids", "labels", "serials", "places", "times")

    def __init__(self) -> None:
        self.ids = Column("int64")
        self.labels = Column("int32")
        self.serials = Column("int64")
        self.places = Column("int32")
        self.times = Column("int32")
        self.members: list[Column] = []
        self.sizes = Column("int64")
        self.held_out = 0
        self.next_serial = 0
        self.table = IdTable(self.ids)

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def nbytes(self) -> int:
        """Bytes of bookkeeping: what is held beside the packed rows."""
        return sum(column._array.nbytes for column in (*self._columns, *self.members)) + self.table._table.nbytes

    @property
    def _columns(self) -> list[Column]:
        return [getattr(self, name) for name in self.COLUMNS]

    def is_held_out(self, slot: int) -> bool:
        return self.places[slot] < 0

    def find(self, id: int) -> int | None:
        return self.table.find(id)

    def append(self, id: int, label: int, held_out: bool = False) -> None:
        slot = len(self.ids)
        self.ids.append(id)
        self.labels.append(label)
        self.serials.append(self._serial())
        self.places.append(-1)
        self.times.append(0)
        self.table.add(id, slot)
        if held_out:
            self.held_out += 1
        else:
            self._join(slot, label)

    def release(self, slot: int) -> None:
        """Turn a held-out slot into a training slot."""
        self.held_out -= 1
        self._join(slot, self.labels[slot])

    def renew(self, slot: int) -> None:
        """Give a slot whose bytes were replaced a new serial number, and count its replays from 0."""
        self.serials[slot] = self._serial()
        self.times[slot] = 0

    def relabel(self, slot: int, label: int) -> None:
        if not self.is_held_out(slot):
            self._leave(slot)
            self._join(slot, label)
        self.labels[slot] = label

    def remove(self, slot: int) -> None:
        if self.is_held_out(slot):
            self.held_out -= 1
        else:
            self._leave(slot)
        self.table.remove(self.ids[slot])
        last = len(self.ids) - 1
        if slot != last:
            self.table.move(self.ids[last], slot)
            if not self.is_held_out(last):
                self.members[self.labels[last]][self.places[last]] = slot
            for column in self._columns:
                column[slot] = column[last]
        for column in self._columns:
            column.pop()

    def _serial(self) -> int:
        self.next_serial += 1
        return self.next_serial

    def _join(self, slot: int, label: int) -> None:
        while len(self.members) <= label:
            self.members.append(Column("int32"))
            self.sizes.append(0)
        self.sizes[label] += 1
        self.places[slot] = len(self.members[label])
        self.members[label].append(slot)

    def _leave(self, slot: int) -> None:
        label, place = self.labels[slot], self.places[slot]
        members = self.members[label]
        self.sizes[label] -= 1
        moved = members.pop()
        if moved != slot:
            members[place] = moved
            self.places[moved] = place

    def state(self) -> dict[str, NDArray[np.generic]]:
        """Return everything that `restore` needs."""
        return {name: getattr(self, name).view.copy() for name in self.COLUMNS}

    def restore(self, state: dict[str, NDArray[np.generic]], next_serial: int) -> None:
        """Restore an empty index from `state`."""
        for name in self.COLUMNS:
            getattr(self, name).extend(state[name])
        labels, places = self.labels.view, self.places.view
        self.held_out = int((places < 0).sum())
        training = np.flatnonzero(places >= 0)
        training = training[np.lexsort((places[training], labels[training]))]
        ends = np.cumsum(np.bincount(labels[training]))
        for slots in np.split(training, ends[:-1]) if len(ends) else []:
            self.members.append(Column("int32"))
            self.members[-1].extend(slots)
            self.sizes.append(len(slots))
        self.next_serial = next_serial
        self.table = IdTable(self.ids)
