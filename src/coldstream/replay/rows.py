"""Where encoded examples lie: rows 0..n-1 without gaps, in main memory or in a file larger than it.

A file here is scratch: it has no name on disk and vanishes with the process. What survives a crash is a
checkpoint (`coldstream.checkpoint`), never this.
"""

from __future__ import annotations

import errno
import mmap
import os
import tempfile
import threading
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Protocol

import numpy as np
from numpy.typing import NDArray

from coldstream.replay.codecs import Packed
from coldstream.replay.packing import Bytes

_PIECE = 1 << 20


class Frozen(Protocol):
    """Some rows as they were at one moment, for another thread to read while the store changes."""

    lengths: NDArray[np.int64]

    def read(self, start: int, stop: int) -> Iterator[Bytes | bytes]:
        """Yield the bytes of the frozen rows `start` to `stop`, in pieces; each row can be read once."""
        ...

    def close(self) -> None: ...


class RowStore(Protocol):
    """Rows by number; `nbytes` counts the bytes of the rows themselves.

    `prefetch` asks the disk for rows that will be read next, all at once. `freeze` keeps the bytes
    of some rows, at no cost that grows with them, until the result is closed or rows are frozen again.
    """

    nbytes: int

    def get(self, rows: Sequence[int] | np.ndarray) -> Packed: ...
    def append(self, row: Bytes) -> None: ...
    def replace(self, index: int, row: Bytes) -> None: ...
    def remove(self, index: int) -> None: ...
    def prefetch(self, rows: Sequence[int] | np.ndarray) -> None: ...
    def freeze(self, rows: NDArray[np.int64]) -> Frozen: ...


