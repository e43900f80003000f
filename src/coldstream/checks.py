"""The contract of a learner as functions that can fail: run them on your own with `check_learner`.

>>> from coldstream import ColdStart
>>> from coldstream.checks import check_learner
>>> check_learner(lambda **settings: ColdStart(**{"replay": 4, "capacity": 12, **settings}))
"""

from __future__ import annotations

import random
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic.fields import FieldInfo

from coldstream.data import Dataset
from coldstream.interrupts import count_lines, interrupted_at
from coldstream.learners.base import Learner
from coldstream.learners.changes import UnfinishedChange

Factory = Callable[..., Learner[Any]]
Pixels = NDArray[np.uint8]
_SIDE = 12
_NAMES = ("ash", "beech", "cedar", "date")
_LOOK = (
    "look for something that later steps depend on and that neither `_state` nor `_task_state` returns, such as an "
    "attribute that `_learn` changes, or a setting that is not declared in `Settings`"
)


def _images(count: int, seed: int = 0) -> tuple[Pixels, list[str]]:
    """Return a small stream: noise around a colour of the class, classes one after another."""
    rng = np.random.default_rng(seed)
    labels = np.sort(np.arange(count) % len(_NAMES))
    colours = np.array([[210, 40, 40], [40, 210, 40], [40, 40, 210], [200, 200, 40]])
    noise = rng.integers(-40, 41, (count, _SIDE, _SIDE, 3))
    images = np.clip(colours[labels][:, None, None] + noise, 0, 255).astype(np.uint8)
    return images, [_NAMES[label] for label in labels]


def _fresh(factory: Factory, task: str | None = None) -> Learner[Any]:
    """Return a learner that is ready to stream."""
    learner = factory()
    if learner.needs_base_init:
        images, labels = _images(24, seed=99)
        base = Dataset("base", images, np.array([_NAMES.index(label) for label in labels]), _NAMES)
        learner.base_init(base) if task is None else learner.base_init(base, task=task)
    return learner


def _taught(factory: Factory, count: int = 16) -> Learner[Any]:
    learner = _fresh(factory)
    for image, label in zip(*_images(count), strict=True):
        learner.learn_one(image, label)
    learner.end_batch()
    return learner


def check_says_that_it_needs_base_init(factory: Factory) -> None:
    """Before a base initialisation that is needed, learning and predicting say so and change nothing."""
    learner = factory()
    if not learner.needs_base_init:
        return
    images, labels = _images(4)
    before = learner.fingerprint()
    for action in (lambda: learner.learn_one(images[0], labels[0]), lambda: learner.predict_one(images[0])):
        assert "base" in _refusal(action), "the error does not speak of base initialisation"
    assert learner.fingerprint() == before, "an example that was refused changed the learner"


def check_deterministic(factory: Factory) -> None:
    """The same stream gives the same bits, whatever the global generators do meanwhile."""
    first = _taught(factory).fingerprint()
    saved = random.getstate(), np.random.get_state(), torch.get_rng_state()  # noqa: NPY002 - it is what is checked
    try:
        random.seed(5)
        np.random.seed(5)  # noqa: NPY002
        torch.manual_seed(5)
        second = _taught(factory).fingerprint()
    finally:
        random.setstate(saved[0])
        np.random.set_state(saved[1])  # noqa: NPY002
        torch.set_rng_state(saved[2])
    assert first == second, (
        "two equal streams gave different learners: a draw depends on a global generator or a clock"
    )


def check_leaves_global_generators(factory: Factory) -> None:
    """Learning and predicting draw nothing from Python's, NumPy's or torch's global generator."""

    def states() -> tuple[Any, ...]:
        return random.getstate(), np.random.get_state()[1].tobytes(), torch.get_rng_state().numpy().tobytes()  # type: ignore[index]  # noqa: NPY002

    before = states()
    learner = _taught(factory)
    learner.predict_proba_many(_images(4)[0])
    assert states() == before, "a global random generator was moved"


def check_evaluation_changes_nothing(factory: Factory) -> None:
    """Asking, however often, leaves the learner bit-identical."""
    learner = _taught(factory)
    before = learner.fingerprint()
    images, _ = _images(5, seed=1)
    first = learner.predict_proba_many(images)
    learner.predict_one(images[0])
    learner.predict_proba_one(images[0])
    assert learner.fingerprint() == before, "predicting changed the learner"
    assert np.array_equal(first, learner.predict_proba_many(images)), "the same question got two answers"


