"""Speed targets, and the verdict on each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, log

from benchmarks.measuring import Row
from coldstream.metrics import Interval, mean_interval
from coldstream.report.verdicts import Outcome, Verdict, is_above, is_below


@dataclass(frozen=True)
class Target:
    """A ratio that is to be at most (or at least) `limit`: that of the rows whose name begins so, to the row `to`.

    Of several rows, such as a learner under several settings or a peer with several policies, the lowest counts.
    `signed` says that a ratio may be negative, so that its mean is judged instead of that of its logarithm.
    """

    text: str
    part: str
    group: str
    name: str
    to: str
    limit: float
    at_least: bool = False
    signed: bool = False


@dataclass(frozen=True)
class Judgement:
    """A target, the row that decides, the 95% interval of its mean ratio and the verdict.

    `interval` is (mean, low, high); None where the target was measured once or not at all. The mean is the geometric
    one, unless the target is signed.
    """

    target: Target
    verdict: Verdict
    row: Row | None = None
    interval: tuple[float, float, float] | None = None


_RESNETS = {"resnet18-cifar": "ResNet18 (the paper's, for 32x32)", "resnet18": "ResNet18 (torchvision's, at 32x32)"}

_AT = "resnet8-16 at {} px, B = 100"

TARGETS = (
    *(
        Target(
            f"default, {side} pixels: learn_one to bare step",
            "default",
            _AT.format(side),
            "learn_one",
            "bare step",
            most,
        )
        for side, most in ((8, 1.15), (16, 1.10), (32, 1.05))
    ),
    *(
        Target(
            f"default, {side} pixels: predict_one to bare forward pass",
            *("default", _AT.format(side), "predict_one", "bare forward pass of an image", 1.15),
        )
        for side in (8, 16, 32)
    ),
    *(
        Target(
            f"default, {side} pixels: 99th percentile of steps to the median",
            *("default", _AT.format(side), "learn_one, 99th percentile", "learn_one, median", 1.5),
        )
        for side in (8, 16, 32)
    ),
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
        "bytes per image: float32 to 6-bit/66%",
        *("memory", "1,000,000 stored", "bytes per image as float32", "bytes per image", 8.0, True),
    ),
    Target(
        "growth of memory at 1M stored, to packed bytes",
        *("memory", "1,000,000 stored", "growth of the process", "packed bytes", 1.05),
    ),
    Target(
        "stall by a checkpoint at 100K stored, to one update of ResNet8-16",
        *("checkpoint", "resnet8-16, 100,000 stored", "stall of the step that saves", "one update", 1.0),
        signed=True,
    ),
)


def judge(rows: Sequence[Row], targets: Sequence[Target] = TARGETS) -> list[Judgement]:
    """Return the verdict on every target."""
    return [_judge(rows, target) for target in targets]


def _judge(rows: Sequence[Row], target: Target) -> Judgement:
    candidates = [
        (row.ratio, row)
        for row in rows
        if (row.part, row.group, row.to) == (target.part, target.group, target.to)
        and row.name.startswith(target.name)
        and row.ratio is not None
    ]
    if not candidates:
        return Judgement(target, Verdict(Outcome.NOT_RUN))
    _, row = min(candidates, key=lambda pair: pair[0])
    interval = mean_interval(row.ratios if target.signed else [log(ratio) for ratio in row.ratios])
    limit = target.limit if target.signed else log(target.limit)
    verdict = is_above(interval, limit) if target.at_least else is_below(interval, limit)
    return Judgement(target, verdict, row, _shown(interval, target.signed))


def _shown(interval: Interval, signed: bool) -> tuple[float, float, float] | None:
    if interval.half is None:
        return None
    mean, low, high = (end if signed else exp(end) for end in (interval.mean, interval.low, interval.high))
    return mean, low, high
