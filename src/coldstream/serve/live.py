"""The live learner: one thread that learns in the journal's order, and a copy of the learner that answers.

The learner is a function of the settings and of the journal. The thread writes what it is about to do (which labels
go into one update, how often it rehearses) into the journal first. After a crash the last checkpoint is loaded, and
the rest of the journal gives the same bits.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from coldstream.images import Pixels
from coldstream.learners import ColdStart
from coldstream.serve.checkpoints import Checkpoints
from coldstream.serve.images import Unreadable
from coldstream.serve.journal import CannotWrite
from coldstream.serve.records import Op

log = logging.getLogger("coldstream.serve")

CHECKPOINT_UPDATES = 100
"""Updates after which a checkpoint is due."""
CHECKPOINT_SECONDS = 30.0
"""Seconds after which one is due if anything was learned."""
_SNAPSHOT_SECONDS = 0.25
"""How long the copy that answers may stay behind while more is waiting to be learned."""
_RETRY_SECONDS = 1.0
_RETRY_CHECKPOINT_SECONDS = 5.0
_BUSY_SECONDS = 0.2
"""How long to wait for a checkpoint that is being written before asking again."""


class History(Protocol):
    """What the live learner asks of its project. Each method takes the project's lock by itself."""

    @property
    def settings(self) -> dict[str, Any]:
        """The settings of the project."""

    @property
    def seq(self) -> int:
        """The last event."""

    def take(self) -> list[Op]:
        """Return what the journal asks of the learner since the last call."""

    def begin_update(self, live: Live) -> bool:
        """Write into the journal which labels go into one update; False if none is waiting."""

    def begin_rehearsal(self) -> bool:
        """Write into the journal that the learner rehearses; False if it has done so enough."""

    def replay(self, after: int) -> Iterable[Op]:
        """Forget what `take` would return; return what the journal asks of the learner after an event."""

    def refuse(self, seq: int, error: str) -> None:
        """Write into the journal that the update of an event is left out for good."""

    def refused(self) -> set[int]:
        """Return the events that are left out."""

    def checksum(self, seq: int) -> bytes | None:
        """Return the checksum of an event."""

    def pixels(self, id: str, shape: tuple[int, ...]) -> Pixels:
        """Return an image at the network's size."""


@dataclass(frozen=True)
class Answering:
    """The copy of the learner that answers, and which state of the learner it is."""

    learner: ColdStart | None = None
    version: int = 0
    shape: tuple[int, ...] | None = None
    columns: tuple[int, ...] = ()
    """Numbers of the classes, in the order of the columns of `probabilities`."""
    seq: int = 0
    """The last event of the journal that this copy knows of; unlike `version` the same after a restart."""

    def probabilities(self, items: Sequence[Pixels] | NDArray[np.uint8]) -> NDArray[np.float64]:
        """Return probabilities (N, classes) of images at the network's size."""
        if self.learner is None or not len(items):
            return np.empty((len(items), 0))
        return self.learner.predict_proba_many(items)


@dataclass
class State:
    """What the live learner is doing, for people and for /health."""

    doing: str = "loading"
    updates: int = 0
    behind: int = 0
    failures: int = 0
    """How often learning has failed and was begun again from a checkpoint."""
    error: str | None = None
    missing: set[str] = field(default_factory=set)
    """Images that could not be read when they were to be learned."""


