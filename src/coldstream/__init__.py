"""Coldstream: deep networks that learn from one example at a time, from nothing."""

import os
import sys
from typing import TYPE_CHECKING

from coldstream._lazy import attribute_loader
from coldstream._version import __version__

if TYPE_CHECKING:
    from coldstream.learners import CSSL, ColdStart, Learner
    from coldstream.sklearn_adapter import ColdStreamClassifier

SPIN = {"GOMP_SPINCOUNT": "3000", "KMP_BLOCKTIME": "0"}
"""How long OpenMP's threads spin while they wait for each other, in GNU's builds and in LLVM's and Intel's."""


def _bound_spin() -> None:
    """Let OpenMP's threads sleep soon when they wait, where the user has not said how they are to wait.

    By default they spin. Where another process wants the core, the thread that they wait for does not get it then
    (docs/performance.md). Processes that this one starts inherit it. OpenMP reads it when torch is imported: after
    that nothing is set.
    """
    if "torch" not in sys.modules and "OMP_WAIT_POLICY" not in os.environ:
        for name, value in SPIN.items():
            os.environ.setdefault(name, value)


_bound_spin()

__all__ = ["CSSL", "ColdStart", "ColdStreamClassifier", "Learner", "__version__"]
__getattr__ = attribute_loader(
    __name__,
    {**dict.fromkeys(("CSSL", "ColdStart", "Learner"), "learners"), "ColdStreamClassifier": "sklearn_adapter"},
)
