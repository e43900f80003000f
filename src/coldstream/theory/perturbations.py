"""The vectors ξ that the theory has for augmentation: x is learned as x + ξ."""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np

from coldstream.theory.network import Array, Network, loss_slope

Kind = Literal[
    "none", "gaussian", "sphere", "orthogonal", "parallel", "opposed", "adversarial", "crops", "crops and flips"
]
KINDS: tuple[str, ...] = get_args(Kind)
IMAGES = ("crops", "crops and flips")
"""Kinds that are made of images; their size is measured, not set."""


def draw(kind: Kind, size: float, x: Array, y: Array, network: Network, rng: np.random.Generator) -> Array:
    """Return ξ for each row of x, with ‖ξ‖² = `size`; for gaussian, that is the mean.

    parallel, opposed and orthogonal are to x. adversarial is along the gradient of the loss with
    respect to x, and zero where that is zero.
    """
    if kind == "none" or size == 0:
        return np.zeros_like(x)
    if kind == "gaussian":
        noise: Array = rng.standard_normal(x.shape) * np.sqrt(size / x.shape[1])
        return noise
    if kind in ("sphere", "orthogonal"):
        direction = rng.standard_normal(x.shape)
        if kind == "orthogonal":
            direction -= np.sum(direction * x, axis=1, keepdims=True) * x / np.sum(x * x, axis=1, keepdims=True)
    elif kind == "parallel":
        direction = x
    elif kind == "opposed":
        direction = -x
    elif kind == "adversarial":
        direction = input_gradients(network, x, y)
    else:
        raise ValueError(f"perturbation {kind!r} is made of images, not drawn")
    norms = np.linalg.norm(direction, axis=1, keepdims=True)
    scaled: Array = np.sqrt(size) * direction / np.where(norms > 0, norms, 1)
    return scaled


def input_gradients(network: Network, x: Array, y: Array) -> Array:
    """Return the gradient of the loss with respect to each input."""
    before = network.before_relu(x)
    back = (before[-1] > 0) * (np.sqrt(network.width) * network.last)
    for g, weights in zip(before[-2::-1], network.hidden[::-1], strict=True):
        back = (g > 0) * (back @ weights)
    slope = loss_slope(y * network(x)) * y
    gradients: Array = slope[:, None] * (back @ network.first)
    return gradients
