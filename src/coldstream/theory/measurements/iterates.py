"""How far the iterates of Algorithm 1 go from W⁰, and what they learn on the way (lemma iterates_in_omega)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from coldstream.theory.network import loss, omega
from coldstream.theory.points import Measurement, Numbers, Point

_TESTED = 200
LAZY, USEFUL = 0.01, 1.0


def points(widths: Sequence[int]) -> list[Point]:
    """Return sweeps of m, n, B, Ξ and L in the lazy regime, of m in the useful one, and of κ between them."""
    lazy = {"kappa": LAZY}
    return [
        *(Point(sweep="m, lazy", width=m, **lazy) for m in widths),
        *(Point(sweep="m, useful", width=m, kappa=USEFUL) for m in widths),
        *(Point(sweep="n", steps=n, **lazy) for n in (25, 50, 100, 200, 400)),
        *(Point(sweep="n, useful", steps=n, kappa=USEFUL) for n in (25, 50, 100, 200, 400)),
        *(Point(sweep="B", replay=b, **lazy) for b in (0, 1, 3, 7, 15, 31)),
        *(
            Point(sweep="xi", perturbation="sphere" if size else "none", size=size, **lazy)
            for size in (0, 0.25, 0.5, 1, 2, 4, 8)
        ),
        *(Point(sweep="L", depth=depth, width=256, **lazy) for depth in (3, 4, 5, 6, 8)),
        *(
            Point(sweep=f"kappa, m = {m}", width=m, kappa=kappa)
            for m in (128, 512)
            for kappa in (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30)
        ),
    ]


def measure(point: Point, seed: int, root: Path | None) -> Numbers:
    """Stream once; return the largest distance of any layer at any time, accuracy, and the linearisation error."""
    stream, test = point.examples(_TESTED, seed, root)
    start = point.network(stream.x.shape[1], seed)
    network = start.copy()
    moved = np.zeros_like(start.hidden)
    far = size = 0.0
    right = 0
    for step in point.algorithm().run(network, stream, seed):
        moved += step.update
        far = max(far, float(np.sqrt(np.einsum("lab,lab->l", moved, moved).max())))
        size = max(size, float(step.sizes.max()))
        right += int(step.margins[0] > 0)
    outputs, first = network(test.x), start(test.x)
    flips = (network.before_relu(test.x)[-1] > 0) != (start.before_relu(test.x)[-1] > 0)
    return {
        "distance": far,
        "omega": omega(point.width, point.depth),
        "accuracy": float(np.mean(test.y * outputs > 0)),
        "start accuracy": float(np.mean(test.y * first > 0)),
        "stream accuracy": right / len(stream),
        "test loss": float(loss(test.y * outputs).mean()),
        "output change": float(np.abs(outputs - first).mean()),
        "taylor error": float(np.abs(start.taylor_errors(network, test.x)).max()),
        "flipped share": float(flips.mean()),
        "largest xi": size,
    }


ITERATES = Measurement("iterates", "Distance of the iterates from the initial weights", points, measure)
