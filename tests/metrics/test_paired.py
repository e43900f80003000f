"""Paired comparisons against scipy, by hand, and by how often their intervals cover the truth."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from coldstream.metrics import Interval, holm, paired_by_seed, paired_interval

numbers = st.floats(-10, 10).map(lambda value: round(value, 3))


@given(st.lists(st.tuples(numbers, numbers), min_size=2, max_size=12))
def test_the_interval_is_scipys(pairs):
    one, other = zip(*pairs, strict=True)
    interval = paired_interval(one, other)
    differences = np.subtract(one, other)
    assert interval.mean == pytest.approx(differences.mean(), abs=1e-12)
    if differences.std() < 1e-9:  # scipy has no interval without spread
        assert interval.half == pytest.approx(0, abs=1e-7)
        return
    wanted = stats.ttest_rel(one, other).confidence_interval(0.95)
    assert (interval.low, interval.high) == pytest.approx((wanted.low, wanted.high), rel=1e-9, abs=1e-9)


@given(st.lists(st.tuples(numbers, numbers), min_size=2, max_size=12))
def test_the_p_value_is_scipys(pairs):
    one, other = zip(*pairs, strict=True)
    if np.subtract(one, other).std() < 1e-9:
        return
    assert paired_interval(one, other).p == pytest.approx(stats.ttest_rel(one, other).pvalue, rel=1e-6, abs=1e-12)


@given(st.lists(st.tuples(numbers, numbers), min_size=2, max_size=12))
def test_p_and_interval_agree(pairs):
    interval = paired_interval(*zip(*pairs, strict=True))
    assert interval.excludes(0) == (interval.p < 0.05)


@pytest.mark.parametrize(("mean", "sd"), [(1, 1), (0.5, 1), (0.1, 1), (2, 1), (-0.3, 1), (50, 1)])
def test_pairs_needed(mean, sd):
    """The smallest n at which the interval excludes 0, found by trying each n."""
    known = paired_interval([mean - sd, mean, mean + sd], [0, 0, 0])
    tried = (n for n in range(2, 1000) if stats.t.ppf(0.975, n - 1) * sd / math.sqrt(n) < abs(mean))
    assert known.pairs_needed() == next(tried)


def test_pairs_needed_where_nothing_can_be_told():
    assert paired_interval([1], [0]).pairs_needed() is None
    assert paired_interval([1, -1], [0, 0]).pairs_needed() is None
    assert paired_interval([100, -99.99], [0, 0]).pairs_needed() == 1000


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_holm_decides_as_by_its_definition(p_values):
    """Step down: the smallest against α / k, the next against α / (k - 1), until one is not below."""
    corrected = holm(p_values)
    order, rejected = sorted(range(len(p_values)), key=p_values.__getitem__), set()
    for rank, place in enumerate(order):
        if p_values[place] * (len(p_values) - rank) >= 0.05:
            break
        rejected.add(place)
    assert {place for place, p in enumerate(corrected) if p < 0.05} == rejected
    assert all(new >= old for new, old in zip(corrected, p_values, strict=True))


def test_holm_of_nothing():
    assert holm([]) == []


def test_by_hand():
    """Differences 1, 2 and 3: mean 2, standard error 1 / √3, and the quantile of t with two degrees of freedom."""
    interval = paired_interval([2, 4, 6], [1, 2, 3])
    assert (interval.mean, interval.n) == (2, 3)
    assert interval.half == pytest.approx(4.302652729749464 / math.sqrt(3))
    assert interval.excludes(-0.5)
    assert not interval.excludes(0)  # 2 - 2.48 < 0: two standard errors would have excluded it
    assert interval.excludes(4.5)


def test_one_pair_has_no_interval():
    interval = paired_interval([0.9], [0.1])
    assert interval == Interval(0.8, None, 1)
    assert (interval.low, interval.high) == (-math.inf, math.inf)
    assert not interval.excludes(0)
    assert f"{interval:.1f}" == "+0.8"


def test_equal_pairs_exclude_nothing_but_others():
    interval = paired_interval([0.5, 0.5], [0.5, 0.5])
    assert not interval.excludes(0)
    assert interval.excludes(1e-9)


@pytest.mark.parametrize("n", [2, 3, 10])
def test_coverage(n):
    """Of 20,000 intervals, 95% hold the true difference; a spread that pairs share does not widen them."""
    draws = np.random.default_rng(n)
    shared = draws.normal(0, 50, (20_000, n))
    one, other = shared + draws.normal(0.3, 1, shared.shape), shared + draws.normal(0, 1, shared.shape)
    covered = [not paired_interval(a, b).excludes(0.3) for a, b in zip(one, other, strict=True)]
    assert np.mean(covered) == pytest.approx(0.95, abs=0.005)  # three standard errors of 20,000 draws


def test_seeds_are_paired_by_their_number():
    one, other = {2: 0.9, 0: 0.5, 1: 0.6}, {0: 0.4, 2: 0.6, 7: 0.0}
    assert paired_by_seed(one, other) == paired_interval([0.5, 0.9], [0.4, 0.6])
    assert paired_by_seed(one, {7: 1.0}) is None


def test_other_units():
    assert f"{Interval(-0.0213, 0.0101, 3).scaled(100):.1f}" == "-2.1 ± 1.0"
    assert Interval(1, None, 1).scaled(-2) == Interval(-2, None, 1)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: paired_interval([1, 2], [1]), "got 1 for 2"),
        (lambda: paired_interval([], []), "at least one number"),
        (lambda: paired_interval([1, math.nan], [1, 2]), "finite"),
        (lambda: paired_interval(["a"], [1]), "one: expected an array of numbers"),
    ],
)
def test_refusals(call, message):
    with pytest.raises(ValueError, match=message):
        call()
