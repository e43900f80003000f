"""Tests during the stream: what is measured, between two steps or beside them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from coldstream import metrics
from coldstream.data import Dataset
from coldstream.lab.records import Confusion, Coverage, EventResult
from coldstream.labels import Label
from coldstream.learners.base import Learner
from coldstream.streams import Event, Task


class Evaluation:
    """Evaluates between two steps, or beside them: a snapshot, in a background thread, while the stream goes on.

    Both give the same bits. Results are handed on in the caller's thread, in the order of the tests. The tests of one
    step at a time are under way: there is never more than one snapshot.

    Parameters
    ----------
    tests
        The test set of each task.
    log
        Called with the result of each test.
    beside
        Whether the stream goes on meanwhile.
    """

    def __init__(self, tests: Mapping[Task, Dataset], log: Callable[[EventResult], None], *, beside: bool) -> None:
        self._tests, self._log = tests, log
        # The number of torch threads is set per thread, and it decides about the last bits.
        threads = (torch.get_num_threads(),)
        self._pool = ThreadPoolExecutor(1, "evaluation", torch.set_num_threads, threads) if beside else None
        self._pending: Future[list[EventResult]] | None = None

    def __enter__(self) -> Evaluation:
        return self

    def __exit__(self, *error: object) -> None:
        if self._pool is not None:
            self._pool.shutdown()

    def begin(self, learner: Learner[Any], events: Sequence[Event]) -> None:
        """Test the learner as it is now; the tests of one step at a time."""
        self.wait()
        if self._pool is None:
            self._hand_on(self._evaluate(learner, events))
        else:
            self._pending = self._pool.submit(self._evaluate, learner.snapshot(), events)

    def _evaluate(self, learner: Learner[Any], events: Sequence[Event]) -> list[EventResult]:
        return [evaluate(learner, self._tests[event.task], event) for event in events]

    def _hand_on(self, records: list[EventResult]) -> None:
        for record in records:
            self._log(record)

    def wait(self) -> None:
        """Wait for the tests that are under way and hand on their results; raise the error of one that failed."""
        if self._pending is not None:
            pending, self._pending = self._pending, None
            self._hand_on(pending.result())

    def under_way(self) -> bool:
        """Return whether tests are under way; the results of those that have just ended are handed on first."""
        if self._pending is not None and self._pending.done():
            self.wait()
        return self._pending is not None


def evaluate(learner: Learner[Any], test: Dataset, event: Event) -> EventResult:
    """Test on the images of the event's classes, with the head of its task; the learner is not changed by it."""
    subset = test.take(np.flatnonzero(np.isin(test.labels, event.classes)))
    probabilities = learner.predict_proba_many(subset.images, task=event.task)
    known = learner.classes_ if event.task is None else learner.classes_of(event.task)
    tested = [subset.names[label] for label in event.classes]
    column: dict[Label, int] = {name: place for place, name in enumerate(known)}
    # Classes that have not come yet get columns after those of the learner, which no prediction is in.
    columns = dict(column)
    for name in tested:
        columns.setdefault(name, len(columns))
    truth = np.array([columns[subset.names[label]] for label in subset.labels])
    predicted, confidence = metrics.predictions(probabilities), metrics.confidences(probabilities)
    correct = _hits(probabilities, truth, 1)
    reliability = metrics.reliability(confidence, correct)
    matrix = metrics.confusion_matrix(predicted, truth, len(columns))
    return EventResult(
        step=event.step,
        task=event.task,
        classes=len(tested),
        images=len(subset),
        accuracy=float(correct.mean()),
        top5=float(_hits(probabilities, truth, 5).mean()),
        ece=reliability.ece,
        ece_debiased=metrics.debiased_ece(confidence, correct),
        reliability=reliability,
        coverage=_thinned(metrics.coverage_curve(confidence, correct)),
        confusion=Confusion(
            truth=tuple(map(str, tested)),
            predicted=tuple(map(str, known)),
            counts=tuple(map(tuple, matrix[[columns[name] for name in tested], : len(column)].tolist())),
        ),
    )


def _hits(probabilities: NDArray[Any], truth: NDArray[Any], k: int) -> NDArray[np.bool_]:
    """Return which labels are among the k most probable; a label without a column never is."""
    width = probabilities.shape[1]
    right = np.zeros(len(truth), bool)
    if (known := truth < width).any():
        right[known] = metrics.hits(probabilities[known], truth[known], min(k, width))
    return right


def _thinned(curve: metrics.CoverageCurve, points: int = 101) -> Coverage:
    """Return a coverage curve at about a hundred thresholds or fewer."""
    chosen = np.unique(np.linspace(0, len(curve.thresholds) - 1, points).astype(int))
    return Coverage(
        threshold=tuple(float(curve.thresholds[i]) for i in chosen),
        coverage=tuple(float(curve.coverage[i]) for i in chosen),
        accuracy=tuple(float(curve.accuracy[i]) for i in chosen),
    )
