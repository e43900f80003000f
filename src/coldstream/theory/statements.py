"""The statements of the paper's theory, each with the checks that decide its verdict."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from coldstream.metrics import Interval, mean_interval, paired_interval
from coldstream.theory.fits import MARGIN, Check, Curves, above, below, falls_at_least, grows_at_most, never_above
from coldstream.theory.measurements.activations import CHANCE
from coldstream.theory.measurements.bound import RADII, ROOTS
from coldstream.theory.measurements.neighbourhood import DIRECTIONS, extra_units
from coldstream.theory.points import Point

All = Mapping[str, Curves]
M, N, L = (lambda p: p.width), (lambda p: p.steps), (lambda p: p.depth - 2)
GRADIENTS, XI, OMEGA = (lambda p: p.replay + 1), (lambda p: 1 + p.size), (lambda p: p.omega)
FROM = 128
"""Fits over m begin here: in smaller networks the s nearest units are a handful."""


def all_gradients(point: Point) -> float:
    """Return how many gradients n steps add up: the first ones replay what there is."""
    return float(sum(1 + min(point.replay, t) for t in range(point.steps)))


SMALL, MIDDLE, NEAREST = (0.0001, 0.003), (0.003, 0.3), (0.001, 0.1)
"""Ranges of ω for fits: in the first, lemma 5's D″ is small; below the second, hardly a unit flips unless pushed."""
LAYERS = "L - 2"


def iterates(curves: All) -> list[Check]:
    """Distance of the iterates over κ · gradients · √(1 + Ξ) / m, at its worst in each sweep."""
    own = Curves(None)
    own.rows = [(p, seed, {"ratio": n["distance"] / _reach(p)}) for p, seed, n in curves["iterates"].rows]
    return [
        below(f"distance / (κ G √(1 + Ξ) / m), worst of sweep: {sweep}", _worst(own.where(sweep), "ratio", np.max), 1)
        for sweep in own.sweeps
    ]


def _reach(point: Point) -> float:
    return point.kappa * all_gradients(point) * math.sqrt(1 + point.size) / point.width


def exponents_of_iterates(curves: All) -> list[Check]:
    """Fitted exponents of the distance; they are noisy, as f differs at the start from one network to the next."""
    own = curves["iterates"]
    return [
        *(
            grows_at_most(f"exponent of m, {name} rate", own.where(f"m, {name}").exponent("distance", M), -1)
            for name in ("lazy", "useful")
        ),
        grows_at_most("exponent of G, n swept", own.where("n").exponent("distance", all_gradients), 1),
        grows_at_most("exponent of G, B swept", own.where("B").exponent("distance", all_gradients), 1),
        grows_at_most("exponent of 1 + Ξ", own.where("xi").exponent("distance", XI), 0.5),
        grows_at_most(f"exponent of {LAYERS}", own.where("L").exponent("distance", L), 0),
    ]


def printed_iterates(curves: All) -> list[Check]:
    """The rate as it is printed, with 1/√m."""
    own = curves["iterates"].where("m, lazy")
    return [grows_at_most("exponent of m, as printed", own.exponent("distance", M), -0.5)]


def linearisation(curves: All) -> list[Check]:
    """Taylor error of each direction."""
    return _pairs(curves["neighbourhood"], "rms error", "", 4 / 3, 0.5, 3)


def attained(curves: All) -> list[Check]:
    """Whether the worst direction attains the exponent 4/3: it does not fall faster."""
    own = curves["neighbourhood"].where("omega", direction="nearest units").kept(_within(NEAREST))
    return [grows_at_most("exponent of ω, nearest units", own.exponent("rms error", OMEGA), 4 / 3)]


def convexity(curves: All) -> list[Check]:
    """Negative part of the defect from convexity."""
    own = curves["neighbourhood"]
    beyond = [numbers["defect beyond error"] for _, _, numbers in own.rows]
    holds = never_above("largest of -defect - |Taylor error|, all pairs", beyond, 0)
    worst_units = own.where("omega", direction="nearest units").kept(_within(NEAREST))
    exponent = worst_units.exponent("defect", OMEGA, -1)
    return [holds, falls_at_least("exponent of ω, -defect, nearest units", exponent, 4 / 3)]


def _pairs(
    own: Curves,
    name: str,
    text: str,
    omega: float,
    m: float,
    depth: float,
    *,
    between: tuple[float, float] | None = None,
    only: tuple[str, ...] = DIRECTIONS,
) -> list[Check]:
    checks = []
    for one in only:
        what = f"{text}{one}"
        place = between or (NEAREST if one == "nearest units" else MIDDLE)
        fits = own.where("omega", direction=one).kept(_within(place)).exponent(name, OMEGA)
        checks.append(falls_at_least(f"exponent of ω, {what}", fits, omega))
        checks.append(grows_at_most(f"exponent of m, {what}", _wide(own, one).exponent(name, M), m))
        checks.append(
            grows_at_most(f"exponent of {LAYERS}, {what}", own.where("L", direction=one).exponent(name, L), depth)
        )
    return checks


