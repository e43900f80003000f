"""The best function of the NTRF class: a convex problem, solved with a certificate of how far from the best it is."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from coldstream.theory.network import Array, Gradients, loss, loss_slope


@dataclass(frozen=True)
class Fit:
    """The best change of the weights within a radius, as weights of the examples' gradients.

    Attributes
    ----------
    value : float
        The mean loss it reaches.
    gap : float
        At most so much above the infimum, by duality.
    weights : Array
        (trained layers, examples): W_l = Σ_i weights[l, i] · ∇_(W_l) f(x_i).
    iterations : int
    """

    value: float
    gap: float
    weights: Array
    iterations: int

    def step(self, gradients: Gradients) -> Array:
        """Return W - W⁰ as matrices, (trained layers, m, m)."""
        return np.stack(
            [
                (left * weight[:, None]).T @ right
                for left, right, weight in zip(gradients.left, gradients.right, self.weights, strict=True)
            ]
        )


def best_in_ball(
    gradients: Gradients, y: Array, radius: float, *, tolerance: float = 1e-4, iterations: int = 20_000
) -> Fit:
    """Minimise the mean of ℓ(y · (f + ⟨∇f, W⟩)) over ‖W_l‖_F ≤ radius for all trained layers l.

    The minimiser lies in the span of the examples' gradients, so W_l is given by one number per example, and the
    projection on the ball scales them. Accelerated projected gradient; where it overshoots, it starts anew from
    there. The gap is that of Frank and Wolfe: ⟨∇, W⟩ + radius · Σ_l ‖∇_l‖_F, an upper bound of value - infimum.
    """
    if not radius > 0 or not np.isfinite(radius):
        raise ValueError(f"the radius of the NTRF class is {radius:g}; it must be above 0 and finite")
    if not 0 < tolerance < np.inf:
        raise ValueError(f"tolerance is {tolerance:g}; it must be above 0")
    grams, count = gradients.grams(), len(y)
    smooth = float(np.linalg.eigvalsh(grams.sum(axis=0))[-1]) / (4 * count)
    weights = np.zeros((len(grams), count))
    ahead, momentum = weights, 1.0
    value, gap = _evaluate(gradients.outputs, grams, y, weights, radius)
    done = 0
    while gap > tolerance and done < iterations:
        done += 1
        slopes = _slopes(gradients.outputs, grams, y, ahead)
        new = _project(grams, ahead - slopes[None, :] / smooth, radius)
        new_value, new_gap = _evaluate(gradients.outputs, grams, y, new, radius)
        if new_value > value:
            if momentum == 1.0:
                break
            ahead, momentum = weights, 1.0
            continue
        following = (1 + np.sqrt(1 + 4 * momentum**2)) / 2
        ahead = new + (momentum - 1) / following * (new - weights)
        weights, momentum, value, gap = new, following, new_value, new_gap
    return Fit(value, gap, weights, done)


def _outputs(start: Array, grams: Array, weights: Array) -> Array:
    outputs: Array = start + np.einsum("lij,lj->i", grams, weights)
    return outputs


def _slopes(start: Array, grams: Array, y: Array, weights: Array) -> Array:
    """Return the gradient of the mean loss with respect to each output."""
    return loss_slope(y * _outputs(start, grams, weights)) * y / len(y)


def _project(grams: Array, weights: Array, radius: float) -> Array:
    norms = np.sqrt(np.maximum(np.einsum("li,lij,lj->l", weights, grams, weights, optimize=True), 0))
    inside: Array = weights * np.minimum(1, radius / np.maximum(norms, 1e-300))[:, None]
    return inside


def _evaluate(start: Array, grams: Array, y: Array, weights: Array, radius: float) -> tuple[float, float]:
    """Return mean loss and duality gap."""
    outputs = _outputs(start, grams, weights)
    slopes = loss_slope(y * outputs) * y / len(y)
    pulls = grams @ slopes
    norms = np.sqrt(np.maximum(pulls @ slopes, 0))
    gap = float(np.sum(weights * pulls) + radius * norms.sum())
    return float(loss(y * outputs).mean()), gap
