"""Coldstream: deep networks that learn from one example at a time, from nothing."""

from typing import TYPE_CHECKING

from coldstream._lazy import attribute_loader
from coldstream._version import __version__

if TYPE_CHECKING:
    from coldstream.learners import CSSL, ColdStart, Learner
    from coldstream.sklearn_adapter import ColdStreamClassifier

__all__ = ["CSSL", "ColdStart", "ColdStreamClassifier", "Learner", "__version__"]
__getattr__ = attribute_loader(
    __name__,
    {**dict.fromkeys(("CSSL", "ColdStart", "Learner"), "learners"), "ColdStreamClassifier": "sklearn_adapter"},
)
