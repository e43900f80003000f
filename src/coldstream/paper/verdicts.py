"""Whether numbers confirm what the paper says: differences between paired seeds, and twice their standard error."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from coldstream import metrics
from coldstream.paper.catalog import Claim, Comparison

CONFIRMED, CONTRADICTED, UNDECIDED, MISSING = "confirmed", "contradicted", "undecided at this scale", "not run"

Values = Mapping[tuple[str, str, str], Mapping[int, float]]
"""(part, learner, metric) -> seed -> number."""


@dataclass(frozen=True)
class Judgement:
    """What a comparison came to.

    Attributes
    ----------
    gain
        Mean over paired seeds of how much the one is ahead, less the margin.
    error
        Its standard error; None for a single pair, which decides nothing.
    """

    comparison: Comparison
    gain: float | None
    error: float | None
    pairs: int

    @property
    def verdict(self) -> str:
        if self.gain is None:
            return MISSING
        if self.error is None or abs(self.gain) <= 2 * self.error:
            return UNDECIDED
        return CONFIRMED if self.gain > 0 else CONTRADICTED


def judge(comparison: Comparison, values: Values) -> Judgement:
    """Compare two learners on the seeds that both ran with.

    Examples
    --------
    >>> values = {("", "a", "x"): {0: 0.5, 1: 0.6, 2: 0.7}, ("", "b", "x"): {0: 0.4, 1: 0.52, 2: 0.57}}
    >>> found = judge(Comparison(("", "a"), ("", "b"), "x"), values)
    >>> round(found.gain, 3), round(found.error, 4), found.verdict
    (0.103, 0.0145, 'confirmed')
    """
    one = values.get((*comparison.better, comparison.metric), {})
    other = values.get((*comparison.worse, comparison.metric), {})
    seeds = sorted(one.keys() & other.keys())
    if not seeds:
        return Judgement(comparison, None, None, 0)
    gains = [comparison.sign * (comparison.share * one[seed] - other[seed]) - comparison.margin for seed in seeds]
    found = metrics.summary(gains)
    error = None if found.sd is None else found.sd / math.sqrt(found.n)
    return Judgement(comparison, found.mean, error, found.n)


def verdict(claim: Claim, values: Values) -> tuple[str, list[Judgement]]:
    """Return what all comparisons of a claim come to: contradicted if one is, confirmed if all are."""
    found = [judge(comparison, values) for comparison in claim.comparisons]
    kinds = {one.verdict for one in found}
    for kind in (CONTRADICTED, MISSING, UNDECIDED):
        if kind in kinds:
            return kind, found
    return CONFIRMED, found
