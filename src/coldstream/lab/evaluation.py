"""Tests of a learner on the way: what is measured, and when it is computed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import torch

from coldstream import metrics
from coldstream.data import Dataset
from coldstream.learners.base import Learner
from coldstream.streams import Event, Task

Record = dict[str, Any]


class Evaluation:
    """Evaluates between two steps, or beside them: a snapshot, in one thread of its own, while the stream goes on.

    Both give the same bits. What was found is handed on in the caller's thread, in the order of the tests, and the
    tests of one step at a time are under way: there is never more than one snapshot.

    Parameters
    ----------
    tests
        The test set of each task.
    found
        Called with what a test found.
    beside
        Whether the stream goes on meanwhile.
    """

    def __init__(self, tests: Mapping[Task, Dataset], found: Callable[[Record], None], *, beside: bool) -> None:
        self._tests, self._found = tests, found
        # A number of threads is a thread's own, and it decides about the last bits.
        threads = (torch.get_num_threads(),)
        self._pool = ThreadPoolExecutor(1, "evaluation", torch.set_num_threads, threads) if beside else None
        self._pending: Future[list[Record]] | None = None

    def __enter__(self) -> Evaluation:
        return self

    def __exit__(self, *error: object) -> None:
        if self._pool is not None:
            self._pool.shutdown()

    def begin(self, learner: Learner, events: Sequence[Event]) -> None:
        """Test the learner as it is now; the tests of one step at a time."""
        self.wait()
        if self._pool is None:
            self._hand_on(self._evaluate(learner, events))
        else:
            self._pending = self._pool.submit(self._evaluate, learner.snapshot(), events)

    def _evaluate(self, learner: Learner, events: Sequence[Event]) -> list[Record]:
        return [evaluate(learner, self._tests[event.task], event) for event in events]

    def _hand_on(self, records: list[Record]) -> None:
        for record in records:
            self._found(record)

    def wait(self) -> None:
        """Wait until what was begun is done and handed on; what went wrong in it is raised here."""
        if self._pending is not None:
            pending, self._pending = self._pending, None
            self._hand_on(pending.result())

    def under_way(self) -> bool:
        """Return whether tests are under way; the results of those that have just ended are handed on first."""
        if self._pending is not None and self._pending.done():
            self.wait()
        return self._pending is not None


def evaluate(learner: Learner, test: Dataset, event: Event) -> Record:
    """Test on the images of the event's classes, with the head of its task; the learner is not changed by it."""
    subset = test.take(np.flatnonzero(np.isin(test.labels, event.classes)))
    probabilities = learner.predict_proba_many(subset.images, task=event.task)
    known = learner.classes_ if event.task is None else learner.classes_of(event.task)
    column = {name: i for i, name in enumerate(known)}
    truth = np.array([column.get(subset.names[label], -1) for label in subset.labels])
    predicted, confidence = probabilities.argmax(axis=1), probabilities.max(axis=1)
    correct = predicted == truth  # a class that has not come yet is never right
    reliability = metrics.reliability(confidence, correct)
    ranked = np.argsort(-probabilities, axis=1, kind="stable")[:, :5]
    place = {label: row for row, label in enumerate(event.classes)}
    matrix = np.zeros((len(event.classes), len(column)), int)
    np.add.at(matrix, ([place[label] for label in subset.labels.tolist()], predicted), 1)
    curve = metrics.coverage_curve(confidence, correct)
    return {
        "step": event.step,
        **({} if event.task is None else {"task": event.task}),
        "classes": [subset.names[label] for label in event.classes],
        "images": len(subset),
        "accuracy": float(correct.mean()),
        "top5": float((ranked == truth[:, None]).any(axis=1).mean()),
        "ece": reliability.ece,
        "ece_debiased": metrics.debiased_ece(confidence, correct),
        "reliability": reliability.to_dict(),
        "coverage": thinned(curve),
        "confusion": {"columns": list(column), "rows": matrix.tolist()},
    }


def thinned(curve: metrics.CoverageCurve, points: int = 101) -> Record:
    """Return a coverage curve at no more than some hundred thresholds."""
    chosen = np.unique(np.linspace(0, len(curve.thresholds) - 1, points).astype(int))
    return {
        "threshold": [float(curve.thresholds[i]) for i in chosen],
        "coverage": [float(curve.coverage[i]) for i in chosen],
        "accuracy": [float(curve.accuracy[i]) for i in chosen],
    }
