"""A learner on disk: immutable files, and a manifest that is renamed into place last.

    birds/
      manifest.json               what the learner is, and which files make it up
      state-<n>-<token>.safetensors   weights, optimiser, indexes of the buffers
      rows-<n>-<token>.bin        packed examples, appended to and never rewritten as a whole

A crash at any instant leaves the last manifest and all the files that it names. Files are JSON, safetensors
and raw bytes, each with its length and checksum: loading runs no code and notices every cut.

`plan` takes what is to be written as it is at one moment, at a cost that hardly grows with the buffer; `Plan.write`
writes it, in another thread if need be, while the learner goes on.
"""

from __future__ import annotations

import json
import os
import platform
import re
import secrets
import sys
import threading
import weakref
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from importlib.metadata import version
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy
import torch
from numpy.typing import NDArray

from coldstream.replay import ReplayBuffer
from coldstream.replay.rows import Frozen

FORMAT, VERSION = "coldstream-checkpoint", 5
MANIFEST = "manifest.json"
_OURS = re.compile(r"^(state|rows)-\d+-[0-9a-f]{8}\.(safetensors|bin)$|^manifest\.json(\.tmp)?$")
_SMALL, _LARGE = 4_000_000, 16_000_000

Arrays = dict[str, NDArray[Any]]

PLACES: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
"""A lock for each folder, by its resolved path: nothing is read from one that is being written to."""


class CheckpointError(ValueError):
    """A checkpoint that is missing, cut, damaged, foreign or of a newer format."""


@dataclass(frozen=True)
class Segment:
    """One file of packed rows of one buffer, in ascending order of serial number, from `first` to `last`."""

    file: str
    buffer: int
    first: int
    last: int
    rows: int
    bytes: int
    crc32: int


def environment() -> dict[str, str | int]:
    """Return what results depend on to the bit: versions, machine and thread count."""
    return {**_versions(), "threads": torch.get_num_threads()}


@cache
def _versions() -> dict[str, str]:
    return {
        "python": platform.python_version(),
        **{name: version(name) for name in ("torch", "torchvision", "numpy")},
        "machine": f"{platform.system()} {platform.machine()}",
    }


class Saving:
    """A checkpoint that is being written, or was; `result` says whether it is on disk.

    An interpreter that ends waits for it. An error that `result` was not asked for is raised by the learner's next
    `save`, and printed where there is none.
    """

    def __init__(self) -> None:
        self._ended = threading.Event()
        self._error: BaseException | None = None
        self._untold: list[str] = []  # not the error itself, whose traceback holds this object
        weakref.finalize(self, _complain, self._untold)

    def run(self, work: Callable[[], None]) -> None:
        """Write it now."""
        try:
            work()
        except BaseException as error:
            self._error = error
            self._untold.append(str(error))
        finally:
            self._ended.set()

    def start(self, work: Callable[[], None]) -> None:
        """Write it in a thread of its own, which is no daemon: the interpreter waits for it."""
        try:
            threading.Thread(target=self.run, args=(work,), name="checkpoint").start()
        except RuntimeError:  # no thread is to be had, as when the interpreter ends
            self.run(work)

    def done(self) -> bool:
        """Return whether the writing has ended, well or not."""
        return self._ended.is_set()

    def result(self, timeout: float | None = None) -> None:
        """Wait until the checkpoint is on disk; raise what went wrong."""
        if not self._ended.wait(timeout):
            raise TimeoutError(f"the checkpoint was not on disk after {timeout} seconds")
        if self._error is not None:
            self._untold.clear()
            raise self._error

    def settle(self) -> None:
        """Wait until the writing has ended; raise what went wrong unless `result` did."""
        self._ended.wait()
        if self._untold:
            self.result()


def _complain(errors: list[str]) -> None:
    for error in errors:
        print(f"coldstream: a checkpoint was not written: {error}", file=sys.stderr)


