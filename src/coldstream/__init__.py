"""Coldstream: deep networks that learn from one example at a time, from nothing."""

from typing import TYPE_CHECKING, Any

from coldstream.learners import CSSL, Learner

if TYPE_CHECKING:
    from coldstream.sklearn_adapter import ColdStreamClassifier

__version__ = "0.1.0"
__all__ = ["CSSL", "ColdStreamClassifier", "Learner", "__version__"]


def __getattr__(name: str) -> Any:
    """Import scikit-learn only for those who use its adapter."""
    if name == "ColdStreamClassifier":
        from coldstream.sklearn_adapter import ColdStreamClassifier

        return ColdStreamClassifier
    raise AttributeError(f"module 'coldstream' has no attribute {name!r}")
