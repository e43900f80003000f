"""A learner on disk: immutable files, and a manifest that is renamed into place last.

    birds/
      manifest.json               what the learner is, and which files make it up
      state-<n>-<token>.safetensors   weights, optimiser, index of the buffer
      rows-<n>-<token>.bin        packed examples, appended to and never rewritten as a whole

A crash at any instant leaves the last manifest and all the files that it names. Files are JSON, safetensors
and raw bytes, each with its length and checksum: loading runs no code and notices every cut.
"""

from __future__ import annotations

import json
import os
import platform
import re
import secrets
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy
import torch
from numpy.typing import NDArray

from coldstream.replay import ReplayBuffer

FORMAT, VERSION = "coldstream-checkpoint", 1
MANIFEST = "manifest.json"
_OURS = re.compile(r"^(state|rows)-\d+-[0-9a-f]{8}\.(safetensors|bin)$|^manifest\.json(\.tmp)?$")
_SMALL = 4_000_000

Arrays = dict[str, NDArray[Any]]


class CheckpointError(ValueError):
    """A checkpoint that is missing, cut, damaged, foreign or of a newer format."""


@dataclass(frozen=True)
class Segment:
    """One file of packed rows, in ascending order of serial number, from `first` to `last`."""

    file: str
    first: int
    last: int
    rows: int
    bytes: int
    crc32: int


def environment() -> dict[str, str | int]:
    """Return what results depend on to the bit: versions, machine and thread count."""
    return {
        "python": platform.python_version(),
        "torch": version("torch"),
        "torchvision": version("torchvision"),
        "numpy": version("numpy"),
        "machine": f"{platform.system()} {platform.machine()}",
        "threads": torch.get_num_threads(),
    }


def write(
    folder: Path, plain: dict[str, Any], arrays: Arrays, buffer: ReplayBuffer | None, known: list[Segment]
) -> list[Segment]:
    """Write a checkpoint into `folder` and return the segments that now hold the buffer's rows.

    `known` are the segments that this learner wrote to or read from the folder: rows in them are not written
    again. Whatever else the folder held as a checkpoint is replaced, at one instant.
    """
    _check_target(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _remove_all_but(folder, _files_of(folder))
        plain = {"format": FORMAT, "version": VERSION, **plain, "environment": environment()}
        segments: list[Segment] = []
        if buffer is not None:
            there = _files_of(folder)
            intact = all(segment.file in there for segment in known)
            segments = _write_rows(folder, buffer, known if intact else [], plain["step"])
        name = f"state-{plain['step']}-{secrets.token_hex(4)}.safetensors"
        data = safetensors.numpy.save({key: np.asarray(value, order="C") for key, value in arrays.items()})
        plain["state"] = {"file": name, **_write_file(folder / name, [data])}
        plain["segments"] = [asdict(segment) for segment in segments]
        plain["crc32"] = _checksum(plain)
        write_atomically(folder / MANIFEST, json.dumps(plain, indent=1).encode())
        _remove_all_but(folder, _files_of(folder))
    except OSError as error:
        raise OSError(error.errno, f"cannot write the checkpoint {str(folder)!r}: {error.strerror}") from error
    return segments


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
    if not isinstance(found, int) or found > VERSION:
        raise CheckpointError(
            f"checkpoint {str(folder)!r} has format version {found}; this Coldstream reads up to {VERSION}: update it"
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


def _write_rows(folder: Path, buffer: ReplayBuffer, known: list[Segment], step: int) -> list[Segment]:
    """Write the rows that no known segment holds.

    A last segment that is still small is written anew together with them, and so is the one with the largest
    share of dead rows once that is over a half: files stay few and a checkpoint's cost bounded.
    """
    serials = buffer.index.serials.view
    order = np.argsort(serials, kind="stable")
    sorted_serials = serials[order]

    def span(segment: Segment) -> tuple[int, int]:
        left, right = np.searchsorted(sorted_serials, (segment.first, segment.last + 1))
        return int(left), int(right)

    kept = [segment for segment in known if span(segment)[0] < span(segment)[1]]
    written = np.searchsorted(sorted_serials, kept[-1].last + 1) if kept else 0
    jobs: list[tuple[int, int]] = []
    if written < len(order):
        start = int(written)
        if kept and kept[-1].bytes < _SMALL:
            start = span(kept.pop())[0]
        jobs.append((start, len(order)))
    if kept:
        live = [(span(s)[1] - span(s)[0]) / s.rows for s in kept]
        worst = int(np.argmin(live))
        if live[worst] < 0.5:
            jobs.append(span(kept.pop(worst)))
    for left, right in jobs:
        rows = buffer.rows.get(order[left:right])
        parts: list[Any] = [sorted_serials[left:right].astype(np.int64).tobytes()]
        if isinstance(rows, np.ndarray):
            parts.append(np.ascontiguousarray(rows).data)
        else:
            parts += [np.array([len(row) for row in rows], np.int64).tobytes(), *rows]
        name = f"rows-{step}-{secrets.token_hex(4)}.bin"
        sizes = _write_file(folder / name, parts)
        ends = int(sorted_serials[left]), int(sorted_serials[right - 1])
        kept.append(Segment(name, *ends, right - left, **sizes))
    return sorted(kept, key=lambda segment: segment.first)


def _write_file(path: Path, parts: list[Any]) -> dict[str, int]:
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
