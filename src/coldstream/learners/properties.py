"""Properties of each learner, computed from its network, beside the paper's table T:algo_components."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import nn

from coldstream.learners import LEARNERS, Learner
from coldstream.models.network import Body
from coldstream.models.registry import on_blank


@dataclass(frozen=True)
class Properties:
    """A line of the paper's table."""

    base_init: bool
    frozen: float
    replay: bool


PAPER: dict[str, Properties] = {
    "exstream": Properties(base_init=True, frozen=0.95, replay=True),
    "deep-slda": Properties(base_init=True, frozen=0.95, replay=False),
    "remind": Properties(base_init=True, frozen=0.75, replay=True),
    "cssl": Properties(base_init=False, frozen=0.0, replay=True),
}

NETWORKS: dict[str, dict[str, Any]] = {
    "ImageNet": {"model": "resnet18", "size": 224, "channels": 3, "classes": 1000},
    "CIFAR-100": {"model": "resnet18-cifar", "size": 32, "channels": 3, "classes": 100},
}
"""The two networks that the paper means by ResNet18."""


def built(kind: type[Learner[Any]], *, size: int, channels: int, **settings: Any) -> Learner[Any]:
    """Return a learner whose network is built before the first example, to count its parameters."""
    learner = kind(size=size, channels=channels, **settings)
    learner.shape = (size, size, channels)
    learner._engine = learner._build(learner.shape)
    learner.tasks = {None: learner._open_task(learner.engine, learner.shape, None)}
    return learner


def properties_table() -> list[list[str]]:
    """Return a header and a line for every registered learner; shares are by number of parameters."""
    rows = [["learner", "base", *NETWORKS, "paper", "replays", "learns"]]
    for name, kind in LEARNERS.items():
        learners = [built(kind, **settings) for settings in NETWORKS.values()]
        base = "yes" if learners[0].needs_base_init else "no"
        shares = [f"{learner.frozen_share():.1%}" for learner in learners]
        paper = f"{PAPER[name].frozen:.0%}" if name in PAPER else ""
        learns = "batches" if kind.batch_incremental else "each"
        rows.append([name, base, *shares, paper, kind.stores or "nothing", learns])
    return rows


@lru_cache
def operations(model: str, size: int) -> int:
    """Return the floating point operations of a network's convolutions for one colour image, forward only.

    A multiplication and an addition are two operations.
    """
    counts: list[int] = []

    def count(layer: nn.Conv2d, inputs: tuple[torch.Tensor, ...], output: torch.Tensor) -> None:
        counts.append(2 * output.numel() * layer.weight[0].numel())

    body = Body.build(model, (3, size, size), seed=0).module
    for layer in body.modules():
        if isinstance(layer, nn.Conv2d):
            layer.register_forward_hook(count)
    on_blank(body, (3, size, size))
    return sum(counts)
