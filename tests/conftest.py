"""One thread a process: small networks gain nothing from more, and tests beside each other lose much."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

LONGEST = ("test_checks.py", "test_kill.py", "test_paper_runs.py", "test_learning.py", "test_bench.py", "test_run.py")


def pytest_collection_modifyitems(items):
    """Begin with the files that take longest: a worker does a whole file, and none should be left with one alone."""
    order = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: order.get(item.path.name, len(order)))