@dataclass
class Rows:
    """The rows of one buffer at one moment: the segments that hold some already, and those to write."""

    buffer: int
    kept: list[Segment]
    jobs: list[int]
    serials: NDArray[np.int64]
    frozen: Frozen
    fixed: bool

    def write(self, folder: Path, step: int) -> list[Segment]:
        """Write the segments that are missing; return all."""
        ends = np.cumsum([0, *self.jobs]).tolist()
        parts = chain.from_iterable(self._parts(left, right) for left, right in pairwise(ends))
        written = [self._write_segment(folder, step, start, stop) for start, stop in parts]
        return sorted(self.kept + written, key=lambda segment: segment.first)

    def _parts(self, left: int, right: int) -> Iterable[tuple[int, int]]:
        """Cut a range of rows where a segment would become large, so that to write one anew never takes long."""
        last = np.cumsum(self.frozen.lengths[left:right]) - 1
        cuts = [left, *(left + np.flatnonzero(np.diff(last // _LARGE)) + 1).tolist(), right]
        return pairwise(cuts)

    def _write_segment(self, folder: Path, step: int, start: int, stop: int) -> Segment:
        serials, lengths = self.serials[start:stop], self.frozen.lengths[start:stop]
        head = [serials.tobytes()] if self.fixed else [serials.tobytes(), lengths.tobytes()]
        name = f"rows-{step}-{secrets.token_hex(4)}.bin"
        sizes = _write_file(folder / name, chain(head, self.frozen.read(start, stop)))
        return Segment(name, self.buffer, int(serials[0]), int(serials[-1]), stop - start, **sizes)


@dataclass
class Plan:
    """A checkpoint of one moment: what to write."""

    plain: dict[str, Any]
    arrays: Arrays
    rows: list[Rows]

    def write(self, folder: Path) -> list[Segment]:
        """Write the checkpoint into `folder` and return the segments that now hold the buffers' rows.

        Whatever else the folder held as a checkpoint is replaced, at one instant.
        """
        try:
            folder.mkdir(parents=True, exist_ok=True)
            _remove_all_but(folder, _files_of(folder))
            plain = {"format": FORMAT, "version": VERSION, **self.plain}
            segments = [segment for rows in self.rows for segment in rows.write(folder, plain["step"])]
            name = f"state-{plain['step']}-{secrets.token_hex(4)}.safetensors"
            data = safetensors.numpy.save({key: np.asarray(value, order="C") for key, value in self.arrays.items()})
            plain["state"] = {"file": name, **_write_file(folder / name, [data])}
            plain["segments"] = [asdict(segment) for segment in segments]
            plain["crc32"] = _checksum(plain)
            write_atomically(folder / MANIFEST, json.dumps(plain, indent=1).encode())
            _remove_all_but(folder, _files_of(folder))
        except OSError as error:
            raise OSError(error.errno, f"cannot write the checkpoint {str(folder)!r}: {error.strerror}") from error
        return segments

    def close(self) -> None:
        """Let go of the buffers' rows."""
        for rows in self.rows:
            rows.frozen.close()


def plan(
    folder: Path, plain: dict[str, Any], arrays: Arrays, buffers: Sequence[ReplayBuffer], known: list[Segment]
) -> Plan:
    """Return what to write for a checkpoint of this moment into `folder`; `close` it in the end.

    `plain` and `arrays` are the plan's own from here on. `known` are the segments that this learner wrote to or read
    from the folder: rows in them are not written again.
    """
    _check_target(folder)
    there = _files_of(folder) if known else set()
    found = Plan({**plain, "environment": environment()}, arrays, [])
    try:
        for number, buffer in enumerate(buffers):
            mine = [segment for segment in known if segment.buffer == number]
            found.rows.append(_plan_rows(number, buffer, mine if all(one.file in there for one in mine) else []))
    except BaseException:
        found.close()
        raise
    return found


def _plan_rows(number: int, buffer: ReplayBuffer, known: list[Segment]) -> Rows:
    """Return which rows of a buffer to write, where `known` segments hold some.

    A last segment that is still small is written anew together with what is new, and so are those with the largest
    shares of dead rows, once over a half and up to a fixed number of bytes: files stay few and a checkpoint's cost
    bounded.
    """
    serials = buffer.index.serials.view
    order = np.argsort(serials, kind="stable")
    serials = serials[order].astype(np.int64)
    bounds = (
        np.searchsorted(serials, [(segment.first, segment.last + 1) for segment in known]).reshape(-1, 2).tolist()
    )
    spans = dict(zip(known, bounds, strict=True))
    kept = [segment for segment, (left, right) in spans.items() if left < right]
    jobs: list[tuple[int, int]] = []
    written = spans[kept[-1]][1] if kept else 0
    if written < len(order):
        if kept and kept[-1].bytes < _SMALL:
            written = spans[kept.pop()][0]
        jobs.append((written, len(order)))
    live = {segment: (spans[segment][1] - spans[segment][0]) / segment.rows for segment in kept}
    budget = float(_LARGE)
    for segment in sorted(kept, key=lambda segment: live[segment]):
        if live[segment] >= 0.5 or budget <= 0:
            break
        budget -= live[segment] * segment.bytes
        kept.remove(segment)
        jobs.append((spans[segment][0], spans[segment][1]))
    wanted = np.concatenate([np.arange(left, right) for left, right in jobs] or [np.empty(0, np.int64)])
    frozen = buffer.rows.freeze(order[wanted])
    counts = [right - left for left, right in jobs]
    return Rows(number, kept, counts, serials[wanted], frozen, buffer.codec.row_bytes is not None)


def read(folder: Path) -> tuple[dict[str, Any], Arrays, list[Segment]]:
    """Return what `write` was given, without the buffer's rows."""
    manifest = read_manifest(folder)
    try:
        state = manifest["state"]
        data = _read_file(folder / state["file"], state["bytes"], state["crc32"])
        arrays = safetensors.numpy.load(data)
        segments = [Segment(**segment) for segment in manifest["segments"]]
    except (KeyError, TypeError, safetensors.SafetensorError) as error:
        raise CheckpointError(f"checkpoint {str(folder)!r} is damaged: {error}") from error
    return manifest, arrays, segments


def read_manifest(folder: Path) -> dict[str, Any]:
    """Return a checkpoint's manifest, checked for format and version."""
    path = folder / MANIFEST
    if not path.is_file():
        raise CheckpointError(f"there is no checkpoint at {str(folder)!r} (no {MANIFEST} in it)")
    try:
        manifest = json.loads(path.read_bytes())
    except ValueError as error:
        raise CheckpointError(f"checkpoint {str(folder)!r}: {MANIFEST} is cut or damaged ({error})") from error
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise CheckpointError(f"{str(path)!r} is not a Coldstream checkpoint")
    found = manifest.get("version")
    if found != VERSION:
        raise CheckpointError(
            f"checkpoint {str(folder)!r} has format version {found}; this Coldstream reads {VERSION}: load it with "
            "the one that wrote it"
        )
    if manifest.get("crc32") != _checksum(manifest):
        raise CheckpointError(f"checkpoint {str(folder)!r} is damaged: the checksum of its {MANIFEST} is wrong")
    return manifest


def _checksum(manifest: dict[str, Any]) -> int:
    rest = {key: value for key, value in manifest.items() if key != "crc32"}
    return zlib.crc32(json.dumps(rest, sort_keys=True).encode())


def read_rows(folder: Path, buffer: ReplayBuffer, segments: list[Segment]) -> None:
    """Append the rows that the buffer's restored index names, in its order."""
    wanted = buffer.index.serials.view.copy()
    variable = buffer.codec.row_bytes is None
    found = [_Rows(folder, segment, buffer.codec.row_bytes) for segment in segments]
    serials = np.concatenate([part.serials for part in found]) if found else np.empty(0, np.int64)
    starts = np.cumsum([0] + [len(part.serials) for part in found])
    places = np.searchsorted(serials, wanted)
    if len(wanted) and (places.max(initial=0) >= len(serials) or (serials[places] != wanted).any()):
        raise CheckpointError(f"checkpoint {str(folder)!r} is damaged: rows of the buffer are missing")
    parts = np.searchsorted(starts, places, side="right") - 1
    for part, place in zip(parts, places, strict=True):
        row = found[part].row(int(place - starts[part]))
        if not variable and len(row) != buffer.codec.row_bytes:
            raise CheckpointError(f"checkpoint {str(folder)!r} is damaged: a row has {len(row)} bytes")
        buffer.rows.append(row)


def write_atomically(path: Path, data: bytes) -> None:
    """Replace a file in one instant: written beside, synced, renamed, and the rename synced."""
    beside = path.with_name(path.name + ".tmp")
    _write_file(beside, [data])
    os.replace(beside, path)
    _sync_folder(path.parent)


class _Rows:
    """The rows of one segment file, mapped, not read."""

    def __init__(self, folder: Path, segment: Segment, row_bytes: int | None) -> None:
        data = _read_file(folder / segment.file, segment.bytes, segment.crc32, mapped=True)
        block = np.frombuffer(data, np.uint8)
        head = 8 * segment.rows
        self.serials = block[:head].view(np.int64)
        if row_bytes is None:
            lengths = block[head : 2 * head].view(np.int64)
            self._ends = 2 * head + np.cumsum(lengths)
        else:
            self._ends = head + row_bytes * np.arange(1, segment.rows + 1)
        self._block, self._start = block, 2 * head if row_bytes is None else head

    def row(self, i: int) -> NDArray[np.uint8]:
        return self._block[self._ends[i - 1] if i else self._start : self._ends[i]]


def _write_file(path: Path, parts: Iterable[Any]) -> dict[str, int]:
    size = crc = 0
    with open(path, "wb") as file:
        for part in parts:
            file.write(part)
            size += memoryview(part).nbytes
            crc = zlib.crc32(part, crc)
        file.flush()
        os.fsync(file.fileno())
    return {"bytes": size, "crc32": crc}


def _read_file(path: Path, size: int, crc32: int, mapped: bool = False) -> Any:
    if not path.is_file():
        raise CheckpointError(f"checkpoint {str(path.parent)!r} lacks its file {path.name}")
    if path.stat().st_size != size:
        raise CheckpointError(f"{str(path)!r} is cut: {path.stat().st_size} bytes of {size}")
    data: Any = np.memmap(path, np.uint8, "r") if mapped and size else path.read_bytes()
    if zlib.crc32(data) != crc32:
        raise CheckpointError(f"{str(path)!r} is damaged: its checksum is wrong")
    return data


def _check_target(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise CheckpointError(f"cannot save to {str(folder)!r}: it is a file; name a folder")
    if folder.is_dir() and any(not _OURS.match(entry.name) for entry in folder.iterdir()):
        raise CheckpointError(f"cannot save to {str(folder)!r}: it holds files that are not a checkpoint's")
    if (folder / MANIFEST).exists():
        try:
            read_manifest(folder)
        except CheckpointError as error:
            raise CheckpointError(f"{error}; delete that folder or save to another") from error


def _files_of(folder: Path) -> set[str]:
    if not (folder / MANIFEST).exists():
        return set()
    manifest = read_manifest(folder)
    return {MANIFEST, manifest["state"]["file"], *(segment["file"] for segment in manifest["segments"])}


def _remove_all_but(folder: Path, wanted: set[str]) -> None:
    for entry in folder.iterdir():
        if _OURS.match(entry.name) and entry.name not in wanted:
            entry.unlink()


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def differences(saved: Mapping[str, Any]) -> list[str]:
    """Return what of the environment differs from the one that a checkpoint was written in."""
    now = environment()
    return [f"{key} {saved.get(key)} then, {value} now" for key, value in now.items() if saved.get(key) != value]
