"""Offline training: many shuffled epochs over data that is all there. The reference, and base initialisation."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from coldstream.augment import Policy
from coldstream.learners.training.engine import Engine, Loss, TrainedHead
from coldstream.randomness import generator
from coldstream.replay import one_hot


@dataclass(frozen=True)
class OfflineRecipe:
    """How a network is trained on a whole data set at once.

    The defaults are the paper's for base initialisation and, with 200 epochs, for its offline CIFAR-100 model:
    SGD with momentum 0.9, the rate falling along a cosine, crops and flips. `drops` divides the rate by ten at
    those epochs instead (the paper's CORe50 recipe).
    """

    drop: ClassVar[float] = 0.1
    """Factor of the learning rate at each of `drops`."""

    epochs: int = 50
    batch: int = 128
    rate: float = 0.1
    weight_decay: float = 5e-4
    momentum: float = 0.9
    augment: str = "crop|flip"
    drops: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        for name, value, least in (("epochs", self.epochs, 0), ("batch", self.batch, 1)):
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise ValueError(f"{name} is a whole number from {least}, not {value!r}")
        if not 0 < self.rate < math.inf:
            raise ValueError(f"rate is a number above 0, not {self.rate!r}")
        Policy.parse(self.augment)

    def rate_at(self, epoch: int) -> float:
        """Return the learning rate of an epoch, counted from 0."""
        if self.drops:
            return self.rate * self.drop ** sum(epoch >= drop for drop in self.drops)
        return self.rate * (1 + math.cos(math.pi * epoch / self.epochs)) / 2


class Items(Protocol):
    """Items that can be taken by number: an array, or a sequence that decodes them on demand."""

    def __len__(self) -> int: ...

    def __getitem__(self, which: NDArray[np.int64], /) -> NDArray[Any]: ...


def train_offline(
    engine: Engine,
    head: TrainedHead,
    items: Items,
    rows: NDArray[np.int64],
    recipe: OfflineRecipe,
    seed: int,
    progress: Callable[[int], None] | None = None,
    *,
    teach: Callable[[Tensor, Tensor], Tensor] | None = None,
    loss: Loss = F.cross_entropy,
    after: int = 0,
) -> int:
    """Train a network on `items` with head rows `rows`; `progress` is called with the number of epochs done.

    Momentum and weight decay are the engine's: make it with the recipe's. `teach` turns a batch's inputs, as the
    network gets them, and its one-hot targets into what `loss` takes beside the logits. A network that is trained
    more than once makes other draws each time if told how many steps came before (`after`). Return how many steps
    there are in all.
    """
    policy = Policy.parse(recipe.augment)
    classes = head.rows
    steps = -(-len(items) // recipe.batch)
    for epoch in range(recipe.epochs):
        order = generator(seed, after + epoch, "epoch").permutation(len(items))
        for number, start in enumerate(range(0, len(order), recipe.batch)):
            step = after + epoch * steps + number
            batch = order[start : start + recipe.batch]
            images, targets = engine.prepare(
                policy.augment(items[batch], seed, step), one_hot(rows[batch], classes), policy, seed, step
            )
            if teach is not None:
                targets = teach(images, targets)
            engine.update(head, images, targets, recipe.rate_at(epoch), seed, step, loss=loss)
        if progress:
            progress(epoch + 1)
    return after + recipe.epochs * steps