class FixedRows:
    """Rows of one length in one contiguous block, so that a batch is one NumPy gather.

    The block grows by a 128th at a time: with `realloc` (which on Linux moves page tables, not bytes)
    the memory held stays within a percent of the bytes stored. A removed row is filled by the last one.
    """

    def __init__(self, row_bytes: int, folder: Path | None = None) -> None:
        self.row_bytes = row_bytes
        self.nbytes = 0
        self._count = 0
        self._file: IO[bytes] | None = _scratch(self, folder) if folder else None
        self._block: Bytes = np.empty((0, row_bytes), np.uint8)
        self._changing = threading.Lock()
        self._frozen: _FrozenBlock | None = None

    def get(self, rows: Sequence[int] | np.ndarray) -> Bytes:
        return self._block[rows]

    def append(self, row: Bytes) -> None:
        with self._changing:
            if self._count == len(self._block):
                self._grow()
            self._put(self._count, row)
            self._count += 1
            self.nbytes += self.row_bytes

    def replace(self, index: int, row: Bytes) -> None:
        with self._changing:
            self._put(index, row)

    def remove(self, index: int) -> None:
        with self._changing:
            self._count -= 1
            self.nbytes -= self.row_bytes
            if index != self._count:
                self._put(index, self._block[self._count])

    def prefetch(self, rows: Sequence[int] | np.ndarray) -> None:
        if self._file is not None:
            _fetch(self._file, np.asarray(rows, np.int64) * self.row_bytes, self.row_bytes)

    def freeze(self, rows: NDArray[np.int64]) -> _FrozenBlock:
        frozen = _FrozenBlock(self, rows)
        with self._changing:
            self._frozen = frozen
        return frozen

    def _put(self, index: int, row: Bytes) -> None:
        if self._frozen is not None:
            self._frozen.keep(index)
        self._block[index] = row

    def _grow(self) -> None:
        rows = self._count + max(self._count // 128, 1 + (1 << 18) // self.row_bytes)
        if self._file is None:
            self._block.resize((rows, self.row_bytes), refcheck=False)
        else:
            # Reserved, not only promised: on a full disk this is an error here, not a crash at a later write.
            size = rows * self.row_bytes
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(self._file.fileno(), 0, size)
            else:
                os.ftruncate(self._file.fileno(), size)
            mapped = mmap.mmap(self._file.fileno(), size)
            if hasattr(mmap, "MADV_RANDOM"):  # else a row read from disk brings megabytes of neighbours with it
                mapped.madvise(mmap.MADV_RANDOM)
            self._block = np.frombuffer(mapped, np.uint8).reshape(rows, self.row_bytes)


class _FrozenBlock:
    """Rows of a `FixedRows`, copied piece by piece as they are read, or just before they are written over."""

    def __init__(self, store: FixedRows, rows: NDArray[np.int64]) -> None:
        self.lengths = np.full(len(rows), store.row_bytes, np.int64)
        self._store, self._rows = store, rows
        self._waiting = np.zeros(store._count, bool)
        self._waiting[rows] = True
        self._kept: dict[int, Bytes] = {}

    def keep(self, row: int) -> None:
        """Copy a row that is about to be written over; the store's lock is held."""
        if row < len(self._waiting) and self._waiting[row]:
            self._waiting[row] = False
            self._kept[row] = self._store._block[row].copy()

    def read(self, start: int, stop: int) -> Iterator[Bytes]:
        store, step = self._store, max(1, _PIECE // self._store.row_bytes)
        for begin in range(start, stop, step):
            rows = self._rows[begin : min(stop, begin + step)]
            store.prefetch(rows)
            with store._changing:
                piece = store._block[rows]
                for i, row in enumerate(rows.tolist()) if self._kept else ():
                    if row in self._kept:
                        piece[i] = self._kept.pop(row)
                self._waiting[rows] = False
            yield piece

    def close(self) -> None:
        with self._store._changing:
            if self._store._frozen is self:
                self._store._frozen = None


class BlobRows:
    """Rows of different lengths in main memory."""

    def __init__(self) -> None:
        self.nbytes = 0
        self._blobs: list[bytes] = []

    def get(self, rows: Sequence[int] | np.ndarray) -> list[bytes]:
        return [self._blobs[row] for row in rows]

    def append(self, row: Bytes) -> None:
        self._blobs.append(row.tobytes())
        self.nbytes += len(row)

    def replace(self, index: int, row: Bytes) -> None:
        self.nbytes += len(row) - len(self._blobs[index])
        self._blobs[index] = row.tobytes()

    def remove(self, index: int) -> None:
        self.nbytes -= len(self._blobs[index])
        last = self._blobs.pop()
        if index != len(self._blobs):
            self._blobs[index] = last

    def prefetch(self, rows: Sequence[int] | np.ndarray) -> None:
        pass

    def freeze(self, rows: NDArray[np.int64]) -> _FrozenBlobs:
        return _FrozenBlobs(self.get(rows))


class _FrozenBlobs:
    """Rows of a `BlobRows`, which never change: a new row is a new object."""

    def __init__(self, blobs: list[bytes]) -> None:
        self.lengths = np.array([len(blob) for blob in blobs], np.int64)
        self._blobs = blobs

    def read(self, start: int, stop: int) -> Iterator[bytes]:
        yield from self._blobs[start:stop]

    def close(self) -> None:
        pass


class BlobFile:
    """Rows of different lengths in a scratch file: appended, and rewritten once more than half is dead."""

    def __init__(self, folder: Path) -> None:
        self.nbytes = 0
        self._folder = folder
        self._file: IO[bytes] = _scratch(self, folder)
        self._end = 0
        self._where: list[tuple[int, int]] = []

    def get(self, rows: Sequence[int] | np.ndarray) -> list[bytes]:
        descriptor = self._file.fileno()
        return [os.pread(descriptor, length, offset) for offset, length in (self._where[row] for row in rows)]

    def append(self, row: Bytes) -> None:
        self._where.append(self._write(row.tobytes()))

    def replace(self, index: int, row: Bytes) -> None:
        freed = self._where[index][1]
        self._where[index] = self._write(row.tobytes())
        self.nbytes -= freed

    def remove(self, index: int) -> None:
        self.nbytes -= self._where[index][1]
        last = self._where.pop()
        if index != len(self._where):
            self._where[index] = last

    def prefetch(self, rows: Sequence[int] | np.ndarray) -> None:
        where = np.array([self._where[row] for row in rows], np.int64).reshape(-1, 2)
        _fetch(self._file, where[:, 0], where[:, 1])

    def freeze(self, rows: NDArray[np.int64]) -> _FrozenFile:
        return _FrozenFile(self._file, [self._where[row] for row in rows])

    def _write(self, data: bytes) -> tuple[int, int]:
        if self._end > 2 * self.nbytes + (1 << 20):
            self._rewrite()
        place = (self._end, len(data))
        _write_at(self._file, data, self._end)
        self._end += len(data)
        self.nbytes += len(data)
        return place

    def _rewrite(self) -> None:
        with tempfile.TemporaryFile(dir=self._folder) as fresh:
            end, where = 0, []
            for offset, length in self._where:
                _write_at(fresh, os.pread(self._file.fileno(), length, offset), end)
                where.append((end, length))
                end += length
            os.dup2(fresh.fileno(), self._file.fileno(), inheritable=False)  # the old file vanishes
        self._where[:], self._end = where, end


class _FrozenFile:
    """Rows of a `BlobFile`, by a handle of its own: a file is appended to and replaced, never written over."""

    def __init__(self, file: IO[bytes], where: list[tuple[int, int]]) -> None:
        self.lengths = np.array([length for _, length in where], np.int64)
        self._where = where
        self._descriptor = os.dup(file.fileno())
        self._close = weakref.finalize(self, os.close, self._descriptor)

    def read(self, start: int, stop: int) -> Iterator[bytes]:
        for offset, length in self._where[start:stop]:
            yield os.pread(self._descriptor, length, offset)

    def close(self) -> None:
        self._close()


def _fetch(file: IO[bytes], starts: NDArray[np.int64], lengths: NDArray[np.int64] | int) -> None:
    """Ask the system to read these ranges of a file into memory together: nearly as fast as reading one."""
    if not hasattr(os, "posix_fadvise"):
        return
    first, last = starts // mmap.PAGESIZE, (starts + lengths - 1) // mmap.PAGESIZE
    for page, end in _joined(first, np.maximum(first, last)):
        begin = page * mmap.PAGESIZE
        os.posix_fadvise(file.fileno(), begin, (end + 1) * mmap.PAGESIZE - begin, os.POSIX_FADV_WILLNEED)


def _joined(first: NDArray[np.int64], last: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Join ranges that touch; give the rest in ascending order."""
    order = np.argsort(first)
    first, last = first[order], np.maximum.accumulate(last[order])
    cuts = np.flatnonzero(first[1:] > last[:-1] + 1) + 1
    starts, ends = np.append(0, cuts), np.append(cuts, len(first)) - 1
    yield from zip(first[starts].tolist(), last[ends].tolist(), strict=True) if len(first) else ()


def _write_at(file: IO[bytes], data: bytes, offset: int) -> None:
    if os.pwrite(file.fileno(), data, offset) < len(data):
        raise OSError(errno.ENOSPC, "no room left for the replay buffer's scratch file")


def _scratch(owner: object, folder: Path) -> IO[bytes]:
    """Open a file without a name, closed together with its owner."""
    file: IO[bytes] = tempfile.TemporaryFile(dir=folder)
    weakref.finalize(owner, file.close)
    return file


def check_storage(storage: str) -> Path | None:
    """Return the folder for rows on disk, None for ``memory``; refuse what is neither."""
    where, _, given = storage.partition(":")
    if where not in ("memory", "disk") or (where == "memory" and given):
        raise ValueError(f"storage is 'memory', 'disk' or 'disk:FOLDER', not {storage!r}")
    if where == "memory":
        return None
    folder = Path(given or tempfile.gettempdir())
    if not folder.is_dir():
        raise ValueError(f"storage folder {str(folder)!r} does not exist; create it first")
    return folder


def open_rows(row_bytes: int | None, storage: str) -> RowStore:
    """Return the store for rows of `row_bytes` (None: varying) in ``memory``, ``disk`` or ``disk:FOLDER``."""
    folder = check_storage(storage)
    if row_bytes is not None:
        return FixedRows(row_bytes, folder)
    return BlobRows() if folder is None else BlobFile(folder)