def check_answers_agree(factory: Factory) -> None:
    """The four ways of asking give one answer: probabilities in `classes_` order that sum to 1."""
    learner = _taught(factory)
    images, _ = _images(5, seed=1)
    table = learner.predict_proba_many(images)
    assert table.shape == (5, len(learner.classes_)), f"expected a column a class, got {table.shape}"
    assert np.allclose(table.sum(axis=1), 1) and (table >= 0).all(), "rows are not probabilities"
    for image, row, label in zip(images, table, learner.predict_many(images), strict=True):
        one = learner.predict_proba_one(image)
        assert list(one) == learner.classes_, "predict_proba_one lists other classes than classes_"
        assert np.allclose(list(one.values()), row, atol=1e-5), "predict_proba_one and _many disagree"
        best = max(one.values()) - 1e-5
        assert label is not None and one[label] >= best, "predict_many is not the most probable class"
        guess = learner.predict_one(image)
        assert guess is not None and one[guess] >= best, "predict_one is not the most probable class"


def check_resumes_to_the_bit(factory: Factory) -> None:
    """Save, load and continue equals never having stopped; saving changes nothing."""
    images, labels = _images(24)
    straight, stopped = _fresh(factory), _fresh(factory)
    with tempfile.TemporaryDirectory() as folder:
        for i, (image, label) in enumerate(zip(images, labels, strict=True)):
            straight.learn_one(image, label)
            stopped.learn_one(image, label)
            if i in (0, 7, 8, 17):
                before = stopped.fingerprint()
                stopped.save(Path(folder, "kept"))
                assert stopped.fingerprint() == before, "saving changed the learner"
                stopped = type(stopped).load(Path(folder, "kept"), **_model_of(factory))
                assert stopped.fingerprint() == before, f"a loaded learner differs from the saved one: {_LOOK}"
    straight.end_batch()
    stopped.end_batch()
    assert straight.fingerprint() == stopped.fingerprint(), f"a stopped and resumed stream went another way: {_LOOK}"


def check_settings_are_kept(factory: Factory) -> None:
    """Settings other than the defaults are saved and loaded, and a resumed stream follows them.

    It needs a factory that takes settings; one without arguments is checked with its settings as they are.
    """
    images, labels = _images(12)
    changed = _changed_settings(factory)
    straight, stopped = (_fresh(lambda: factory(**changed)) for _ in range(2))
    with tempfile.TemporaryDirectory() as folder:
        for i, (image, label) in enumerate(zip(images, labels, strict=True)):
            straight.learn_one(image, label)
            stopped.learn_one(image, label)
            if i == 6:
                stopped.save(Path(folder, "kept"))
                stopped = type(stopped).load(Path(folder, "kept"), **_model_of(factory))
    for name in type(straight).Settings.model_fields:
        if name not in ("model", "init"):
            values = getattr(straight.settings, name), getattr(stopped.settings, name)
            assert values[0] == values[1], f"setting {name!r} was {values[0]!r} and is {values[1]!r} after loading"
    straight.end_batch()
    stopped.end_batch()
    assert straight.fingerprint() == stopped.fingerprint(), (
        f"with {changed} a stopped and resumed stream went another way: {_LOOK}"
    )


_LEFT = {"seed", "size", "channels", "classes", "device", "precision", "compile", "zoom", "storage", "model", "init"}
_TEXTS = {
    "augment": ("crop", "crop|flip"),
    "codec": ("quantize(6)", "raw"),
    "evict": ("uniform", "largest-class"),
    "normalize": ("cifar10", "half"),
    "rate": ("constant(0.05)", "constant(0.1)"),
    "sample": ("class-balanced", "uniform"),
}
"""Two values of each of the package's text settings: one of them differs from the current value."""


def _changed_settings(factory: Factory) -> dict[str, Any]:
    """Return settings that differ from those of the factory's learner, where it accepts them.

    Changed are flags, numbers, tuples of numbers, settings declared with `one_of`, None where a number may be given,
    and the texts of `_TEXTS`. Any other text of a method of your own is left as it is.
    """
    settings, changed = factory().settings, dict[str, Any]()
    for name, field in type(settings).model_fields.items():
        value = getattr(settings, name)
        for other in () if name in _LEFT else _others(name, value, field):
            try:
                factory(**{**changed, name: other})._build((_SIDE, _SIDE, 3))  # some are refused for the network
            except (ValueError, TypeError):
                continue
            changed[name] = other
            break
    return changed


