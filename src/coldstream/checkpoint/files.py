"""Files of a checkpoint: written once and synced, checked when they are read."""

from __future__ import annotations

import os
import secrets
import zlib
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray


class CheckpointError(ValueError):
    """A checkpoint that is missing, truncated, damaged, not ours, of another format version, or being written."""


def write_file(path: Path, parts: Iterable[Any]) -> dict[str, int]:
    """Write a new file and sync it; return its size and checksum."""
    size = crc = 0
    with open(path, "xb") as file:
        for part in parts:
            file.write(part)
            size += memoryview(part).nbytes
            crc = zlib.crc32(part, crc)
        file.flush()
        os.fsync(file.fileno())
    return {"bytes": size, "crc32": crc}


def write_atomically(path: Path, data: bytes) -> None:
    """Replace a file atomically: write a temporary file, sync, rename, and sync the folder."""
    beside = path.with_name(f"{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        write_file(beside, [data])
        os.replace(beside, path)
    except BaseException:
        with suppress(OSError):
            beside.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def map_file(path: Path, size: int) -> NDArray[np.uint8]:
    """Return the bytes of a file, mapped into memory: they stay readable when the file is removed."""
    try:
        if not path.is_file():
            raise FileNotFoundError
        there = path.stat().st_size
        if there != size:
            raise CheckpointError(f"{str(path)!r} is truncated: {there} bytes of {size}")
        return np.memmap(path, np.uint8, "r") if size else np.empty(0, np.uint8)
    except FileNotFoundError:
        raise CheckpointError(
            f"checkpoint {str(path.parent)!r} lacks its file {path.name}; restore it or load another checkpoint"
        ) from None


def check_crc(path: Path, data: NDArray[np.uint8], crc32: int) -> None:
    """Refuse the bytes of a file whose checksum is wrong."""
    if zlib.crc32(data.data) != crc32:
        raise CheckpointError(f"{str(path)!r} is damaged: its checksum is wrong")


def make_folder(folder: Path) -> None:
    """Create a folder and those above it, each durable in the one above."""
    if not folder.is_dir():
        make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        sync_folder(folder.parent)


def sync_folder(folder: Path) -> None:
    """Make the entries of a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
