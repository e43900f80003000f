"""Streams, learners and refusals that the checks share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coldstream.data import Dataset
from coldstream.learners.base import Learner

Factory = Callable[..., Learner[Any]]
Pixels = NDArray[np.uint8]
SIDE = 12
NAMES = ("ash", "beech", "cedar", "date")
LOOK = (
    "look for something that later steps depend on and that neither `_state` nor `_task_state` returns, such as an "
    "attribute that `_learn` changes, or a setting that is not declared in `Settings`"
)


def stream(count: int, seed: int = 0) -> tuple[Pixels, list[str]]:
    """Return a small stream: noise around a colour of the class, classes one after another."""
    rng = np.random.default_rng(seed)
    labels = np.sort(np.arange(count) % len(NAMES))
    colours = np.array([[210, 40, 40], [40, 210, 40], [40, 40, 210], [200, 200, 40]])
    noise = rng.integers(-40, 41, (count, SIDE, SIDE, 3))
    images = np.clip(colours[labels][:, None, None] + noise, 0, 255).astype(np.uint8)
    return images, [NAMES[label] for label in labels]


def base_data() -> Dataset:
    """Return the data of base initialisation."""
    images, labels = stream(24, seed=99)
    return Dataset("base", images, np.array([NAMES.index(label) for label in labels]), NAMES)


def fresh(factory: Factory, task: str | None = None) -> Learner[Any]:
    """Return a learner that is ready to stream."""
    learner = factory()
    if learner.needs_base_init:
        learner.base_init(base_data()) if task is None else learner.base_init(base_data(), task=task)
    return learner


def teach(learner: Learner[Any], images: Pixels, labels: Sequence[object]) -> None:
    """Let a learner learn a stream, one example at a time."""
    for image, label in zip(images, labels, strict=True):
        learner.learn_one(image, label)


def taught(factory: Factory, count: int = 16) -> Learner[Any]:
    """Return a learner that has learned a small stream."""
    learner = fresh(factory)
    teach(learner, *stream(count))
    learner.end_batch()
    return learner


def load(learner: Learner[Any], factory: Factory, folder: str) -> Learner[Any]:
    """Return the learner of the same kind that was saved in `folder`."""
    model = factory().settings.model
    return type(learner).load(folder, **({} if isinstance(model, str) else {"model": model}))


def refusal(call: Callable[..., object], *arguments: Any, **named: Any) -> str:
    """Return the message of the ValueError that a call must raise."""
    try:
        result = call(*arguments, **named)
    except ValueError as error:
        assert str(error), "the error says nothing"
        return str(error)
    raise AssertionError(f"wrong input was accepted: {result!r}")