def _wide(own: Curves, direction: str) -> Curves:
    """Return the sweep of m of one direction, from `FROM` on."""
    return own.where("m", direction=direction).kept(lambda point: point.width >= FROM)


def _within(between: tuple[float, float]) -> Callable[[Point], bool]:
    low, high = between
    return lambda point: low <= point.omega <= high


def perturbation(curves: All) -> list[Check]:
    """Taylor error against ξ."""
    own = curves["neighbourhood"].where("xi")
    orthogonal = own.kept(lambda p: p.perturbation in ("orthogonal", "none") or p.size == 0)
    return [grows_at_most("exponent of 1 + ‖ξ‖², ξ orthogonal to x", orthogonal.exponent("rms error", XI), 0.5)]


def changes(curves: All) -> list[Check]:
    """How far activations move."""
    own = curves["neighbourhood"]
    only = ("random", "gradient", "nearest units")
    return [
        *_pairs(own, "change of g", "g, ", 1, 0, 2.5, only=only),
        *_pairs(own, "change of h", "h, ", 1, 0, 2.5, only=only),
    ]


def products(curves: All) -> list[Check]:
    """Matrix products with D″ of the lemma's size s, divided by √(1 + log(m/s)), the logarithm that it has."""
    own = Curves(None)
    own.rows = [
        (point, seed, {"product": numbers["product"] / math.sqrt(1 + math.log(point.width / extra_units(point)))})
        for point, seed, numbers in curves["neighbourhood"].rows
    ]
    return _pairs(own, "product", "", 1 / 3, 0, 2, between=SMALL, only=("random", "nearest units"))


def activations(curves: All) -> list[Check]:
    """Share of initial ‖h‖² in the printed interval at the widest network, for each kind of ξ."""
    own = curves["activations"].where("m")
    checks = []
    for point in _widest(own):
        share, stated = own.interval(point, "inside"), own.interval(point, "stated probability")
        kind = f"‖ξ‖² = {point.size:g}, {point.perturbation}" if point.size else "ξ = 0"
        limit = stated.mean if stated else 1.0
        what = f"share inside, m = {point.width:,}, {kind}"
        check = above(what, share, min(limit, 1.0) - 1e-9)
        checks.append(replace(check, limit="≥ 1 - nL e^(-m/L)"))
    return checks


def corrected_activations(curves: All) -> list[Check]:
    """Share in ‖x + ξ‖² (1 ± ε) of Chebyshev's inequality, over all widths."""
    own = curves["activations"].where("m")
    independent = own.kept(lambda point: point.perturbation != "adversarial")
    shares = [
        share
        for kind in dict.fromkeys(point.perturbation for point in independent.points)
        if (share := _worst(independent.where("m", perturbation=kind), "inside corrected", min)) is not None
    ]
    worst = min(shares, key=lambda share: share.mean) if shares else None
    return [above("least share inside ‖x + ξ‖² (1 ± ε), ξ not adversarial", worst, 1 - CHANCE)]


def _widest(own: Curves) -> list[Point]:
    complete = [point.width for point in own.points if len(own.values(point, "inside")) == len(own.seeds)]
    most = max(complete, default=0)
    return [point for point in own.points if point.width == most]


def _worst(own: Curves, name: str, of: Callable[[np.ndarray], float]) -> Interval | None:
    """Return the interval over seeds of the worst value over points."""
    by_seed = [
        [numbers[name] for _, seed, numbers in own.rows if seed == one and name in numbers] for one in own.seeds
    ]
    values = [float(of(np.array(one))) for one in by_seed if one]
    return mean_interval(values) if values else None


def norms(curves: All) -> list[Check]:
    """‖h‖ in the ball, divided by ‖x + ξ‖."""
    own = curves["neighbourhood"]
    return [
        grows_at_most(f"exponent of m, {one}", _wide(own, one).exponent("norm of h", M), 0)
        for one in ("random", "gradient", "nearest units")
    ]


def gradients(curves: All) -> list[Check]:
    """Gradient norms in the ball, divided by √m ‖x + ξ‖."""
    own = curves["neighbourhood"]
    checks = [
        grows_at_most(f"exponent of m, {one}", _wide(own, one).exponent("gradient", M), 0)
        for one in ("random", "gradient", "nearest units")
    ]
    shares = [n["loss gradient"] / n["gradient"] for _, _, n in own.rows]
    return [*checks, never_above("largest norm of loss gradient / gradient", shares, 1)]


def regret(curves: All) -> list[Check]:
    """Whether regret / (the lemma's two terms) grows with n."""
    own = curves["regret"]
    checks = []
    for sweep in own.sweeps:
        part = own.where(sweep)
        longest = max(part.points, key=N)
        last = part.interval(longest, "ratio")
        if longest.replay == 0 or (last is not None and last.mean < 0):
            checks.append(below(f"regret / terms at n = {longest.steps}: {sweep}", last, 1))
        else:
            checks.append(grows_at_most(f"exponent of n: {sweep}", part.exponent("ratio", N), 0))
    return checks


