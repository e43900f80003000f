"""What the theorem's third term is at the smallest sizes that its assumption admits, with constants of 1."""

from __future__ import annotations

import math
from dataclasses import dataclass

from coldstream.theory.network import omega, smallest_width


@dataclass(frozen=True)
class Admissible:
    """The smallest admissible network for a stream, and the theorem's terms there; all constants are 1.

    Attributes
    ----------
    width : float
        The smallest m with m ≥ n B √(1 + Ξ) L⁶ log³ m.
    weights : float
        Trained weights, (L - 2) m².
    third : float
        The third term without R.
    below_one : float
        The smallest m at which the third term without R is below 1, admissible or not.
    radius, with_radius : float
        R = √m, below which the first term hardly moves; and the third term with it.
    """

    steps: int
    replay: int
    depth: int

    @property
    def width(self) -> float:
        return smallest_width(self.steps, self.replay, self.depth)

    @property
    def weights(self) -> float:
        return (self.depth - 2) * self.width**2

    @property
    def omega(self) -> float:
        return (
            self.depth**-6 * math.log(self.width) ** -3 if self.width > 1e15 else omega(int(self.width), self.depth)
        )

    @property
    def _grown(self) -> float:
        return math.sqrt(self.replay) * self.steps

    @property
    def third(self) -> float:
        return float(self._grown / (self.depth**2 * math.log(self.width) ** 1.5))

    @property
    def log10_below_one(self) -> float:
        """The decimal logarithm of `below_one`: log m ≥ (√B n / L²)^(2/3)."""
        return float((self._grown / self.depth**2) ** (2 / 3) / math.log(10))

    @property
    def radius(self) -> float:
        return math.sqrt(self.width)

    @property
    def with_radius(self) -> float:
        return float((self._grown + self.width) / (self.depth**2 * math.log(self.width) ** 1.5))

    @property
    def movement(self) -> float:
        """At most so far does the output move with κ = 1: n (B + 1) (L - 2) / (2 √m), were all gradients aligned."""
        return self.steps * (self.replay + 1) * (self.depth - 2) / (2 * math.sqrt(self.width))


SIZES = tuple(Admissible(n, 10, depth) for depth in (3, 8) for n in (100, 1000, 10_000, 100_000))
