"""Data on the unit sphere with labels ±1 (the paper's assumption 1), from real images and synthetic."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from coldstream.augment import Policy
from coldstream.data import load_dataset, select
from coldstream.parsing import unknown
from coldstream.randomness import generator
from coldstream.theory.network import Array

DIMENSION = 64
"""Images of more numbers are projected to so many by a random matrix."""
PAIRS: dict[str, tuple[str, tuple[str, ...], tuple[str, ...]]] = {
    "digits": ("digits", ("0", "2", "4", "6", "8"), ("1", "3", "5", "7", "9")),
    "fashion-mnist": ("fashion-mnist", ("Pullover",), ("Coat",)),
    "cifar100": ("cifar100", ("apple",), ("wolf",)),
}
"""Of each real set, the classes that are labelled +1 and those labelled -1."""
SYNTHETIC = ("clusters", "one label then the other")
NAMES = (*PAIRS, *SYNTHETIC)


@dataclass(frozen=True)
class Examples:
    """Unit vectors (examples, d), labels ±1, and the images that they were made of, where there are any."""

    x: Array
    y: Array
    images: NDArray[np.uint8] | None = None
    projection: Array | None = None
    lengths: Array | None = None

    def __len__(self) -> int:
        return len(self.y)

    def take(self, places: NDArray[np.int64]) -> Examples:
        """Return the examples at these places."""
        images = None if self.images is None else self.images[places]
        lengths = None if self.lengths is None else self.lengths[places]
        return Examples(self.x[places], self.y[places], images, self.projection, lengths)

    def augmented(self, places: NDArray[np.int64], policy: str, seed: int, step: int) -> Array:
        """Return ξ for these examples: what a policy changes in the image, in units of the example's length."""
        if self.images is None or self.lengths is None:
            raise ValueError("crops and flips need images; choose digits, fashion-mnist or cifar100")
        changed = Policy.parse(policy).augment(self.images[places], seed, step)
        xi: Array = _vectors(changed, self.projection) / self.lengths[places, None] - self.x[places]
        return xi


def separation(x: Array) -> float:
    """Return λ, the smallest distance between two examples."""
    squared = np.sum(x * x, axis=1)[:, None] + np.sum(x * x, axis=1) - 2 * x @ x.T
    np.fill_diagonal(squared, np.inf)
    return float(np.sqrt(max(squared.min(), 0)))


def on_sphere(vectors: Array) -> Array:
    """Return vectors divided by their norms, in float32 precision, which is what the replay buffer keeps.

    Raises
    ------
    ValueError
        If a vector has norm zero or is not finite.
    """
    norms = np.linalg.norm(vectors, axis=1)
    if not np.isfinite(norms).all():
        raise ValueError(f"example {int(np.flatnonzero(~np.isfinite(norms))[0])} has a value that is not finite")
    if (norms == 0).any():
        raise ValueError(
            f"example {int(np.flatnonzero(norms == 0)[0])} is zero everywhere and cannot be scaled to norm 1"
        )
    unit: Array = (vectors / norms[:, None]).astype(np.float32).astype(np.float64)
    return unit


def stream_and_test(
    name: str, count: int, tested: int, order: str, seed: int, root: Path | None = None
) -> tuple[Examples, Examples]:
    """Return `count` examples in the order of the stream, and `tested` fresh ones of the same distribution.

    Order `class` sorts by label, `iid` shuffles. Both sets are disjoint draws from one pool.
    """
    if name not in NAMES:
        raise unknown("data of the theory", name, NAMES)
    if count < 2 or tested < 1:
        raise ValueError(f"a stream needs at least 2 examples and 1 to test with, not {count} and {tested}")
    if name == "one label then the other":
        return _one_then_other(count, tested, seed)
    pool = _clusters(count + tested, seed) if name == "clusters" else _pool(name, root)
    if count + tested > len(pool):
        raise ValueError(f"{name} has {len(pool)} examples of its two classes, fewer than {count} + {tested}")
    chosen = generator(seed, 0, "theory examples").permutation(len(pool))[: count + tested]
    stream, test = pool.take(chosen[:count]), pool.take(chosen[count:])
    if order == "class":
        return stream.take(np.argsort(-stream.y, kind="stable")), test
    if order != "iid":
        raise unknown("order", order, ("iid", "class"))
    return stream, test


@lru_cache(maxsize=4)
def _pool(name: str, root: Path | None) -> Examples:
    """Return all examples of two classes, training and test images together."""
    source, positive, negative = PAIRS[name]
    train, test = select(*load_dataset(source, root), classes=positive + negative)
    images = np.stack([image for one in (train, test) for image in one.images])
    labels = [one.names[label] in positive for one in (train, test) for label in one.labels]
    return from_images(images, np.where(labels, 1.0, -1.0))


def from_images(images: NDArray[np.uint8], y: Array) -> Examples:
    """Return images as unit vectors, randomly projected to `DIMENSION` numbers where they have more."""
    inputs = int(np.prod(images.shape[1:]))
    projection = None
    if inputs > DIMENSION:
        projection = generator(0, 0, "theory projection").standard_normal((inputs, DIMENSION)) / np.sqrt(DIMENSION)
    vectors = _vectors(images, projection)
    return Examples(on_sphere(vectors), y, images, projection, np.linalg.norm(vectors, axis=1))


def _vectors(images: NDArray[np.uint8], projection: Array | None) -> Array:
    flat = images.reshape(len(images), -1).astype(np.float64) / 255
    return flat if projection is None else flat @ projection


def _clusters(count: int, seed: int) -> Examples:
    """Return two overlapping Gaussian clusters, projected to the sphere; the means are ±0.25 in one direction."""
    rng = generator(seed, 1, "theory examples")
    y = np.where(np.arange(count) % 2, 1.0, -1.0)
    vectors = rng.standard_normal((count, DIMENSION)) / np.sqrt(DIMENSION)
    vectors[:, 0] += 0.25 * y
    return Examples(on_sphere(vectors), y)


def _one_then_other(count: int, tested: int, seed: int) -> tuple[Examples, Examples]:
    """Return close inputs, the first half of the stream labelled +1 and the second -1: the counter-example."""
    rng = generator(seed, 1, "theory examples")
    whole = count + tested
    vectors = rng.standard_normal((whole, DIMENSION)) * (0.1 / np.sqrt(DIMENSION))
    vectors[:, 0] += 1
    x = on_sphere(vectors)
    y = np.where(np.arange(count) < count // 2, 1.0, -1.0)
    return Examples(x[:count], y), Examples(x[count:], np.where(np.arange(tested) % 2, 1.0, -1.0))
