"""Files of a run: small, readable, each replaced or appended to so that a crash leaves it whole.

    runs/NAME/              an experiment: config.yaml, environment.json, summary.json, tables, pictures, report.html
    runs/store/units/KEY/   one learner on one stream: checkpoint/, metrics.jsonl, summary.json, timing.json
    runs/store/offline/KEY/ one offline reference: summary.json
    runs/store/pretrained/KEY/ one network trained before the stream: weights.safetensors, summary.json

metrics.jsonl and summary.json are functions of settings and data alone; wall times and allocated memory, which differ
from run to run, are in timing.json.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from coldstream.checkpoint import write_atomically

Record = dict[str, Any]


class Folder:
    """A folder of .json and .jsonl files."""

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

    def append(self, name: str, record: Record) -> None:
        """Add a line to a .jsonl file; on return it is on disk."""
        with open(self.path / name, "ab") as file:
            file.write(json.dumps(record).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())

    def lines(self, name: str) -> list[Record]:
        """Return the whole lines of a .jsonl file; one that a crash cut short is left out."""
        path = self.path / name
        return [json.loads(line) for line in path.read_bytes().split(b"\n")[:-1]] if path.exists() else []

    def rewrite(self, name: str, records: list[Record]) -> None:
        """Replace a .jsonl file at one instant."""
        write_atomically(self.path / name, b"".join(json.dumps(record).encode() + b"\n" for record in records))

    def write(self, name: str, content: Record | str) -> None:
        """Replace a file at one instant: a .json file from a record, any other from its text."""
        text = content if isinstance(content, str) else json.dumps(content, indent=1) + "\n"
        write_atomically(self.path / name, text.encode())

    def read(self, name: str) -> Record:
        record: Record = json.loads((self.path / name).read_bytes())
        return record