def mended_regret(curves: All) -> list[Check]:
    """The telescoped inequality over new and replayed examples, and the one without replayed losses, in every run."""
    own, limit = curves["regret"], 1 + MARGIN
    checks = [
        never_above(f"regret of all examples / right side: {sweep}", _each(own.where(sweep), "total ratio"), limit)
        for sweep in own.sweeps
    ]
    dropped = _each(own, "mended ratio")
    return [*checks, never_above("loss on new examples / (that of W* on all + terms), all", dropped, limit)]


def _each(own: Curves, name: str) -> list[float]:
    return [numbers[name] for _, _, numbers in own.rows]


def online_to_batch(curves: All, order: str) -> list[Check]:
    """Error of the iterates on fresh data against that on the stream and the second term."""
    checks = []
    for own in (curves["bound"].where("data", order=order), curves["order"].kept(lambda p: p.order == order)):
        for point in own.points:
            gap = _difference(own, point, ("stream error", "second term"), "error")
            checks.append(above(f"{point.data}, B = {point.replay}, n = {point.steps}, κ = {point.kappa:g}", gap, 0))
    return checks


def _difference(own: Curves, point: Point, plus: tuple[str, ...], minus: str) -> Interval:
    return paired_interval(
        np.sum([own.values(point, name) for name in plus], axis=0).tolist(), own.values(point, minus)
    )


def informative(curves: All) -> list[Check]:
    """The smallest sum of the three terms over R, with constants 1: below 1?"""
    own = curves["bound"]
    return [
        below(f"smallest sum over R, {sweep}", _best_sum(own.where(sweep)), 1) for sweep in ("m", "n", "L", "data")
    ]


def _best_sum(own: Curves) -> Interval | None:
    return _worst_of_sums(own, [f"R = {radius:g}" for radius in RADII])


def _worst_of_sums(own: Curves, radii: list[str]) -> Interval | None:
    """Return the smallest sum over R and points, by seed."""
    values = []
    for seed in own.seeds:
        rows = [numbers for _, one, numbers in own.rows if one == seed]
        values.append(
            min(n[f"first term, {r}"] + n["second term"] + n[f"third term, {r}"] for n in rows for r in radii)
        )
    return mean_interval(values) if values else None


def first_term(curves: All) -> list[Check]:
    """What the discussion says of the first term, and the radius that it takes."""
    own = curves["bound"].where("m")
    largest = f"first term, R = {RADII[-1]:g}"
    return [
        below(f"first term at R = {RADII[-1]:g}, m = {point.width:,}", own.interval(point, largest), 1)
        for point in own.points
    ]


def radius(curves: All) -> Interval | None:
    """Return the exponent in m of the R at which the first two terms are 1/2."""
    return curves["bound"].where("m").exponent("radius for half", M)


def known_form(curves: All) -> Interval | None:
    """Return the smallest value, over R and points, of the bound with radius R/√m: first + L R/√n + second."""
    own = curves["bound"]
    values = []
    for seed in own.seeds:
        sums = [
            numbers[f"first term, R/√m, R = {root:g}"]
            + point.depth * root / point.steps**0.5
            + numbers["second term"]
            for point, one, numbers in own.rows
            if one == seed
            for root in ROOTS
        ]
        values.append(min(sums))
    return mean_interval(values) if values else None


def practice(curves: All) -> list[Check]:
    """What the bound's growth would predict of the error, were it tight: it rises with Ξ and with B."""
    own = curves["practice"]
    checks = []
    theory = own.where("xi")
    plain = [point for point in theory.points if point.size == 0]
    for point in theory.points:
        if plain and point.size:
            checks.append(_rise(theory, plain[0], point, f"theory's network, ‖ξ‖² = {point.size:g} on a sphere"))
    for model in dict.fromkeys(point.model for point in own.points):
        part = own.where("images", model=model)
        bare = [point for point in part.points if point.perturbation == "none"]
        checks += [
            _rise(part, bare[0], p, f"{_name(model)}, {p.perturbation}")
            for p in part.points
            if bare and p not in bare
        ]
        for order in ("iid", "class"):
            part = own.where("B", model=model, order=order)
            ends = sorted(part.points, key=GRADIENTS)
            if len(ends) > 1:
                text = f"{_name(model)}, {order}, B = {ends[-1].replay} instead of {ends[0].replay}"
                checks.append(_rise(part, ends[0], ends[-1], text))
    return checks


def _name(model: str) -> str:
    return "theory's network" if model == "theory" else f"CSSL, {model}"


def _rise(own: Curves, low: Point, high: Point, text: str) -> Check:
    one, other = ({seed: n["error"] for p, seed, n in own.rows if p == point} for point in (high, low))
    seeds = sorted(one.keys() & other.keys())
    lead = paired_interval([one[s] for s in seeds], [other[s] for s in seeds])
    return above(f"rise of the average error: {text}", lead, 0)
