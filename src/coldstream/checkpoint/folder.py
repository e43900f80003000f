"""A checkpoint as a whole: planned under a lock, written, read and verified."""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy
from numpy.typing import NDArray

from coldstream.checkpoint import manifest as manifests
from coldstream.checkpoint.files import (
    CheckpointError,
    check_crc,
    make_folder,
    map_file,
    sync_folder,
    write_atomically,
    write_file,
)
from coldstream.checkpoint.lock import LOCK, FolderLock, acquire
from coldstream.checkpoint.manifest import (
    MANIFEST,
    ROWS_FILE,
    STATE_FILE,
    Manifest,
    Segment,
    StateFile,
    read_manifest,
)
from coldstream.checkpoint.segments import Blocks, BufferRows, is_intact, plan_rows
from coldstream.replay import ReplayBuffer

_OURS = re.compile(rf"{STATE_FILE}|{ROWS_FILE}|manifest\.json(\.[0-9a-f]{{8}}\.tmp)?|{LOCK}")

Arrays = dict[str, NDArray[Any]]


@dataclass
class Plan:
    """What to write for a checkpoint of one moment, and the right to write it."""

    plain: dict[str, Any]
    arrays: Arrays
    rows: list[BufferRows]
    lock: FolderLock

    def write(self, folder: Path) -> list[Segment]:
        """Write the checkpoint into `folder` and return the segments that now hold the buffers' rows.

        The checkpoint that the folder held before is replaced atomically.
        """
        try:
            _remove_what_is_not_of_the_manifest(folder)
            step = self.plain["step"]
            segments = [segment for rows in self.rows for segment in rows.write(folder, step)]
            name = f"state-{step}-{secrets.token_hex(4)}.safetensors"
            data = safetensors.numpy.save({key: np.asarray(value, order="C") for key, value in self.arrays.items()})
            state = StateFile(file=name, **write_file(folder / name, [data]))
            text = manifests.encode(self.plain, state, segments)
            sync_folder(folder)  # the names of the files before the manifest that refers to them
            if not self.lock.held:
                raise CheckpointError(f"cannot save to {str(folder)!r}: its lock was removed or taken over meanwhile")
            write_atomically(folder / MANIFEST, text)
            _remove_what_is_not_of_the_manifest(folder)
        except OSError as error:
            raise _unwritable(folder, error) from error
        return segments

    def close(self) -> None:
        """Release the rows of the buffers and the folder."""
        for rows in self.rows:
            rows.frozen.close()
        self.lock.release()


def plan(
    folder: Path,
    plain: dict[str, Any],
    arrays: Arrays,
    buffers: Sequence[ReplayBuffer],
    known: list[Segment],
    *,
    verify: bool = False,
) -> Plan:
    """Lock `folder` and return what to write into it for a checkpoint of this moment; `close` it in the end.

    The plan takes over `plain` and `arrays`. `known` are the segments that this learner wrote to or read from the
    folder: their rows are not written again where their files are there with their sizes, and if `verify`, with their
    checksums.
    """
    plain = {**plain, "environment": manifests.environment()}
    manifests.check_contents(plain)
    try:
        _check_target(folder)
        make_folder(folder)
        planned = Plan(plain, arrays, [], acquire(folder))
    except OSError as error:
        raise _unwritable(folder, error) from error
    try:
        there = set(read_manifest(folder).segments) if known and (folder / MANIFEST).exists() else set()
        intact = [segment for segment in known if segment in there and is_intact(folder, segment, verify=verify)]
        for number, buffer in enumerate(buffers):
            planned.rows.append(plan_rows(number, buffer, [one for one in intact if one.buffer == number]))
    except BaseException:
        planned.close()
        raise
    return planned


@dataclass
class Stored:
    """A checkpoint as it was read; `files` has the bytes of each segment's file."""

    manifest: Manifest
    arrays: Arrays
    files: dict[str, NDArray[np.uint8]]

    def blocks(self, buffer: int) -> Blocks:
        """Return the segments of a buffer with their bytes."""
        return [(one, self.files[one.file]) for one in self.manifest.segments if one.buffer == buffer]


def read(folder: Path) -> Stored:
    """Return a checkpoint, with every checksum checked: a whole one, also while another is being saved.

    The files that a manifest names never change, and go only after it was replaced. All are opened before one is
    read, after which they may go; where one went before that, there is a new manifest to begin with.
    """
    while True:
        text = manifests.manifest_bytes(folder)
        manifest = manifests.parse(folder, text)
        parts: list[StateFile | Segment] = [manifest.state, *manifest.segments]
        try:
            files = {part.file: map_file(folder / part.file, part.bytes) for part in parts}
            break
        except CheckpointError:
            if manifests.manifest_bytes(folder) == text:
                raise
    for part in parts:
        check_crc(folder / part.file, files[part.file], part.crc32)
    try:
        arrays = safetensors.numpy.load(bytes(files.pop(manifest.state.file)))
    except (KeyError, TypeError, ValueError, safetensors.SafetensorError) as error:
        raise CheckpointError(f"checkpoint {str(folder)!r} is damaged: {error}") from error
    return Stored(manifest, arrays, files)


def verify(folder: str | Path) -> Manifest:
    """Check that a checkpoint is whole, by the size and the checksum of every file; return its manifest.

    Examples
    --------
    >>> import coldstream, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     saving = coldstream.CSSL().save(folder)
    ...     verify(folder).step
    0
    """
    return read(Path(folder)).manifest


def _check_target(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise CheckpointError(f"cannot save to {str(folder)!r}: it is a file; name a folder")
    if folder.is_dir() and any(not _OURS.fullmatch(entry.name) for entry in folder.iterdir()):
        raise CheckpointError(f"cannot save to {str(folder)!r}: it holds files that are not a checkpoint's")
    if (folder / MANIFEST).exists():
        try:
            read_manifest(folder)
        except CheckpointError as error:
            raise CheckpointError(f"{error}; delete that folder or save to another") from error


def _remove_what_is_not_of_the_manifest(folder: Path) -> None:
    """Remove what interrupted saves left, and after a save what it replaced; the lock keeps other writers out."""
    wanted = {LOCK, *(read_manifest(folder).files if (folder / MANIFEST).exists() else ())}
    for entry in folder.iterdir():
        if _OURS.fullmatch(entry.name) and entry.name not in wanted:
            entry.unlink(missing_ok=True)


def _unwritable(folder: Path, error: OSError) -> OSError:
    return OSError(error.errno, f"cannot write the checkpoint {str(folder)!r}: {error.strerror}")
