"""SGD with momentum and weight decay over a network whose head grows."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn


class SGD:
    """g = grad + decay w;  v = momentum v + g;  w -= rate v, as torch.optim.SGD has it.

    The kernel is the one that `torch.optim.SGD(fused=True)` calls. Called directly, a step on a small network
    takes a third of the time, a grown parameter keeps its velocity without a rebuilt optimiser, and torch's
    compiler, whose import takes seconds, stays unloaded.
    """

    def __init__(self, network: nn.Module, momentum: float, weight_decay: float) -> None:
        self.momentum, self.weight_decay = momentum, weight_decay
        self._network = network
        self._parameters = dict(network.named_parameters())
        self.velocity: dict[str, Tensor] = {}

    def step(self, rate: float) -> None:
        """Change every parameter that has a gradient, and clear the gradients."""
        parameters, gradients, velocities = [], [], []
        for name, parameter in self._parameters.items():
            if parameter.grad is None:
                continue
            parameters.append(parameter.data)
            gradients.append(parameter.grad)
            if self.momentum:  # the kernel takes no velocities without
                if name not in self.velocity:
                    self.velocity[name] = torch.zeros_like(parameter)
                velocities.append(self.velocity[name])
            parameter.grad = None
        with torch.no_grad():
            torch._fused_sgd_(
                parameters,
                gradients,
                velocities,
                weight_decay=self.weight_decay,
                momentum=self.momentum,
                lr=rate,
                dampening=0.0,
                nesterov=False,
                maximize=False,
                is_first_step=False,
            )

    def exchange(self, names: Iterable[str], velocity: dict[str, Tensor]) -> None:
        """Follow parameters in whose place others were put, which come with their own velocity."""
        for name in names:
            self.velocity.pop(name, None)
        self.velocity |= velocity
        self._parameters = dict(self._network.named_parameters())

    def grow(self) -> None:
        """Follow parameters to which rows were added: the new ones begin at rest."""
        self._parameters = dict(self._network.named_parameters())
        for name, parameter in self._parameters.items():
            velocity = self.velocity.get(name)
            if velocity is not None and velocity.shape != parameter.shape:
                self.velocity[name] = torch.zeros_like(parameter)
                self.velocity[name][: len(velocity)] = velocity
