"""Crops and mixtures of feature maps: all of them are weighted sums of a few positions, taken in one pass."""

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
    """For every position of N maps the positions of stored maps that it is made of, and their shares.

    Attributes
    ----------
    index : ndarray of int, shape (N, positions, taps)
        Which vectors are summed, counted through all positions of all stored maps.
    weight : ndarray of float64, shape (N, positions, taps)
        The share of each.
    """

    index: Ints
    weight: Floats

    @classmethod
    def whole(cls, count: int, height: int, width: int) -> Taps:
        """Return the taps that leave `count` maps as they are."""
        index = np.arange(count * height * width).reshape(count, height * width, 1)
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
        rows = (np.arange(len(top))[:, None, None] * height + y)[:, :, None, :, None]
        shape = (len(top), height * width, 4)
        index = (rows * width + x[:, None, :, None, :]).reshape(shape)
        return cls(index, (down[:, :, None, :, None] * across[:, None, :, None, :]).reshape(shape))

    def mixed(self, first: Ints, second: Ints, share: Floats) -> Taps:
        """Return the taps of share x map `first` + (1 - share) x map `second`, for each triple of the arrays."""
        own = share[:, None, None]
        index = np.concatenate([self.index[first], self.index[second]], axis=2)
        return Taps(index, np.concatenate([own * self.weight[first], (1 - own) * self.weight[second]], axis=2))

    def __call__(self, vectors: Tensor) -> Tensor:
        """Return the vectors (N * positions, channels) that the taps make of the stored maps' (any, channels)."""
        taps = self.index.shape[2]
        index = torch.from_numpy(self.index.reshape(-1, taps)).to(vectors.device)
        weight = torch.from_numpy(self.weight.reshape(-1, taps)).to(vectors)
        return functional.embedding_bag(index, vectors, mode="sum", per_sample_weights=weight)


def _neighbours(start: Ints, length: Ints, side: int) -> tuple[Ints, NDArray[np.float64]]:
    """Return between which two pixels (N, side, 2) each pixel of a stretched side lies, and their shares."""
    source = np.clip((np.arange(side) + 0.5) * (length[:, None] / side) - 0.5, 0, length[:, None] - 1)
    before = np.floor(source).astype(np.int64)
    after = np.minimum(before + 1, length[:, None] - 1)
    share = source - before
    return start[:, None, None] + np.stack([before, after], axis=2), np.stack([1 - share, share], axis=2)