def _others(name: str, value: Any, field: FieldInfo) -> Iterator[Any]:
    """Return other values that a setting may have by its declaration."""
    if isinstance(value, bool):
        yield not value
    elif isinstance(value, (int, float)):
        yield value + 1 if isinstance(value, int) else value * 0.75 or 0.5
    elif isinstance(value, tuple) and value:
        yield value[:-1]
    elif isinstance(value, tuple):
        yield from ((kind(1),) for kind in get_args(field.annotation)[:1] if kind in (int, float))
    elif value is None:
        yield from (kind(8) for kind in get_args(field.annotation) if kind in (int, float))
    else:
        accepted = [get_args(getattr(check, "json_schema_input_type", None)) for check in field.metadata]
        choices = (*_TEXTS.get(name, ()), *(one for several in accepted for one in several))
        yield from (one for one in choices if one != value)


def check_saves_the_moment(factory: Factory) -> None:
    """A checkpoint written in the background is the learner at the call, however that one goes on meanwhile."""
    learner = _taught(factory)
    images, _ = _images(8, seed=1)
    before = learner.fingerprint()
    state = learner._state()[1] | learner._task_state(learner.tasks[None])[1]
    copies = {name: array.copy() for name, array in state.items()}
    with tempfile.TemporaryDirectory() as folder:
        saving = learner.save(Path(folder, "kept"), wait=False)
        for image in images:
            learner.learn_one(image, "new")
        learner.end_batch()
        saving.result()
        loaded = type(learner).load(Path(folder, "kept"), **_model_of(factory))
    assert loaded.fingerprint() == before, "a checkpoint written in the background is not of the moment of the call"
    for name, array in state.items():
        assert np.array_equal(array, copies[name], equal_nan=True), f"_state gave {name!r} itself instead of a copy"


def _model_of(factory: Factory) -> dict[str, Any]:
    model = factory().settings.model
    return {} if isinstance(model, str) else {"model": model}


def check_snapshot_answers_alike(factory: Factory) -> None:
    """A snapshot gives the learner's answers to the bit, also when that one has learned on, and refuses to learn."""
    learner = _taught(factory)
    images, _ = _images(5, seed=1)
    before, labels, fingerprint = learner.predict_proba_many(images), learner.classes_, learner.fingerprint()
    snapshot = learner.snapshot()
    assert learner.fingerprint() == fingerprint, "taking a snapshot changed the learner"
    for image in images:
        learner.learn_one(image, "new")
    learner.end_batch()
    assert np.array_equal(snapshot.predict_proba_many(images), before), (
        "a snapshot answers otherwise than its learner"
    )
    assert snapshot.classes_ == labels, f"a snapshot of {labels} knows {snapshot.classes_}"
    _refusal(lambda: snapshot.learn_one(images[0], labels[0]))


def check_many_is_the_loop(factory: Factory) -> None:
    """`learn_many` with per_update=1 gives the loop's bits."""
    images, labels = _images(12)
    one_by_one, together = _fresh(factory), _fresh(factory)
    ids = [one_by_one.learn_one(image, label) for image, label in zip(images, labels, strict=True)]
    assert together.learn_many(images, labels) == ids, "learn_many returned other ids than learn_one"
    assert one_by_one.fingerprint() == together.fingerprint(), "learn_many and the loop gave different learners"


def check_inputs_are_left_alone(factory: Factory) -> None:
    """Images handed in are neither changed nor kept: changing them later changes nothing."""
    images, labels = _images(12)
    learner, other = _fresh(factory), _fresh(factory)
    for image, label in zip(images, labels, strict=True):
        copied = image.copy()
        learner.learn_one(copied, label)
        assert np.array_equal(copied, image), "learn_one changed its input"
        copied[:] = 0
        other.learn_one(image, label)
    copied = images[0].copy()
    learner.predict_one(copied)
    assert np.array_equal(copied, images[0]), "predict_one changed its input"
    assert learner.fingerprint() == other.fingerprint(), "the learner kept a reference to an image"


