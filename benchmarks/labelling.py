"""Shared by the measurements of live labelling: small images of four data sets, and runs kept line by line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from PIL import Image as Pillow
from pydantic import BaseModel

from coldstream import ColdStart
from coldstream.data import load_dataset, select
from coldstream.metrics import Interval, accuracy, confidences, hits, paired_by_seed, reliability

SIDE = 8
"""Of the images."""
SETS = ("digits", "fashion-mnist", "gtsrb", "cifar100")
CLASSES = {"digits": 10, "fashion-mnist": 10, "gtsrb": 20, "cifar100": 10}
POOL = {"digits": 120, "fashion-mnist": 200, "gtsrb": 60, "cifar100": 250}  # images of each class
HELD_OUT = {"digits": 30, "fashion-mnist": 50, "gtsrb": 12, "cifar100": 50}
RATIO = 50
"""Long-tailed: images of the largest class, for each one of the smallest."""

Indices = NDArray[np.int64]
Kept = TypeVar("Kept", bound=BaseModel)


class Pool:
    """Images to label, and held-out ones to test on, as many of each class."""

    def __init__(self, name: str, root: Path, of_each: int = 0) -> None:
        train, test = load_dataset(name, root)
        if len(train.names) > CLASSES[name]:
            train, test = select(train, test, classes=CLASSES[name])
        rng = np.random.default_rng(2026)
        chosen = {}
        for part, most in ((train, max(of_each, POOL[name])), (test, HELD_OUT[name])):
            members = [np.flatnonzero(part.labels == label) for label in range(CLASSES[name])]
            if part is test and part.objects is not None:  # successive frames: evenly spaced ones
                places = [each[np.linspace(0, len(each) - 1, most).astype(int)] for each in members]
            else:
                places = [np.sort(rng.permutation(each)[:most]) for each in members]
            indices = np.concatenate(places)
            chosen[part is train] = small(np.asarray(part.images)[indices], name), np.asarray(part.labels)[indices]
        (self.images, self.labels), (self.test_images, self.test_labels) = chosen[True], chosen[False]
        self.name, self.classes = name, CLASSES[name]

    def long_tailed(self, seed: int) -> Indices:
        """Return a part of the images: their number falls from class to class by a factor, `RATIO` in all."""
        rng = np.random.default_rng([seed, 7])
        kept = []
        for rank, label in enumerate(rng.permutation(self.classes).tolist()):
            members = np.flatnonzero(self.labels == label)
            count = max(1, round(len(members) * RATIO ** (-rank / (self.classes - 1))))
            kept.append(rng.permutation(members)[:count])
        return np.sort(np.concatenate(kept))

    def test(self, learner: ColdStart, *, seen: bool = False) -> dict[str, float]:
        """Return accuracy and ECE on the held-out images; of a class that was never labelled all are wrong.

        With `seen`, on those of the classes that were labelled.
        """
        column = {label: place for place, label in enumerate(learner.classes_)}
        truth = np.array([column.get(label, len(column)) for label in self.test_labels.tolist()])
        tested = truth < len(column) if seen else np.ones(len(truth), bool)
        truth, probabilities = truth[tested], learner.predict_proba_many(self.test_images[tested])
        known = np.hstack([probabilities, np.zeros((len(truth), 1))])
        right = hits(known, truth)
        return {
            "accuracy": accuracy(known, truth),
            "ece": reliability(confidences(known), right).ece,
        }


def small(images: NDArray[np.uint8], name: str) -> NDArray[np.uint8]:
    """Return images at the size of the measurements."""
    if name == "digits":
        return images
    grey = images.shape[3] == 1
    resized = [
        Pillow.fromarray(one[:, :, 0] if grey else one).resize((SIDE, SIDE), Pillow.Resampling.BOX) for one in images
    ]
    stacked = np.stack([np.asarray(one) for one in resized])
    return stacked[..., None] if grey else stacked


def read(out: Path, kind: type[Kept]) -> list[Kept]:
    """Return the runs in a file; a last line that was cut off is removed from it."""
    text = out.read_text() if out.exists() else ""
    whole = text[: text.rfind("\n") + 1]
    if whole != text:
        out.write_text(whole)
    return [kind.model_validate_json(line) for line in whole.splitlines()]


def write(out: Path, run: BaseModel) -> None:
    """Add a run to a file."""
    with out.open("a") as file:
        file.write(run.model_dump_json() + "\n")


def gain(values: Mapping[str, Mapping[int, float]], arm: str, to: str, factor: float, digits: str) -> str:
    """Return what an arm has more than another, paired by seed, with its 95% interval; empty where one is missing."""
    interval: Interval | None = paired_by_seed(values.get(arm, {}), values.get(to, {}))
    return "" if interval is None else format(interval.scaled(factor), digits)


def mean(values: Sequence[float]) -> float:
    """Return the mean; not a number for none."""
    return float(np.mean(values)) if len(values) else float("nan")
