"""The checkpoints of a live learner: two folders in turn, each checked after it was written."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from coldstream import checkpoint
from coldstream.checkpoint import CheckpointError
from coldstream.learners import ColdStart

FOLDER = "checkpoints"
_NAMES = ("a", "b")


class Checkpoints:
    """Writes the learner in the background, and finds what was written."""

    def __init__(self, project: Path) -> None:
        self._folder = project / FOLDER
        self._thread: threading.Thread | None = None
        self.saved = 0
        """The event after which the newest good checkpoint was taken."""
        self.error: str | None = None
        """Why the last checkpoint was not written."""

    def newest(self) -> Iterator[tuple[int, bytes, Path]]:
        """Yield (event, checksum of the journal there, folder) of what was written, newest first."""
        self.wait()
        checkpoints = []
        for name in _NAMES:
            with suppress(CheckpointError, OSError, KeyError, TypeError, ValueError):
                extra = checkpoint.read_manifest(self._folder / name).extra
                checkpoints.append((int(extra["seq"]), bytes.fromhex(extra["checksum"]), self._folder / name))
        yield from sorted(checkpoints, reverse=True)

    def load(self, folder: Path, seq: int) -> ColdStart:
        """Return the learner of a checkpoint, every file of which was checked."""
        learner = ColdStart.load(folder)
        self.saved = seq
        return learner

    @property
    def busy(self) -> bool:
        """Whether a checkpoint is being written or checked."""
        return self._thread is not None and self._thread.is_alive()

    def write(self, learner: ColdStart, seq: int, checksum: bytes) -> None:
        """Write the learner as it is now, in the place of the older checkpoint; return before that is done."""
        self.wait()
        kept = [folder for _, _, folder in self.newest()][:1]
        folder = next(self._folder / name for name in _NAMES if self._folder / name not in kept)
        try:
            saving = learner.save(folder, extra={"seq": seq, "checksum": checksum.hex()}, wait=False)
        except (OSError, CheckpointError) as error:
            self.error = str(error)
            return

        def finish() -> None:
            try:
                saving.result()
            except (OSError, CheckpointError) as error:  # the earlier one is still whole
                self.error = str(error)
                return
            try:
                checkpoint.verify(folder)
            except (OSError, CheckpointError) as error:
                self.error = str(error)
                shutil.rmtree(folder, ignore_errors=True)  # the next one begins anew
                return
            self.saved, self.error = seq, None

        self._thread = threading.Thread(target=finish, name="checking a checkpoint")
        self._thread.start()

    def wait(self) -> None:
        """Wait until nothing is being written."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
