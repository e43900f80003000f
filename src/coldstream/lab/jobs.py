"""The pieces of work of an experiment, and the one that streams: a learner on a stream.

A job lives in a folder named by the hash of all that it depends on. It is finished when its summary.json is there;
stopped at any moment before, it goes on from its last checkpoint to the same bits.
"""

from __future__ import annotations

import fcntl
import time
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import IO, Any

from coldstream import metrics
from coldstream.checkpoint import MANIFEST, Saving, read_manifest
from coldstream.data import Dataset
from coldstream.lab.environment import describe_environment
from coldstream.lab.evaluation import Evaluation
from coldstream.lab.records import Folder, Record
from coldstream.lab.tensorboard import Board
from coldstream.learners.base import Learner
from coldstream.learners.training.offline import OfflineRecipe
from coldstream.streams import Event, Task, TaskStream

Watch = Callable[[int, int, str], bool]
"""(done, total, note) -> whether to stop: how a job says how far it is and asks whether to go on."""


class Stopped(Exception):
    """The job was asked to stop, and did so at a checkpoint."""


@dataclass
class Job(ABC):
    """A piece of work with an address."""

    title: str
    key: str
    folder: Folder

    unit: str = "examples"
    needs: tuple[Job, ...] = ()
    """Jobs whose results this one begins with."""

    @property
    def finished(self) -> bool:
        return self.folder.has("summary.json")

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
                self._run(watch)

    def _waiting(self, watch: Watch, job: Job, done: int, total: int, note: str) -> bool:
        return watch(*self.progress(), note or f"{job.title}: {done} of {total} {job.unit}")

    @abstractmethod
    def _run(self, watch: Watch) -> None: ...

    @abstractmethod
    def progress(self) -> tuple[int, int]:
        """Return (done, total) as of the last checkpoint."""