def check_several_an_update(factory: Factory) -> None:
    """`learn_many` with several new examples an update counts every example, and knows their classes."""
    images, labels = _images(12)
    learner = _fresh(factory)
    before = _counts(learner)
    learner.learn_many(images, labels, per_update=5)
    learner.end_batch()
    assert learner.step == 12, f"12 examples were learned, {learner.step} counted"
    assert set(labels) <= set(learner.classes_), f"of {sorted(set(labels))} only {learner.classes_} are known"
    for label, count in _counts(learner).items():
        assert count >= before.get(label, 0), f"class {label!r} lost examples"


def _counts(learner: Learner[Any]) -> dict[Any, int]:
    """Return the examples of each class so far."""
    classes = [task.classes for task in learner.tasks.values()]
    return {label: count for each in classes for label, count in zip(each.labels, each.counts, strict=True)}


def check_frozen_part_stays(factory: Factory) -> None:
    """The part that a learner declares as frozen keeps its bits, statistics included; the rest learns."""
    learner = _fresh(factory)
    learner.learn_one(*(part[0] for part in _images(1)))
    frozen = learner._frozen()
    if frozen is None:
        assert learner.frozen_share() == 0, "a share is said to be frozen, and no part is"
        return
    before = {name: value.clone() for name, value in frozen.state_dict().items()}
    fingerprint = learner.fingerprint()
    for image, label in zip(*_images(12, seed=3), strict=True):
        learner.learn_one(image, label)
    after = frozen.state_dict()
    assert all(before[name].equal(after[name]) for name in before), "the frozen part changed"
    assert learner.fingerprint() != fingerprint, "nothing was learned"


def check_failed_base_init_changes_nothing(factory: Factory) -> None:
    """Base initialisation that is interrupted or refused leaves the learner as it was, ready for another."""
    learner = factory()
    if not learner.needs_base_init:
        return
    images, labels = _images(24, seed=99)
    base = Dataset("base", images, np.array([_NAMES.index(label) for label in labels]), _NAMES)
    before = learner.fingerprint()

    def interrupt(epoch: int) -> None:
        raise InterruptedError

    try:
        learner.base_init(base, progress=interrupt)
    except InterruptedError:
        pass
    else:
        raise AssertionError("base initialisation swallowed an exception of its progress")
    assert learner.fingerprint() == before, "interrupted base initialisation changed the learner"
    _refusal(lambda: learner.base_init(base.take(np.arange(0))))
    assert learner.fingerprint() == before, "refused base initialisation changed the learner"


def _with_tasks(factory: Factory, count: int) -> Iterator[tuple[Learner[Any], int]]:
    """Teach a learner two tasks in turn that share labels; yield the learner and the number of each example."""
    learner = _fresh(factory, "first")
    images, labels = _images(count)
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
    images, _ = _images(5, seed=1)
    before = learner.fingerprint()
    answers = {task: learner.predict_proba_many(images, task=task) for task in ("first", "second", "first")}
    for task, table in answers.items():
        assert table.shape == (5, len(learner.classes_of(task))), f"expected a column a class, got {table.shape}"
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


def check_tasks_resume_to_the_bit(factory: Factory) -> None:
    """With tasks too, save, load and continue equals never having stopped."""
    if not factory().multi_task:
        return
    images, labels = _images(8, seed=5)
    straight = _taught_tasks(factory)
    with tempfile.TemporaryDirectory() as folder:
        for stopped, i in _with_tasks(factory, 16):
            if i in (0, 7, 15):
                before = stopped.fingerprint()
                saving = stopped.save(Path(folder, "kept"), wait=i != 7)
        saving.result()
        loaded = type(stopped).load(Path(folder, "kept"), **_model_of(factory))
    assert loaded.fingerprint() == before, "a loaded learner differs from the saved one"
    assert loaded.tasks_ == straight.tasks_, f"of tasks {straight.tasks_}, {loaded.tasks_} were loaded"
    for i, (image, label) in enumerate(zip(images, labels, strict=True)):
        for learner in (straight, loaded):
            learner.learn_one(image, label, task=("second", "first", "third")[i % 3])
    assert straight.fingerprint() == loaded.fingerprint(), f"a stopped and resumed stream went another way: {_LOOK}"


