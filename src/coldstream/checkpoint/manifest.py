"""The manifest of a checkpoint: what a learner is, and which files make it up. Whatever is in one may be forged."""

from __future__ import annotations

import json
import math
import platform
import zlib
from collections.abc import Mapping
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from coldstream.checkpoint.files import CheckpointError

FORMAT, VERSION = "coldstream-checkpoint", 7
MANIFEST = "manifest.json"
MOST_BYTES = 1 << 28
"""Of a manifest."""
MOST_VALUES = 1 << 26
"""Of one image or vector."""
STATE_FILE, ROWS_FILE = r"state-\d{1,19}-[0-9a-f]{8}\.safetensors", r"rows-\d{1,19}-[0-9a-f]{8}\.bin"

Count = Annotated[int, Field(ge=0, le=1 << 62)]
Checksum = Annotated[int, Field(ge=0, lt=1 << 32)]
Side = Annotated[int, Field(ge=1, le=MOST_VALUES)]
Plain = dict[str, Any]
"""What a method or a user keeps: any JSON."""


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class StateFile(_Record):
    """The file of weights, optimiser and indexes."""

    file: Annotated[str, Field(pattern=f"^{STATE_FILE}$")]
    bytes: Count
    crc32: Checksum


class Segment(_Record):
    """A file of packed rows of one buffer, in ascending order of serial numbers `first` to `last`."""

    file: Annotated[str, Field(pattern=f"^{ROWS_FILE}$")]
    buffer: Count
    first: Count
    last: Count
    rows: Annotated[int, Field(ge=1, le=1 << 40)]
    bytes: Count
    crc32: Checksum


class SavedClasses(_Record):
    """The classes of a task (`coldstream.labels.Classes`); a method may keep more for them."""

    model_config = ConfigDict(extra="allow")
    labels: list[Any]
    counts: list[Count]
    updates: list[Count]
    into: list[Count]

    @model_validator(mode="after")
    def _as_many(self) -> Self:
        if not len(self.labels) == len(self.counts) == len(self.updates) == len(self.into):
            raise ValueError("classes, their counts and their rows differ in number")
        if any(row >= len(self.labels) for row in self.into):
            raise ValueError("a class was merged into one that does not exist")
        return self


class SavedTask(_Record):
    """One task without its arrays."""

    name: Any
    classes: SavedClasses
    method: Plain
    buffer: Plain | None = None


class Contents(_Record):
    """A learner without its arrays."""

    kind: Annotated[str, Field(max_length=200)]
    settings: Plain
    step: Count
    prepared: bool
    shape: Annotated[list[Side], Field(min_length=1, max_length=3)] | None
    next_id: Count
    last: Annotated[list[Any], Field(min_length=3, max_length=3)] | None
    method: Plain
    tasks: list[SavedTask]
    environment: dict[str, str | int]
    extra: Plain

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.shape is None and (self.tasks or self.last):
            raise ValueError("tasks without a network")
        if self.shape is not None and math.prod(self.shape) > MOST_VALUES:
            raise ValueError(f"an item of more than {MOST_VALUES} values")
        if self.last is not None:
            id, row, task = self.last
            if type(id) not in (str, int) or type(row) is not int or type(task) is not int:
                raise ValueError("the last example is not (id, row, task)")
            if not 0 <= task < len(self.tasks) or not 0 <= row < len(self.tasks[task].classes.labels):
                raise ValueError("the last example is of no class")
        return self


class Manifest(Contents):
    """A checkpoint's manifest."""

    format: Literal["coldstream-checkpoint"]
    version: Literal[7]
    state: StateFile
    segments: list[Segment]
    crc32: Checksum

    @model_validator(mode="after")
    def _segments_follow_each_other(self) -> Self:
        last: dict[int, int] = {}
        for segment in self.segments:
            if not last.get(segment.buffer, -1) < segment.first <= segment.last:
                raise ValueError("segments of a buffer overlap")
            last[segment.buffer] = segment.last
        return self

    @property
    def files(self) -> set[str]:
        """The names of all files of the checkpoint."""
        return {MANIFEST, self.state.file, *(segment.file for segment in self.segments)}


