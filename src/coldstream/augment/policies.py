"""AutoAugment and RandAugment: which operations each image gets, and how strong they are.

The tables are those of the papers ([1]_, [2]_) in the reading of torchvision, magnitudes included.

References
----------
.. [1] Cubuk et al., "AutoAugment: Learning Augmentation Policies from Data", CVPR 2019.
.. [2] Cubuk et al., "RandAugment: Practical automated data augmentation with a reduced search space",
       NeurIPS 2020.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from coldstream.augment.crops import Part, rows_of, spared
from coldstream.augment.ops import OP_ID, OPS, Floats, Ints, apply_ops
from coldstream.parsing import unknown
from coldstream.randomness import generator

Step = tuple[str, float, int | None]

AUTOAUGMENT_BINS = 10
RANDAUGMENT_BINS = 31
RANDAUGMENT_OPS = OPS[: OP_ID["Invert"]]  # RandAugment has every operation but Invert

SIGNED: frozenset[str] = frozenset(
    {"ShearX", "ShearY", "TranslateX", "TranslateY", "Rotate", "Brightness", "Color", "Contrast", "Sharpness"}
)

#: 25 sub-policies per data set, each of two steps: operation, probability, magnitude bin.
AUTOAUGMENT: dict[str, tuple[tuple[Step, Step], ...]] = {
    "cifar10": (
        (("Invert", 0.1, None), ("Contrast", 0.2, 6)),
        (("Rotate", 0.7, 2), ("TranslateX", 0.3, 9)),
        (("Sharpness", 0.8, 1), ("Sharpness", 0.9, 3)),
        (("ShearY", 0.5, 8), ("TranslateY", 0.7, 9)),
        (("AutoContrast", 0.5, None), ("Equalize", 0.9, None)),
        (("ShearY", 0.2, 7), ("Posterize", 0.3, 7)),
        (("Color", 0.4, 3), ("Brightness", 0.6, 7)),
        (("Sharpness", 0.3, 9), ("Brightness", 0.7, 9)),
        (("Equalize", 0.6, None), ("Equalize", 0.5, None)),
        (("Contrast", 0.6, 7), ("Sharpness", 0.6, 5)),
        (("Color", 0.7, 7), ("TranslateX", 0.5, 8)),
        (("Equalize", 0.3, None), ("AutoContrast", 0.4, None)),
        (("TranslateY", 0.4, 3), ("Sharpness", 0.2, 6)),
        (("Brightness", 0.9, 6), ("Color", 0.2, 8)),
        (("Solarize", 0.5, 2), ("Invert", 0.0, None)),
        (("Equalize", 0.2, None), ("AutoContrast", 0.6, None)),
        (("Equalize", 0.2, None), ("Equalize", 0.6, None)),
        (("Color", 0.9, 9), ("Equalize", 0.6, None)),
        (("AutoContrast", 0.8, None), ("Solarize", 0.2, 8)),
        (("Brightness", 0.1, 3), ("Color", 0.7, 0)),
        (("Solarize", 0.4, 5), ("AutoContrast", 0.9, None)),
        (("TranslateY", 0.9, 9), ("TranslateY", 0.7, 9)),
        (("AutoContrast", 0.9, None), ("Solarize", 0.8, 3)),
        (("Equalize", 0.8, None), ("Invert", 0.1, None)),
        (("TranslateY", 0.7, 9), ("AutoContrast", 0.9, None)),
    ),
    "imagenet": (
        (("Posterize", 0.4, 8), ("Rotate", 0.6, 9)),
        (("Solarize", 0.6, 5), ("AutoContrast", 0.6, None)),
        (("Equalize", 0.8, None), ("Equalize", 0.6, None)),
        (("Posterize", 0.6, 7), ("Posterize", 0.6, 6)),
        (("Equalize", 0.4, None), ("Solarize", 0.2, 4)),
        (("Equalize", 0.4, None), ("Rotate", 0.8, 8)),
        (("Solarize", 0.6, 3), ("Equalize", 0.6, None)),
        (("Posterize", 0.8, 5), ("Equalize", 1.0, None)),
        (("Rotate", 0.2, 3), ("Solarize", 0.6, 8)),
        (("Equalize", 0.6, None), ("Posterize", 0.4, 6)),
        (("Rotate", 0.8, 8), ("Color", 0.4, 0)),
        (("Rotate", 0.4, 9), ("Equalize", 0.6, None)),
        (("Equalize", 0.0, None), ("Equalize", 0.8, None)),
        (("Invert", 0.6, None), ("Equalize", 1.0, None)),
        (("Color", 0.6, 4), ("Contrast", 1.0, 8)),
        (("Rotate", 0.8, 8), ("Color", 1.0, 2)),
        (("Color", 0.8, 8), ("Solarize", 0.8, 7)),
        (("Sharpness", 0.4, 7), ("Invert", 0.6, None)),
        (("ShearX", 0.6, 5), ("Equalize", 1.0, None)),
        (("Color", 0.4, 0), ("Equalize", 0.6, None)),
        (("Equalize", 0.4, None), ("Solarize", 0.2, 4)),
        (("Solarize", 0.6, 5), ("AutoContrast", 0.6, None)),
        (("Invert", 0.6, None), ("Equalize", 1.0, None)),
        (("Color", 0.6, 4), ("Contrast", 1.0, 8)),
        (("Equalize", 0.8, None), ("Equalize", 0.6, None)),
    ),
}


@lru_cache(maxsize=64)
def magnitude_table(bins: int, height: int, width: int) -> Floats:
    """Return the magnitude of every operation of `OPS` in every bin, before its sign, for one image size.

    Operations without a magnitude have zeros. Each value is the float32 number that torchvision uses.
    """

    def line(start: float, end: float) -> NDArray[np.float32]:
        values: NDArray[np.float32] = torch.linspace(start, end, bins, dtype=torch.float32, device="cpu").numpy()
        return values

    table = np.zeros((len(OPS), bins))
    for names, values in {
        ("ShearX", "ShearY"): line(0, 0.3),
        ("TranslateX",): line(0, 150 / 331 * width),
        ("TranslateY",): line(0, 150 / 331 * height),
        ("Rotate",): line(0, 30),
        ("Brightness", "Color", "Contrast", "Sharpness"): line(0, 0.9),
        ("Posterize",): 8 - np.rint(np.arange(bins) / ((bins - 1) / 4)),
        ("Solarize",): line(255, 0),
    }.items():
        table[[OP_ID[name] for name in names]] = values
    table.flags.writeable = False  # the cache hands the same array to everyone
    return table


@dataclass(frozen=True)
class AutoAugment:
    """Per image one of 25 sub-policies, whose two steps each happen with their own probability.

    Parameters
    ----------
    table : {"cifar10", "imagenet"}
        The data set on which the sub-policies were searched.
    share : float
        The share of images that are changed.
    """

    table: str
    share: float = 1.0

    def __post_init__(self) -> None:
        if self.table not in AUTOAUGMENT:
            raise unknown("autoaugment table", self.table, AUTOAUGMENT)

    def __str__(self) -> str:
        return f"autoaugment({self.table})"

    def choose(self, count: int, seed: int, step: int) -> tuple[Ints, NDArray[np.bool_], NDArray[np.bool_]]:
        """Draw the sub-policies (N,), which of their steps happen (2, N), and which turn negative (2, N)."""
        rng = generator(seed, step, "autoaugment")
        which = rng.integers(len(AUTOAUGMENT[self.table]), size=count)
        chance = rng.random((2, count))
        negative = rng.integers(2, size=(2, count)) == 0
        return which, chance < _steps(self.table)[1][:, which], negative

    def draw(self, count: int, height: int, width: int, seed: int, step: int) -> tuple[Ints, Floats]:
        """Draw the operations (2, N), Identity where a step does not happen, and magnitudes (2, N)."""
        which, happens, negative = self.choose(count, seed, step)
        all_ops, _, all_bins = _steps(self.table)
        ops, bins = all_ops[:, which], all_bins[:, which]
        magnitudes = magnitude_table(AUTOAUGMENT_BINS, height, width)[ops, bins]
        happens &= ~spared(count, self.share, seed, step)
        return np.where(happens, ops, OP_ID["Identity"]), _signed(ops, magnitudes, negative)

    def __call__(self, images: Tensor, seed: int, step: int, part: Part | None = None) -> Tensor:
        """Return the augmented uint8 images (N, C, H, W)."""
        return _apply(self.draw, images, seed, step, part)


@dataclass(frozen=True)
class RandAugment:
    """Per image `count` operations drawn uniformly with replacement, all of one magnitude.

    Parameters
    ----------
    count : int
        How many operations follow each other.
    magnitude : int
        The bin of the magnitude, 0 to 30.
    share : float
        The share of images that are changed.
    """

    count: int = 2
    magnitude: int = 9
    share: float = 1.0

    def __post_init__(self) -> None:
        if not isinstance(self.count, int) or self.count < 1:
            raise ValueError(
                f"{self}: the number of operations is a whole number, at least 1; write randaugment(2, 9)"
            )
        if not isinstance(self.magnitude, int) or not 0 <= self.magnitude < RANDAUGMENT_BINS:
            raise ValueError(f"{self}: the magnitude is a whole number from 0 to 30; write randaugment(2, 9)")

    def __str__(self) -> str:
        return f"randaugment({self.count}, {self.magnitude})"

    def draw(self, count: int, height: int, width: int, seed: int, step: int) -> tuple[Ints, Floats]:
        """Draw the operations and their magnitudes, each (operations, N)."""
        rng = generator(seed, step, "randaugment")
        ops = rng.integers(len(RANDAUGMENT_OPS), size=(self.count, count))
        negative = rng.integers(2, size=(self.count, count)) == 1
        ops = np.where(spared(count, self.share, seed, step), OP_ID["Identity"], ops)
        magnitudes = magnitude_table(RANDAUGMENT_BINS, height, width)[ops, self.magnitude]
        return ops, _signed(ops, magnitudes, negative)

    def __call__(self, images: Tensor, seed: int, step: int, part: Part | None = None) -> Tensor:
        """Return the augmented uint8 images (N, C, H, W)."""
        return _apply(self.draw, images, seed, step, part)


@lru_cache(maxsize=len(AUTOAUGMENT))
def _steps(table: str) -> tuple[Ints, Floats, Ints]:
    """Return the operations, probabilities and magnitude bins of a table, each (2, 25)."""
    steps = AUTOAUGMENT[table]
    ops = np.array([[OP_ID[name] for name, _, _ in pair] for pair in steps])
    chances = np.array([[chance for _, chance, _ in pair] for pair in steps])
    bins = np.array([[position or 0 for _, _, position in pair] for pair in steps])
    return ops.T, chances.T, bins.T


def _apply(
    draw: Callable[[int, int, int, int, int], tuple[Ints, Floats]],
    images: Tensor,
    seed: int,
    step: int,
    part: Part | None,
) -> Tensor:
    """Return images after the operations that `draw` gives."""
    rows, of = rows_of(part, len(images))
    height, width = images.shape[2:]
    for ops, magnitudes in zip(*draw(of, height, width, seed, step), strict=True):
        images = apply_ops(images, ops[rows], magnitudes[rows])
    return images


def _signed(ops: Ints, magnitudes: Floats, negative: NDArray[np.bool_]) -> Floats:
    has_sign = np.array([name in SIGNED for name in OPS])
    return np.where(negative & has_sign[ops], -magnitudes, magnitudes)
