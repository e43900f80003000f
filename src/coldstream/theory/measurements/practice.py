"""Error against Ξ and B: the theory's network and algorithm beside CSSL with a convolutional network."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from coldstream.learners import CSSL
from coldstream.theory.points import Measurement, Numbers, Point

TESTED = 200
STEPS = 400
REPLAYS = (0, 5, 50)
SIZES = (0.0, 0.25, 1.0, 4.0)
POLICIES = {"none": "none", "crops": "crop", "crops and flips": "crop|flip"}
NETWORK = "resnet8-16"


def points(widths: Sequence[int]) -> list[Point]:
    """Return sweeps of Ξ and B for both networks; only CSSL's augmentations have no given size."""
    wanted = [
        Point(sweep="xi", perturbation="sphere" if size else "none", size=size, steps=STEPS, replay=20)
        for size in SIZES
    ]
    for model in ("theory", NETWORK):
        wanted += [Point(sweep="images", perturbation=kind, steps=STEPS, replay=20, model=model) for kind in POLICIES]
        wanted += [
            Point(sweep="B", order=order, steps=STEPS, replay=replay, model=model)
            for order in ("iid", "class")
            for replay in REPLAYS
        ]
    return wanted


def measure(point: Point, seed: int, root: Path | None) -> Numbers:
    """Return the average error of the iterates and that of the last one, on fresh examples without ξ."""
    stream, test = point.examples(TESTED, seed, root)
    every = max(1, point.steps // 10)
    errors: list[float] = []
    sizes = [0.0]
    if point.model == "theory":
        network = point.network(stream.x.shape[1], seed)
        for step in point.algorithm().run(network, stream, seed):
            if step.t and step.t % every == 0:
                errors.append(float(np.mean(test.y * network(test.x) < 0)))
            sizes.append(float(step.sizes.max()))
        last = float(np.mean(test.y * network(test.x) < 0))
    else:
        if stream.images is None or test.images is None:
            raise ValueError(f"{point.model} needs images; choose digits, fashion-mnist or cifar100")
        policy = POLICIES[point.perturbation]
        learner = CSSL(
            model=point.model,
            replay=point.replay,
            capacity=None,
            augment=policy,
            rate="constant(0.05)",
            seed=seed,
        )
        for t, (image, label) in enumerate(zip(stream.images, stream.y, strict=True)):
            if t % every == 0 and t:
                errors.append(_wrong(learner, test.images, test.y))
            learner.learn_one(image, int(label))
        last = _wrong(learner, test.images, test.y)
    return {
        "error": float(np.mean(errors)),
        "last error": last,
        "largest xi": max(sizes),
        "growth of the bound": (1 + max(sizes)) ** 0.75 * max(point.replay, 1) ** 0.5,
    }


def _wrong(learner: CSSL, images: np.ndarray, y: np.ndarray) -> float:
    return float(np.mean(np.array(learner.predict_many(list(images)), np.float64) != y))


PRACTICE = Measurement("practice", "Error against Ξ and B, in theory and practice", points, measure)
