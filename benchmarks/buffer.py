"""What storing, sampling and evicting cost as the replay buffer fills."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from benchmarks.measuring import Action, Bench
from benchmarks.workloads import CODEC, SIDE, fill
from coldstream.randomness import generator
from coldstream.replay import ReplayBuffer

BATCH = 100


def buffer(bench: Bench) -> None:
    """Sampling 100, storing and evicting one, and gathering 100 rows beside a bare NumPy gather."""
    ways: dict[str, Action] = {}
    sizes = {f"{size:,} stored": size for size in bench.scale.sizes}
    overhead = {}
    for title, size in sizes.items():
        full = ReplayBuffer((SIDE, SIDE, 3), codec=CODEC, capacity=size)
        fill(bench, full, size)
        overhead[title] = f"index: {full.overhead_bytes / size:.1f} bytes per example"
        ways |= {f"{name}, {title}": action for name, action in _operations(full, size).items()}
    times = bench.measure("buffer", ways)
    smallest = next(iter(sizes))
    for title in sizes:
        for name in ("sample 100", "store + evict"):
            bench.rows.append(times.row("buffer", CODEC, f"{name}, {title}", f"{name}, {smallest}", overhead[title]))
        bench.rows.append(times.row("buffer", CODEC, f"gather 100, {title}", f"bare gather of 100, {title}"))


def _operations(full: ReplayBuffer, size: int) -> dict[str, Action]:
    draws, evicts = generator(0, size, "sample"), generator(0, size, "evict")
    drawn = itertools.cycle([full.sample(BATCH, draws) for _ in range(200)])
    ids = itertools.count(10**9)
    packed: Any = full.rows.get(np.arange(min(size, 1000)))
    block: Any = full.rows._block  # type: ignore[attr-defined]

    def store_and_evict() -> None:
        id = next(ids)
        full.store(packed[id % len(packed)], id % 10, id)
        full.evict(evicts)

    return {
        "sample 100": lambda: full.sample(BATCH, draws),
        "store + evict": store_and_evict,
        "gather 100": lambda: full.rows.get(next(drawn)),
        "bare gather of 100": lambda: block[next(drawn)],
    }
