"""How fast it is: `coldstream bench`."""

from benchmarks.run import PARTS, run_bench
from benchmarks.targets import judge

__all__ = ["PARTS", "judge", "run_bench"]
