"""Replay batches from disk and from JPEG, beside packed rows in memory."""

from __future__ import annotations

import mmap
import os
import time
from typing import Any

import numpy as np

from benchmarks.measuring import Bench, Times
from benchmarks.workloads import CODEC, SIDE, fill
from coldstream.randomness import generator
from coldstream.replay import ReplayBuffer

JPEG = "jpeg(90)"


def disk(bench: Bench) -> None:
    """Sample, read and decode a replay batch: from memory and disk, and from a disk of which nothing is in memory."""
    count = bench.scale.kept
    buffers = {}
    for codec in (CODEC, JPEG):
        for where in ("memory", "disk"):
            kept = where if where == "memory" else f"disk:{bench.folder}"
            buffers[codec, where] = ReplayBuffer((SIDE, SIDE, 3), codec=codec, capacity=count, storage=kept)
            fill(bench, buffers[codec, where], count)
    taken: dict[str, list[float]] = {}
    for turn in bench.track("batches", range(bench.scale.most)):
        for (codec, where), buffer in buffers.items():
            for cold in (False, True) if where == "disk" and hasattr(os, "posix_fadvise") else (False,):
                rng = generator(0, turn, f"{cold}")
                if cold:
                    _drop(buffer)
                else:
                    buffer.items(buffer.sample(bench.scale.replay, generator(0, turn, f"{cold}")))
                begin = time.perf_counter()
                buffer.items(buffer.sample(bench.scale.replay, rng))
                name = f"{codec}, {where}{', cold' * cold}"
                taken.setdefault(name, []).append(1e3 * (time.perf_counter() - begin))
    times = Times({name: np.array(values) for name, values in taken.items()})
    for name in taken:
        to = f"{JPEG if name.startswith(JPEG) else CODEC}, memory"
        bench.rows.append(times.row("disk", f"{count:,} stored", name, to))
    bench.rows.append(times.row("disk", f"{count:,} stored", f"{JPEG}, memory", f"{CODEC}, memory"))


def _drop(buffer: ReplayBuffer) -> None:
    """Let the system forget what it holds of the buffer's file, as if that were much larger than memory."""
    store: Any = buffer.rows
    block = getattr(store, "_block", None)
    if block is not None:
        block.base.base.obj.madvise(mmap.MADV_DONTNEED)
    os.fsync(store._file.fileno())
    os.posix_fadvise(store._file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
