"""A network in two parts: the body, which makes features, and a head that grows by a row for every class."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules.batchnorm import _BatchNorm

from coldstream.models.registry import ModelLike, Shape, build_body
from coldstream.randomness import generator, torch_seed


@dataclass(frozen=True)
class Body:
    """A network without its head: items (N, *shape) to features (N, `features`).

    `draws` says whether it may draw random numbers as it works: dropout, or whatever a user's own module does.
    """

    module: nn.Module
    features: int
    draws: bool

    @classmethod
    def build(cls, model: ModelLike, shape: Shape, seed: int) -> Body:
        """Make the network for items of `shape`, (channels, height, width); its random weights depend on `seed`."""
        with torch_generator(seed, 0, "weights"):
            module, features = build_body(model, shape)
        dropouts = (isinstance(part, nn.modules.dropout._DropoutNd) for part in module.modules())
        return cls(module.train(), features, not isinstance(model, str) or any(dropouts))

    def freeze(self, layers: Iterable[nn.Module]) -> None:
        """Freeze layers for good: neither their parameters nor their statistics change."""
        for layer in layers:
            layer.training = False
            for parameter in layer.parameters(recurse=False):
                parameter.requires_grad_(False)


class Head(nn.Module):
    """A linear layer from features to logits with a row for each class; it grows.

    Row k depends on (seed, k) alone: a head that grew to K rows and one that was made with K rows start from the
    same weights.
    """

    def __init__(self, features: int, seed: int, rows: int = 0) -> None:
        super().__init__()
        self.features, self.seed = features, seed
        self.weight = nn.Parameter(torch.empty((0, features)))
        self.bias = nn.Parameter(torch.empty(0))
        self.grow(rows)

    @property
    def rows(self) -> int:
        return len(self.bias)

    @property
    def size(self) -> int:
        """The number of parameters."""
        return self.weight.numel() + self.bias.numel()

    def forward(self, features: Tensor) -> Tensor:
        return F.linear(features, self.weight, self.bias)

    def grow(self, rows: int) -> None:
        """Add rows until there are `rows`; those that exist keep their bits."""
        if rows <= self.rows:
            return
        drawn = torch.from_numpy(np.stack([self._row(k) for k in range(self.rows, rows)])).to(self.weight)
        with torch.no_grad():
            self.weight = nn.Parameter(torch.cat([self.weight, drawn[:, :-1]]))
            self.bias = nn.Parameter(torch.cat([self.bias, drawn[:, -1]]))

    def _row(self, k: int) -> np.ndarray:
        bound = 1 / math.sqrt(self.features)
        return generator(self.seed, k, "head").uniform(-bound, bound, self.features + 1)


_ONE_AT_A_TIME = threading.RLock()  # torch's generator is the whole process's: two learners must not share a block


@contextmanager
def torch_generator(seed: int, step: int, role: str, device: torch.device | None = None) -> Iterator[None]:
    """Seed torch's global generators for one block of code, and put them back as they were."""
    cuda = [device] if device is not None and device.type == "cuda" else []
    number = torch_seed(seed, step, role)
    with _ONE_AT_A_TIME, torch.random.fork_rng(devices=cuda):
        torch.default_generator.manual_seed(number)
        for one in cuda:
            with torch.cuda.device(one):
                torch.cuda.manual_seed(number)
        yield


@contextmanager
def running_statistics_for_single_values(network: nn.Module) -> Iterator[None]:
    """Make a BatchNorm that would see one value per channel use its running statistics.

    Only a batch of one row with 1x1 maps has a single value, from which no variance can be taken.
    """

    def before(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        x = inputs[0]
        module.training = x.numel() > x.shape[1]

    def after(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        module.training = True

    hooks = []
    for module in network.modules():
        if isinstance(module, _BatchNorm) and module.training:
            hooks += [module.register_forward_pre_hook(before), module.register_forward_hook(after)]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
