"""Loss of the iterates less that of the best weights in the ball (lemma main_star_lemma), and its mended forms."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from coldstream.theory.examples import Examples
from coldstream.theory.network import loss
from coldstream.theory.ntrf import best_in_ball
from coldstream.theory.points import MORE_SEEDS, Measurement, Numbers, Point

STEPS = (25, 50, 100, 200, 400, 800, 1600)
KAPPA, RADIUS = 0.01, 0.1
"""Slow enough that the linearisation is near; R so small that the second term is the larger one."""
PROPORTION = 2.56
"""m = 2.56 n: the width grows with n as the lemma assumes, n B below it."""
SETTINGS = (("iid", "digits"), ("class", "digits"), ("iid", "one label then the other"))


def points(widths: Sequence[int]) -> list[Point]:
    """Return streams of growing length for each order, with and without replay; m follows n."""
    return [
        Point(
            sweep=f"{data}, {order}, B = {replay}",
            **{
                "data": data,
                "order": order,
                "replay": replay,
                "kappa": KAPPA,
                "radius": RADIUS,
                "steps": n,
                "width": width,
            },
        )
        for order, data in SETTINGS
        for replay in (0, 10)
        for n in STEPS
        if (width := math.ceil(PROPORTION * n)) <= max(widths) / 2
    ]


def measure(point: Point, seed: int, root: Path | None) -> Numbers:
    """Return the numbers of the labelling, of the given one and its opposite, whose regret is the larger."""
    stream, _ = point.examples(1, seed, root)
    opposite = replace(stream, y=-stream.y)
    return max((labelled(point, one, seed) for one in (stream, opposite)), key=lambda numbers: numbers["ratio"])


def labelled(point: Point, stream: Examples, seed: int) -> Numbers:
    """Return the regret of the new examples, that of all examples, and the two sides of the mended inequalities."""
    start = point.network(stream.x.shape[1], seed)
    network = start.copy()
    inputs, labels, counts, losses, energy = [], [], [], [], 0.0
    for step in point.algorithm().run(network, stream, seed):
        inputs.append(step.x)
        labels.append(step.y)
        counts.append(len(step.y))
        losses.append(loss(step.margins))
        energy += float(np.sum(step.update**2))
    rate = point.algorithm().rate(start)
    new = np.concatenate([[0], np.cumsum(counts)[:-1]])
    x, y, per_row = np.concatenate(inputs), np.concatenate(labels), np.concatenate(losses)
    radius = point.radius / point.width
    gradients = start.gradients(x[new])
    fit = best_in_ball(gradients, y[new], radius, tolerance=1e-6)
    star = start.with_hidden(start.hidden + fit.step(gradients))
    at_start, at_star = loss(y * start(x)), loss(y * star(x))
    best = at_star if at_star[new].sum() < at_start[new].sum() else at_start
    distance = float(np.sum((star.hidden - start.hidden) ** 2)) if best is at_star else 0.0
    regret = float(per_row[new].sum() - best[new].sum())
    total = float(per_row.sum() - best.sum())
    energy_terms = distance / (2 * rate) + energy / (2 * rate)
    m, n, depth = point.width, point.steps, point.depth
    first = depth * point.radius**2 / (2 * point.kappa * math.sqrt(m))
    second = point.kappa * n * (point.replay + 1) * depth / math.sqrt(m)
    return {
        "regret": regret,
        "total regret": total,
        "terms": first + second,
        "ratio": regret / (first + second),
        "exact right side": energy_terms,
        "total ratio": total / energy_terms,
        "mended ratio": float(per_row[new].sum()) / (float(best.sum()) + energy_terms),
        "loss of the iterates": float(per_row[new].mean()),
        "loss of the best": float(best[new].mean()),
        "gap": fit.gap,
    }


REGRET = Measurement("regret", "Regret of the iterates against the best in the ball", points, measure, MORE_SEEDS)
