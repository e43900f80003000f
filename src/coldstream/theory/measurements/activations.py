"""The norms of activations at W⁰ (lemma hidden_act_init_bound), beside their exact mean and variance."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from coldstream.randomness import generator
from coldstream.theory.examples import stream_and_test
from coldstream.theory.network import relative_variance
from coldstream.theory.perturbations import Kind, draw
from coldstream.theory.points import MORE_SEEDS, Measurement, Numbers, Point

PROBES, NETWORKS = 50, 4
SIZE = 0.25
DEPTH = 5
KINDS: tuple[Kind, ...] = ("none", "orthogonal", "sphere", "gaussian", "parallel", "opposed", "adversarial")
CHANCE = 0.05
"""The corrected interval is that of Chebyshev's inequality: wider than this share of norms needs."""


def points(widths: Sequence[int]) -> list[Point]:
    """Return every width for each kind of ξ, and depths without ξ."""
    kinds = [
        Point(sweep="m", width=m, depth=DEPTH, perturbation=kind, size=SIZE if kind != "none" else 0.0)
        for kind in KINDS
        for m in widths
    ]
    return kinds + [Point(sweep="L", depth=depth, width=512) for depth in (3, 5, 8)]


def measure(point: Point, seed: int, root: Path | None) -> Numbers:
    """Return which share of ‖h_j‖² is in the stated and in the corrected interval, and their spread."""
    _, probes = stream_and_test(point.data, 2, PROBES, "iid", seed, root)
    layers = np.arange(1, point.depth)
    wide = np.sqrt([relative_variance(point.width, int(j)) / CHANCE for j in layers])[:, None]
    squares, ratios, lengths, inside, corrected, gradients = [], [], [], [], [], []
    for number in range(NETWORKS):
        network = point.network(probes.x.shape[1], seed * NETWORKS + number)
        rng = generator(seed, number, "theory probes")
        xi = draw(point.perturbation, point.size, probes.x, probes.y, network, rng)
        x, sizes = probes.x + xi, np.sum(xi * xi, axis=1)
        lengths.append(np.sum(x * x, axis=1))
        squares.append(np.stack([np.sum(h * h, axis=1) for h in network.activations(x)]))
        ratios.append(squares[-1] / lengths[-1])
        inside.append((squares[-1] >= 1 - sizes) & (squares[-1] <= 1 + sizes))
        corrected.append(np.abs(ratios[-1] - 1) <= wide)
        gradients.append(network.gradients(x).norms() / np.sqrt(point.width * lengths[-1]))
    return {
        "inside": float(np.mean(inside)),
        "inside corrected": float(np.mean(corrected)),
        "stated probability": float(1 - PROBES * point.depth * np.exp(-point.width / point.depth)),
        "mean": float(np.mean(squares)),
        "least": float(np.min(squares)),
        "most": float(np.max(squares)),
        "mean of x + xi": float(np.mean(lengths)),
        "last ratio": float(np.mean([ratio[-1] for ratio in ratios])),
        "deviation": float(np.sqrt(np.mean([(ratio[-1] - 1) ** 2 for ratio in ratios]))),
        "exact deviation": float(np.sqrt(relative_variance(point.width, point.depth - 1))),
        "gradient": float(np.mean(gradients)),
        "largest gradient": float(np.max(gradients)),
    }


ACTIVATIONS = Measurement("activations", "Norms of activations at initialisation", points, measure, MORE_SEEDS)
