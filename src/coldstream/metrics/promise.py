"""A promise: from which confidence on predictions are accurate enough, with a bound that means something."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import beta

_GRID = (0.0, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.925, 0.95, 0.97, 0.98, 0.99)


def clopper_pearson(right: int, n: int, level: float = 0.95) -> tuple[float, float]:
    """Return the exact two-sided interval of a share, of which `right` of `n` were counted."""
    tail = (1 - level) / 2
    low = 0.0 if right == 0 else float(beta.ppf(tail, right, n - right + 1))
    high = 1.0 if right == n else float(beta.ppf(1 - tail, right + 1, n - right))
    return low, high


@dataclass(frozen=True)
class Promise:
    """The lowest confidence that is enough, or None and the reason."""

    threshold: float | None
    bound: float | None
    n: int
    reason: str


def promise(confidences: Sequence[float], right: Sequence[bool], wanted: float, level: float = 0.95) -> Promise:
    """Return the lowest threshold of a grid above which the accuracy is at least `wanted`, at this level.

    The lower bounds hold for all thresholds of the grid at once (Bonferroni).
    """
    sure, good = np.asarray(confidences, float), np.asarray(right, bool)
    tail = (1 - level) / len(_GRID)
    for threshold in _GRID:
        inside = sure >= threshold
        n, k = int(inside.sum()), int(good[inside].sum())
        low = float(beta.ppf(tail, k, n - k + 1)) if k else 0.0
        if low >= wanted:
            return Promise(threshold, low, n, "")
    return Promise(None, None, len(sure), "not enough audited labels yet")
