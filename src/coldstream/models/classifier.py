"""A network with a head that grows by a row for every new class."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules.batchnorm import _BatchNorm

from coldstream.models.registry import ModelLike, Shape, build_body
from coldstream.randomness import generator, torch_seed


class Classifier(nn.Module):
    """Features and a linear head: logits (N, rows) for items (N, *shape).

    Parameters
    ----------
    model
        A name of `coldstream.models.MODELS`, an nn.Module, or a function that makes one.
    shape
        (channels, height, width) of the images.
    seed
        Of the random weights. Head row k depends on (seed, k) alone, so a head that grew to K rows and one
        that was made with K rows start from the same weights.
    """

    def __init__(self, model: ModelLike, shape: Shape, seed: int, rows: int = 0) -> None:
        super().__init__()
        with torch_generator(seed, 0, "weights"):
            self.body, self.features = build_body(model, shape)
        self.seed = seed
        self._still: list[nn.Module] = []
        # Nobody knows what a module of the user's draws: it always gets a generator of its own.
        self.draws = not isinstance(model, str) or any(
            isinstance(module, nn.modules.dropout._DropoutNd) for module in self.body.modules()
        )
        parameter = next(self.body.parameters(), torch.empty(0))
        empty = parameter.new_empty
        self.weight = nn.Parameter(empty((0, self.features)))
        self.bias = nn.Parameter(empty(0))
        self.grow(rows)

    @property
    def rows(self) -> int:
        return len(self.bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x))

    def head(self, features: Tensor) -> Tensor:
        """Return the logits of features (N, d)."""
        return F.linear(features, self.weight, self.bias)

    def freeze(self, layers: Iterable[nn.Module]) -> None:
        """Let layers of the body stay as they are: neither their parameters nor their statistics change any more."""
        for layer in layers:
            self._still.append(layer)
            for parameter in layer.parameters(recurse=False):
                parameter.requires_grad_(False)
        self.train(self.training)

    def train(self, mode: bool = True) -> Self:
        """Change the mode, as any module; frozen layers are always in evaluation mode."""
        super().train(mode)
        for layer in self._still:
            layer.training = False
        return self

    def begin_head(self, seed: int, rows: int) -> None:
        """Take another head, as one of a new network with this seed."""
        self.seed = seed
        self.weight, self.bias = (nn.Parameter(p.new_empty((0, *p.shape[1:]))) for p in (self.weight, self.bias))
        self.grow(rows)

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
    """Let a BatchNorm that would see one value per channel use its running statistics.

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
