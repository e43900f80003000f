"""One thread a process: small networks gain nothing from more, and tests beside each other lose much."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
