"""What TensorBoard shows of a learner: its numbers at each test."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

from coldstream.lab.records import EventResult


def check_tensorboard() -> None:
    """Refuse where the package is missing."""
    if find_spec("tensorboard") is None:
        raise ValueError("tensorboard: true needs the package tensorboard: uv run --extra tensorboard coldstream ...")


class TensorBoardLog:
    """Writes each test into a folder for TensorBoard; the first one opens the file."""

    def __init__(self, path: Path) -> None:
        check_tensorboard()
        self._path = path
        self._writer: Any = None

    def log(self, event: EventResult) -> None:
        """Write the numbers of one test; on return they can be read."""
        if self._writer is None:
            from torch.utils.tensorboard import SummaryWriter

            self._writer = SummaryWriter(str(self._path))
        prefix = "" if event.task is None else f"{event.task}/"
        for number in ("accuracy", "top5", "ece"):
            self._writer.add_scalar(f"{prefix}{number}", getattr(event, number), event.step)
        self._writer.flush()

    def close(self) -> None:
        """Close the file; a later test opens another."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None