def check_tasks_survive_bad_input(factory: Factory) -> None:
    """A task that cannot be, or an example that cannot be of it, is a ValueError and leaves all as it was."""
    good, _ = _images(1)
    if not factory().multi_task:
        learner = _fresh(factory)
        before = learner.fingerprint()
        _refusal(lambda: learner.learn_one(good[0], "ash", task="first"))
        _refusal(lambda: learner.predict_one(good[0], task="first"))
        assert learner.fingerprint() == before, "a task that was refused changed the learner"
        return
    tasks: list[Any] = [1.5, ["first"], {}, (), b"first"]
    bad: list[Any] = [(None, "ash"), (good[0], 1.5)]
    for learner in (_fresh(factory, "first"), _taught_tasks(factory), _taught(factory)):
        before, known = learner.fingerprint(), learner.tasks_
        mixed: list[Any] = [None] if known else ["first"] if learner.step else []
        for task in (*tasks, *mixed):
            _refusal(lambda task=task, learner=learner: learner.learn_one(good[0], "ash", task=task))  # type: ignore[misc]
            _refusal(lambda task=task, learner=learner: learner.predict_one(good[0], task=task))  # type: ignore[misc]
        for image, label in bad:
            for task in ("first", "new"):
                _refusal(lambda x=image, y=label, t=task, on=learner: on.learn_one(x, y, task=t))  # type: ignore[misc]
        assert learner.tasks_ == known, "a task was opened by an example that was refused"
        assert learner.fingerprint() == before, "a refused task changed the learner"


def check_within_budget(factory: Factory) -> None:
    """A replay buffer never holds more than its capacity."""
    learner = _fresh(factory)
    for image, label in zip(*_images(32), strict=True):
        learner.learn_one(image, label)
        buffer = next(iter(learner.tasks.values())).replay_buffer
        if buffer is not None:
            limit = buffer.capacity
            assert limit.bytes is None or buffer.nbytes <= limit.bytes, "more bytes stored than the capacity"
            assert limit.examples is None or len(buffer) <= limit.examples, "more examples than the capacity"


def check_predicts_before_learning(factory: Factory) -> None:
    """A learner that knows nothing answers with nothing."""
    learner = factory()
    images, _ = _images(2)
    if learner.needs_base_init:
        return
    assert learner.predict_one(images[0]) is None
    assert learner.predict_proba_one(images[0]) == {}
    assert learner.predict_many(images) == [None, None]
    assert learner.predict_proba_many(images).shape == (2, 0)
    assert learner.classes_ == []


def check_new_labels_any_time(factory: Factory) -> None:
    """A new label opens a class at once; the order of `classes_` is that of first sight."""
    learner = _taught(factory)
    before = learner.classes_
    images, _ = _images(3, seed=2)
    learner.learn_one(images[0], ("new", 1))
    learner.learn_one(images[1], 7)
    learner.end_batch()
    assert learner.classes_ == [*before, ("new", 1), 7], f"classes_ is {learner.classes_}"
    assert set(learner.predict_proba_one(images[2])) == {*before, ("new", 1), 7}


def check_survives_bad_input(factory: Factory) -> None:
    """Wrong input is a ValueError, before and after learning, and leaves the learner exactly as it was."""
    good, _ = _images(1)
    nan = torch.full((3, _SIDE, _SIDE), float("nan"))
    images: list[Any] = [None, "bird.jpg", b"not an image", good[0].astype(np.int64), np.zeros((0, 4, 3), np.uint8)]
    images += [np.zeros((4, 4, 7), np.uint8), nan, np.zeros((2, 3, 4, 3), np.uint8)]
    labels: list[Any] = [None, 1.5, ["a"], {"a": 1}, (), ("a", None)]
    for learner in (_fresh(factory), _taught(factory)):
        before = learner.fingerprint()
        for image in images:
            _refusal(lambda image=image, learner=learner: learner.learn_one(image, "ash"))  # type: ignore[misc]
            _refusal(lambda image=image, learner=learner: learner.predict_one(image))  # type: ignore[misc]
            _refusal(lambda image=image, learner=learner: learner.learn_many([good[0], image], ["x", "y"]))  # type: ignore[misc]
        for label in labels:
            _refusal(lambda label=label, learner=learner: learner.learn_one(good[0], label))  # type: ignore[misc]
        for id in (-1, 1.5, True, b"id"):
            _refusal(lambda id=id, learner=learner: learner.learn_one(good[0], "ash", id=id))  # type: ignore[misc]
        _refusal(lambda learner=learner: learner.learn_many(good, []))  # type: ignore[misc]
        _refusal(lambda learner=learner: learner.learn_many(good, ["ash"], per_update=0))  # type: ignore[misc]
        assert learner.fingerprint() == before, "a refused input changed the learner"


