"""Coldstream: deep networks that learn from one example at a time, from nothing."""

from coldstream.learners import CSSL, Learner

__version__ = "0.1.0"
__all__ = ["CSSL", "Learner", "__version__"]
