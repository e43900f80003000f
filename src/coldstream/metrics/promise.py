"""A promise of accuracy: which of the remaining images a learner may label by itself, told from audited labels.

An audited image was drawn uniformly from the unlabelled ones, and its guess was made before it was learned. The
promise is: *accept the guesses with a confidence from `threshold` on, and with probability `level` at least the share
`wanted` of them is right.* The threshold is chosen with the same labels, so one test is not enough. A fixed sequence
of tests chooses it:

1. Before any label is looked at, `ranks` fixes how many of the audited images, counted from the most confident one,
   each test takes. A test of m images is about the threshold just above the confidence of the next one. Given that
   confidence, the m images are independent draws from those above it.
2. Each test asks whether the m guesses would be this good, with a probability of at most 1 - `level`, if the accuracy
   of the accepted images were below `wanted`. Of an infinite population the number of right ones is binomial, and the
   test is the lower bound of Clopper and Pearson. Of `remaining` images it is hypergeometric: audited and remaining
   images above the threshold are a random split of all of them, and the test is about the remaining ones alone.
3. The tests go from the most confident images down and end with the first that fails. The last that passed gives the
   threshold. A promise can only be wrong if the first test that ought to fail passes. That is one test, so its
   probability is at most 1 - `level`, without a correction for the number of tests.

Step 3 takes it that accuracy does not rise as the threshold falls. Where it does, as for a learner that is wrong most
often where it is most confident, the guarantee is not proven; the simulations have such learners.

**What the guarantee is about.** It is exact for a learner that stays as it is. One that goes on learning made its
audited guesses at different times, each before its image was learned. The promise is then about the mixture of those
learners: it is kept as long as guesses of one confidence do not become less accurate from one audit to the next. Give
the latest audits only. Asking the learner as it is now about audited images is no alternative: it has learned their
labels, and is right too often. Images that leave the pool because they were doubtful make the remaining ones easier,
which keeps the promise. docs/teach-measurements.md has how often it was kept.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_FIRST = 4
"""The first test takes at least one in so many of the audited images, the most confident ones."""
_WRONG = 2
"""It takes so many that as many may be wrong, where these are at most half of the audited images."""
_GROWTH = 1.15
"""How many times as many the next one takes."""


def clopper_pearson(right: int, n: int, level: float = 0.95) -> tuple[float, float]:
    """Return the exact two-sided interval of a share, of which `right` of `n` were counted; (0, 1) of none.

    Examples
    --------
    >>> low, high = clopper_pearson(10, 10)
    >>> round(low, 4), high
    (0.6915, 1.0)
    """
    tail = (1 - _checked("level", level)) / 2
    return lower_bound(right, n, 1 - tail), 1 - lower_bound(n - right, n, 1 - tail)


def lower_bound(right: int, n: int, level: float = 0.95) -> float:
    """Return the one-sided exact lower bound of a share, of which `right` of `n` were counted."""
    from scipy.special import betaincinv

    if not 0 <= right <= n:
        raise ValueError(f"right is from 0 to n: {right} of {n}")
    return float(betaincinv(right, n - right + 1, 1 - _checked("level", level))) if right else 0.0


@dataclass(frozen=True)
class Promise:
    """The lowest confidence from which on guesses are accurate enough; or no threshold, and the reason.

    Attributes
    ----------
    threshold : float or None
        Guesses with this confidence or more are accepted.
    bound : float or None
        Lower bound of the accuracy of the audited images above the threshold, at the level asked for.
    n : int
        Audited images above the threshold; without one, all of them.
    reason : str
        Why there is no threshold; empty where there is one.
    """

    threshold: float | None
    bound: float | None
    n: int
    reason: str


def needed(wanted: float, level: float = 0.95) -> int:
    """Return the least number of audited images that can be enough, all of them right.

    Examples
    --------
    >>> needed(0.95), needed(0.9), needed(0.99)
    (59, 29, 299)
    """
    return max(1, math.ceil(math.log(1 - _checked("level", level)) / math.log(_checked("wanted", wanted)) - 1e-9))


def ranks(n: int, wanted: float, level: float = 0.95) -> list[int]:
    """Return how many of n audited images each test takes, the most confident first; nothing if n is too small."""
    least, sizes = needed(wanted, level), list[int]()
    if n < least:
        return []
    first = max(least, n // _FIRST)
    size = least
    for wrong in range(1, _WRONG + 1):
        while _p_value(size - wrong, size, wanted, None) > 1 - level:
            size += 1
        if size <= n // 2:
            first = max(first, size)
    while first < n:
        sizes.append(first)
        first = math.ceil(first * _GROWTH)
    return [*sizes, n]


def promise(
    confidences: Sequence[float] | NDArray[np.floating],
    right: Sequence[bool] | NDArray[np.bool_],
    wanted: float,
    level: float = 0.95,
    *,
    remaining: Sequence[float] | NDArray[np.floating] | None = None,
) -> Promise:
    """Return the lowest threshold of confidence that keeps the promised accuracy.

    Parameters
    ----------
    confidences
        Of the guesses of audited images, each made before its image was learned.
    right
        Whether each guess was right.
    wanted
        The accuracy to be kept, such as 0.95.
    level
        The least probability that it is kept.
    remaining
        Confidences of the guesses that may be accepted, for a promise about these images alone. None: about any
        number of images like them.

    Examples
    --------
    >>> confidences = np.linspace(0.5, 1, 200)
    >>> made = promise(confidences, confidences > 0.6, 0.95)
    >>> made.n, round(made.threshold, 3), round(made.bound, 3)
    (143, 0.641, 0.979)
    >>> promise([0.9] * 20, [True] * 20, 0.95).reason
    'not enough audited labels yet: 20 of at least 59'
    """
    sure, good = np.asarray(confidences, np.float64), np.asarray(right, bool)
    if sure.ndim != 1 or sure.shape != good.shape or not np.isfinite(sure).all():
        raise ValueError(f"one finite confidence for each audited guess: {sure.shape} and {good.shape}")
    left = None if remaining is None else np.asarray(remaining, np.float64)
    order = np.argsort(-sure, kind="stable")
    sure, good = sure[order], good[order]
    n, least = len(sure), needed(wanted, level)
    if n < least:
        return Promise(None, None, n, f"not enough audited labels yet: {n} of at least {least}")
    best: Promise | None = None
    for size in ranks(n, wanted, level):
        # Strictly above the next image: of equal confidences all are taken, or none.
        threshold = 0.0 if size == n else float(np.nextafter(sure[size], np.inf))
        taken = n if size == n else int(np.searchsorted(-sure, -sure[size], side="left"))
        if taken < least:
            continue
        count = None if left is None else int((left >= threshold).sum())
        if _p_value(int(good[:taken].sum()), taken, wanted, count) > 1 - level:
            break
        best = Promise(threshold, lower_bound(int(good[:taken].sum()), taken, level), taken, "")
    return best or Promise(None, None, n, f"the most confident guesses are not known to be {wanted:.0%} right")


def _p_value(right: int, n: int, wanted: float, remaining: int | None) -> float:
    """Return the greatest probability of so many right ones of n, if the accepted images were not accurate enough."""
    from scipy.special import bdtrc
    from scipy.stats import hypergeom

    if remaining is None:
        return float(bdtrc(right - 1, n, wanted)) if right else 1.0
    enough = math.ceil(wanted * remaining - 1e-9)
    if not enough:  # nothing to accept
        return 0.0
    return float(hypergeom.sf(right - 1, n + remaining, right + enough - 1, n))


def _checked(name: str, value: float) -> float:
    if not 0 < value < 1:
        raise ValueError(f"{name} is a number above 0 and below 1, not {value!r}")
    return value