def check_threads_may_predict(factory: Factory) -> None:
    """Others may predict while one thread learns: they see whole states, and the learner the same bits."""
    alone = _taught(factory, 24).fingerprint()
    learner, stop, wrong = _fresh(factory), threading.Event(), []
    images, _ = _images(3, seed=4)

    def ask() -> None:
        while not stop.is_set():
            try:
                table = learner.predict_proba_many(images)
                if table.shape[1] and not np.allclose(table.sum(axis=1), 1):
                    wrong.append("rows do not sum to 1")
            except Exception as error:
                wrong.append(repr(error))
                return

    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for image, label in zip(*_images(24), strict=True):
            learner.learn_one(image, label)
        learner.end_batch()
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not wrong, f"predicting while learning failed: {wrong[0]}"
    assert learner.fingerprint() == alone, "predicting from other threads changed what was learned"


def check_interrupts_leave_it_whole(factory: Factory, lines: int | None = 3, verbs: Sequence[str] = ()) -> None:
    """An interrupt at any line of a change leaves the learner as before or as after, or it refuses to go on.

    An interrupt while it answers changes nothing, and it goes on. Of each verb some lines are tried, drawn at random;
    with `lines=None` all of them.
    """
    if _is_batch(factory):
        lines = lines and 1
    images, labels = _images(24)
    with tempfile.TemporaryDirectory() as folder:
        kept = Path(folder, "kept")
        ready = _taught(factory)
        ready.learn_many(images[:3], labels[:3], ids=["first", "second", "third"])
        ready.save(kept)
        model, before = _model_of(factory), ready.fingerprint()

        def loaded() -> Learner[Any]:
            return type(ready).load(kept, **model)

        for name, call in _VERBS.items():
            if verbs and name not in verbs:
                continue
            changed = loaded()
            count = count_lines(partial(call, changed, images, labels))
            after = {before, changed.fingerprint()}
            if name == "learn_many":
                partly = loaded()
                after |= {before, *(_learned_one(partly, *one) for one in zip(images[20:], labels[20:], strict=True))}
            tried: Sequence[int] = range(count)
            if lines is not None:
                tried = sorted(random.Random(name).sample(tried, min(lines, count)))
            learner = loaded()
            for line in tried:
                interrupted_at(line, partial(call, learner, images, labels))
                found = _in_a_thread(learner.fingerprint)
                where = f"after an interrupt at line event {line} of {count} in {name}"
                if name in _QUESTIONS:
                    assert found == before, f"{where} the learner refuses to go on, or has changed"
                    continue
                if found is None:
                    _refuses(learner, images, labels, where)
                else:
                    assert found in after, f"{where} the learner is neither as before nor as after"
                if found != before:
                    learner = loaded()


def _learned_one(learner: Learner[Any], image: Pixels, label: str) -> str:
    learner.learn_one(image, label)
    return learner.fingerprint()


def _is_batch(factory: Factory) -> bool:
    return factory().batch_incremental


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


def _refusal(action: Callable[[], object]) -> str:
    """Return the message of the ValueError that `action` must raise."""
    try:
        result = action()
    except ValueError as error:
        assert str(error), "the error says nothing"
        return str(error)
    raise AssertionError(f"wrong input was accepted: {result!r}")


def learner_checks() -> Iterator[Callable[[Factory], None]]:
    """Yield every check, for tests that cross learners with checks."""
    module = sys.modules[__name__]
    for name in sorted(vars(module)):
        if name.startswith("check_") and name != "check_learner":
            yield getattr(module, name)


def check_learner(factory: Factory) -> None:
    """Run every check on the learners that `factory` makes; an AssertionError says which one failed and why.

    Parameters
    ----------
    factory
        Returns a new learner that has learned nothing. It should be small and fast, with an open class set, and
        accept 12x12 colour images. If it takes settings by name, as
        ``lambda **settings: Mine(**{"replay": 4, **settings})`` does, the learner is also checked with settings
        changed from their defaults.
    """
    for check in learner_checks():
        try:
            check(factory)
        except AssertionError as error:
            raise AssertionError(f"{check.__name__}: {error}") from error
