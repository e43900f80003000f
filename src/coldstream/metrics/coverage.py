"""Answer only when sure: accuracy against the share of images answered, by threshold on the confidence."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike

from coldstream.metrics import _check


@dataclass(frozen=True)
class CoverageCurve:
    """How many images are accepted (confidence >= threshold), and how many of these are right.

    Attributes
    ----------
    thresholds : tuple of float
        The distinct confidences, ascending; images of equal confidence are accepted together.
    accepted, correct : tuple of int
        Images accepted at each threshold, and those among them that are right. The first threshold
        accepts all images.

    Examples
    --------
    >>> curve = coverage_curve([0.9, 0.6, 0.6, 0.2], [True, True, False, False])
    >>> curve.thresholds, curve.coverage, curve.accuracy
    ((0.2, 0.6, 0.9), (1.0, 0.75, 0.25), (0.5, 0.6666666666666666, 1.0))
    """

    thresholds: tuple[float, ...]
    accepted: tuple[int, ...]
    correct: tuple[int, ...]

    def __post_init__(self) -> None:
        if not len(self.thresholds) == len(self.accepted) == len(self.correct) > 0:
            raise ValueError(
                "expected as many thresholds as numbers accepted and correct, at least one; got "
                f"{len(self.thresholds)}, {len(self.accepted)} and {len(self.correct)}"
            )
        for index, threshold in enumerate(self.thresholds):
            _check.fraction(threshold, f"thresholds[{index}]")
            _check.whole(self.accepted[index], f"accepted[{index}]", 1)
            _check.whole(self.correct[index], f"correct[{index}]", 0, self.accepted[index])
        if not all(low < high for low, high in pairwise(self.thresholds)):
            raise ValueError("thresholds: expected each above the one before, got others")
        for (more, fewer), (more_right, fewer_right) in zip(
            pairwise(self.accepted), pairwise(self.correct), strict=True
        ):
            if not 0 <= more_right - fewer_right <= more - fewer != 0:
                raise ValueError(
                    "expected every threshold to drop some images, and of these the right ones; got "
                    f"{more} -> {fewer} accepted with {more_right} -> {fewer_right} correct"
                )

    @property
    def coverage(self) -> tuple[float, ...]:
        """Share of all images accepted at each threshold."""
        return tuple(n / self.accepted[0] for n in self.accepted)

    @property
    def accuracy(self) -> tuple[float, ...]:
        """Share of the accepted images that is right at each threshold."""
        return tuple(right / n for right, n in zip(self.correct, self.accepted, strict=True))


def coverage_curve(confidence: ArrayLike, correct: ArrayLike) -> CoverageCurve:
    """Return the curve over all thresholds that change anything.

    Parameters
    ----------
    confidence : array of N numbers in [0, 1]
    correct : array of N booleans

    Examples
    --------
    >>> coverage_curve([0.5, 0.5], [True, False]).accuracy
    (0.5,)
    """
    sure = _check.fractions(confidence, "confidence").astype(np.float64)
    right = _check.flags(correct, "correct")
    _check.same_length(sure, "confidence", right, "correct")
    order = np.argsort(sure)
    thresholds, first = np.unique(sure[order], return_index=True)
    right_from = np.cumsum(right[order][::-1])[::-1]
    return CoverageCurve(
        tuple(thresholds.tolist()), tuple((len(sure) - first).tolist()), tuple(right_from[first].tolist())
    )
