"""Adam over a head that grows."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from coldstream.models import Head


class Adam:
    """Kingma and Ba's Adam on the rows of a head; the rest of the network is left alone.

    With g the gradient of a row that was updated t - 1 times before:

        m ← β₁ m + (1 - β₁) g;  v ← β₂ v + (1 - β₂) g²;  w ← w - rate m/(1 - β₁ᵗ) / (√(v/(1 - β₂ᵗ)) + δ)

    Each row counts its own t, so that a row that was added late begins as one of a new optimiser would, and the
    others keep their bits. Torch's compiler, which torch.optim imports, takes seconds to load and stays unloaded.
    """

    def __init__(self, head: Head, rate: float, betas: tuple[float, float] = (0.9, 0.999)) -> None:
        self.rate, self.betas, self.delta = rate, betas, 1e-8
        self._head = head
        self.steps = torch.zeros(0, dtype=torch.float64)
        self.first = {name: p.new_empty((0, *p.shape[1:])) for name, p in self._parameters().items()}
        self.second = dict(self.first)
        self.grow()

    def _parameters(self) -> dict[str, Tensor]:
        return {"weight": self._head.weight.data, "bias": self._head.bias.data}

    @torch.inference_mode(mode=False)
    def grow(self) -> None:
        """Add moments of zero for rows that were added to the head."""
        more = self._head.rows - len(self.steps)
        if not more:
            return
        self.steps = torch.cat([self.steps, self.steps.new_zeros(more)])
        for name, parameter in self._parameters().items():
            for moment in (self.first, self.second):
                old = moment[name]
                moment[name] = torch.zeros_like(parameter)
                moment[name][: len(old)] = old

    def step(self, gradients: dict[str, Tensor]) -> None:
        """Change weight and bias by their gradients."""
        self.steps += 1
        corrections = [(1 - beta**self.steps) for beta in self.betas]
        for name, parameter in self._parameters().items():
            first, second, gradient = self.first[name], self.second[name], gradients[name]
            one, two = (
                c.to(parameter.device, parameter.dtype).view(-1, *[1] * (parameter.ndim - 1)) for c in corrections
            )
            first.lerp_(gradient, 1 - self.betas[0])
            second.mul_(self.betas[1]).addcmul_(gradient, gradient, value=1 - self.betas[1])
            parameter.sub_(self.rate * (first / one) / ((second / two).sqrt_().add_(self.delta)))

    def state(self) -> dict[str, NDArray[np.generic]]:
        """Return steps and moments by name."""
        moments = {"first": self.first, "second": self.second}
        arrays = {f"{kind}.{name}": value for kind, both in moments.items() for name, value in both.items()}
        return {n: value.to("cpu", copy=True).numpy() for n, value in {**arrays, "steps": self.steps}.items()}

    def restore(self, arrays: dict[str, NDArray[np.generic]]) -> None:
        """Restore what `state` returned; the head must have as many rows as then."""
        self.steps.copy_(torch.from_numpy(arrays["steps"].copy()))
        for kind, both in (("first", self.first), ("second", self.second)):
            for name, value in both.items():
                value.copy_(torch.from_numpy(arrays[f"{kind}.{name}"].copy()))
