"""An interrupt leaves a learner as before or as after."""

from __future__ import annotations

import inspect
import random
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

from coldstream.checks.fixtures import Factory, Pixels, base_data, fresh, load, stream, teach
from coldstream.interrupts import first_and_last, interrupted_at, lines_run
from coldstream.learners import OfflineRecipe
from coldstream.learners.base import Learner
from coldstream.learners.changes import UnfinishedChange

Call = Callable[..., object]
"""Takes a learner, images, labels and, on a stream with tasks, the name of the task."""


_FEW = 3
"""Verbs that are tried of a learner that has learned nothing, or several tasks."""


def _base_init(learner: Learner[Any], images: Pixels, labels: list[str], **task: Any) -> None:
    learner.base_init(base_data(), OfflineRecipe(epochs=1), **task)


_QUESTIONS: dict[str, Call] = {
    "predict_proba_many": lambda learner, images, labels, **task: learner.predict_proba_many(images[:3], **task),
    "predict_one": lambda learner, images, labels, **task: learner.predict_one(images[0], **task),
    "fingerprint": lambda learner, images, labels, **task: learner.fingerprint(),
    "snapshot": lambda learner, images, labels, **task: learner.snapshot(),
}
_LEARNING: dict[str, Call] = {
    "learn_one": lambda learner, images, labels, **task: learner.learn_one(images[20], labels[20], **task),
    "learn_many": lambda learner, images, labels, **task: learner.learn_many(images[20:], labels[20:], **task),
}
_CHANGES: dict[str, Call] = {
    **_LEARNING,
    "learn_one, a new class": lambda learner, images, labels, **task: learner.learn_one(images[20], "elm", **task),
    "learn_one, again": lambda learner, images, labels, **task: learner.learn_one(
        images[20], labels[20], id="third", **task
    ),
    "learn_many, one update": lambda learner, images, labels, **task: learner.learn_many(
        images[20:], labels[20:], per_update=4, **task
    ),
    "rehearse": lambda learner, images, labels, **task: learner.rehearse(),
    "end_batch": lambda learner, images, labels, **task: learner.end_batch(),
    "relabel": lambda learner, images, labels, **task: learner.relabel("second", "elm"),
    "forget": lambda learner, images, labels, **task: learner.forget("second"),
    "undo": lambda learner, images, labels, **task: learner.undo(),
    "rename_class": lambda learner, images, labels, **task: learner.rename_class("ash", "elm", **task),
    "merge_classes": lambda learner, images, labels, **task: learner.merge_classes("ash", "beech", **task),
}
_NEW_TASK: dict[str, Call] = {
    "learn_one, a new task": lambda learner, images, labels, task: learner.learn_one(images[20], "elm", task="third"),
}


@dataclass
class _Stage:
    """A learner in some state, saved in a folder, and what it is asked to do then."""

    name: str
    learner: Learner[Any]
    calls: dict[str, Call]
    task: dict[str, str]

    def save(self, factory: Factory, folder: str) -> None:
        """Prepare what each of the calls begins with."""
        self.learner.save(folder)
        self.load = partial(load, self.learner, factory, folder)
        parts = [value for kind in type(self.learner).__mro__ for value in vars(kind).values()]
        self.files = sorted({part.__code__.co_filename for part in parts if inspect.isfunction(part)})
        self.images, self.labels = stream(24)

    def act(self, call: Call, learner: Learner[Any]) -> None:
        call(learner, self.images, self.labels, **self.task)

    def goes_on(self, learner: Learner[Any]) -> tuple[str, bytes]:
        """Let a learner learn and answer; return all that came of it."""
        if learner.needs_base_init and not learner.prepared:
            _base_init(learner, self.images, self.labels)
        learner.learn_one(self.images[20], self.labels[20], **self.task)
        return learner.fingerprint(), learner.predict_proba_many(self.images[:3], **self.task).tobytes()

    @cached_property
    def before(self) -> tuple[str, tuple[str, bytes]]:
        """The state as a fingerprint, and what comes of it when the learner goes on."""
        learner = self.load()
        return learner.fingerprint(), self.goes_on(learner)


def _learn(number: int, learner: Learner[Any], images: Pixels, labels: list[str], **task: str) -> None:
    learner.learn_one(images[number], labels[number], **task)


