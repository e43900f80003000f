"""The parts of the benchmark: each measures one question about a step, and adds its rows."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks.measuring import Bench, Row, Times, spread, timed
from benchmarks.workloads import (
    CODEC,
    FULL,
    SIDE,
    BareStep,
    filled_learner,
    floors,
    has_convolutions,
    learning,
    pictures,
    variants,
    without_kernels,
)
from coldstream.learners import CSSL, ColdStart

SMALL = ("linear", "resnet8-16")
LADDER = (
    ("sample and gather, raw", {"augment": "none", "codec": "raw"}),
    ("decode quantize(6)", {"augment": "none", "codec": "quantize(6)"}),
    (f"decode {CODEC}", {"augment": "none"}),
    ("crop, flip", {"augment": "crop|flip"}),
    ("AutoAugment", {"augment": "crop|flip|autoaugment(cifar10)"}),
    ("Mixup/CutMix: the full policy", {"augment": FULL}),
)
COLD: dict[str, Callable[..., CSSL]] = {
    "crops and flips": functools.partial(CSSL, augment="crop|flip"),
    "full policy": functools.partial(CSSL, augment=FULL),
    "ColdStart()": ColdStart,
}
COLD_AT = ((8, 100), (16, 100), (16, 50), (32, 100))
"""Pixels a side, and B."""
CODECS = ("raw", "quantize(6)", CODEC, "jpeg(90)")


def step(bench: Bench) -> None:
    """One step of the small networks, beside the floor."""
    for model in SMALL:
        _beside_floor(bench, "step", model)


def networks(bench: Bench) -> None:
    """One step of larger networks, beside the floor."""
    for model in bench.scale.networks:
        _beside_floor(bench, "networks", model)


def _beside_floor(bench: Bench, part: str, model: str) -> None:
    ways = dict(floors(bench, model, bench.scale.replay, compiled=bench.scale.compiled))
    forms = list(ways)
    ways["plain loop"] = BareStep(model, bench.scale.replay, optimiser="plain")
    ours = variants(compiled=has_convolutions(model) and bench.scale.compiled)
    for name, settings in ours.items():
        ways[name] = learning(filled_learner(bench, bench.scale.stored, model=model, **settings))
    slow = "without kernels"
    ways[slow] = without_kernels(learning(filled_learner(bench, bench.scale.stored, model=model, prefetch=False)))
    times = bench.measure(model, ways)
    floor = times.fastest(forms)
    times.taken["floor"] = times.taken[floor]
    bench.rows.append(times.row(part, model, "plain loop", note="contiguous, eager, torch.optim.SGD as it comes"))
    bench.rows.append(times.row(part, model, "floor", "plain loop", note=floor.removeprefix("floor, ")))
    bench.rows += [times.row(part, model, form, "floor") for form in forms]
    bench.rows += [times.row(part, model, name, "floor") for name in (*ours, slow)]


def ladder(bench: Bench) -> None:
    """A step with one component added at a time, and the full policy with other codecs."""
    for model in SMALL:
        ways = dict(floors(bench, model, bench.scale.replay, compiled=False))
        forms = list(ways)
        for name, settings in LADDER:
            ways[f"+ {name}"] = learning(filled_learner(bench, bench.scale.stored, model=model, **settings))
        for codec in CODECS:
            learner = filled_learner(bench, bench.scale.stored, model=model, codec=codec)
            ways[f"full policy, {codec}"] = learning(learner)
        times = bench.measure(f"{model}, parts", ways)
        times.taken["eager floor"] = times.taken[times.fastest(forms)]
        before = "eager floor"
        bench.rows.append(times.row("parts", model, before))
        for name in list(ways)[len(forms) :]:
            added = ""
            if name.startswith("+"):
                added = f"{np.median(times.taken[name] - times.taken[before]):+.2f} ms"
                before = name
            bench.rows.append(times.row("parts", model, name, "eager floor", added))


def cold(bench: Bench) -> None:
    """A whole stream of ten classes from its cold start: `ColdStart()` beside CSSL with fixed policies. Each learns
    twenty labels in its turn; *in all* is the ratio of the times of the whole stream, with the passes over the first
    few labels.
    """
    images, labels = pictures()
    for side, replay in COLD_AT:
        learners = {name: make(size=side, replay=replay) for name, make in COLD.items()}
        taken: dict[str, list[float]] = {name: [] for name in learners}
        for start in bench.track(f"cold, {side} px, B = {replay}", range(0, bench.scale.streamed, 20)):
            for name, learner in learners.items():
                begin = time.perf_counter()
                for i in range(start, start + 20):
                    learner.learn_one(images[i % len(images)], int(labels[i % len(images)]))
                taken[name].append(1e3 * (time.perf_counter() - begin) / 20)
        times, first = Times({name: np.array(values) for name, values in taken.items()}), next(iter(COLD))
        for name in learners:
            note = f"in all: {times.taken[name].sum() / times.taken[first].sum():.2f}"
            bench.rows.append(times.row("cold", f"resnet8-16 at {side} px, B = {replay}", name, first, note))


def sizes(bench: Bench) -> None:
    """A step with a linear model as the buffer grows."""
    counts = {f"{count:,} stored": count for count in bench.scale.sizes}
    ways = {name: learning(filled_learner(bench, count, model="linear")) for name, count in counts.items()}
    times = bench.measure("sizes", ways)
    first = next(iter(ways))
    bench.rows += [times.row("sizes", "linear", name, first) for name in ways]


def batch(bench: Bench) -> None:
    """A step with more or fewer replayed images, beside the floor of the same batch, not compiled."""
    for model in SMALL:
        for replay in bench.scale.replays:
            ways = dict(floors(bench, model, replay, compiled=False))
            forms = list(ways)
            learner = filled_learner(bench, bench.scale.stored, model=model, replay=replay)
            name, floor = f"B = {replay}: learn_one", f"B = {replay}: eager floor"
            ways[name] = learning(learner)
            times = bench.measure(f"{model}, B = {replay}", ways)
            times.taken[floor] = times.taken[times.fastest(forms)]
            bench.rows += [times.row("batch", model, floor), times.row("batch", model, name, floor)]


def storage(bench: Bench) -> None:
    """A step with the buffer in memory and on disk. What was read lately is in the system's cache."""
    ways = {}
    for codec in (CODEC, "jpeg(90)"):
        for where in ("memory", "disk"):
            kept = where if where == "memory" else f"disk:{bench.folder}"
            learner = filled_learner(bench, bench.scale.stored, model="linear", codec=codec, storage=kept)
            ways[f"{codec}, {where}"] = learning(learner)
    times = bench.measure("storage", ways)
    first = next(iter(ways))
    bench.rows += [times.row("storage", "linear", name, first) for name in ways]
    bench.rows.append(times.row("storage", "linear", "jpeg(90), disk", "jpeg(90), memory"))


