"""A process that fills a buffer and prints by how much it grew: `python -m benchmarks.growth COUNT`."""

from __future__ import annotations

import gc
import json
import os
import sys
from pathlib import Path

from benchmarks.workloads import CODEC, SIDE, pictures
from coldstream.replay import ReplayBuffer


def resident() -> int | None:
    """Return the bytes of main memory that this process holds; None where Linux does not say."""
    statm = Path("/proc/self/statm")
    return int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") if statm.exists() else None


def grow(count: int) -> None:
    """Store `count` examples, with a line for every hundredth and the result in the last."""
    buffer = ReplayBuffer((SIDE, SIDE, 3), codec=CODEC)
    images, labels = pictures()
    ready = [(buffer.compress(image), label) for image, label in zip(images, labels.tolist(), strict=True)]
    gc.collect()
    before = resident()
    for hundredth in range(100):
        for id in range(count * hundredth // 100, count * (hundredth + 1) // 100):
            packed, label = ready[id % len(ready)]
            buffer.store(packed, label, id)
        print(hundredth, flush=True)
    after = resident()
    grown = None if before is None or after is None else after - before
    print(json.dumps({"packed": buffer.nbytes, "grown": grown}))


if __name__ == "__main__":
    grow(int(sys.argv[1]))
