"""The online-to-batch step of the theorem in i.i.d. and in class order, at rates from slow to fast."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from coldstream.theory.points import Measurement, Numbers, Point

DELTA, TESTED, EVALUATIONS = 0.05, 200, 40
KAPPAS = (1.0, 10.0, 100.0)


def points(widths: Sequence[int]) -> list[Point]:
    """Return both orders with and without replay at several rates."""
    return [
        Point(sweep=f"{order}, B = {replay}", order=order, replay=replay, kappa=kappa, steps=400, width=128)
        for order in ("iid", "class")
        for replay in (0, 10)
        for kappa in KAPPAS
    ]


def measure(point: Point, seed: int, root: Path | None) -> Numbers:
    """Return the average error of the iterates on fresh data, that on the stream, and the term between them."""
    stream, test = point.examples(TESTED, seed, root)
    network = point.network(stream.x.shape[1], seed)
    every = max(1, point.steps // EVALUATIONS)
    errors, wrong = [], 0
    for step in point.algorithm().run(network, stream, seed):
        if step.t % every == 0:
            errors.append(float(np.mean(test.y * network(test.x) < 0)))
        wrong += int(step.margins[0] < 0)
    return {
        "error": float(np.mean(errors)),
        "stream error": wrong / point.steps,
        "second term": math.sqrt(2 * math.log(1 / DELTA) / point.steps),
    }


ORDER = Measurement("order", "Error of the iterates on fresh data and on the stream, by order", points, measure)
