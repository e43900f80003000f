"""Where encoded examples lie: rows 0..n-1 without gaps, in main memory or in a file larger than it.

A file here is scratch: it has no name on disk and vanishes with the process. What survives a crash is a
checkpoint (`coldstream.checkpoint`), never this.
"""

from __future__ import annotations

import errno
import os
import tempfile
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Protocol

import numpy as np

from coldstream.replay.codecs import Rows
from coldstream.replay.packing import Bytes


class RowStore(Protocol):
    """Rows by number; `nbytes` counts the bytes of the rows themselves."""

    nbytes: int

    def get(self, rows: Sequence[int] | np.ndarray) -> Rows: ...
    def append(self, row: Bytes) -> None: ...
    def replace(self, index: int, row: Bytes) -> None: ...
    def remove(self, index: int) -> None: ...


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

    def get(self, rows: Sequence[int] | np.ndarray) -> Bytes:
        return self._block[rows]

    def append(self, row: Bytes) -> None:
        if self._count == len(self._block):
            self._grow()
        self._block[self._count] = row
        self._count += 1
        self.nbytes += self.row_bytes

    def replace(self, index: int, row: Bytes) -> None:
        self._block[index] = row

    def remove(self, index: int) -> None:
        self._count -= 1
        self.nbytes -= self.row_bytes
        if index != self._count:
            self._block[index] = self._block[self._count]

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
            self._block = np.memmap(self._file, np.uint8, "r+", shape=(rows, self.row_bytes))


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
