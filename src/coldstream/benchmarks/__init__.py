"""How fast it is: `coldstream bench`."""

from coldstream.benchmarks.run import PARTS, run_bench
from coldstream.benchmarks.targets import judge

__all__ = ["PARTS", "judge", "run_bench"]
