"""How long a checkpoint stalls a stream with 100K stored examples: written before going on, and beside the stream.

    uv run python benchmarks/checkpoint_stall.py

The network is resnet8-16, examples are 32x32 colour images at 6 bits and 66% of the area. The first checkpoint writes
all rows, the later ones what 200 steps changed. *Stall* is the time that `save` takes; *slower after* is by how much
the next steps together take longer than as many usual ones, because the writing shares the machine with them.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from coldstream import CSSL
from coldstream.randomness import generator


def steps(learner: CSSL, images: np.ndarray, count: int) -> list[float]:
    """Return the milliseconds of each of some steps."""
    found = []
    for i in range(count):
        begin = time.perf_counter()
        learner.learn_one(images[i % len(images)], i % 10)
        found.append(1e3 * (time.perf_counter() - begin))
    return found


def renew(learner: CSSL, rows: np.ndarray, count: int) -> None:
    """Store and evict without learning, as that many steps would."""
    for _ in range(count):
        id = learner._next_id
        learner._next_id += 1
        learner.buffer.store(rows[id % len(rows)], id % 10, id)
        learner.buffer.evict(generator(0, id, "evict"))


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stored", type=int, default=100_000)
    parser.add_argument("--storage", default="memory")
    parser.add_argument("--saves", type=int, default=8)
    given = parser.parse_args()
    draws = np.random.default_rng(0)
    images = draws.integers(0, 256, (50, 32, 32, 3), dtype=np.uint8)
    learner = CSSL(codec="resize(0.66)|quantize(6)", capacity=given.stored, evict="uniform", storage=given.storage)
    steps(learner, images, 10)
    rows = draws.integers(0, 256, (1000, 1521), dtype=np.uint8)
    renew(learner, rows, given.stored)
    usual = float(np.median(steps(learner, images, 20)))
    title = f"{given.stored:,} stored, {torch.get_num_threads()} threads; a usual step takes {usual:.0f} ms"
    table = Table(title=title)
    for column in ("checkpoint", "stall, ms", "in steps", "on disk after, ms", "slower after, ms"):
        table.add_column(column, justify="right")
    with tempfile.TemporaryDirectory() as folder:
        for wait in (True, False):
            found = []
            for i in range(1 + given.saves):
                renew(learner, rows, 200)
                begin = time.perf_counter()
                saving = learner.save(Path(folder, str(wait)), wait=wait)
                stall = 1e3 * (time.perf_counter() - begin)
                after = 0.0
                while not saving.done():
                    after += steps(learner, images, 1)[0] - usual
                found.append((stall, stall / usual, 1e3 * (time.perf_counter() - begin), after))
                if i == 0:
                    table.add_row(f"first, wait={wait}", *(f"{value:.2f}" for value in found.pop()))
            median, worst = np.median(found, axis=0), np.max(found, axis=0)
            cells = (f"{m:.2f} (most {w:.2f})" for m, w in zip(median, worst, strict=True))
            table.add_row(f"later, wait={wait}", *cells)
    Console(width=130).print(table)


if __name__ == "__main__":
    main()
