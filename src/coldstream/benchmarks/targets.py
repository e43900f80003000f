"""What was promised of the speed, and whether the numbers keep it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from coldstream.benchmarks.measuring import Row


@dataclass(frozen=True)
class Target:
    """A ratio that is to be at most (or at least) `limit`: that of the rows whose name begins so, to the row `to`.

    Of several rows, such as a learner under several settings or a peer with several policies, the lowest counts.
    """

    text: str
    part: str
    group: str
    name: str
    to: str
    limit: float
    at_least: bool = False


@dataclass(frozen=True)
class Verdict:
    """A target, the row that decides, and the judgement: met, missed by so much, or not measured."""

    target: Target
    row: Row | None
    verdict: str


_RESNETS = {"resnet18-cifar": "ResNet18 (the paper's, for 32x32)", "resnet18": "ResNet18 (torchvision's, at 32x32)"}

TARGETS = (
    Target(
        "linear, full policy: not slower than the reference step",
        *("peers", "linear", "learn_one, full policy", "reference step", 1.0),
    ),
    Target(
        "linear, crop and flip: half the reference step",
        *("peers", "linear", "learn_one, crop, flip", "reference step", 0.5),
    ),
    Target("step at 1M stored, to 1K", "sizes", "linear", "1,000,000 stored", "1,000 stored", 1.1),
    Target("ResNet8-16: learn_one to floor", "step", "resnet8-16", "learn_one", "floor", 1.15),
    *(Target(f"{t}: learn_one to floor", "networks", m, "learn_one", "floor", 1.05) for m, t in _RESNETS.items()),
    *(Target(f"{t}: floor to plain loop", "networks", m, "floor", "plain loop", 0.85) for m, t in _RESNETS.items()),
    Target(
        "ResNet8-16, full policy: faster than Avalanche",
        *("peers", "resnet8-16", "Avalanche, 10,000 stored", "learn_one, full policy", 1.5, True),
    ),
    Target(
        "ResNet8-16, full policy: not slower than the reference step",
        *("peers", "resnet8-16", "learn_one, full policy", "reference step", 1.0),
    ),
    Target(
        "bytes an image: float32 to 6-bit/66%",
        *("memory", "1,000,000 stored", "bytes an image as float32", "bytes an image", 8.0, True),
    ),
    Target(
        "growth of memory at 1M stored, to packed bytes",
        *("memory", "1,000,000 stored", "growth of the process", "packed bytes", 1.05),
    ),
    Target(
        "stall by a checkpoint at 100K stored, to one update of ResNet8-16",
        *("checkpoint", "resnet8-16, 100,000 stored", "stall of the step that saves", "one update", 1.0),
    ),
)


def judge(rows: Sequence[Row], targets: Sequence[Target] = TARGETS) -> list[Verdict]:
    """Return the verdict on every target."""
    return [_judge(rows, target) for target in targets]


def _judge(rows: Sequence[Row], target: Target) -> Verdict:
    found = [
        (row.ratio, row)
        for row in rows
        if (row.part, row.group, row.to) == (target.part, target.group, target.to)
        and row.name.startswith(target.name)
        and row.ratio is not None
    ]
    if not found:
        return Verdict(target, None, "not measured")
    ratio, row = min(found, key=lambda pair: pair[0])
    over = (target.limit / ratio if target.at_least else ratio / target.limit) - 1
    return Verdict(target, row, "met" if over <= 0 else f"missed by {100 * over:.0f}%")
