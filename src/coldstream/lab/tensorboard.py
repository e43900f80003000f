"""What TensorBoard shows of a learner: its numbers at each test."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

from coldstream.lab.records import Record


class Board:
    """Writes each test into a folder for TensorBoard; a file is opened with the first, so that looking makes none."""

    def __init__(self, path: Path) -> None:
        if find_spec("tensorboard") is None:
            raise ValueError("tensorboard: true needs the package tensorboard: pip install coldstream[tensorboard]")
        self._path = path
        self._writer: Any = None

    def log(self, event: Record) -> None:
        """Write the numbers of one test; on return they can be read."""
        if self._writer is None:
            from torch.utils.tensorboard import SummaryWriter

            self._writer = SummaryWriter(str(self._path))
        of = f"{event['task']}/" if "task" in event else ""
        for number in ("accuracy", "top5", "ece"):
            self._writer.add_scalar(f"{of}{number}", event[number], event["step"])
        self._writer.flush()

    def close(self) -> None:
        """Close the file; a later test opens another."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None
