"""A process that learns alone, then beside a busy process, and prints milliseconds per step.

`python -m benchmarks.pace SIDE REPLAY SECONDS`. It is a process of its own because OpenMP reads its environment once.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.measuring import Action
from benchmarks.workloads import learning, pictures
from coldstream import ColdStart

WARM_UP = 120
_BUSY = "import os; parent = os.getppid()\nwhile os.getppid() == parent: pass"


def measure(side: int, replay: int, seconds: float) -> dict[str, float]:
    """Return the mean milliseconds of a step after the first labels, alone and beside a busy process."""
    images, labels = pictures()
    learner = ColdStart(size=side, replay=replay)
    learner.learn_many(images[:WARM_UP], labels[:WARM_UP].tolist(), per_update=10)
    learn = learning(learner)
    alone = pace(learn, seconds)
    with busy_process():
        return {"alone": alone, "beside": pace(learn, seconds)}


def pace(action: Action, seconds: float) -> float:
    """Return the mean milliseconds of a call, over as many as fit, at least two; one before does not count."""
    action()
    begin, calls = time.perf_counter(), 0
    while calls < 2 or time.perf_counter() < begin + seconds:
        action()
        calls += 1
    return 1e3 * (time.perf_counter() - begin) / calls


@contextmanager
def busy_process() -> Iterator[subprocess.Popen[bytes]]:
    """Keep one core busy in a process, which ends with this context or with the process that started it."""
    with subprocess.Popen([sys.executable, "-c", _BUSY]) as child:
        try:
            time.sleep(0.2)  # until it has begun
            yield child
        finally:
            child.kill()


if __name__ == "__main__":
    print(json.dumps(measure(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]))))
