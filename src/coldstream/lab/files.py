"""Files of a run: small, readable, each replaced or appended to so that a crash leaves it whole.

    runs/NAME/                 an experiment: config.yaml, plan.json, environment.json, metrics.jsonl, summary.json,
                               timing.json, tables, pictures, report.html; with one learner and seed also model/
    runs/store/units/KEY/      one learner on one stream: checkpoint/, metrics.jsonl, summary.json, timing.json
    runs/store/offline/KEY/    one offline reference: summary.json, timing.json
    runs/store/pretrained/KEY/ one network trained before the stream: weights.safetensors, summary.json, timing.json

metrics.jsonl and summary.json are functions of settings and data alone. Wall times and allocated memory, which differ
from run to run, are in timing.json. `coldstream.lab.records` has the type of each file.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError


class Record(BaseModel):
    """What a file or a line of a file holds: read-only, no unknown fields."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Seal(Record):
    """How many lines a .jsonl file has, and a hash of them, each chained to those before it."""

    lines: int = 0
    sha256: str = ""

    def with_lines(self, *lines: bytes) -> Seal:
        """Return the seal of these lines after its own."""
        digest = self.sha256
        for line in lines:
            digest = hashlib.sha256(digest.encode() + line).hexdigest()
        return Seal(lines=self.lines + len(lines), sha256=digest)


R = TypeVar("R", bound=Record)
CHECKSUM = "checksum"
"""In a .json file, the hash of all that the file has beside it."""


class Folder:
    """A folder of .json files, one record each, and .jsonl files, one record per line."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def make(self) -> None:
        """Make the folder, or say why it cannot be made."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ValueError(f"cannot write to folder {str(self.path)!r}: {error.strerror}") from error

    def has(self, name: str) -> bool:
        return (self.path / name).is_file()

    def read(self, name: str, kind: type[R]) -> R:
        """Return the record of a .json file; refuse one whose checksum is wrong. Old runs have none."""
        path, plain = self.path / name, None
        data = path.read_bytes()
        with suppress(ValueError, RecursionError):  # of what is no JSON `parse` says so
            plain = json.loads(data)
        if isinstance(plain, dict) and CHECKSUM in plain:
            given, data = plain.pop(CHECKSUM), json.dumps(plain).encode()
            if given != hash_of(data):
                raise ValueError(
                    f"{path} is damaged: its checksum is wrong; restore it, or delete it and run the experiment again"
                )
        return parse(data, kind, path)

    def write(self, name: str, content: Record | str) -> None:
        """Replace a file at one instant: a .json file from a record, with its checksum, any other from its text."""
        from coldstream.checkpoint import write_atomically

        text = content if isinstance(content, str) else _with_checksum(content)
        write_atomically(self.path / name, text.encode("utf-8", "backslashreplace"))

    def lines(self, name: str, kind: type[R]) -> list[R]:
        """Return the records of a .jsonl file; a last line that a crash cut short is left out."""
        return [parse(line, kind, self.path / name) for line in self._lines(name)]

    def sealed_lines(self, name: str, kind: type[R], seal: Seal | None, advice: str) -> list[R]:
        """Return the records of the lines that a seal is of, or refuse them; `advice` says what to do then.

        Lines that were added since are left out. Without a seal, as old runs are, all lines are returned.
        """
        lines = self._lines(name)
        if seal is not None:
            kept, lines = len(lines), lines[: seal.lines]
            if Seal().with_lines(*lines) != seal:
                wrong = f"it has {kept} of {seal.lines} lines" if kept < seal.lines else "its checksum is wrong"
                raise ValueError(f"{self.path / name} is damaged: {wrong}; restore it, or {advice}")
        return [parse(line, kind, self.path / name) for line in lines]

    def _lines(self, name: str) -> list[bytes]:
        path = self.path / name
        return path.read_bytes().split(b"\n")[:-1] if path.exists() else []

    def append(self, name: str, record: Record, seal: Seal) -> Seal:
        """Add a line to a .jsonl file; on return it is on disk. Return the file's seal from the one before."""
        line = _line(record)
        with open(self.path / name, "ab") as file:
            file.write(line + b"\n")
            file.flush()
            os.fsync(file.fileno())
        return seal.with_lines(line)

    def rewrite(self, name: str, records: Iterable[Record]) -> Seal:
        """Replace a .jsonl file at one instant; return its seal."""
        from coldstream.checkpoint import write_atomically

        lines = [_line(record) for record in records]
        write_atomically(self.path / name, b"".join(line + b"\n" for line in lines))
        return Seal().with_lines(*lines)


def hash_of(data: bytes) -> str:
    """Return the SHA-256 of a file's bytes."""
    return hashlib.sha256(data).hexdigest()


def parse(data: bytes, kind: type[R], path: Path) -> R:
    """Return the record that JSON text holds; `path` names its file in the error of a text that does not."""
    try:
        return kind.model_validate_json(data)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the whole"
        raise ValueError(
            f"{path} is not a {kind.__name__} of this version of coldstream ({where}: {first['msg'].lower()}); "
            "restore it, or delete it and run the experiment again"
        ) from None


def to_json(record: Record) -> str:
    """Return a record as indented JSON."""
    return json.dumps(record.model_dump(mode="json"), indent=1) + "\n"


def _with_checksum(record: Record) -> str:
    return json.dumps({**record.model_dump(mode="json"), CHECKSUM: hash_of(_line(record))}, indent=1) + "\n"


def _line(record: Record) -> bytes:
    return json.dumps(record.model_dump(mode="json")).encode()