class Live:
    """Learns in a thread of its own; `answering` can be asked at any moment."""

    def __init__(self, folder: Path, history: History) -> None:
        self._history = history
        self.checkpoints = Checkpoints(folder)
        self.answering = Answering()
        self.state = State()
        self.changed: list[Callable[[], None]] = []
        """Called, without arguments, whenever there is a new copy that answers."""
        self.learner: ColdStart | None = None
        self.settled = 0
        """The event up to which there is nothing left to do."""
        self._seq = 0
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._stale = True
        self._answered = 0.0
        self._since_checkpoint = 0
        self._checkpointed = time.monotonic()
        self._loaded = False
        self._failed: set[int] = set()
        """Events that could not be learned."""
        self._thread = threading.Thread(target=self._run, name="learner")

    def start(self) -> None:
        """Begin to learn."""
        self._thread.start()

    def wake(self) -> None:
        """Tell the thread that there is something new."""
        self._wake.set()

    def stop(self) -> None:
        """End the thread after what it is doing now; write a last checkpoint."""
        self._stop.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join()
        self.checkpoints.wait()

    # The thread.

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                try:
                    if self._loaded:
                        self._step()
                    else:
                        self._load()
                except CannotWrite as error:
                    self.state.error = str(error)
                    self._rest(_RETRY_SECONDS)
                except Exception as error:
                    self._blame(error if isinstance(error, _Failed) else _Failed(self._seq, error))
            self._catch_up()
        except BaseException as error:
            log.exception("the learner's thread has ended")
            self.state.doing, self.state.error = "failed", f"{type(error).__name__}: {error}"

    def _step(self) -> None:
        self._wake.clear()
        seq = self._history.seq
        if ops := self._history.take():
            self._apply(ops)
        elif self._history.begin_update(self):
            return
        elif self._stale:
            self._answer()
        elif (due := self._checkpoint_in()) is not None and due <= 0:
            self._checkpoint()
        elif self._history.begin_rehearsal():
            return
        else:
            self.state.doing, self.settled = "ready", seq
            if self.state.error is not None and not self.state.missing:
                self.state.error = None
            self._rest(due)

    def _rest(self, seconds: float | None) -> None:
        if not self._stop.is_set():
            self._wake.wait(seconds)

    def _catch_up(self) -> None:
        """Write a last checkpoint if anything was learned since the last one."""
        self.checkpoints.wait()
        if self._checkpoint_in() is not None and self.state.doing != "failed":
            self._checkpoint()
            self.checkpoints.wait()

    def _apply(self, ops: Iterable[Op]) -> None:
        """Do what the journal asks, event by event; stop between two of them."""
        refused = self._history.refused()
        for seq, group in groupby(ops, key=lambda op: op.seq):
            if self._stop.is_set():
                return
            for op in group:
                self.state.doing = "rehearsing" if op.verb == "rehearse" else "learning"
                if seq in refused:
                    continue
                try:
                    self._do(op)
                except Exception as error:
                    raise _Failed(seq, error) from error
                self._stale = True
                self._since_checkpoint += 1
            self._seq = seq
            if self._stale and time.monotonic() - self._answered > _SNAPSHOT_SECONDS:
                self._answer()

    def _do(self, op: Op) -> None:
        learner = self._learner()
        if op.verb == "learn":
            self._learn(learner, op)
            self.state.updates += 1
        elif op.verb == "relabel":
            learner.relabel(*op.arguments)
        elif op.verb == "forget":
            learner.forget(*op.arguments)
        elif op.verb == "merge":
            _merge(learner, *op.arguments)
        elif op.verb == "rehearse":
            learner.rehearse(*op.arguments)
        else:
            raise ValueError(f"the learner cannot {op.verb}")
        if learner.built and not learner.engine.is_finite(learner.tasks[None].head):
            raise FloatingPointError("the network's weights are not finite: it diverged")

    def _learn(self, learner: ColdStart, op: Op) -> None:
        shape, ids, items, labels = learner.shape or self._shape(), [], [], []
        for id, label in op.arguments:
            try:
                items.append(self._history.pixels(id, shape))
            except Unreadable as error:
                self.state.missing.add(id)
                self.state.error = f"an image was left out of learning: {error}"
                continue
            ids.append(id)
            labels.append(label)
        if ids:
            learner.learn_many(items, labels, ids=ids, per_update=len(ids))

    def predict(self, items: Sequence[Pixels]) -> list[tuple[int, float] | None]:
        """Return the likeliest class and its probability for images that are about to be learned."""
        if self.learner is None or not self.learner.built or not items:
            return [None] * len(items)
        columns, values = self.learner.classes_, self.learner.predict_proba_many(items)
        if not columns:
            return [None] * len(items)
        best = values.argmax(axis=1)
        return [(int(columns[i]), round(float(row[i]), 6)) for i, row in zip(best, values, strict=True)]

    def _shape(self) -> tuple[int, ...]:
        height, width, channels = self._history.settings["shape"]
        return height, width, channels

    def _learner(self) -> ColdStart:
        if self.learner is None:
            height, width, channels = self._shape()
            settings = {"size": (height, width), "channels": channels, "seed": self._history.settings["seed"]}
            self.learner = ColdStart(**{**settings, **self._history.settings["learner"]})
        return self.learner

    def _answer(self) -> None:
        """Swap the copy that answers for one of the learner as it is now."""
        learner, before = self.learner, self.answering
        if learner is not None and learner.built:
            copy = learner.snapshot()
            columns = tuple(int(label) for label in copy.classes_)  # type: ignore[arg-type]
            self.answering = Answering(copy, before.version + 1, learner.shape, columns, self._seq)
        else:
            self.answering = Answering(version=before.version + 1)
        self._stale, self._answered = False, time.monotonic()
        for call in self.changed:
            call()

    # Checkpoints and recovery.

    def _checkpoint_in(self) -> float | None:
        """Return the seconds until a checkpoint is due; None where nothing was learned since the last one."""
        if self.checkpoints.error is not None:
            wait = _RETRY_CHECKPOINT_SECONDS
        elif self._since_checkpoint:
            wait = 0.0 if self._since_checkpoint >= CHECKPOINT_UPDATES else CHECKPOINT_SECONDS
        else:
            return None
        due = self._checkpointed + wait - time.monotonic()
        return max(due, _BUSY_SECONDS) if self.checkpoints.busy else due

    def _checkpoint(self) -> None:
        checksum = self._history.checksum(self._seq)
        if self.learner is not None and self.learner.built and checksum is not None:
            self.checkpoints.write(self.learner, self._seq, checksum)
        self._since_checkpoint, self._checkpointed = 0, time.monotonic()

    def _load(self) -> None:
        """Load the newest checkpoint that fits the journal, and apply what the journal asks after it."""
        self._load_checkpoint()
        self._stale = True
        self._apply(self._history.replay(self._seq))
        self._loaded = True

    def _load_checkpoint(self) -> None:
        self.learner, self._seq, self._since_checkpoint = None, 0, 0
        for seq, checksum, folder in self.checkpoints.newest():
            if self._history.checksum(seq) != checksum:
                log.warning("checkpoint %s does not fit the journal and is left out", folder)
                continue
            try:
                self.learner, self._seq = self.checkpoints.load(folder, seq), seq
                return
            except ValueError as error:
                log.warning("checkpoint %s cannot be loaded: %s", folder, error)

    def _blame(self, failed: _Failed) -> None:
        """Say what went wrong, and go back to the last checkpoint: the labels are in the journal.

        An event that fails twice is left out of learning for good.
        """
        self._loaded = False
        self.state.doing = "recovering"
        self.state.failures += 1
        self.state.error = f"learning failed at event {failed.seq} ({failed}); the labels are kept"
        log.error("%s", self.state.error)
        if failed.seq in self._failed:
            try:
                self._history.refuse(failed.seq, str(failed))
            except CannotWrite as error:
                self.state.error = str(error)
                self._rest(_RETRY_SECONDS)
        self._failed.add(failed.seq)


class _Failed(Exception):
    """The learner could not do what an event asks."""

    def __init__(self, seq: int, error: Exception) -> None:
        super().__init__(f"{type(error).__name__}: {error}")
        self.seq = seq
        self.error = error


def _merge(learner: ColdStart, old: int, into: int) -> None:
    """Merge two classes, of which the learner may not know both."""
    if not learner.tasks:
        return
    classes = learner.tasks[None].classes
    if classes.row(old) is None:
        return
    if classes.row(into) is None:
        learner.rename_class(old, into)
    else:
        learner.merge_classes(old, into)


def export_learner(live: Live, folder: Path, names: dict[int, str]) -> bool:
    """Save the learner as it is now into a folder, its classes renamed; False if it has learned nothing."""
    learner = live.learner
    if learner is None or not learner.built:
        return False
    learner.save(folder)
    copy = ColdStart.load(folder)
    known = copy.tasks[None].classes.labels
    for number in [label for label in known if label in names and copy.tasks[None].classes.row(label) is not None]:
        copy.rename_class(number, names[number])
    copy.save(folder)
    return True
