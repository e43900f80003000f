"""Crops and mixtures of feature maps, as weighted sums of a few positions in one pass."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from coldstream.augment.ops import Floats, Ints


@dataclass(frozen=True)
class Taps:
    """For every position of N output maps: the source positions to sum, and their weights.

    Attributes
    ----------
    index : ndarray of int, shape (taps, N, height, width)
        The vectors to sum, as indices into all positions of all stored maps.
    weight : ndarray of float64, shape (taps, N, height, width)
        The weight of each.
    """

    index: Ints
    weight: Floats

    @classmethod
    def whole(cls, count: int, height: int, width: int) -> Taps:
        """Return the taps that leave `count` maps as they are."""
        index = np.arange(count * height * width).reshape(1, count, height, width)
        return cls(index, np.ones(index.shape))

    @classmethod
    def cropped(cls, boxes: Ints, height: int, width: int) -> Taps:
        """Return the taps that stretch a box of each map to the map's size.

        Parameters
        ----------
        boxes : ndarray of int, shape (4, N)
            Top, left, height, width, as `coldstream.augment.crops.ResizedCrop` draws them. Stretching a box is
            ``interpolate(box, (height, width), mode="bilinear", align_corners=False)``.
        """
        top, left, high, wide = boxes
        y, down = _neighbours(top, high, height)
        x, across = _neighbours(left, wide, width)
        lines = (np.arange(len(top))[:, None] * height + y) * width
        shape = (4, len(top), height, width)
        index = lines[:, None, :, :, None] + x[None, :, :, None, :]
        weight = down[:, None, :, :, None] * across[None, :, :, None, :]
        return cls(index.reshape(shape), weight.reshape(shape))

    def mixed(self, first: Ints, second: Ints, share: Floats) -> Taps:
        """Return the taps of share x map `first` + (1 - share) x map `second`, for each triple of the arrays."""
        weight_first = share[:, None, None]
        index = np.concatenate([self.index[:, first], self.index[:, second]])
        return Taps(
            index, np.concatenate([weight_first * self.weight[:, first], (1 - weight_first) * self.weight[:, second]])
        )

    def __call__(self, vectors: Tensor) -> Tensor:
        """Return the vectors (N * positions, channels) that the taps make of the stored maps' (any, channels)."""
        bags = [np.ascontiguousarray(part.reshape(len(part), -1).T) for part in (self.index, self.weight)]
        index, weight = (torch.from_numpy(bag).to(vectors.device) for bag in bags)
        return functional.embedding_bag(index, vectors, mode="sum", per_sample_weights=weight.to(vectors))


def _neighbours(start: Ints, length: Ints, side: int) -> tuple[Ints, NDArray[np.float64]]:
    """Return the two source pixels (2, N, side) of each pixel of a resized side, and their weights."""
    source = np.clip((np.arange(side) + 0.5) * (length[:, None] / side) - 0.5, 0, length[:, None] - 1)
    before = np.floor(source).astype(np.int64)
    after = np.minimum(before + 1, length[:, None] - 1)
    share = source - before
    return start[:, None] + np.stack([before, after]), np.stack([1 - share, share])