def checkpoint(bench: Bench) -> None:
    """How long a checkpoint stalls the stream: written in the background, as the lab does, and waited for."""
    learner = filled_learner(bench, bench.scale.kept, model="resnet8-16")
    learn = learning(learner)
    around = bench.scale.around
    names = ("stall of the step that saves", f"that and the {around} steps after", "stall of one that waits for it")
    taken: dict[str, list[float]] = {name: [] for name in names}
    updates = []
    with tempfile.TemporaryDirectory(dir=bench.folder) as folder:
        path = Path(folder) / "learner"
        learner.save(path)
        for _ in bench.track("checkpoints", range(bench.scale.saves)):
            before = [timed(learn, 1) for _ in range(around)]
            update = float(np.median(before))
            begin = time.perf_counter()
            learn()
            saving = learner.save(path, wait=False)
            held = time.perf_counter() - begin
            after = sum(timed(learn, 1) for _ in range(around))
            saving.result()
            delay = held + after - (1 + around) * float(np.mean(before))
            waited = timed(lambda: learner.save(path), 1)
            updates.append(update)
            for name, seconds in zip(names, (held - update, delay, waited), strict=True):
                taken[name].append(seconds)
    group, one = f"resnet8-16, {bench.scale.kept:,} stored", np.array(updates)
    bench.rows.append(Row("checkpoint", group, "one update", *spread(1e3 * one)))
    for name in names:
        extra = np.array(taken[name])
        row = Row("checkpoint", group, name, *spread(1e3 * extra))
        bench.rows.append(row.compared(extra / one, "one update"))


def memory(bench: Bench) -> None:
    """How much a process grows while its buffer fills, in a process of its own, and the bytes per image."""
    command = [sys.executable, "-m", "benchmarks.growth", str(bench.scale.filled)]
    root = Path(__file__).parents[1]
    with subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        for _ in bench.track(f"memory of {bench.scale.filled:,}", range(100)):
            child.stdout.readline()
        bytes_used = json.loads(child.stdout.read() or "null")
    if child.returncode:
        raise ValueError(f"the process whose memory was measured ended with code {child.returncode}")
    group, packed, plain = f"{bench.scale.filled:,} stored", float(bytes_used["packed"]), 4.0 * 3 * SIDE * SIDE
    bench.rows.append(number_of_bytes(group, "packed bytes", packed))
    if bytes_used["grown"] is None:
        bench.note("Growth of memory is measured on Linux only.")
    else:
        bench.rows.append(
            number_of_bytes(group, "growth of the process", float(bytes_used["grown"]), packed, "packed bytes")
        )
    image = packed / bench.scale.filled
    bench.rows.append(number_of_bytes(group, "bytes per image", image))
    bench.rows.append(number_of_bytes(group, "bytes per image as float32", plain, image, "bytes per image"))


def number_of_bytes(group: str, name: str, value: float, of: float | None = None, to: str = "") -> Row:
    """Return a number of bytes, which has no spread, as a ratio to another one."""
    row = Row("memory", group, name, value, value, value, "bytes")
    return row if of is None else row.compared(np.array([value / of]), to)
