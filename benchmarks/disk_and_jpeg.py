"""Replay batches from disk and from JPEG, beside packed rows in memory: sample, read and decode 100 of 10K and 100K.

    uv run python benchmarks/disk_and_jpeg.py

*Cold* means that the system holds nothing of the file in memory, as for a buffer much larger than it: before each
batch all its pages are dropped. Medians of batches taken in turns, as ratios to packed rows in memory.
"""

from __future__ import annotations

import argparse
import mmap
import os
import time

import numpy as np
from rich.console import Console
from rich.table import Table

from coldstream.randomness import generator
from coldstream.replay import ReplayBuffer

PACKED, JPEG, BATCH, SHAPE = "resize(0.66)|quantize(6)", "jpeg(90)", 100, (32, 32, 3)


def filled(codec: str, storage: str, size: int) -> ReplayBuffer:
    """Return a buffer with `size` examples."""
    buffer = ReplayBuffer(SHAPE, codec=codec, storage=storage)
    rng = np.random.default_rng(0)
    rough = rng.integers(0, 256, (200, 8, 8, 3), dtype=np.uint8)
    rows = [buffer.compress(np.kron(image, np.ones((4, 4, 1), np.uint8))) for image in rough]
    for i in range(size):
        buffer.store(rows[i % len(rows)], i % 10, i)
    return buffer


def drop(buffer: ReplayBuffer) -> None:
    """Let the system forget what it holds of the buffer's file."""
    store = buffer.rows
    block = getattr(store, "_block", None)
    if block is not None:
        block.base.base.obj.madvise(mmap.MADV_DONTNEED)
    os.fsync(store._file.fileno())  # type: ignore[attr-defined]
    os.posix_fadvise(store._file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)  # type: ignore[attr-defined]


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--turns", type=int, default=40)
    given = parser.parse_args()
    table = Table(title=f"milliseconds for {BATCH} examples, median of {given.turns} (ratio to packed in memory)")
    for column in ("stored", "kept", "sample and read", "decode", "together"):
        table.add_column(column, justify="right")
    for size in given.sizes:
        buffers = {(c, s): filled(c, s, size) for c in (PACKED, JPEG) for s in ("memory", "disk")}
        found: dict[tuple[str, str, bool], list[tuple[float, float]]] = {}
        for cold in (False, True):
            for turn in range(-1, given.turns):
                for (codec, storage), buffer in buffers.items():
                    if cold and storage == "memory":
                        continue
                    if cold:
                        drop(buffer)
                    elif turn == -1:
                        buffer.rows.get(np.arange(size))  # what was just written is not in memory for sure
                    begin = time.perf_counter()
                    rows = buffer.rows.get(buffer.sample(BATCH, generator(0, turn + 1, storage)))
                    middle = time.perf_counter()
                    buffer.codec.decode(rows)
                    if turn >= 0:
                        times = middle - begin, time.perf_counter() - middle
                        found.setdefault((codec, storage, cold), []).append(times)
        base = np.median(found[PACKED, "memory", False], axis=0)
        for (codec, storage, cold), mine in sorted(found.items(), key=lambda kind: kind[0][0] == JPEG):
            read, decode = np.median(mine, axis=0)
            cells = [(read, base[0]), (decode, base[1]), (read + decode, base.sum())]
            where = f"{codec}, {storage}{', cold' * cold}"
            table.add_row(f"{size:,}", where, *(f"{1e3 * a:.2f} ({a / b:.1f})" for a, b in cells))
    Console(width=130).print(table)


if __name__ == "__main__":
    main()
