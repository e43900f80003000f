"""A run's folder: what is written there, when, and what of it survives a crash.

config.yaml       every setting, spelled out
environment.json  versions, machine, threads, commit
checkpoint/       the learner
metrics.jsonl     a line a test event; a function of config and data alone
offline.jsonl     a line an offline reference
timing.json       wall times and allocated memory, which differ from run to run
summary.json      the results; a function of config and data alone
accuracy.png, reliability.png, report.html
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import coldstream
from coldstream.checkpoint import environment, write_atomically

Record = dict[str, Any]


class RunFolder:
    """The files of one run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.checkpoint = path / "checkpoint"

    def create(self, config: str) -> None:
        """Make the folder for a new run; refuse one that is in use."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            if any(self.path.iterdir()):
                raise ValueError(
                    f"folder {str(self.path)!r} is not empty; go on with that run by --resume {self.path}, "
                    "or choose another --out"
                )
            write_atomically(self.path / "environment.json", _json(self.describe_environment()))
            write_atomically(self.path / "config.yaml", config.encode())
        except OSError as error:
            raise ValueError(f"cannot write to folder {str(self.path)!r}: {error.strerror}") from error

    @staticmethod
    def describe_environment() -> Record:
        return {**environment(), "coldstream": coldstream.__version__, "commit": _commit()}

    def append(self, name: str, record: Record) -> None:
        """Add a line to a .jsonl file; on return it is on disk."""
        with open(self.path / name, "ab") as file:
            file.write(json.dumps(record).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())

    def read_lines(self, name: str) -> list[Record]:
        """Return the whole lines of a .jsonl file; one that a crash cut short is left out."""
        path = self.path / name
        lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
        return [json.loads(line) for line in lines]

    def rewrite_lines(self, name: str, records: list[Record]) -> None:
        """Replace a .jsonl file at one instant."""
        write_atomically(self.path / name, b"".join(json.dumps(record).encode() + b"\n" for record in records))

    def write(self, name: str, record: Record) -> None:
        """Replace a .json file at one instant."""
        write_atomically(self.path / name, _json(record))

    def read(self, name: str) -> Record:
        record: Record = json.loads((self.path / name).read_bytes())
        return record


def _json(record: Record) -> bytes:
    return json.dumps(record, indent=1).encode() + b"\n"


def _commit() -> str | None:
    """Return the commit of the code that runs, where it runs from a checkout."""
    here = Path(__file__).parent
    try:
        top = subprocess.run(["git", "-C", here, "ls-files", "--error-unmatch", __file__], capture_output=True)
        found = subprocess.run(["git", "-C", here, "rev-parse", "HEAD"], capture_output=True, text=True)
    except OSError:
        return None
    return found.stdout.strip() if top.returncode == found.returncode == 0 else None
