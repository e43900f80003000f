"""Predictions for the image files of a folder or a zip."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from coldstream.data.files import Files
from coldstream.labels import Label
from coldstream.learners.base import Learner

_TOGETHER = 64
"""Files that are read, and predicted, at once."""


@dataclass(frozen=True)
class FilePrediction:
    """What a learner says of a file: the best label and the second best, or what is wrong with the file."""

    path: str
    label: Label | None = None
    confidence: float = 0.0
    runner_up: Label | None = None
    runner_up_confidence: float = 0.0
    error: str | None = None


def predict_files(
    learner: Learner[Any], files: Files, names: Sequence[str], *, task: object = None
) -> Iterator[FilePrediction]:
    """Predict files in order, a few at a time; one that cannot be read does not end the rest.

    The learner must not learn meanwhile.
    """
    if not learner.classes_of(task):
        raise ValueError("this learner knows no class yet: it has learned nothing")
    for start in range(0, len(names), _TOGETHER):
        chunk = names[start : start + _TOGETHER]
        try:
            yield from _predict(learner, files, chunk, task)
        except ValueError:  # of one file or more: find which
            for name in chunk:
                try:
                    yield from _predict(learner, files, [name], task)
                except ValueError as error:
                    message = str(error)
                    named = message if name in message else f"cannot read {files.where(name)}: {message}"
                    yield FilePrediction(name, error=named)


def _predict(learner: Learner[Any], files: Files, names: Sequence[str], task: object) -> list[FilePrediction]:
    classes = learner.classes_of(task)
    probabilities = learner.predict_proba_many([files.read(name) for name in names], task=task)
    predictions = []
    for name, row in zip(names, probabilities, strict=True):
        best, *others = np.argsort(-row, kind="stable")[:2].tolist()
        second = others[0] if others else None
        predictions.append(
            FilePrediction(
                name,
                classes[best],
                float(row[best]),
                None if second is None else classes[second],
                0.0 if second is None else float(row[second]),
            )
        )
    return predictions
