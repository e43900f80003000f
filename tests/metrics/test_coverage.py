"""Accuracy against coverage, by threshold."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldstream.metrics import CoverageCurve, coverage_curve

levels = st.sampled_from([0.0, 0.1, 0.25, 0.5, 0.9, 1.0])
images = st.lists(st.tuples(levels, st.booleans()), min_size=1, max_size=25)


def test_by_hand():
    curve = coverage_curve([0.9, 0.3, 0.6, 0.8], [True, False, True, False])
    assert curve.thresholds == (0.3, 0.6, 0.8, 0.9)
    assert curve.coverage == (1.0, 0.75, 0.5, 0.25)
    assert curve.accuracy == (0.5, 2 / 3, 0.5, 1.0)


def test_equal_confidences_are_accepted_together():
    # The right one of the two at 0.9 cannot be accepted without the wrong one.
    curve = coverage_curve([0.9, 0.9, 0.1], [True, False, False])
    assert curve.accepted == (3, 2)


@given(images)
def test_the_curve_equals_filtering_the_images(pairs):
    confidence, correct = zip(*pairs, strict=True)
    curve = coverage_curve(confidence, correct)
    assert curve.thresholds == tuple(sorted(set(confidence)))
    for t, coverage, accuracy in zip(curve.thresholds, curve.coverage, curve.accuracy, strict=True):
        kept = [right for c, right in pairs if c >= t]
        assert coverage == pytest.approx(len(kept) / len(pairs))
        assert accuracy == pytest.approx(sum(kept) / len(kept))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: coverage_curve([], []), "confidence: expected at least one value"),
        (lambda: coverage_curve([1.5], [True]), r"confidence: expected numbers in \[0, 1\], got 1.5 at \[0\]"),
        (lambda: coverage_curve([float("nan")], [True]), r"got nan at \[0\]"),
        (lambda: coverage_curve([0.5], [3]), "correct: expected True/False or 1/0, got 3"),
        (lambda: coverage_curve([0.5], [True, True]), "got 2 for 1"),
        (lambda: CoverageCurve((), (), ()), "at least one; got 0, 0 and 0"),
        (lambda: CoverageCurve((0.5,), (1, 2), (1,)), "got 1, 2 and 1"),
        (lambda: CoverageCurve((0.5, 0.4), (2, 1), (1, 1)), "thresholds: expected each above"),
        (lambda: CoverageCurve((0.5,), (0,), (0,)), r"accepted\[0\]: expected an integer >= 1, got 0"),
        (lambda: CoverageCurve((0.5,), (1,), (2,)), r"correct\[0\]: expected an integer from 0 to 1, got 2"),
        (lambda: CoverageCurve((0.4, 0.5), (2, 2), (1, 1)), "2 -> 2 accepted"),
        (lambda: CoverageCurve((0.4, 0.5), (3, 2), (2, 0)), "2 -> 0 correct"),
        (lambda: CoverageCurve((0.4, 0.5), (3, 2), (1, 2)), "1 -> 2 correct"),
    ],
)
def test_refusals_say_what_was_expected(call, message):
    with pytest.raises(ValueError, match=message):
        call()