def _stages(factory: Factory) -> Iterator[_Stage]:
    """Yield learners that have learned nothing, something, and something of several tasks."""
    learner = factory()
    if learner.needs_base_init:
        yield _Stage("new", learner, {"base_init": _base_init}, {})
    else:
        base_init: dict[str, Call] = {} if learner.batch_incremental else {"base_init": _base_init}
        yield _Stage("new", learner, {**base_init, **_LEARNING, **_QUESTIONS}, {})
    images, labels = stream(16)
    learner = fresh(factory)
    teach(learner, images, labels)
    learner.end_batch()
    learner.learn_many(images[:3], labels[:3], ids=["first", "second", "third"])
    yield _Stage("taught", learner, {**_CHANGES, **_QUESTIONS}, {})
    if learner.multi_task:
        learner = fresh(factory, "one")
        for name in ("one", "two"):
            learner.learn_many(images[::2], labels[::2], task=name)
        learner.learn_many(images[:3], labels[:3], ids=["first", "second", "third"], task="one")
        yield _Stage("tasks", learner, {**_CHANGES, **_NEW_TASK, **_QUESTIONS}, {"task": "two"})


def check_interrupts_leave_it_whole(
    factory: Factory,
    places: int | None = 1,
    stages: Sequence[str] = (),
    verbs: Sequence[str] = (),
    threads: bool = False,
) -> None:
    """An interrupt at any line of a change leaves the learner as before or as after, or it refuses to go on.

    An interrupt while it answers changes nothing, and it goes on. A learner that goes on learns and answers as one
    that was never interrupted.

    Each verb is interrupted in `places` places, drawn at random; of learners that have learned nothing or several
    tasks, a few verbs are. With `places=None` all verbs are interrupted at each line, where it is run for the first
    time and for the last. `stages` ("new", "taught", "tasks") and `verbs` say what is tried; everything if empty.
    With `threads`, the places are in the threads that the learner starts.
    """
    for stage in _stages(factory):
        if stages and stage.name not in stages:
            continue
        with tempfile.TemporaryDirectory() as folder:
            stage.save(factory, folder)
            names = [name for name in stage.calls if not verbs or name in verbs]
            if not stage.learner.rehearses and "rehearse" in names:
                names.remove("rehearse")
            if places is not None and stage.name != "taught":
                names = random.Random(repr(stage.learner)).sample(names, min(_FEW, len(names)))
            for name in names:
                _interrupt(stage, name, stage.calls[name], places, threads)


def _interrupt(stage: _Stage, name: str, call: Call, limit: int | None, threads: bool) -> None:
    """Interrupt a call in some or all places, and see what is left."""
    learner, partly = stage.load(), [stage.load() for _ in range(3 if name == "learn_many" else 0)]
    lines = lines_run(partial(stage.act, call, learner), started=threads, files=stage.files)
    for count, one in enumerate(partly, 1):  # it may stop between two examples
        for number in range(20, 20 + count):
            stage.act(partial(_learn, number), one)
    before, future = stage.before
    learners = {one.fingerprint(): one for one in (*partly, learner)}
    futures = {before: future}
    places: Sequence[int] = first_and_last(lines)
    if limit is not None:
        places = sorted(random.Random(name).sample(places, min(limit, len(places))))
    learner = stage.load()
    for place in places:
        interrupted_at(place, partial(stage.act, call, learner), started=threads, files=stage.files)
        state = _in_a_thread(learner.fingerprint)
        where = f"after an interrupt at line event {place} of {len(lines)} in {name} ({stage.name})"
        if call in _QUESTIONS.values():
            assert state == before, f"{where} the learner refuses to go on, or has changed"
        if state is None:
            _refuses(stage, learner, where)
        else:
            assert state in {before, *learners}, f"{where} the learner is neither as before nor as after"
        if state is not None and (limit is None or place == places[-1]):
            if state not in futures:
                futures[state] = stage.goes_on(learners[state])
            assert stage.goes_on(learner) == futures[state], f"{where} it goes on otherwise than if there was none"
        elif state == before and not threads:
            continue
        learner = stage.load()


def _in_a_thread(ask: Callable[[], str]) -> str | None:
    """Return an answer, None where the learner refuses; a lock that was not released would block another thread."""
    answers: list[str | None] = []

    def run() -> None:
        try:
            answers.append(ask())
        except UnfinishedChange:
            answers.append(None)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(30)
    assert answers, "the learner's lock was not released"
    return answers[0]


def _refuses(stage: _Stage, learner: Learner[Any], where: str) -> None:
    """Assert that a learner in the middle of a change refuses whatever depends on its state."""
    with tempfile.TemporaryDirectory() as folder:
        save: Call = lambda learner, *_, **__: learner.save(folder)  # noqa: E731
        for name, call in {**_CHANGES, **_QUESTIONS, "base_init": _base_init, "save": save}.items():
            if name == "end_batch" and not learner.batch_incremental:
                continue
            try:
                stage.act(call, learner)
            except UnfinishedChange:
                continue
            raise AssertionError(f"{where} the learner is neither as before nor as after, and accepts {name}")
