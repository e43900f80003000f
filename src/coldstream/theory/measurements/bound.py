"""The terms of theorem main_theorem beside the measured error of the iterates on fresh data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from coldstream.theory.examples import separation
from coldstream.theory.network import Gradients, smallest_width
from coldstream.theory.ntrf import best_in_ball
from coldstream.theory.points import Measurement, Numbers, Point

DELTA = 0.05
RADII = (1.0, 10.0, 100.0, 1000.0)
ROOTS = (0.3, 1.0, 3.0, 10.0)
"""Radii of the form R/√m."""
TESTED = 200
EVALUATIONS = 20
FACTOR = 4
_TOLERANCE, _ITERATIONS = 2e-3, 2000


def points(widths: Sequence[int]) -> list[Point]:
    """Return every width and several lengths, depths and data sets, with and without replay and order."""
    wanted = [Point(sweep="m", width=m) for m in widths if m >= 128]
    wanted += [Point(sweep="n", steps=n) for n in (50, 100, 200, 400)]
    wanted += [Point(sweep="L", depth=depth, width=256) for depth in (3, 4, 5, 6, 8)]
    for data in ("digits", "clusters", "cifar100", "fashion-mnist"):
        wanted += [
            Point(sweep="data", data=data, order=order, replay=replay)
            for order in ("iid", "class")
            for replay in (0, 10)
        ]
    return wanted


def measure(point: Point, seed: int, root: Path | None) -> Numbers:
    """Return the first term for several R with the certified gap, the others, and the error of the iterates."""
    stream, test = point.examples(TESTED, seed, root)
    start = point.network(stream.x.shape[1], seed)
    network = start.copy()
    every = max(1, point.steps // EVALUATIONS)
    errors, right = [], 0
    for step in point.algorithm().run(network, stream, seed):
        if step.t % every == 0:
            errors.append(float(np.mean(test.y * network(test.x) < 0)))
        right += int(step.margins[0] > 0)
    gradients = start.gradients(stream.x)
    second = math.sqrt(2 * math.log(1 / DELTA) / point.steps)
    numbers = {
        "error": float(np.mean(errors)),
        "stream error": 1 - right / point.steps,
        "last error": float(np.mean(test.y * network(test.x) < 0)),
        "second term": second,
        "separation": separation(np.concatenate([stream.x, test.x])),
        "start value": _first(gradients, stream.y, 1e-9)[0],
        "admissible width": smallest_width(point.steps, max(point.replay, 1), point.depth),
    }
    for radius in RADII:
        value, gap = _first(gradients, stream.y, radius / point.width)
        numbers |= {f"first term, R = {radius:g}": value, f"gap, R = {radius:g}": gap}
        numbers[f"third term, R = {radius:g}"] = third_term(point, radius)
    for radius in ROOTS:
        value, gap = _first(gradients, stream.y, radius / math.sqrt(point.width))
        numbers |= {f"first term, R/√m, R = {radius:g}": value, f"gap, R/√m, R = {radius:g}": gap}
    numbers["radius for half"] = smallest_radius(gradients, stream.y, 0.5 - second) * point.width
    return numbers


def third_term(point: Point, radius: float) -> float:
    """Return the third term with constant 1: ((1 + Ξ)^(3/4) √B n + R²) / (L² log^(3/2) m)."""
    grown: float = (1 + point.size) ** 0.75 * math.sqrt(max(point.replay, 1)) * point.steps
    return float((grown + radius**2) / (point.depth**2 * math.log(point.width) ** 1.5))


def _first(gradients: Gradients, y: np.ndarray, radius: float) -> tuple[float, float]:
    fit = best_in_ball(gradients, y, radius, tolerance=_TOLERANCE / FACTOR, iterations=_ITERATIONS)
    return FACTOR * fit.value, FACTOR * fit.gap


def smallest_radius(gradients: Gradients, y: np.ndarray, target: float) -> float:
    """Return the smallest radius, within 10%, at which the first term is at most `target`, or infinity.

    The first term falls as the radius grows, so that halving finds it. A radius counts only where the solver reached
    the target, so that the true one is at most as large.
    """
    if target <= 0:
        return math.inf
    low, high = 1e-6, 1e4
    if _first(gradients, y, high)[0] > target:
        return math.inf
    while high / low > 1.1:
        middle = math.sqrt(low * high)
        if _first(gradients, y, middle)[0] <= target:
            high = middle
        else:
            low = middle
    return high


BOUND = Measurement("bound", "The theorem's terms beside the measured error", points, measure)
