"""One number out of many: Ω over test events, mean ± standard deviation over runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from coldstream.metrics import _check


def omega(accuracies: ArrayLike, offline: ArrayLike) -> float:
    r"""Return :math:`\Omega_{all} = \frac{1}{T} \sum_t \alpha_t / \alpha_{offline,t}` [1]_.

    Parameters
    ----------
    accuracies : sequence of T numbers in [0, 1]
        Accuracy of the streaming learner at each test event.
    offline : sequence of T numbers, or one number, in (0, 1]
        Accuracy at each test event of a model trained offline on all that had been streamed by then (the
        definition), or the final offline accuracy, which then divides every event. Report
        which of the two was used.

    References
    ----------
    .. [1] Hayes, Cahill, Kanan, "Memory efficient experience replay for streaming learning", ICRA 2019.

    Examples
    --------
    >>> omega([0.6, 0.25], [0.8, 0.5])
    0.625
    >>> omega([0.6, 0.4], 0.5)
    1.0
    """
    learner = _check.fractions(accuracies, "accuracies").astype(np.float64)
    reference = _check.numbers(offline, "offline")
    if reference.ndim > 1:
        raise ValueError(f"offline: expected a sequence or one number, got an array of shape {reference.shape}")
    if reference.ndim == 1 and len(reference) != len(learner):
        raise ValueError(
            f"offline: expected one accuracy for each of the {len(learner)} events, got {len(reference)}"
        )
    wrong = np.flatnonzero(~((reference > 0) & (reference <= 1.0 + _check.SLACK)))
    if wrong.size:
        event = f"event {wrong[0]} (counted from 0)" if reference.ndim else "every event (one number)"
        raise ValueError(f"offline: expected accuracies in (0, 1], got {reference.flat[wrong[0]]} for {event}")
    return float(np.mean(learner / np.minimum(reference, 1.0)))


@dataclass(frozen=True)
class Summary:
    """Mean, sample standard deviation and number of the runs behind a reported value.

    Attributes
    ----------
    mean : float
    sd : float or None
        With n − 1 in the denominator; None for a single run, which says nothing about spread.
    n : int

    Examples
    --------
    >>> print(summary([0.5, 0.75, 1.0]))
    0.750 ± 0.250 (n=3)
    """

    mean: float
    sd: float | None
    n: int

    def __post_init__(self) -> None:
        _check.real(self.mean, "mean")
        _check.whole(self.n, "n", 1)
        if (self.sd is None) != (self.n == 1):
            raise ValueError(f"sd: expected None exactly when n is 1, got sd={self.sd} with n={self.n}")
        if self.sd is not None and _check.real(self.sd, "sd") < 0:
            raise ValueError(f"sd: expected a number >= 0, got {self.sd}")

    def __format__(self, spec: str) -> str:
        """Format mean and sd alike, ``f"{summary:.1f}"``; the number of runs always shows."""
        spec = spec or ".3f"
        spread = "" if self.sd is None else f" ± {self.sd:{spec}}"
        return f"{self.mean:{spec}}{spread} (n={self.n})"

    def __str__(self) -> str:
        return format(self, "")


def summary(values: Sequence[float]) -> Summary:
    """Return mean, sample standard deviation and number of `values`, which may have any unit.

    Examples
    --------
    >>> summary([1.0, 3.0])
    Summary(mean=2.0, sd=1.4142135623730951, n=2)
    """
    array = _check.numbers(values, "values")
    if array.ndim != 1 or array.size == 0:
        raise ValueError(f"values: expected at least one number in a row, got an array of shape {array.shape}")
    wrong = np.flatnonzero(~np.isfinite(array))
    if wrong.size:
        raise ValueError(f"values: expected finite numbers, got {array[wrong[0]]} at [{wrong[0]}]")
    n = len(array)
    return Summary(float(array.mean()), float(array.std(ddof=1)) if n > 1 else None, n)
