"""Does a model know how often it is right: reliability diagram, ECE, and ECE without chance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from coldstream.metrics import _check


@dataclass(frozen=True)
class Reliability:
    """A reliability diagram: equal-width bins of confidence [lo, hi), the last one closed.

    Attributes
    ----------
    count : tuple of int
        Images in each bin.
    confidence, accuracy : tuple of (float or None)
        Their mean confidence and the share of them that is right; None in an empty bin.

    Examples
    --------
    >>> diagram = reliability([0.3, 0.9, 0.7], [False, True, False], bins=2)
    >>> diagram.count, diagram.confidence, diagram.accuracy
    ((1, 2), (0.3, 0.8), (0.0, 0.5))
    """

    count: tuple[int, ...]
    confidence: tuple[float | None, ...]
    accuracy: tuple[float | None, ...]

    def __post_init__(self) -> None:
        if not len(self.count) == len(self.confidence) == len(self.accuracy):
            raise ValueError(
                f"expected as many counts as confidences and accuracies, got {len(self.count)}, "
                f"{len(self.confidence)} and {len(self.accuracy)}"
            )
        for index, count in enumerate(self.count):
            _check.whole(count, f"count[{index}]", 0)
            for name, values in (("confidence", self.confidence), ("accuracy", self.accuracy)):
                if (values[index] is None) != (count == 0):
                    raise ValueError(
                        f"{name}[{index}]: expected None exactly where a bin is empty, got "
                        f"{values[index]} in a bin of {count}"
                    )
                if count:
                    _check.fraction(values[index], f"{name}[{index}]")
        if not self.images:
            raise ValueError(f"count: expected at least one image in {len(self.count)} bins, got none")

    @property
    def images(self) -> int:
        """Number of images behind the diagram; report it beside the ECE."""
        return sum(self.count)

    @property
    def edges(self) -> tuple[float, ...]:
        """Bounds of the bins, one more than there are bins."""
        return tuple(_edges(len(self.count)).tolist())

    @property
    def ece(self) -> float:
        """Expected calibration error: |accuracy − confidence| averaged over the images."""
        gaps = zip(self.count, self.confidence, self.accuracy, strict=True)
        return sum(n * abs(a - c) for n, c, a in gaps if a is not None and c is not None) / self.images


def reliability(confidence: ArrayLike, correct: ArrayLike, bins: int = 15) -> Reliability:
    """Bin the images by confidence.

    Parameters
    ----------
    confidence : array of N numbers in [0, 1]
        Probability of the predicted class.
    correct : array of N booleans
        Whether the prediction is right.
    bins : int
        Number of bins; 15 in the paper and in [1]_.

    Notes
    -----
    A confidence of exactly k/`bins`, as NumPy divides it in float64, opens bin k. A float32 confidence is
    compared as the number it is, which may lie just below the edge it was rounded from.

    References
    ----------
    .. [1] Guo, Pleiss, Sun, Weinberger, "On calibration of modern neural networks", ICML 2017.

    Examples
    --------
    >>> reliability([0.25, 0.75], [True, True], bins=2).ece
    0.5
    """
    sure = _check.fractions(confidence, "confidence").astype(np.float64)
    right = _check.flags(correct, "correct")
    _check.same_length(sure, "confidence", right, "correct")
    bins = _check.whole(bins, "bins", 1)
    where = _bin(sure, bins)
    count = np.bincount(where, minlength=bins).tolist()
    totals = (np.bincount(where, weights=values, minlength=bins).tolist() for values in (sure, right))
    means = (tuple(t / n if n else None for t, n in zip(total, count, strict=True)) for total in totals)
    return Reliability(tuple(count), *means)


def expected_ece(confidence: ArrayLike, bins: int = 15) -> float:
    """Return the mean ECE of a perfectly calibrated model with these confidences.

    Such a model is right on image i with probability p_i, independently; in a bin, the number S of right
    answers has a Poisson-binomial distribution, and the bin adds E|S − Σp_i| / N. The distribution is
    computed exactly (a tree of convolutions, O(n log² n)): no simulation, no seed, no noise.

    Examples
    --------
    >>> expected_ece([0.5, 0.5], bins=2)
    0.25
    """
    sure = _check.fractions(confidence, "confidence").astype(np.float64)
    bins = _check.whole(bins, "bins", 1)
    where = _bin(sure, bins)
    return sum(_mean_deviation(sure[where == b]) for b in np.unique(where)) / len(sure)


def debiased_ece(confidence: ArrayLike, correct: ArrayLike, bins: int = 15) -> float:
    """Return the ECE minus `expected_ece`, and not below 0.

    On few images even a perfect model shows ECE > 0, by up to √(bins/N)/2. What is left here is the part that
    chance does not explain. Where a bin is truly off, chance adds less than it does around zero, so that
    the value is then somewhat too small: read it as cautious, and beside the raw ECE, not instead of it.

    Parameters
    ----------
    confidence, correct, bins
        As in `reliability`.

    Examples
    --------
    >>> debiased_ece([0.5, 0.5], [True, False]), debiased_ece([0.5, 0.5], [True, True])
    (0.0, 0.25)
    """
    return max(0.0, reliability(confidence, correct, bins).ece - expected_ece(confidence, bins))


def average_ece(values: Sequence[float]) -> float:
    """Return the uniform average over test events of their ECE, raw or debiased.

    Examples
    --------
    >>> average_ece([0.25, 0.75])
    0.5
    """
    return float(_check.fractions(values, "values").mean(dtype=np.float64))


def _edges(bins: int) -> NDArray[np.float64]:
    # Not linspace, which multiplies by a rounded step and so misses some k/bins by one ulp.
    return np.arange(bins + 1, dtype=np.float64) / bins


def _bin(confidence: NDArray[np.float64], bins: int) -> NDArray[np.intp]:
    return np.minimum(np.searchsorted(_edges(bins), confidence, side="right") - 1, bins - 1)


def _mean_deviation(p: NDArray[np.float64]) -> float:
    """Return E|S − Σp| for a sum S of independent Bernoulli(p_i)."""
    leaves = 1 << (len(p) - 1).bit_length()
    padded = np.pad(p, (0, leaves - len(p)))  # Bernoulli(0) leaves the sum as it is
    laws = np.stack([1.0 - padded, padded], axis=1)
    while len(laws) > 1:
        length = 2 * laws.shape[1]
        spectra = np.fft.rfft(laws, n=length, axis=1)
        laws = np.fft.irfft(spectra[0::2] * spectra[1::2], n=length, axis=1)[:, : length - 1]
    return float(laws[0] @ np.abs(np.arange(laws.shape[1]) - p.sum()))
