"""Ω over events and mean ± sd over runs."""

import math
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldstream.metrics import Summary, omega, summary

finite = st.floats(-1e6, 1e6)


def test_the_papers_two_events():
    # Section 3.1: half of the classes, then all; two offline models. (0.60/0.80 + 0.35/0.70) / 2
    assert omega([0.60, 0.35], [0.80, 0.70]) == pytest.approx(0.625)


def test_one_offline_number_divides_every_event():
    assert omega([0.60, 0.35], 0.70) == pytest.approx((0.60 / 0.70 + 0.35 / 0.70) / 2)
    assert omega([0.60, 0.35], 0.70) == omega([0.60, 0.35], [0.70, 0.70])


def test_a_learner_that_beats_offline_passes_one():
    assert omega([0.9], [0.6]) == pytest.approx(1.5)
    assert omega([0.0], [0.6]) == 0.0


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0.01, 1)), min_size=1, max_size=20))
def test_omega_equals_a_loop(events):
    accuracies, offline = zip(*events, strict=True)
    total = 0.0
    for a, o in events:
        total += a / o
    assert omega(accuracies, offline) == pytest.approx(total / len(events))


@pytest.mark.parametrize(
    ("accuracies", "offline", "message"),
    [
        ([], [], "accuracies: expected at least one value"),
        ([], 0.5, "accuracies: expected at least one value"),
        ([0.5, 0.5], [0.5], "offline: expected one accuracy for each of the 2 events, got 1"),
        ([0.5], [], "offline: expected one accuracy for each of the 1 events, got 0"),
        ([0.5, 0.5], [0.5, 0.0], r"got 0.0 for event 1 \(counted from 0\)"),
        ([0.5, 0.5], [math.nan, 0.5], "got nan for event 0"),
        ([0.5, 0.5, 0.5], [0.5, 0.5, math.inf], "got inf for event 2"),
        ([0.5, 0.5], [0.5, 78.61], "got 78.61 for event 1"),
        ([0.5, 0.5], [0.5, -0.5], "got -0.5 for event 1"),
        ([0.5, 0.5], 0.0, "got 0.0 for every event"),
        ([0.5], math.nan, "got nan for every event"),
        ([0.5], [[0.5]], r"offline: expected a sequence or one number.*\(1, 1\)"),
        ([0.5], "high", "offline: expected an array of numbers"),
        ([0.5, math.nan], 0.5, r"accuracies: expected numbers in \[0, 1\], got nan at \[1\]"),
        ([60.0], [0.5], r"accuracies: expected numbers in \[0, 1\], got 60.0 at \[0\]"),
    ],
)
def test_omega_says_which_event_is_wrong(accuracies, offline, message):
    with pytest.raises(ValueError, match=message):
        omega(accuracies, offline)


def test_summary_by_hand():
    got = summary([2.0, 4.0, 4.0, 6.0])
    assert (got.mean, got.n) == (4.0, 4)
    assert got.sd == pytest.approx(math.sqrt(8 / 3))


def test_one_run_has_no_spread():
    assert summary([0.5]) == Summary(0.5, None, 1)
    assert str(summary([0.5])) == "0.500 (n=1)"


def test_summary_prints_mean_spread_and_number_alike():
    got = Summary(0.8123, 0.0161, 5)
    assert str(got) == "0.812 ± 0.016 (n=5)"
    assert f"{got:.1f}" == "0.8 ± 0.0 (n=5)"


@given(st.lists(finite, min_size=2, max_size=20))
def test_summary_equals_the_standard_library(values):
    got = summary(values)
    assert got.mean == pytest.approx(statistics.fmean(values), abs=1e-6)
    assert got.sd == pytest.approx(statistics.stdev(values), abs=1e-6)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: summary([]), r"values: expected at least one number.*\(0,\)"),
        (lambda: summary(np.ones((2, 2))), r"values: expected at least one number in a row.*\(2, 2\)"),
        (lambda: summary([1.0, math.nan]), r"got nan at \[1\]"),
        (lambda: summary(["x"]), "values: expected an array of numbers"),
        (lambda: Summary(math.nan, None, 1), "mean: expected a finite number, got nan"),
        (lambda: Summary("x", None, 1), "mean: expected a finite number, got 'x'"),
        (lambda: Summary(0.5, 0.1, 1), "sd: expected None exactly when n is 1"),
        (lambda: Summary(0.5, None, 2), "sd: expected None exactly when n is 1"),
        (lambda: Summary(0.5, -0.1, 2), "sd: expected a number >= 0, got -0.1"),
        (lambda: Summary(0.5, None, 0), "n: expected an integer >= 1, got 0"),
    ],
)
def test_summary_refusals(call, message):
    with pytest.raises(ValueError, match=message):
        call()
