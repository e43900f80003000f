"""Mixup and CutMix, drawn per example."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from coldstream.augment.crops import is_number, number, spared
from coldstream.augment.ops import Floats, Ints
from coldstream.randomness import generator


@dataclass(frozen=True)
class Mixture:
    """The draws for a batch of N: the partner, the kind and the shares of each row.

    Attributes
    ----------
    partner : ndarray of int, shape (N,)
        A permutation of the batch; a row may be its own partner, which leaves it unchanged.
    cut : ndarray of bool, shape (N,)
        True for CutMix, False for Mixup.
    kept : ndarray of float64, shape (N,)
        The share of the row itself (λ); for CutMix, of the pixels it kept after the box was clipped.
    box : ndarray of int, shape (4, N)
        Top, bottom, left, right of the pasted box, ends excluded; empty for Mixup.
    """

    partner: Ints
    cut: NDArray[np.bool_]
    kept: Floats
    box: Ints


@dataclass(frozen=True)
class Mixing:
    """Mix each image and target of a batch with those of a partner; with both kinds on, by a fair coin.

    Parameters
    ----------
    mixup : float, optional
        Average images with a share of the row itself drawn from Beta(mixup, mixup).
    cutmix : float, optional
        The share is drawn from Beta(cutmix, cutmix) and a box of the partner's pixels is pasted. Its centre is
        uniform over the pixels, its sides are those of the image times the root of the remaining share,
        rounded; what lies outside the image is cut off and the share corrected.
    share : float
        The share of rows that are mixed.
    """

    mixup: float | None = None
    cutmix: float | None = None
    share: float = 1.0

    def __post_init__(self) -> None:
        for name, value in (("mixup", self.mixup), ("cutmix", self.cutmix)):
            if value is not None and (not is_number(value) or value <= 0):
                raise ValueError(
                    f"{name}({value}): the parameter of the Beta distribution is a number above 0; "
                    f"write for example {name}({'0.1' if name == 'mixup' else '0.8'})"
                )
        if self.mixup is None and self.cutmix is None:
            raise ValueError("mixing needs mixup, cutmix or both")

    def __str__(self) -> str:
        parts = (("mixup", self.mixup), ("cutmix", self.cutmix))
        return "/".join(f"{name}({number(value)})" for name, value in parts if value is not None)

    def draw(self, count: int, height: int, width: int, seed: int, step: int) -> Mixture:
        """Draw the mixture of a batch of `count` images; each kind has its own generator."""
        rng = generator(seed, step, "mix")
        partner = rng.permutation(count)
        coin = rng.random(count) < 0.5
        kept_share = np.ones(count)
        cut = np.full(count, self.cutmix is not None)
        box = np.zeros((4, count), dtype=np.int64)
        if self.mixup is not None:
            kept_share = generator(seed, step, "mixup").beta(self.mixup, self.mixup, count)
            cut &= coin
        if self.cutmix is not None:
            kept, boxes = _boxes(self.cutmix, count, height, width, generator(seed, step, "cutmix"))
            kept_share = np.where(cut, kept, kept_share)
            box = np.where(cut, boxes, 0)
        alone = spared(count, self.share, seed, step)
        return Mixture(partner, cut & ~alone, np.where(alone, 1.0, kept_share), np.where(alone, 0, box))

    def __call__(self, images: Tensor, targets: Tensor, seed: int, step: int) -> tuple[Tensor, Tensor]:
        """Return the mixed images (N, C, H, W) and targets (N, K); both floating, neither is modified."""
        count, _, height, width = images.shape
        mixture = self.draw(count, height, width, seed, step)
        return mix_images(images, mixture), mix_targets(targets, mixture)


def mix_images(images: Tensor, mixture: Mixture) -> Tensor:
    """Return the mixed images (N, C, H, W)."""
    height, width = images.shape[2:]
    partner = torch.from_numpy(mixture.partner).to(images.device)
    # A cut row keeps all of itself outside its box and nothing inside; `lerp` is exact at both ends.
    weight = torch.from_numpy(np.where(mixture.cut, 1.0, mixture.kept))[:, None, None, None].to(images)
    if mixture.cut.any():
        top, bottom, left, right = torch.from_numpy(mixture.box).to(images.device)[:, :, None]
        y = torch.arange(height, device=images.device)
        x = torch.arange(width, device=images.device)
        inside = ((y >= top) & (y < bottom))[:, None, :, None] & ((x >= left) & (x < right))[:, None, None, :]
        weight = weight.masked_fill(inside, 0)
    return torch.lerp(images.index_select(0, partner), images, weight)


def mix_targets(targets: Tensor, mixture: Mixture) -> Tensor:
    """Return the mixed targets (N, K)."""
    kept_share = torch.from_numpy(mixture.kept)[:, None]
    others = targets.index_select(0, torch.from_numpy(mixture.partner).to(targets.device))
    return torch.lerp(others, targets, kept_share.to(targets))


def _boxes(
    alpha: float, count: int, height: int, width: int, rng: np.random.Generator
) -> tuple[Floats, NDArray[np.int64]]:
    """Draw the boxes (4, N) and the share of the pixels that each leaves."""
    edge = np.sqrt(1 - rng.beta(alpha, alpha, count))
    high, wide = np.rint(height * edge).astype(np.int64), np.rint(width * edge).astype(np.int64)
    top = rng.integers(height, size=count) - high // 2
    left = rng.integers(width, size=count) - wide // 2
    top, bottom = np.clip([top, top + high], 0, height)
    left, right = np.clip([left, left + wide], 0, width)
    return 1 - (bottom - top) * (right - left) / (height * width), np.stack([top, bottom, left, right])
