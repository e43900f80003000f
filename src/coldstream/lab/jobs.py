"""A job: a piece of work in a folder named by the hash of all that it depends on.

It is finished when its summary.json is there. Stopped at any moment before, it resumes bit for bit from its last
checkpoint. What a job computes is in `units`, `references` and `pretraining`.
"""

from __future__ import annotations

import fcntl
import json
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING

from coldstream.lab.files import Folder
from coldstream.lab.plan import PlannedPretraining, PlannedReference, PlannedUnit

if TYPE_CHECKING:
    from coldstream.lab.experiment import Experiment

Watch = Callable[[int, int, str], bool]
"""(done, total, note) -> whether to stop: how a job reports its progress and asks whether to go on."""


class Stopped(Exception):
    """The job was asked to stop, and did so at a checkpoint."""


class Job:
    """A planned job of an experiment, its folder, and the jobs whose results it begins with."""

    def __init__(
        self,
        planned: PlannedPretraining | PlannedUnit | PlannedReference,
        experiment: Experiment,
        needs: tuple[Job, ...] = (),
    ) -> None:
        self.planned, self.experiment, self.needs = planned, experiment, needs
        self.folder = Folder(experiment.store / planned.kind / planned.key)

    @property
    def key(self) -> str:
        return self.planned.key

    @property
    def title(self) -> str:
        return self.planned.title

    @property
    def counted(self) -> str:
        """The unit of progress: examples or epochs."""
        return self.planned.counted

    @property
    def finished(self) -> bool:
        return self.folder.has("summary.json")

    @property
    def again(self) -> str:
        """Advice for error messages about a damaged file of the job."""
        return f"delete the folder {self.folder.path} and run the experiment again"

    @property
    def weights(self) -> Path:
        """The file of a pre-trained network; it is there when that job is finished."""
        return self.folder.path / "weights.safetensors"

    def progress(self) -> tuple[int, int]:
        """Return (done, total) as of the last checkpoint."""
        total = self.planned.total
        if self.finished:
            return total, total
        manifest = self.folder.path / "checkpoint" / "manifest.json"
        if not manifest.exists():
            return 0, total
        try:
            return int(json.loads(manifest.read_bytes())["step"]), total
        except (ValueError, TypeError, KeyError) as error:
            raise ValueError(f"{manifest} is damaged ({error}); {self.again}") from None

    def run(self, watch: Watch) -> None:
        """Do what is left to do; no two processes do the same job at once, the second one waits for the first."""
        self.folder.make()
        with open(self.folder.path / "lock", "w") as file:
            while not _locked(file):
                if watch(*self.progress(), "another process is at it"):
                    raise Stopped
                time.sleep(0.2)
            if not self.finished:
                for job in self.needs:
                    job.run(partial(self._waiting, watch, job))
                self._compute(watch)

    def _waiting(self, watch: Watch, job: Job, done: int, total: int, note: str) -> bool:
        return watch(*self.progress(), note or f"{job.title}: {done} of {total} {job.counted}")

    def _compute(self, watch: Watch) -> None:
        from coldstream.lab import pretraining, references, units

        self.experiment.set_threads()
        compute = {"units": units.run, "offline": references.run, "pretrained": pretraining.run}[self.planned.kind]
        compute(self, watch)

    def start_weights(self) -> Path | None:
        """Return the file of the pre-trained weights that this job begins from, where it does."""
        return self.needs[0].weights if self.needs else None

    def check_key(self, key: str) -> None:
        """Refuse to compute what was planned with other data or code than there are now."""
        if key != self.key:
            raise ValueError(
                f"{self.title}: the data or the code has changed since this run was planned; give the command of the "
                "run again, which plans anew and computes what has changed"
            )


def _locked(file: IO[str]) -> bool:
    """Lock a job's file until it is closed; return False while another process holds the lock."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
