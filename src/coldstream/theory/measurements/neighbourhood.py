"""Pairs W, W′ at a distance ω: linearisation, convexity, activations and gradients (all lemmas about the ball)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np

from coldstream.randomness import generator
from coldstream.theory.algorithm import Algorithm
from coldstream.theory.examples import stream_and_test
from coldstream.theory.network import Array, Network, loss, loss_slope
from coldstream.theory.perturbations import draw
from coldstream.theory.points import MORE_SEEDS, Measurement, Numbers, Point

PROBES = 100
"""Inputs over which the largest value, or the root mean square, is taken."""
DIRECTIONS = ("random", "gradient", "trained", "nearest units", "two random points")
OMEGAS = (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
DEPTHS = (3, 4, 5, 6, 8)
WIDEST = 1024
"""The width of the sweeps of ω: small changes flip few units, and more where there are more."""
PAIRS = 10
"""Inputs for each of which the nearest units are pushed."""


def points(widths: Sequence[int]) -> list[Point]:
    """Return sweeps of ω, m and L for each direction, and of ξ."""
    wanted = [
        *(Point(sweep="omega", direction=one, omega=omega, width=WIDEST) for one in DIRECTIONS for omega in OMEGAS),
        *(Point(sweep="m", direction=one, width=m) for one in DIRECTIONS for m in widths),
        *(Point(sweep="L", direction=one, depth=depth, width=256) for one in DIRECTIONS for depth in DEPTHS),
    ]
    for kind in ("orthogonal", "parallel", "opposed"):
        sizes = (0.25, 0.5) if kind == "opposed" else (0.25, 1.0, 3.0, 8.0)
        wanted += [
            Point(sweep="xi", direction="nearest units", perturbation=kind, size=size) for size in (0.0, *sizes)
        ]
    return wanted


def measure(point: Point, seed: int, root: Path | None) -> Numbers:
    """Return the largest values over probes of what the lemmas bound, for one pair W, W′."""
    _, probes = stream_and_test(point.data, 100, PROBES, "iid", seed, root)
    start = point.network(probes.x.shape[1], seed)
    rng = generator(seed, 0, "theory probes")
    x = probes.x + draw(point.perturbation, point.size, probes.x, probes.y, start, rng)
    if point.direction == "nearest units":  # the worst point differs from input to input
        pairs = [(start, nearest_units(start, one[None], point.omega), one[None]) for one in x[:PAIRS]]
    elif point.direction == "two random points":
        pairs = [(_random(start, point.omega, seed, 1), _random(start, point.omega, seed, 2), x)]
    else:
        pairs = [(start, _towards(start, x, point, seed), x)]
    every = [_compare(start, one, other, inputs, point.omega) for one, other, inputs in pairs]
    whole = {name: max(numbers[name] for numbers in every) for name in every[0]}
    whole["defect"] = float(np.mean([numbers["defect"] for numbers in every]))
    whole["rms error"] = float(np.sqrt(np.mean([numbers["rms error"] ** 2 for numbers in every])))
    whole["product"] = products(start, pairs[0][1], pairs[0][2][:1], point.omega)
    whole["length of x + xi"] = float(np.linalg.norm(x, axis=1).mean())
    return whole


def _compare(start: Network, one: Network, other: Network, x: Array, omega: float) -> Numbers:
    gradients = one.gradients(x)
    change = gradients.inner(other.hidden - one.hidden)
    outputs = other(x)
    defects = [  # both labels
        loss(y * outputs) - loss(y * gradients.outputs) - loss_slope(y * gradients.outputs) * y * change
        for y in (1.0, -1.0)
    ]
    errors = np.abs(outputs - gradients.outputs - change)
    lengths = np.linalg.norm(x, axis=1)
    before, after = start.before_relu(x), other.before_relu(x)
    differences = [np.linalg.norm(a - b, axis=1) / lengths for a, b in zip(after, before, strict=True)]
    activations = [np.linalg.norm(np.maximum(a, 0), axis=1) / lengths for a in after]
    hidden = [
        np.linalg.norm(np.maximum(a, 0) - np.maximum(b, 0), axis=1) / lengths
        for a, b in zip(after, before, strict=True)
    ]
    norms = other.gradients(x).norms() / lengths / np.sqrt(one.width)
    slopes = np.abs(loss_slope(np.stack([outputs, -outputs]))).max(axis=0)
    flipped = [((a > 0) != (b > 0)).mean() for a, b in zip(after[1:], before[1:], strict=True)]
    return {
        "error": float(errors.max()),
        "rms error": float(np.sqrt(np.mean(errors**2))),
        "defect": float(np.min(defects)),
        "defect beyond error": float(np.max(-np.array(defects) - errors)),
        "change of g": float(np.max(differences)),
        "change of h": float(np.max(hidden)),
        "norm of h": float(np.max(activations)),
        "gradient": float(norms.max()),
        "loss gradient": float((norms * slopes).max()),
        "flipped share": float(np.max(flipped)),
        "distance": float(max(start.distances(one).max(), start.distances(other).max())),
    }


def _random(start: Network, omega: float, seed: int, number: int) -> Network:
    """Return W⁰ plus, in each trained layer, a uniformly random direction of Frobenius norm ω."""
    step = generator(seed, number, "theory direction").standard_normal(start.hidden.shape)
    return start.with_hidden(start.hidden + _scaled(step, omega))


def _scaled(step: Array, omega: float) -> Array:
    norms = np.linalg.norm(step, axis=(1, 2), keepdims=True)
    scaled: Array = omega * step / np.where(norms > 0, norms, 1)
    return scaled


def _towards(start: Network, x: Array, point: Point, seed: int) -> Network:
    if point.direction == "random":
        return _random(start, point.omega, seed, 1)
    if point.direction == "gradient":
        step = start.gradients(x[:1]).combine(np.ones(1))
    elif point.direction == "trained":
        step = _trained(point.width, point.depth, point.data, seed)
    else:
        raise ValueError(f"direction {point.direction!r} is not one of {', '.join(DIRECTIONS)}")
    return start.with_hidden(start.hidden + _scaled(step, point.omega))


@lru_cache(maxsize=1)
def _trained(width: int, depth: int, data: str, seed: int) -> Array:
    """Return W^(n) - W⁰ of a stream of 100 examples with B = 10 and κ = 0.1."""
    stream, _ = stream_and_test(data, 100, PROBES, "iid", seed)
    start = Network.initial(width, depth, stream.x.shape[1], seed)
    network = start.copy()
    for _ in Algorithm(kappa=0.1, replay=10).run(network, stream, seed):
        pass
    return network.hidden - start.hidden


def nearest_units(start: Network, x: Array, omega: float) -> Network:
    """Return W′ at distance ω in every layer whose linearisation error at one input adds up over few units.

    In each layer, the s units nearest to zero among those that raise f, s of order m ω^(2/3), are pushed to the other
    side of zero: an active one down, an inactive one up. Each saves, or adds, what the linearisation does not see.
    """
    network = start.copy()
    back = start.last * np.sqrt(start.width)
    raises = [back]
    before = start.before_relu(x)
    for layer in range(len(start.hidden) - 1, 0, -1):
        back = (back * (before[layer + 1][0] > 0)) @ start.hidden[layer]
        raises.insert(0, back)
    h = np.maximum(before[0][0], 0)
    for layer, weights in enumerate(network.hidden):
        g = weights @ h
        reach = omega * np.linalg.norm(h)
        candidates = np.flatnonzero(raises[layer] > 0)
        order = candidates[np.argsort(np.abs(g[candidates]))]
        counts = np.arange(1, len(order) + 1)
        sums = np.cumsum(raises[layer][order])
        pulls = np.cumsum(raises[layer][order] * np.abs(g[order]))
        gain = reach / np.sqrt(counts) * sums - pulls
        best = int(np.argmax(gain)) + 1
        chosen = order[:best]
        push = -np.sign(g[chosen]) * reach / np.sqrt(best)
        weights[chosen] += push[:, None] * h / (h @ h)
        h = np.maximum(weights @ h, 0)
    return network


def extra_units(point: Point) -> int:
    """Return s = ⌈m ω^(2/3) L⌉, at most m: how many entries D″ has."""
    return _count(point.width, point.depth, point.omega)


def _count(width: int, depth: int, omega: float) -> int:
    return min(width, int(np.ceil(width * omega ** (2 / 3) * depth)))


def products(start: Network, other: Network, x: Array, omega: float) -> float:
    """Return the norm that lemma diff_matrix_prod_bound bounds, at l = 2 for one input.

    D″ has ⌈m ω^(2/3) L⌉ entries of 1, at the last hidden layer, where W_L is largest in absolute value.
    """
    count = _count(start.width, start.depth, omega)
    extra = np.zeros(start.width)
    extra[np.argsort(-np.abs(start.last))[:count]] = 1
    rows = []
    for network, added in ((other, extra), (start, np.zeros(start.width))):
        before = network.before_relu(x)
        back = network.last
        for layer in range(len(network.hidden) - 1, -1, -1):
            mask = (before[layer + 1][0] > 0) + (added if layer == len(network.hidden) - 1 else 0)
            back = (back * mask) @ network.hidden[layer]
        rows.append(back)
    return float(np.linalg.norm(rows[0] - rows[1]))


NEIGHBOURHOOD = Measurement("neighbourhood", "Pairs of weights at a distance ω", points, measure, MORE_SEEDS)
