"""Wrong input is refused and changes nothing; right input is left alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from coldstream.checks.fixtures import SIDE, Factory, fresh, refusal, stream, taught


def check_survives_bad_input(factory: Factory) -> None:
    """Wrong input is a ValueError, before and after learning, and leaves the learner exactly as it was."""
    good, _ = stream(1)
    nan = torch.full((3, SIDE, SIDE), float("nan"))
    images: list[Any] = [None, "bird.jpg", b"not an image", good[0].astype(np.int64), np.zeros((0, 4, 3), np.uint8)]
    images += [np.zeros((4, 4, 7), np.uint8), nan, np.zeros((2, 3, 4, 3), np.uint8)]
    labels: list[Any] = [None, 1.5, ["a"], {"a": 1}, (), ("a", None)]
    for learner in (fresh(factory), taught(factory)):
        before = learner.fingerprint()
        for image in images:
            refusal(learner.learn_one, image, "ash")
            refusal(learner.predict_one, image)
            refusal(learner.learn_many, [good[0], image], ["x", "y"])
        for label in labels:
            refusal(learner.learn_one, good[0], label)
        for id in (-1, 1.5, True, b"id"):
            refusal(learner.learn_one, good[0], "ash", id=id)
        refusal(learner.learn_many, good, [])
        refusal(learner.learn_many, good, ["ash"], per_update=0)
        assert learner.fingerprint() == before, "a refused input changed the learner"


def check_inputs_are_left_alone(factory: Factory) -> None:
    """Images handed in are neither changed nor kept: changing them later changes nothing."""
    images, labels = stream(12)
    learner, other = fresh(factory), fresh(factory)
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