def _locked(file: IO[str]) -> bool:
    """Take the lock of a job, which ends with the file; False while another process has it."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextmanager
def _ended(saves: list[Saving]) -> Iterator[None]:
    """Leave no checkpoint half written: from here on the job's folder may be another process's."""
    try:
        yield
    finally:
        for saving in saves:
            saving.settle()


@dataclass
class Clock:
    """Seconds spent learning, and predicting each example before; over all sittings."""

    learn: float = 0.0
    predict: float = 0.0

    @contextmanager
    def learning(self) -> Iterator[None]:
        begin = time.perf_counter()
        yield
        self.learn += time.perf_counter() - begin

    @contextmanager
    def predicting(self) -> Iterator[None]:
        begin = time.perf_counter()
        yield
        self.predict += time.perf_counter() - begin


@dataclass
class UnitJob(Job):
    """One learner on one stream, of one task or of several; base initialisation is of the first."""

    make: Callable[[], Learner] | None = None
    load: Callable[[Path], Learner] | None = None
    stream: TaskStream | None = None
    tests: Mapping[Task, Dataset] = field(default_factory=dict)
    base: Dataset | None = None
    recipe: OfflineRecipe = OfflineRecipe()  # noqa: RUF009 - frozen
    prequential: bool = True
    checkpoint_every: int = 200
    beside: bool = False
    board: Board | None = None

    def progress(self) -> tuple[int, int]:
        total = len(self._stream)
        if self.finished:
            return total, total
        path = self.folder.path / "checkpoint"
        return (int(read_manifest(path)["step"]) if (path / MANIFEST).exists() else 0), total

    @property
    def _stream(self) -> TaskStream:
        assert self.stream is not None
        return self.stream

    def _run(self, watch: Watch) -> None:
        checkpoint = self.folder.path / "checkpoint"
        preq, clock = metrics.Prequential(), Clock()
        if (checkpoint / MANIFEST).exists():
            assert self.load is not None
            learner = self.load(checkpoint)
            extra = read_manifest(checkpoint)["extra"]
            preq, clock = metrics.Prequential.from_dict(extra["prequential"]), Clock(**extra["clock"])
        else:
            learner = self._prepared(watch)
        # A checkpoint has the line of every test before it, so that only those after it are made again.
        lines = [event for event in self.folder.lines("metrics.jsonl") if event["step"] <= learner.step]
        self.folder.rewrite("metrics.jsonl", lines)

        last: list[Saving] = []

        def save(*, wait: bool) -> None:
            extra = {"prequential": preq.to_dict(), "clock": asdict(clock)}
            last[:] = [learner.save(checkpoint, extra=extra, wait=wait)]

        stream, ids, ends = self._stream, self._stream.ids(), set(self._stream.batches)
        tests: dict[int, list[Event]] = defaultdict(list)
        for event in stream.events:
            tests[event.step].append(event)
        total = len(stream)
        note, due = "", False
        with (
            _ended(last),
            closing(self.board) if self.board else nullcontext(),
            Evaluation(self.tests, self._found, beside=self.beside) as evaluation,
        ):
            while learner.step < total:
                if watch(learner.step, total, note):
                    evaluation.wait()
                    save(wait=True)
                    raise Stopped
                image, label, task = stream.example(learner.step)
                if self.prequential:
                    with clock.predicting():
                        preq.update(learner.predict_one(image, task=task) == label)
                    note = f"accuracy {preq.windowed:.1%}"
                with clock.learning():
                    learner.learn_one(image, label, task=task, id=ids[learner.step])
                    if learner.step in ends:
                        learner.end_batch(partial(self._training, watch, learner.step))
                step = learner.step
                if step in tests:
                    evaluation.begin(learner, tests[step])
                if step == total or (due and step in tests):  # a checkpoint is put off until the next test at most
                    evaluation.wait()
                due = due or step % self.checkpoint_every == 0 or step == total
                if not evaluation.under_way() and due:
                    save(wait=step == total)
                    due = False
        watch(total, total, note)
        self._finish(learner, preq, clock)

    def _training(self, watch: Watch, step: int, epoch: int, epochs: int) -> None:
        """Say how far a batch-incremental learner is with a batch; asked to stop, it begins that batch again."""
        if watch(step, len(self._stream), f"batch ended, epoch {epoch} of {epochs}"):
            raise Stopped

    def _found(self, event: Record) -> None:
        self.folder.append("metrics.jsonl", event)
        if self.board:
            self.board.log(event)

    def _prepared(self, watch: Watch) -> Learner:
        """Return a learner that can begin to stream."""
        assert self.make is not None
        learner = self.make()
        if self.base is not None:

            def watched(epoch: int) -> None:
                if watch(0, len(self._stream), f"base initialisation, epoch {epoch} of {self.recipe.epochs}"):
                    raise Stopped

            watched(0)
            first = next(iter(self._stream.parts))
            named: dict[str, Any] = {} if first is None else {"task": first}
            learner.base_init(self.base, self.recipe, watched, **named)
            nothing = {"prequential": metrics.Prequential().to_dict(), "clock": asdict(Clock())}
            learner.save(self.folder.path / "checkpoint", extra=nothing)
        return learner

    def _finish(self, learner: Learner, preq: metrics.Prequential, clock: Clock) -> None:
        timing: Record = {
            "seconds": clock.learn + clock.predict,
            "ms_per_example": 1000 * clock.learn / max(1, learner.step),
            "environment": describe_environment(),
        }
        summary: Record = {
            "examples": learner.step,
            "prequential": preq.cumulative,
            "buffer": None,
            "parameters": learner.parameters(),
            "frozen_share": learner.frozen_share(),
            "fingerprint": learner.fingerprint(),
        }
        if learner.stores:
            summary["buffer"] = dict(zip(("examples", "bytes"), learner.memory(), strict=True))
            timing["index_bytes"] = learner.overhead()
        self.folder.write("timing.json", timing)
        self.folder.write("summary.json", summary)
