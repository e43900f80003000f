"""Which unlabelled images to show next: pure functions of what the learner answers and of its features."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from coldstream.parsing import unknown

Array = NDArray[np.floating]


class Pick(NamedTuple):
    """An image, by its place among those to choose from, and why: "random", "doubt" or "coverage"."""

    place: int
    why: str


def by_doubt(probabilities: Array, generator: np.random.Generator) -> NDArray[np.int64]:
    """Return the images in order of margin, the smallest first: probability of the likeliest class less the second.

    Equal margins are in random order; so are all images while fewer than two classes are known.
    """
    ties = generator.random(len(probabilities))
    if probabilities.shape[1] < 2:
        return np.argsort(ties)
    top = np.partition(probabilities, -2, axis=1)[:, -2:]
    return np.lexsort((ties, top[:, 1] - top[:, 0]))


def far_apart(features: Array, labelled: Array, count: int, generator: np.random.Generator) -> NDArray[np.int64]:
    """Return up to `count` images one after another, each the farthest from all that are labelled or chosen.

    Features are compared by their direction. This is greedy k-center: its largest distance from an image to the
    nearest labelled one is at most twice the least possible. With nothing labelled the first one is drawn at random.
    """
    points, centers = _unit(features), _unit(labelled)
    chosen: list[int] = []
    nearest = np.full(len(points), np.inf)
    for start in range(0, len(centers), 256):  # a matrix of all distances could be large
        nearest = np.minimum(nearest, (1 - points @ centers[start : start + 256].T).min(axis=1))
    if not len(centers) and len(points):
        nearest = generator.random(len(points))
    for number in range(min(count, len(points))):
        place = int(nearest.argmax())
        chosen.append(place)
        distances = 1 - points @ points[place]
        nearest = distances if number == 0 and not len(centers) else np.minimum(nearest, distances)
        nearest[chosen] = -np.inf
    return np.array(chosen, np.int64)


def _unit(features: Array) -> Array:
    lengths = np.linalg.norm(features, axis=1, keepdims=True)
    return features / np.where(lengths > 0, lengths, 1)


def _random(
    probabilities: Array, features: Array, labelled: Array, count: int, generator: np.random.Generator
) -> list[Pick]:
    return [Pick(place, "random") for place in generator.permutation(len(probabilities))[:count].tolist()]


def _margin(
    probabilities: Array, features: Array, labelled: Array, count: int, generator: np.random.Generator
) -> list[Pick]:
    return [Pick(place, "doubt") for place in by_doubt(probabilities, generator)[:count].tolist()]


def _coverage(
    probabilities: Array, features: Array, labelled: Array, count: int, generator: np.random.Generator
) -> list[Pick]:
    return [Pick(place, "coverage") for place in far_apart(features, labelled, count, generator).tolist()]


def _mixture(
    probabilities: Array, features: Array, labelled: Array, count: int, generator: np.random.Generator
) -> list[Pick]:
    """Doubt and coverage in turns; what both choose is shown once."""
    doubt = _margin(probabilities, features, labelled, count, generator)
    coverage = _coverage(probabilities, features, labelled, count, generator)
    picks: dict[int, Pick] = {}
    for pair in zip(doubt, coverage, strict=True):
        for pick in pair:
            picks.setdefault(pick.place, pick)
    return list(picks.values())[:count]


_DOUBTFUL = 4
"""Of how many times as many images, the most doubtful, `spread` takes those that are far apart."""


def _spread(
    probabilities: Array, features: Array, labelled: Array, count: int, generator: np.random.Generator
) -> list[Pick]:
    """Of the most doubtful images, those far from the labelled ones and from each other."""
    doubtful = by_doubt(probabilities, generator)[: _DOUBTFUL * count]
    return [Pick(int(doubtful[i]), "doubt") for i in far_apart(features[doubtful], labelled, count, generator)]


Policy = Callable[[Array, Array, Array, int, np.random.Generator], list[Pick]]
POLICIES: dict[str, Policy] = {
    "random": _random,
    "margin": _margin,
    "coverage": _coverage,
    "mixture": _mixture,
    "spread": _spread,
}
NEEDS_FEATURES = frozenset({"coverage", "mixture", "spread"})
"""Policies that look at the features of images, those of the labelled ones too."""
DEFAULT = "margin"
"""The policy of a project: docs/teach-measurements.md has what each is worth."""


def choose(
    policy: str,
    probabilities: Array,
    features: Array | None,
    labelled: Array | None,
    count: int,
    generator: np.random.Generator,
) -> list[Pick]:
    """Choose up to `count` different images, the most wanted first.

    Parameters
    ----------
    policy
        A name of `POLICIES`.
    probabilities
        (images, classes) as the learner predicts.
    features
        (images, d), `Learner.features` of the same images; None for a policy that is not in `NEEDS_FEATURES`.
    labelled
        (labelled images, d), theirs; None likewise.
    count
        How many to choose.
    generator
        Of the random choices.

    Examples
    --------
    >>> probabilities = np.array([[0.9, 0.1], [0.5, 0.5], [0.7, 0.3]])
    >>> choose("margin", probabilities, None, None, 2, np.random.default_rng(0))
    [Pick(place=1, why='doubt'), Pick(place=2, why='doubt')]
    """
    if policy not in POLICIES:
        raise unknown("policy of the next image", policy, POLICIES)
    if policy in NEEDS_FEATURES and (features is None or labelled is None):
        raise ValueError(f"policy {policy!r} needs the features of the images and of the labelled ones")
    nothing = np.empty((len(probabilities), 0))
    features = nothing if features is None else features
    return POLICIES[policy](
        probabilities, features, np.empty((0, features.shape[1])) if labelled is None else labelled, count, generator
    )
