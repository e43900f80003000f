"""Answers: from the scores of a network's rows to the probabilities of classes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from coldstream.labels import Label

if TYPE_CHECKING:
    from coldstream.learners.method import Method
    from coldstream.learners.tasks import TaskState


def answer(
    learner: Method[Any], task: TaskState | None, items: Sequence[NDArray[Any]]
) -> tuple[list[Label], NDArray[np.float64]]:
    """Return the classes of a task in order of appearance, and their probabilities for each item."""
    seen = task.classes.seen() if task else []
    if task is None or not seen:
        return [], np.empty((len(items), 0))
    labels = [task.classes.labels[row] for row in seen]
    if not items:
        return labels, np.empty((0, len(seen)))
    logits = learner._logits(task, np.stack(items))
    column = {row: i for i, row in enumerate(seen)}
    rows = [row for row, into in enumerate(task.classes.into) if into in column]
    logits = logits[:, rows]
    if not np.isfinite(logits).all():
        raise FloatingPointError("the network's outputs are not finite: it diverged; begin again with a lower rate")
    probabilities: NDArray[np.float64] = np.exp(logits - logits.max(axis=1, keepdims=True))
    if len(rows) > len(seen):  # merged classes: the probability of their rows counts for the class they went into
        summed = np.zeros((len(rows), len(seen)))
        summed[np.arange(len(rows)), [column[task.classes.into[row]] for row in rows]] = 1
        probabilities = probabilities @ summed
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    if unseen := learner._unseen(task):
        probabilities = (1 - unseen) * probabilities + unseen / len(seen)
    return labels, probabilities


def features(learner: Method[Any], items: Sequence[NDArray[Any]]) -> NDArray[np.float32]:
    """Return the features of items, (N, d)."""
    if not learner.built:
        return np.empty((len(items), 0), np.float32)
    if not items:
        return np.empty((0, learner.engine.features), np.float32)
    values = learner.engine.answering_features(np.stack(items))
    if not np.isfinite(values).all():
        raise FloatingPointError("the network's features are not finite: it diverged; begin again with a lower rate")
    return values
