"""What storing, sampling and evicting cost as the replay buffer fills: 1K, 100K and 1M examples.

    uv run python benchmarks/buffer_cost.py

Examples are 32x32 colour images at 6 bits and 66% of the area (1,521 bytes each; 1M take 1.5 GB). All sizes are
measured in turns in one process, so that what slows one slows all; medians, as ratios to the smallest.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from coldstream.randomness import generator
from coldstream.replay import ReplayBuffer

CODEC, BATCH, CLASSES = "resize(0.66)|quantize(6)", 100, 100


def filled(size: int, rows: np.ndarray) -> ReplayBuffer:
    """Return a full buffer of `size` examples."""
    buffer = ReplayBuffer((32, 32, 3), codec=CODEC, capacity=size)
    for i in track(range(size), f"filling {size:,}", transient=True):
        buffer.store(rows[i % len(rows)], i % CLASSES, i)
    return buffer


def timed(action: Callable[[int], object], steps: range) -> float:
    """Return microseconds per call."""
    begin = time.perf_counter()
    for step in steps:
        action(step)
    return 1e6 * (time.perf_counter() - begin) / len(steps)


def measure(buffer: ReplayBuffer, rows: np.ndarray, turn: int, calls: int) -> dict[str, float]:
    """Return the cost of each operation, in microseconds, from one turn of `calls` calls each."""
    steps = range(turn * calls, (turn + 1) * calls)
    rngs = {step: (generator(0, step, "sample"), generator(0, step, "evict")) for step in steps}
    drawn: dict[int, np.ndarray] = {}
    half = calls // 2

    def sample(step: int) -> None:
        drawn[step] = buffer.sample(BATCH, rngs[step][0])

    out = {"sample": timed(sample, steps)}
    out["store + evict"] = timed(
        lambda step: (
            buffer.store(rows[step % len(rows)], step % CLASSES, 10**9 + step),
            buffer.evict(rngs[step][1]),
        ),
        steps,
    )
    block = buffer.rows._block  # type: ignore[attr-defined]
    ours = timed(lambda step: buffer.rows.get(drawn[step]), steps[:half])
    bare = timed(lambda step: block[drawn[step]], steps[half:])
    again = timed(lambda step: block[drawn[step]], steps[:half])
    ours = (ours + timed(lambda step: buffer.rows.get(drawn[step]), steps[half:])) / 2
    out["gather"], out["bare gather"] = ours, (bare + again) / 2
    return out


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1_000, 100_000, 1_000_000])
    parser.add_argument("--turns", type=int, default=30)
    parser.add_argument("--calls", type=int, default=200)
    parser.add_argument("--json", help="also write the numbers to this file")
    given = parser.parse_args()
    rows = np.random.default_rng(0).integers(0, 256, (1000, 1521), dtype=np.uint8)
    buffers = {size: filled(size, rows) for size in given.sizes}
    turns: dict[int, list[dict[str, float]]] = {size: [] for size in buffers}
    for turn in track(range(given.turns), "measuring", transient=True):
        for size, buffer in buffers.items():
            turns[size].append(measure(buffer, rows, turn, given.calls))
    found = {
        size: {name: float(np.median([turn[name] for turn in mine])) for name in mine[0]}
        for size, mine in turns.items()
    }
    smallest = found[min(found)]
    table = Table(title=f"microseconds a call, median of {given.turns} turns (ratio to {min(found):,} stored)")
    for column in ("stored", "sample 100", "store + evict", "index bytes an example", "gather 100 rows / bare NumPy"):
        table.add_column(column, justify="right")
    for size, mine in found.items():
        table.add_row(
            f"{size:,}",
            *(f"{mine[name]:.1f} ({mine[name] / smallest[name]:.2f})" for name in ("sample", "store + evict")),
            f"{buffers[size].overhead_bytes / size:.1f}",
            f"{mine['gather']:.1f} / {mine['bare gather']:.1f} = {mine['gather'] / mine['bare gather']:.2f}",
        )
    Console(width=130).print(table)
    if given.json:
        with open(given.json, "w") as file:
            json.dump({str(size): mine for size, mine in found.items()}, file, indent=1)


if __name__ == "__main__":
    main()
