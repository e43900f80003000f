"""A test of a learner: everything that is found out about it at one moment of the stream."""

from __future__ import annotations

from typing import Any

import numpy as np

from coldstream import metrics
from coldstream.data import Dataset
from coldstream.learners.base import Learner
from coldstream.streams import Event


def evaluate(learner: Learner, test: Dataset, event: Event) -> dict[str, Any]:
    """Test on the images of the event's classes; the learner is not changed by it."""
    subset = test.take(np.flatnonzero(np.isin(test.labels, event.classes)))
    probabilities = learner.predict_proba_many(subset.images)
    column = {name: i for i, name in enumerate(learner.classes_)}
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


def thinned(curve: metrics.CoverageCurve, points: int = 101) -> dict[str, Any]:
    """Return a coverage curve at no more than some hundred thresholds."""
    chosen = np.unique(np.linspace(0, len(curve.thresholds) - 1, points).astype(int))
    return {
        "threshold": [float(curve.thresholds[i]) for i in chosen],
        "coverage": [float(curve.coverage[i]) for i in chosen],
        "accuracy": [float(curve.accuracy[i]) for i in chosen],
    }
