"""The network of the paper's section 4: forward pass, gradients as outer products, first-order Taylor expansion."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from coldstream.randomness import generator

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Gradients:
    """The gradient of f for each input and trained layer, as the outer product left · rightᵀ.

    Attributes
    ----------
    outputs : Array
        f of each input.
    left, right : Array
        (trained layers, inputs, m): √m · b_l and h_(l-1).
    """

    outputs: Array
    left: Array
    right: Array

    def norms(self) -> Array:
        """Return ‖∇_(W_l) f‖_F, (trained layers, inputs)."""
        norms: Array = np.linalg.norm(self.left, axis=2) * np.linalg.norm(self.right, axis=2)
        return norms

    def inner(self, step: Array) -> Array:
        """Return ⟨∇f, step⟩ for each input."""
        inner: Array = np.sum((self.left @ step) * self.right, axis=(0, 2))
        return inner

    def combine(self, weights: Array) -> Array:
        """Return the sum of all inputs' gradients, each with its weight."""
        combined: Array = np.matmul((self.left * weights[:, None]).transpose(0, 2, 1), self.right)
        return combined

    def grams(self) -> Array:
        """Return the Gram matrix of the gradients of each layer: (h hᵀ) ∘ (b bᵀ), (layers, inputs, inputs)."""
        grams: Array = (self.left @ self.left.transpose(0, 2, 1)) * (self.right @ self.right.transpose(0, 2, 1))
        return grams


@dataclass(frozen=True)
class Network:
    """f(x) = √m · W_L σ(W_(L-1) … σ(W_1 x)) with ReLU σ; W_1 and W_L are not trained.

    Attributes
    ----------
    first : Array
        W_1, (m, d).
    hidden : Array
        W_2 … W_(L-1), (L - 2, m, m): the trained layers.
    last : Array
        W_L, (m,).
    """

    first: Array
    hidden: Array
    last: Array

    @classmethod
    def initial(cls, width: int, depth: int, inputs: int, seed: int) -> Network:
        """Return W⁰: variance 2/m in all layers but the last, where it is 1/m."""
        check_size(width, depth)
        draw = [generator(seed, layer, "theory weights") for layer in range(1, depth + 1)]
        hidden = np.empty((depth - 2, width, width))
        for layer, weights in enumerate(hidden):
            draw[layer + 1].standard_normal(out=weights)
        hidden *= np.sqrt(2 / width)
        first = draw[0].standard_normal((width, inputs)) * np.sqrt(2 / width)
        return cls(first, hidden, draw[-1].standard_normal(width) * np.sqrt(1 / width))

    @property
    def width(self) -> int:
        return len(self.last)

    @property
    def depth(self) -> int:
        return len(self.hidden) + 2

    def with_hidden(self, hidden: Array) -> Network:
        """Return the network with other trained layers."""
        return replace(self, hidden=hidden)

    def copy(self) -> Network:
        """Return a network whose trained layers can be changed in place."""
        return self.with_hidden(self.hidden.copy())

    def before_relu(self, x: Array) -> list[Array]:
        """Return g_1 … g_(L-1), each (inputs, m)."""
        before = [x @ self.first.T]
        for weights in self.hidden:
            before.append(np.maximum(before[-1], 0) @ weights.T)
        return before

    def activations(self, x: Array) -> list[Array]:
        """Return h_1 … h_(L-1), each (inputs, m)."""
        return [np.maximum(g, 0) for g in self.before_relu(x)]

    def __call__(self, x: Array) -> Array:
        """Return f(x), one number per input."""
        outputs: Array = np.sqrt(self.width) * self.activations(x)[-1] @ self.last
        return outputs

    def gradients(self, x: Array) -> Gradients:
        """Return f and its gradient with respect to every trained layer, for each input."""
        before = self.before_relu(x)
        left = np.empty((len(self.hidden), *before[-1].shape))
        back = (before[-1] > 0) * (np.sqrt(self.width) * self.last)
        for layer in range(len(self.hidden) - 1, -1, -1):
            left[layer] = back
            if layer:
                back = (before[layer] > 0) * (back @ self.hidden[layer])
        right = np.maximum(np.stack(before[:-1]), 0)
        return Gradients(np.maximum(before[-1], 0) @ self.last * np.sqrt(self.width), left, right)

    def taylor_errors(self, other: Network, x: Array) -> Array:
        """Return f_W′ - f_W - ⟨∇f_W, W′ - W⟩ for each input; W is this network, W′ the other one."""
        gradients = self.gradients(x)
        return other(x) - gradients.outputs - gradients.inner(other.hidden - self.hidden)

    def distances(self, other: Network) -> Array:
        """Return ‖W_l - W′_l‖_F of each trained layer."""
        return np.array([np.linalg.norm(a - b) for a, b in zip(self.hidden, other.hidden, strict=True)])


def check_size(width: int, depth: int) -> None:
    """Refuse sizes at which nothing is trained, or at which the initial norms say nothing."""
    if depth < 3:
        raise ValueError(f"depth L is {depth}; the first and the last layer are fixed, so L must be at least 3")
    if width < 2 or relative_variance(width, depth - 1) > 1:
        least = next(m for m in range(2, 10**9) if relative_variance(m, depth - 1) <= 1)
        raise ValueError(
            f"width m = {width} is too small for depth L = {depth}: the standard deviation of the initial ‖h‖² would "
            f"exceed its mean; m must be at least {least}"
        )


def relative_variance(width: int, layers: int) -> float:
    """Return Var ‖h_j‖² / (E ‖h_j‖²)² at initialisation, after so many layers: (1 + 5/m)^j - 1, exactly."""
    return float(np.expm1(layers * np.log1p(5 / width)))


def loss(margins: Array) -> Array:
    """Return ℓ(z) = log(1 + e^-z)."""
    return np.logaddexp(0, -margins)


def loss_slope(margins: Array) -> Array:
    """Return ℓ′(z) = -1 / (1 + e^z), which lies in (-1, 0)."""
    return -np.exp(-np.logaddexp(0, margins))


def omega(width: int, depth: int) -> float:
    """Return the radius of the lemmas, L^-6 log^-3 m, with constant 1."""
    return float(depth**-6 * np.log(width) ** -3)


def smallest_width(steps: int, gradients: int, depth: int, perturbation: float = 0.0) -> float:
    """Return the smallest m with m ≥ n · gradients · √(1 + Ξ) · L⁶ · log³ m, with constant 1.

    log³ m grows slower than m / e², so iterating from a large m ends at the largest root, above which all m are
    admissible.
    """
    factor = steps * gradients * np.sqrt(1 + perturbation) * depth**6
    width = max(20.0, factor) * 1e6
    for _ in range(200):
        width = factor * np.log(width) ** 3
    return float(width)
