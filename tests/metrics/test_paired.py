"""Paired comparisons against scipy, by hand, and by how often their intervals cover the truth."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from coldstream.metrics import Interval, paired_by_seed, paired_interval

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
