"""Reliability, ECE and what chance adds to it."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldstream.metrics import (
    Reliability,
    average_ece,
    confidences,
    debiased_ece,
    expected_ece,
    hits,
    reliability,
)

# Ordinary numbers, and as many exactly on a bin edge.
levels = st.one_of(st.floats(0, 1), st.integers(0, 15).map(lambda k: k / 15))
images = st.lists(st.tuples(levels, st.booleans()), min_size=1, max_size=40)


def brute_ece(confidence, correct, bins):
    """Return the ECE by its definition: for each bin, look at every image."""
    total = 0.0
    for b in range(bins):
        lo, hi = b / bins, (b + 1) / bins
        inside = [i for i, c in enumerate(confidence) if lo <= c and (c < hi or (b == bins - 1 and c == hi))]
        if inside:
            a = sum(correct[i] for i in inside) / len(inside)
            c = sum(confidence[i] for i in inside) / len(inside)
            total += len(inside) / len(confidence) * abs(a - c)
    return total


def test_two_bins_by_hand():
    # [0, .5): 0.2 wrong, 0.4 right -> |0.5 - 0.3| = 0.2; [.5, 1]: 0.6 right, 0.8 wrong, 1.0 wrong
    # -> |1/3 - 0.8| = 7/15. ECE = 2/5 * 0.2 + 3/5 * 7/15 = 0.08 + 0.28
    got = reliability([0.2, 0.6, 0.4, 0.8, 1.0], [False, True, True, False, False], bins=2)
    assert got.count == (2, 3)
    assert got.confidence == pytest.approx((0.3, 0.8))
    assert got.accuracy == pytest.approx((0.5, 1 / 3))
    assert got.ece == pytest.approx(0.36)
    assert got.images == 5
    assert got.edges == (0.0, 0.5, 1.0)


@pytest.mark.parametrize("bins", [10, 15, 49])
def test_a_confidence_on_an_edge_opens_the_upper_bin(bins):
    for k in range(bins):
        assert reliability([k / bins], [True], bins).count.index(1) == k
        assert reliability([np.nextafter((k + 1) / bins, 0)], [True], bins).count.index(1) == k


def test_confidence_one_belongs_to_the_last_bin():
    got = reliability([1.0, 1.0], [True, False])
    assert got.count == (0,) * 14 + (2,)
    assert got.ece == 0.5


def test_empty_bins_hold_none_and_add_nothing():
    got = reliability([0.5], [True])
    assert got.count[7] == 1
    assert [i for i, c in enumerate(got.confidence) if c is not None] == [7]
    assert [i for i, a in enumerate(got.accuracy) if a is not None] == [7]
    assert got.ece == 0.5


@given(images, st.sampled_from([1, 2, 7, 15]))
def test_ece_equals_brute_force(pairs, bins):
    confidence, correct = zip(*pairs, strict=True)
    assert reliability(confidence, correct, bins).ece == pytest.approx(brute_ece(confidence, correct, bins))


@pytest.mark.parametrize("seed", range(3))
def test_ece_agrees_with_torchmetrics_away_from_edges(seed):
    # Here, since it takes far longer to import than all other tests of this folder take to run.
    import torch
    from torchmetrics.classification import MulticlassCalibrationError

    rng = np.random.default_rng(seed)
    table = rng.dirichlet(np.full(6, 0.3), size=500).astype(np.float32)
    top = table.max(axis=1) * 15
    table = table[np.abs(top - np.round(top)) > 1e-3]
    labels = rng.integers(6, size=len(table))
    theirs = MulticlassCalibrationError(num_classes=6, n_bins=15, norm="l1")
    expected = float(theirs(torch.from_numpy(table), torch.from_numpy(labels)))
    got = reliability(confidences(table), hits(table, labels)).ece
    assert got > 0.1
    assert got == pytest.approx(expected, abs=1e-5)


@given(st.lists(levels, min_size=1, max_size=7), st.sampled_from([1, 2, 15]))
def test_expected_ece_equals_the_sum_over_all_outcomes(confidence, bins):
    expected = 0.0
    for outcome in itertools.product([False, True], repeat=len(confidence)):
        odds = np.prod([p if right else 1 - p for p, right in zip(confidence, outcome, strict=True)])
        expected += odds * brute_ece(confidence, outcome, bins)
    assert expected_ece(confidence, bins) == pytest.approx(expected, abs=1e-12)


def test_expected_ece_of_many_images_equals_one_by_one_convolution():
    p = np.random.default_rng(0).uniform(0.94, 1.0, size=3001)
    law = np.ones(1)
    for q in p:
        law = np.convolve(law, [1 - q, q])
    expected = float(law @ np.abs(np.arange(len(law)) - p.sum())) / len(p)
    assert expected_ece(p) == pytest.approx(expected, rel=1e-9)


def test_a_certain_model_owes_nothing_to_chance():
    assert expected_ece([0.0, 1.0, 1.0]) == pytest.approx(0.0, abs=1e-15)


def test_debiased_by_hand():
    # One bin, four images at 1/2: E|S - 2| = (2*1 + 1*4 + 0*6 + 1*4 + 2*1) / 16 = 0.75, over 4 images.
    half = [0.5] * 4
    assert expected_ece(half) == pytest.approx(0.1875)
    assert debiased_ece(half, [True] * 4) == pytest.approx(0.5 - 0.1875)
    assert debiased_ece(half, [True, True, True, False]) == pytest.approx(0.25 - 0.1875)
    assert debiased_ece(half, [True, True, False, False]) == 0.0


def test_debiasing_a_calibrated_model_leaves_little():
    rng = np.random.default_rng(1)
    raw, debiased = [], []
    for _ in range(100):
        confidence = rng.uniform(0.1, 1.0, size=200)
        correct = rng.random(200) < confidence
        raw.append(reliability(confidence, correct).ece)
        debiased.append(debiased_ece(confidence, correct))
    assert np.mean(raw) > 0.06
    assert np.mean(debiased) < np.mean(raw) / 6
    # Without the floor at zero the correction is exact on average.
    assert np.mean(raw) == pytest.approx(expected_ece(rng.uniform(0.1, 1.0, size=200)), rel=0.1)


def test_debiasing_a_badly_calibrated_model_keeps_the_error():
    rng = np.random.default_rng(2)
    confidence = rng.uniform(0.8, 1.0, size=400)
    correct = rng.random(400) < confidence - 0.5
    raw, debiased = reliability(confidence, correct).ece, debiased_ece(confidence, correct)
    assert raw == pytest.approx(0.5, abs=0.06)
    assert 0.9 * raw < debiased < raw


@given(images)
def test_debiased_is_between_zero_and_raw(pairs):
    confidence, correct = zip(*pairs, strict=True)
    raw = reliability(confidence, correct).ece
    assert 0.0 <= debiased_ece(confidence, correct) <= raw + 1e-12


def test_average_ece_is_uniform_over_events():
    assert average_ece([0.1, 0.2, 0.6]) == pytest.approx(0.3)


@pytest.mark.parametrize("measure", [reliability, debiased_ece])
@pytest.mark.parametrize(
    ("confidence", "correct", "bins", "message"),
    [
        ([], [], 15, "confidence: expected at least one value"),
        ([[0.5]], [True], 15, r"confidence: expected 1 dimension.*\(1, 1\)"),
        ([0.5, np.nan], [True, True], 15, r"confidence: expected numbers in \[0, 1\], got nan at \[1\]"),
        ([1.01], [True], 15, r"got 1.01 at \[0\]"),
        ([-0.01], [True], 15, r"got -0.01 at \[0\]"),
        ([0.5], [2], 15, r"correct: expected True/False or 1/0, got 2 at \[0\]"),
        ([0.5], [np.nan], 15, r"correct: expected True/False or 1/0, got nan at \[0\]"),
        ([0.5], [], 15, "correct: expected at least one value"),
        ([0.5], [True, True], 15, "got 2 for 1"),
        ([0.5], [True], 0, "bins: expected an integer >= 1, got 0"),
        ([0.5], [True], 1.5, "bins: expected an integer >= 1, got 1.5"),
    ],
)
def test_refusals_say_what_was_expected(measure, confidence, correct, bins, message):
    with pytest.raises(ValueError, match=message):
        measure(confidence, correct, bins=bins)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: expected_ece([]), "confidence: expected at least one value"),
        (lambda: expected_ece([2.0]), r"got 2.0 at \[0\]"),
        (lambda: expected_ece([0.5], bins=0), "bins: expected an integer >= 1"),
        (lambda: average_ece([]), "values: expected at least one value"),
        (lambda: average_ece([0.1, np.nan]), r"got nan at \[1\]"),
        (lambda: Reliability((1,), (0.5, None), (0.5,)), "got 1, 2 and 1"),
        (lambda: Reliability((1,), (None,), (0.5,)), r"confidence\[0\]: expected None exactly where"),
        (lambda: Reliability((0, 1), (None, 0.5), (0.5, 0.5)), r"accuracy\[0\]: expected None exactly where"),
        (lambda: Reliability((1,), (0.5,), (1.5,)), r"accuracy\[0\]: expected a number in \[0, 1\], got 1.5"),
        (lambda: Reliability((-1,), (0.5,), (0.5,)), r"count\[0\]: expected an integer >= 0, got -1"),
        (lambda: Reliability((0,), (None,), (None,)), "expected at least one image in 1 bins"),
    ],
)
def test_records_and_averages_refuse_nonsense(call, message):
    with pytest.raises(ValueError, match=message):
        call()
