"""Paired comparison: two learners on the same seeds, and the 95% t interval of their mean difference.

This is the one criterion of the product: a comparison is decided where the interval excludes its limit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from coldstream.metrics import _check
from coldstream.metrics.aggregates import summary

CONFIDENCE = 0.95
MOST_PAIRS = 1000
"""The most that `Interval.pairs_needed` counts to."""


def _quantile(pairs: int) -> float:
    """Return how many standard errors half a 95% t interval has."""
    from scipy.special import stdtrit

    return float(stdtrit(pairs - 1, (1 + CONFIDENCE) / 2))


@dataclass(frozen=True)
class Interval:
    """A mean over n pairs and the half-width of its 95% t interval.

    Attributes
    ----------
    mean : float
    half : float or None
        None for a single pair, which has no interval.
    n : int

    Examples
    --------
    >>> interval = paired_interval([0.5, 0.6, 0.7], [0.4, 0.52, 0.57])
    >>> print(interval)
    +0.103 ± 0.063
    >>> interval.excludes(0), interval.excludes(0.1)
    (True, False)
    """

    mean: float
    half: float | None
    n: int

    @property
    def low(self) -> float:
        """Lower end; minus infinity for a single pair."""
        return self.mean - (np.inf if self.half is None else self.half)

    @property
    def high(self) -> float:
        """Upper end; infinity for a single pair."""
        return self.mean + (np.inf if self.half is None else self.half)

    def excludes(self, value: float) -> bool:
        """Return whether a value is outside of the interval; its ends belong to it."""
        return value < self.low or value > self.high

    @property
    def p(self) -> float:
        """The two-sided p-value of a mean of 0, by Student's t; 1 for a single pair."""
        if self.half is None or self.mean == 0:
            return 1.0
        if self.half == 0:
            return 0.0
        from scipy.special import stdtr

        return 2 * float(stdtr(self.n - 1, -abs(self.mean) / self.half * _quantile(self.n)))

    def pairs_needed(self) -> int | None:
        """Return how many pairs of the same mean and spread would exclude 0; None if that is unknown.

        Examples
        --------
        >>> paired_interval([0.5, 0.6, 0.7], [0.45, 0.52, 0.69]).pairs_needed()
        5
        """
        if self.half is None or self.mean == 0:
            return None
        sd = self.half / _quantile(self.n) * self.n**0.5
        needed = 2
        while needed < MOST_PAIRS and _quantile(needed) * sd / needed**0.5 >= abs(self.mean):
            needed += 1
        return needed

    def __format__(self, spec: str) -> str:
        """Format mean and half-width alike, ``f"{interval:.1f}"``; the mean has a sign."""
        spec = spec or ".3f"
        return f"{self.mean:+{spec}}" + ("" if self.half is None else f" ± {self.half:{spec}}")

    def __str__(self) -> str:
        return format(self, "")

    def scaled(self, factor: float) -> Interval:
        """Return the interval in another unit, such as percentage points.

        Examples
        --------
        >>> Interval(0.5, 0.25, 3).scaled(100)
        Interval(mean=50.0, half=25.0, n=3)
        """
        return Interval(self.mean * factor, None if self.half is None else self.half * abs(factor), self.n)


def mean_interval(values: Sequence[float]) -> Interval:
    """Return the mean of independent values and its 95% t interval.

    Examples
    --------
    >>> mean_interval([1.0])
    Interval(mean=1.0, half=None, n=1)
    """
    spread = summary(values)
    if spread.sd is None:
        return Interval(spread.mean, None, 1)
    return Interval(spread.mean, _quantile(spread.n) * spread.sd / spread.n**0.5, spread.n)


def paired_interval(one: Sequence[float], other: Sequence[float]) -> Interval:
    """Return the mean of paired differences, `one` less `other`, and its 95% t interval.

    For times, pass logarithms: the exponential of the result is the geometric mean of the ratios.
    """
    first, second = _check.numbers(one, "one"), _check.numbers(other, "other")
    _check.same_length(first, "one", second, "other")
    return mean_interval((first - second).tolist())


def paired_by_seed(one: Mapping[int, float], other: Mapping[int, float]) -> Interval | None:
    """Return `paired_interval` over the seeds that both have; None if they share none.

    Examples
    --------
    >>> paired_by_seed({0: 0.5, 1: 0.75, 2: 1.0}, {1: 0.5, 2: 0.75, 3: 1.0})
    Interval(mean=0.25, half=0.0, n=2)
    """
    seeds = sorted(one.keys() & other.keys())
    return paired_interval([one[seed] for seed in seeds], [other[seed] for seed in seeds]) if seeds else None


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values that are corrected for their number by Holm's method: each may be compared with 0.05.

    Examples
    --------
    >>> holm([0.01, 0.04, 0.02])
    [0.03, 0.04, 0.04]
    """
    given = _check.numbers(p_values, "p_values") if len(p_values) else np.empty(0)
    corrected, largest = np.empty(len(given)), 0.0
    for rank, place in enumerate(np.argsort(given, kind="stable")):
        largest = max(largest, min(1.0, (len(given) - rank) * given[place]))
        corrected[place] = largest
    return corrected.tolist()
