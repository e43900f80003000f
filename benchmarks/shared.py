"""A step on a machine that another process keeps busy, and how OpenMP's threads should wait for each other there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import torch

from benchmarks.measuring import Bench, Times
from coldstream import SPIN

SIDE = 16
BOUNDED, UNBOUNDED = "bounded spin", "OpenMP's own spin"
WAYS: dict[str, dict[str, str]] = {
    BOUNDED: SPIN,
    UNBOUNDED: {"GOMP_SPINCOUNT": "300000", "KMP_BLOCKTIME": "200"},
    "one thread": {"OMP_NUM_THREADS": "1"},
}
"""Environments: the package's own, the defaults of both builds of OpenMP, and one thread, which waits for none.

They are given to a new process: here torch may be imported before the package."""
_WAITING = ("GOMP_SPINCOUNT", "KMP_BLOCKTIME", "OMP_WAIT_POLICY")


def shared(bench: Bench) -> None:
    """One step of `ColdStart()` alone and beside one busy process: with the bounded spin that the package sets, with
    OpenMP's own spin, and with one thread. Each measurement is a process of its own.
    """
    taken: dict[str, list[float]] = {}
    for turn in bench.track("shared", range(bench.scale.least)):
        names, first = list(WAYS), turn % len(WAYS)
        for name in names[first:] + names[:first]:
            for place, ms in _measured(WAYS[name], bench.scale.replay, 20 * bench.scale.block).items():
                taken.setdefault(f"{name}, {place}", []).append(ms)
    times = Times({name: np.array(values) for name, values in taken.items()})
    group = f"resnet8-16 at {SIDE} px, B = {bench.scale.replay}"
    for place in ("alone", "beside"):
        bench.rows += [times.row("shared", group, f"{name}, {place}", f"{UNBOUNDED}, {place}") for name in WAYS]
    bench.rows += [times.row("shared", group, f"{name}, beside", f"{name}, alone") for name in WAYS]


def _measured(way: dict[str, str], replay: int, seconds: float) -> dict[str, float]:
    """Return the milliseconds of a step, alone and beside a busy process, in a fresh process."""
    kept = {name: value for name, value in os.environ.items() if name not in _WAITING}
    environment = {**kept, "OMP_NUM_THREADS": str(torch.get_num_threads()), **way}
    command = [sys.executable, "-m", "benchmarks.pace", str(SIDE), str(replay), str(seconds)]
    root = Path(__file__).parents[1]
    done = subprocess.run(command, cwd=root, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    times: dict[str, float] = json.loads(done.stdout)
    return times
