"""One thread a process: small networks gain nothing from more, and tests beside each other lose much.

Some virtual machines show a processor's AMX and end a process that uses it (Illegal instruction), as torch does for
bfloat16; so it does without.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")

LONGEST = ("test_checks.py", "test_kill.py", "test_paper_runs.py", "test_learning.py", "test_bench.py", "test_run.py")


def pytest_collection_modifyitems(items):
    """Begin with the files that take longest: a worker does a whole file, and none should be left with one alone."""
    order = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: order.get(item.path.name, len(order)))
