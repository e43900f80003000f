"""`ColdStart()` with its defaults, beside the bare arithmetic of the same network."""

from __future__ import annotations

import itertools

import numpy as np
import torch

from benchmarks.measuring import Action, Bench, Row, spread, timed
from benchmarks.workloads import BareStep, Network, pictures, ready_batch
from coldstream import ColdStart
from coldstream.images import fit

SIDES = (8, 16, 32)
FIRST = 150
"""Labels before the measurement: the first few have more than one update each."""
STEPS = 100
"""Steps of a round, of whose times the 99th percentile is taken."""
STEP, FORWARD = "bare step", "bare forward pass of an image"


def default(bench: Bench) -> None:
    """Learning and answering with the default settings, `ColdStart()`, beside the bare arithmetic of its network
    (eager, channels-last), on images that have its size; the 99th percentile of a hundred steps beside their median.
    """
    for side in SIDES:
        _at(bench, side)


def _at(bench: Bench, side: int) -> None:
    pixels, labels = pictures()
    images = [fit(image, (side, side)) for image in pixels]
    learner = ColdStart(size=side, replay=bench.scale.replay)
    learner.learn_many(images[:FIRST], labels[:FIRST].tolist(), per_update=10)
    stream = itertools.cycle(zip(images, labels.tolist(), strict=True))

    def learn() -> None:
        learner.learn_one(*next(stream))

    model = str(learner.settings.model)
    ways: dict[str, Action] = {
        STEP: BareStep(model, bench.scale.replay, "channels_last", side=side),
        "learn_one": learn,
        FORWARD: _bare_prediction(model, side),
        "predict_one": lambda: learner.predict_one(images[0]),
    }
    group = f"{model} at {side} px, B = {bench.scale.replay}"
    times = bench.measure(group, ways)
    for name, floor in (("learn_one", STEP), ("predict_one", FORWARD)):
        bench.rows += [times.row("default", group, floor), times.row("default", group, name, floor)]
    bench.rows += _pace(bench, group, {name: ways[name] for name in ("learn_one", STEP)})


def _bare_prediction(model: str, side: int) -> Action:
    network = Network(model, side).eval().to(memory_format=torch.channels_last)
    image = ready_batch(1, side)[0].contiguous(memory_format=torch.channels_last)

    def forward() -> None:
        with torch.inference_mode():
            network(image)

    return forward


def _pace(bench: Bench, group: str, ways: dict[str, Action]) -> list[Row]:
    """Return the 99th percentile of each way's times beside its median, a ratio for each round; the ways take turns.

    That of the bare step is what the machine does by itself.
    """
    rounds = []
    for _ in bench.track(f"{group}: pace", range(bench.scale.least)):
        rounds.append([[1e3 * timed(action, 1) for action in ways.values()] for _ in range(STEPS)])
    times = np.array(rounds)
    rows = []
    for number, name in enumerate(ways):
        typical, slowest = np.median(times[..., number], axis=1), np.percentile(times[..., number], 99, axis=1)
        median, last = f"{name}, median", f"{name}, 99th percentile"
        rows.append(Row("default", group, median, *spread(typical)))
        rows.append(Row("default", group, last, *spread(slowest)).compared(slowest / typical, median))
    return rows
