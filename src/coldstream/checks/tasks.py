"""Streams with tasks."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from typing import Any

import numpy as np

from coldstream.checks.fixtures import LOOK, Factory, fresh, load, refusal, stream, taught
from coldstream.learners.base import Learner


def _with_tasks(factory: Factory, count: int) -> Iterator[tuple[Learner[Any], int]]:
    """Teach a learner two tasks in turn that share labels; yield the learner and the number of each example."""
    learner = fresh(factory, "first")
    images, labels = stream(count)
    for i, (image, label) in enumerate(zip(images, labels[::2] + labels[1::2], strict=True)):
        learner.learn_one(image, label, task=("first", "second")[i % 3 % 2])
        yield learner, i


def _taught_tasks(factory: Factory) -> Learner[Any]:
    *_, (learner, _) = _with_tasks(factory, 16)
    return learner


def check_tasks_are_apart(factory: Factory) -> None:
    """Tasks have classes of their own, also where labels are the same; asking changes none of them."""
    if not factory().multi_task:
        return
    learner = _taught_tasks(factory)
    assert learner.tasks_ == ["first", "second"], f"tasks_ is {learner.tasks_}"
    images, _ = stream(5, seed=1)
    before = learner.fingerprint()
    answers = {task: learner.predict_proba_many(images, task=task) for task in ("first", "second", "first")}
    for task, table in answers.items():
        assert table.shape == (5, len(learner.classes_of(task))), f"expected one column per class, got {table.shape}"
        assert np.allclose(table.sum(axis=1), 1), "rows are not probabilities"
        assert np.array_equal(table, learner.predict_proba_many(images, task=task)), "one question, two answers"
        assert list(learner.predict_proba_one(images[0], task=task)) == learner.classes_of(task)
    assert learner.predict_many(images[:2], task="third") == [None, None], "a task that never came has an answer"
    assert learner.fingerprint() == before, "predicting changed the learner"
    learner.learn_one(images[0], "elm", task="second")
    assert "elm" in learner.classes_of("second"), "a class that a task has learned is unknown"
    assert "elm" not in learner.classes_of("first"), "a class of one task came into another"
    twin = learner.snapshot()
    for task in ("first", "second"):
        one, other = (asked.predict_proba_many(images, task=task) for asked in (learner, twin))
        assert np.array_equal(one, other), "a snapshot answers otherwise than its learner"


def check_tasks_resume_bit_for_bit(factory: Factory) -> None:
    """With tasks too, save, load and continue equals never having stopped."""
    if not factory().multi_task:
        return
    images, labels = stream(8, seed=5)
    straight = _taught_tasks(factory)
    with tempfile.TemporaryDirectory() as folder:
        for stopped, i in _with_tasks(factory, 16):
            if i in (0, 7, 15):
                before = stopped.fingerprint()
                saving = stopped.save(folder, wait=i != 7)
        saving.result()
        loaded = load(stopped, factory, folder)
    assert loaded.fingerprint() == before, "a loaded learner differs from the saved one"
    assert loaded.tasks_ == straight.tasks_, f"of tasks {straight.tasks_}, {loaded.tasks_} were loaded"
    for i, (image, label) in enumerate(zip(images, labels, strict=True)):
        for learner in (straight, loaded):
            learner.learn_one(image, label, task=("second", "first", "third")[i % 3])
    assert straight.fingerprint() == loaded.fingerprint(), f"a stopped and resumed stream went another way: {LOOK}"


def check_tasks_survive_bad_input(factory: Factory) -> None:
    """A task that cannot be, or an example that cannot be of it, is a ValueError and leaves all as it was."""
    good, _ = stream(1)
    if not factory().multi_task:
        learner = fresh(factory)
        before = learner.fingerprint()
        refusal(learner.learn_one, good[0], "ash", task="first")
        refusal(learner.predict_one, good[0], task="first")
        assert learner.fingerprint() == before, "a task that was refused changed the learner"
        return
    tasks: list[Any] = [1.5, ["first"], {}, (), b"first"]
    bad: list[Any] = [(None, "ash"), (good[0], 1.5)]
    for learner in (fresh(factory, "first"), _taught_tasks(factory), taught(factory)):
        before, known = learner.fingerprint(), learner.tasks_
        mixed: list[Any] = [None] if known else ["first"] if learner.step else []
        for task in (*tasks, *mixed):
            refusal(learner.learn_one, good[0], "ash", task=task)
            refusal(learner.predict_one, good[0], task=task)
        for image, label in bad:
            for task in ("first", "new"):
                refusal(learner.learn_one, image, label, task=task)
        assert learner.tasks_ == known, "a task was opened by an example that was refused"
        assert learner.fingerprint() == before, "a refused task changed the learner"
