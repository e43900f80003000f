"""Geometric augmentation: crop, resizedcrop and flip."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from coldstream.augment.ops import Ints, to_uint8
from coldstream.randomness import generator

_RATIO = (3 / 4, 4 / 3)
_ATTEMPTS = 10

Part = tuple[int, int]
"""A slice of a batch: the row of its first image, and the number of rows of the batch."""


def rows_of(part: Part | None, images: int) -> tuple[slice, int]:
    """Return the rows of `images` images in their batch, and the number of rows of that batch."""
    first, count = part or (0, images)
    return slice(first, first + images), count


def spared(count: int, share: float, seed: int, step: int) -> NDArray[np.bool_]:
    """Draw the rows of a batch that strong augmentation leaves alone; the same for all of its stages."""
    return generator(seed, step, "spared").random(count) >= share


def number(value: float) -> str:
    """Format a number so that it parses to the same value: ``1`` rather than ``1.0``, else every digit."""
    return str(int(value)) if float(value).is_integer() and abs(value) < 1e15 else repr(float(value))


def is_number(value: object) -> bool:
    """Tell whether an argument is a finite number (a policy string may contain ``nan`` or ``inf``)."""
    return isinstance(value, (int, float)) and math.isfinite(value)


@dataclass(frozen=True)
class Crop:
    """Pad each image with zeros and crop the original size at a random position.

    Parameters
    ----------
    pixels : int, optional
        The padding; by default an eighth of the side, rounded, and at least 1: 4 at 32 pixels.
    """

    pixels: int | None = None

    def __post_init__(self) -> None:
        if self.pixels is not None and (not isinstance(self.pixels, int) or self.pixels < 1):
            raise ValueError(
                f"crop({self.pixels}): the margin is a whole number of pixels, at least 1; "
                "write crop for an eighth of the side, or for example crop(4)"
            )

    def __str__(self) -> str:
        return "crop" if self.pixels is None else f"crop({self.pixels})"

    def margin(self, side: int) -> int:
        """Return the padding at both ends of a side (halves round up: 28 pixels get 4)."""
        return max(1, (side + 4) // 8) if self.pixels is None else self.pixels

    def draw(self, count: int, height: int, width: int, seed: int, step: int) -> tuple[Ints, Ints]:
        """Draw the top and left edges (N,) of the pieces within the padded images."""
        rng = generator(seed, step, "crop")
        top = rng.integers(2 * self.margin(height) + 1, size=count)
        left = rng.integers(2 * self.margin(width) + 1, size=count)
        return top, left

    def __call__(self, images: Tensor, seed: int, step: int, part: Part | None = None) -> Tensor:
        """Return the cropped images, of the same shape."""
        count, channels, height, width = images.shape
        rows, of = rows_of(part, count)
        top, left = (edge[rows] for edge in self.draw(of, height, width, seed, step))
        across, down = self.margin(width), self.margin(height)
        padded = functional.pad(images, (across, across, down, down)).contiguous()
        # A line of a crop is a run of `width` bytes of the padded batch. Copy crops line by line from a view of all
        # runs: an index per pixel takes ten times as long.
        wide, high = width + 2 * across, height + 2 * down
        runs = padded.as_strided((max(0, padded.numel() - width + 1), width), (1, 1))
        first = (np.arange(count)[:, None] * channels + np.arange(channels)) * high + top[:, None]
        lines = (first[:, :, None] + np.arange(height)) * wide + left[:, None, None]
        return runs.index_select(0, torch.from_numpy(lines.ravel()).to(images.device)).view(images.shape)


@dataclass(frozen=True)
class ResizedCrop:
    """Crop a box of random area and aspect ratio, and resize it to the original size.

    The boxes are distributed as in torchvision's ``RandomResizedCrop``: area uniform from `lower` to 1 of the
    image, aspect ratio log-uniform from 3/4 to 4/3, ten attempts, then the largest centred box of a legal
    ratio. Resizing is bilinear and within one level of torchvision's (rounding of exact halves).

    Parameters
    ----------
    lower : float
        The smallest share of the image's area.
    """

    lower: float = 0.08

    def __post_init__(self) -> None:
        if not is_number(self.lower) or not 0 < self.lower <= 1:
            raise ValueError(
                f"resizedcrop({self.lower}): the smallest area is a share above 0 and at most 1; "
                "write resizedcrop for 0.08, or for example resizedcrop(0.2)"
            )

    def __str__(self) -> str:
        return "resizedcrop" if self.lower == 0.08 else f"resizedcrop({number(self.lower)})"

    def draw(self, count: int, height: int, width: int, seed: int, step: int) -> NDArray[np.int64]:
        """Draw the boxes (4, N): top, left, height, width."""
        rng = generator(seed, step, "resizedcrop")
        area = height * width * rng.uniform(self.lower, 1, (_ATTEMPTS, count))
        ratio = np.exp(rng.uniform(math.log(_RATIO[0]), math.log(_RATIO[1]), (_ATTEMPTS, count)))
        corner = rng.random((2, count))
        wide, high = np.rint(np.sqrt(area * ratio)), np.rint(np.sqrt(area / ratio))
        fits = (wide > 0) & (wide <= width) & (high > 0) & (high <= height)
        chosen = fits.argmax(axis=0), np.arange(count)
        valid = fits[chosen]
        high_fallback, wide_fallback = _central(height, width)
        box_high = np.where(valid, high[chosen], high_fallback)
        box_wide = np.where(valid, wide[chosen], wide_fallback)
        top = np.where(valid, corner[0] * (height - box_high + 1), (height - box_high) / 2)
        left = np.where(valid, corner[1] * (width - box_wide + 1), (width - box_wide) / 2)
        return np.stack([np.floor(top), np.floor(left), box_high, box_wide]).astype(np.int64)

    def __call__(self, images: Tensor, seed: int, step: int, part: Part | None = None) -> Tensor:
        """Return the cropped and stretched images, of the same shape."""
        count, _, height, width = images.shape
        rows, of = rows_of(part, count)
        top, left, box_high, box_wide = self.draw(of, height, width, seed, step)[:, rows]
        y = _sources(top, box_high, height).to(images.device)
        x = _sources(left, box_wide, width).to(images.device)
        grid = torch.stack(
            [x[:, None, :].expand(count, height, width), y[:, :, None].expand(count, height, width)], dim=-1
        )
        pieces = functional.grid_sample(
            images.to(torch.float32), grid, mode="bilinear", padding_mode="border", align_corners=False
        )
        return to_uint8(pieces.round_())


@dataclass(frozen=True)
class Flip:
    """Mirror each image left to right with probability `chance`."""

    chance: float = 0.5

    def __post_init__(self) -> None:
        if not is_number(self.chance) or not 0 <= self.chance <= 1:
            raise ValueError(
                f"flip({self.chance}): the probability lies between 0 and 1; "
                "write flip for 0.5, or for example flip(0.3)"
            )

    def __str__(self) -> str:
        return "flip" if self.chance == 0.5 else f"flip({number(self.chance)})"

    def draw(self, count: int, seed: int, step: int) -> NDArray[np.bool_]:
        """Draw which images (N,) are mirrored."""
        mirrored: NDArray[np.bool_] = generator(seed, step, "flip").random(count) < self.chance
        return mirrored

    def __call__(self, images: Tensor, seed: int, step: int, part: Part | None = None) -> Tensor:
        """Return the images, some of them mirrored."""
        count = len(images)
        rows, of = rows_of(part, count)
        place = np.arange(count) + count * self.draw(of, seed, step)[rows]
        both = torch.cat([images, images.flip(-1)])
        return both.index_select(0, torch.from_numpy(place).to(images.device))


def _central(height: int, width: int) -> tuple[int, int]:
    """Return the height and width of the largest box whose ratio is legal."""
    ratio = width / height
    if ratio < _RATIO[0]:
        return round(width / _RATIO[0]), width
    if ratio > _RATIO[1]:
        return height, round(height * _RATIO[1])
    return height, width


def _sources(start: Ints, length: Ints, side: int) -> Tensor:
    """Return where each output pixel (N, side) lies in the input, from -1 to 1 over the input's side."""
    within = (np.arange(side) + 0.5) * (length[:, None] / side) - 0.5
    # Clamped to the box, not to the image: pixels outside the box must not bleed into the crop.
    source = start[:, None] + np.clip(within, 0, length[:, None] - 1)
    return torch.from_numpy(((2 * source + 1) / side - 1).astype(np.float32))
