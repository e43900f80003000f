"""Verdicts on what the paper says, from numbers by seed."""

from __future__ import annotations

from coldstream.metrics import paired_by_seed
from coldstream.paper.catalog import Claim, Comparison
from coldstream.report.kept import Values
from coldstream.report.verdicts import Outcome, Verdict, all_of, corrected, is_above


def judge(comparison: Comparison, values: Values) -> Verdict:
    """Compare two learners on the seeds that both ran with.

    Examples
    --------
    >>> values = {("", "a", "x"): {0: 0.5, 1: 0.6, 2: 0.7}, ("", "b", "x"): {0: 0.4, 1: 0.52, 2: 0.57}}
    >>> verdict = judge(Comparison(("", "a"), ("", "b"), "x"), values)
    >>> print(verdict, verdict.interval)
    confirmed +0.103 ± 0.063
    """
    better, worse = (
        values.get((*learner, comparison.metric), {}) for learner in (comparison.better, comparison.worse)
    )
    shares = {seed: comparison.share * number for seed, number in better.items()}
    interval = paired_by_seed(shares, worse)
    return is_above(interval and interval.scaled(comparison.sign))


def judge_claim(claim: Claim, values: Values) -> tuple[Verdict, list[Verdict]]:
    """Return the verdict on a claim and those on its comparisons: refuted if one is, confirmed if all are.

    Those on comparisons are corrected for their number. A claim without any was not run.
    """
    if not claim.comparisons:
        return Verdict(Outcome.NOT_RUN), []
    verdicts = corrected([judge(comparison, values) for comparison in claim.comparisons])
    return all_of(verdicts), verdicts
