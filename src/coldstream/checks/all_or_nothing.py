"""An interrupt leaves a learner as before or as after."""

from __future__ import annotations

import random
import tempfile
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from coldstream.checks.fixtures import Factory, Pixels, load, stream, taught
from coldstream.interrupts import count_lines, interrupted_at
from coldstream.learners.base import Learner
from coldstream.learners.changes import UnfinishedChange

_QUESTIONS = ("predict_proba_many", "predict_one", "fingerprint", "snapshot")
_VERBS: dict[str, Callable[[Learner[Any], Pixels, list[str]], object]] = {
    "learn_one": lambda learner, images, labels: learner.learn_one(images[20], labels[20]),
    "learn_one, a new class": lambda learner, images, labels: learner.learn_one(images[20], "elm"),
    "learn_one, again": lambda learner, images, labels: learner.learn_one(images[20], labels[20], id="third"),
    "learn_many": lambda learner, images, labels: learner.learn_many(images[20:], labels[20:]),
    "learn_many, one update": lambda learner, images, labels: learner.learn_many(
        images[20:], labels[20:], per_update=4
    ),
    "end_batch": lambda learner, images, labels: learner.end_batch(),
    "relabel": lambda learner, images, labels: learner.relabel("second", "elm"),
    "forget": lambda learner, images, labels: learner.forget("second"),
    "undo": lambda learner, images, labels: learner.undo(),
    "rename_class": lambda learner, images, labels: learner.rename_class("ash", "elm"),
    "merge_classes": lambda learner, images, labels: learner.merge_classes("ash", "beech"),
    "predict_proba_many": lambda learner, images, labels: learner.predict_proba_many(images[:3]),
    "predict_one": lambda learner, images, labels: learner.predict_one(images[0]),
    "fingerprint": lambda learner, images, labels: learner.fingerprint(),
    "snapshot": lambda learner, images, labels: learner.snapshot(),
}


def check_interrupts_leave_it_whole(factory: Factory, lines: int | None = 3, verbs: Sequence[str] = ()) -> None:
    """An interrupt at any line of a change leaves the learner as before or as after, or it refuses to go on.

    An interrupt while it answers changes nothing, and it goes on. Of each verb some lines are tried, drawn at random;
    with `lines=None` all of them.
    """
    if factory().batch_incremental:
        lines = lines and 1
    images, labels = stream(24)
    with tempfile.TemporaryDirectory() as folder:
        ready = taught(factory)
        ready.learn_many(images[:3], labels[:3], ids=["first", "second", "third"])
        ready.save(folder)
        before = ready.fingerprint()
        for name, call in _VERBS.items():
            if verbs and name not in verbs:
                continue
            changed = load(ready, factory, folder)
            count = count_lines(partial(call, changed, images, labels))
            after = {before, changed.fingerprint()}
            if name == "learn_many":
                partly = load(ready, factory, folder)
                after |= {before, *(_learned_one(partly, *one) for one in zip(images[20:], labels[20:], strict=True))}
            tried: Sequence[int] = range(count)
            if lines is not None:
                tried = sorted(random.Random(name).sample(tried, min(lines, count)))
            learner = load(ready, factory, folder)
            for line in tried:
                interrupted_at(line, partial(call, learner, images, labels))
                now = _in_a_thread(learner.fingerprint)
                where = f"after an interrupt at line event {line} of {count} in {name}"
                if name in _QUESTIONS:
                    assert now == before, f"{where} the learner refuses to go on, or has changed"
                    continue
                if now is None:
                    _refuses(learner, images, labels, where)
                else:
                    assert now in after, f"{where} the learner is neither as before nor as after"
                if now != before:
                    learner = load(ready, factory, folder)


def _learned_one(learner: Learner[Any], image: Pixels, label: str) -> str:
    learner.learn_one(image, label)
    return learner.fingerprint()


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


def _refuses(learner: Learner[Any], images: Pixels, labels: list[str], where: str) -> None:
    """Assert that a learner in the middle of a change refuses whatever depends on its state."""
    with tempfile.TemporaryDirectory() as folder:
        save: Callable[..., object] = lambda *_: learner.save(folder)  # noqa: E731
        for name, call in {**_VERBS, "save": save}.items():
            try:
                call(learner, images, labels)
            except UnfinishedChange:
                continue
            if name != "end_batch" or learner.batch_incremental:
                raise AssertionError(f"{where} the learner is neither as before nor as after, and accepts {name}")
