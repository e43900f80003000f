"""The one verdict: what an interval says about a claim."""

import pytest

from coldstream.metrics import Interval, paired_interval
from coldstream.report.verdicts import Outcome, Verdict, all_of, corrected, is_above, is_below


@pytest.mark.parametrize(
    ("one", "other", "limit", "outcome"),
    [
        # Two pairs: the quantile of t with one degree of freedom is 12.7, so that half = 12.7 * sd / √2.
        ([1.9, 2.1], [0, 0], 0, "confirmed"),
        ([1.5, 3], [0, 0], 0, "not decided"),  # beyond two standard errors, within the interval
        ([-1.9, -2.1], [0, 0], 0, "refuted"),
        ([1.9, 2.1], [0, 0], 2.5, "not decided"),
        ([1.9, 2.1], [0, 0], 4, "refuted"),
        ([1.9, 2.1], [0, 0], -1, "confirmed"),
        ([5, 50, 500], [4, 49, 499], 0, "confirmed"),  # seeds differ much, pairs do not
        ([1, 1], [1, 1], 0, "not decided"),
        ([9], [0], 0, "not decided"),
    ],
)
def test_above(one, other, limit, outcome):
    interval = paired_interval(one, other)
    verdict = is_above(interval, limit)
    assert verdict.outcome == outcome
    assert verdict.interval.mean == pytest.approx(interval.mean - limit)
    opposite = {"confirmed": "refuted", "refuted": "confirmed"}.get(outcome, outcome)
    assert is_below(interval, limit).outcome == opposite


def test_how_it_reads():
    assert str(is_above(None)) == "not run"
    assert str(is_above(Interval(9, None, 1))) == "one seed: not decided"
    assert str(is_above(Interval(1, 2, 3))) == "not decided (some 5 seeds would)"
    assert str(is_above(Interval(0.001, 2, 3))) == "not decided (1000 seeds or more)"
    assert str(is_above(Interval(0, 2, 3))) == "not decided"


def test_several_comparisons_are_corrected_for_their_number():
    sure, likely = Interval(1, 0.1, 5), Interval(1, 0.9, 5)  # p of 1e-5 and 0.035
    assert [one.outcome for one in corrected([is_above(likely)])] == ["confirmed"]
    assert [one.outcome for one in corrected([is_above(likely)] * 2)] == ["not decided"] * 2
    assert [one.outcome for one in corrected([is_above(sure), is_above(likely)])] == ["confirmed"] * 2
    three = [is_above(None), is_above(likely), is_below(sure)]
    assert [one.outcome for one in corrected(three)] == ["not run", "confirmed", "refuted"]
    assert str(corrected([is_above(likely)] * 2)[0]) == "not decided"


YES, NO, PERHAPS, NONE = (
    Verdict(Outcome.CONFIRMED, Interval(2, 1, 3)),
    Verdict(Outcome.REFUTED, Interval(-2, 1, 3)),
    Verdict(Outcome.NOT_DECIDED, Interval(-3, 9, 3)),
    Verdict(Outcome.NOT_RUN),
)


@pytest.mark.parametrize(
    ("verdicts", "whole"),
    [
        ([YES, YES], YES),
        ([YES, PERHAPS], PERHAPS),
        ([YES, NO], NO),
        ([PERHAPS, NO, YES], NO),
        ([YES, NONE], NONE),
        ([NO, NONE, PERHAPS], NO),
        ([NONE, PERHAPS], NONE),
    ],
)
def test_several_claims_at_once(verdicts, whole):
    assert all_of(verdicts) is whole


def test_of_those_that_decide_the_lowest_is_shown():
    worse = Verdict(Outcome.REFUTED, Interval(-5, 4, 3))
    assert all_of([NO, worse, PERHAPS, YES]) is worse