def check_contents(plain: Plain) -> None:
    """Refuse, before anything is written, what could not be loaded again."""
    try:
        Contents.model_validate(plain)
    except ValidationError as error:
        raise ValueError(f"the learner cannot be saved: {_first(error)}") from None


def encode(plain: Plain, state: StateFile, segments: list[Segment]) -> bytes:
    """Return the text of a manifest."""
    whole = {"format": FORMAT, "version": VERSION, **plain, "state": state.model_dump()}
    whole["segments"] = [segment.model_dump() for segment in segments]
    whole["crc32"] = checksum(whole)
    data = json.dumps(whole, indent=1).encode()
    if len(data) > MOST_BYTES:
        raise ValueError(f"the manifest would have {len(data)} bytes, more than the {MOST_BYTES} that are read again")
    return data


def checksum(manifest: Mapping[str, Any]) -> int:
    """Return the checksum of a manifest's values."""
    rest = {key: value for key, value in manifest.items() if key != "crc32"}
    return zlib.crc32(json.dumps(rest, sort_keys=True).encode())


def read_manifest(folder: Path) -> Manifest:
    """Return a checkpoint's manifest, checked."""
    return parse(folder, manifest_bytes(folder))


def manifest_bytes(folder: Path) -> bytes:
    """Return the text of a checkpoint's manifest."""
    path = folder / MANIFEST
    if not path.is_file():
        raise CheckpointError(f"there is no checkpoint at {str(folder)!r} (no {MANIFEST} in it)")
    with open(path, "rb") as file:
        data = file.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise CheckpointError(f"checkpoint {str(folder)!r}: {MANIFEST} has more than {MOST_BYTES} bytes")
    return data


def parse(folder: Path, data: bytes) -> Manifest:
    """Return the manifest that a text holds; `folder` is for error messages."""
    try:
        plain = json.loads(data)
        right = isinstance(plain, dict) and plain.get("crc32") == checksum(plain)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"checkpoint {str(folder)!r}: {MANIFEST} is truncated or damaged ({error})") from None
    if not isinstance(plain, dict) or plain.get("format") != FORMAT:
        raise CheckpointError(f"{str(folder / MANIFEST)!r} is not a Coldstream checkpoint")
    given = plain.get("version")
    if given != VERSION:
        raise CheckpointError(
            f"checkpoint {str(folder)!r} has format version {str(given)[:20]}; this Coldstream reads {VERSION}: load "
            "it with the one that wrote it"
        )
    if not right:
        raise CheckpointError(f"checkpoint {str(folder)!r} is damaged: the checksum of its {MANIFEST} is wrong")
    try:
        return Manifest.model_validate(plain)
    except ValidationError as error:
        raise CheckpointError(f"checkpoint {str(folder)!r} is damaged: {MANIFEST}, {_first(error)}") from None


def _first(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_input=False)[0]
    return f"{'.'.join(map(str, first['loc'])) or 'the whole'}: {first['msg'].lower()}"


def environment() -> dict[str, str | int]:
    """Return what results depend on, bit for bit: versions, machine and thread count."""
    return {**_versions(), "threads": torch.get_num_threads()}


@cache
def _versions() -> dict[str, str]:
    return {
        "python": platform.python_version(),
        **{name: version(name) for name in ("torch", "torchvision", "numpy")},
        "machine": f"{platform.system()} {platform.machine()}",
    }


def differences(saved: Mapping[str, Any]) -> list[str]:
    """Return the differences between this environment and that of a checkpoint."""
    now = environment()
    return [f"{key} {saved.get(key)} then, {value} now" for key, value in now.items() if saved.get(key) != value]
