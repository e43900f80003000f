"""Forgetting, backward and forward transfer."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldstream.metrics import backward_transfer, forgetting, forward_transfer

NAN = float("nan")
# Task 0 falls from 0.9 (its best, at event 1) to 0.5; task 1 rises from 0.7 to 0.8.
R = [[0.8, 0.3, 0.1], [0.9, 0.7, 0.2], [0.5, 0.8, 0.6]]


@st.composite
def matrices(draw):
    events, tasks = draw(st.integers(2, 5)), draw(st.integers(2, 6))
    row = st.lists(st.floats(0, 1), min_size=tasks, max_size=tasks)
    learned = draw(st.lists(st.integers(0, events - 1), min_size=tasks, max_size=tasks))
    # One task at each end, so that all three measures are defined.
    learned[:2] = [0, events - 1]
    return draw(st.lists(row, min_size=events, max_size=events)), learned, draw(row)


def test_by_hand():
    # Forgetting looks back to the best, 0.9 and 0.8; backward transfer to the diagonal, 0.8 and 0.7.
    assert forgetting(R) == pytest.approx(((0.9 - 0.5) + (0.8 - 0.8)) / 2)
    assert backward_transfer(R) == pytest.approx(((0.5 - 0.8) + (0.8 - 0.7)) / 2)
    assert forward_transfer(R, baseline=[0.5, 0.1, 0.1]) == pytest.approx(((0.3 - 0.1) + (0.2 - 0.1)) / 2)


def test_classes_learned_together():
    table = [[0.6, 0.8, 0.0], [0.4, 0.9, 0.7]]
    learned = [0, 0, 1]
    assert forgetting(table, learned) == pytest.approx((0.2 + 0.0) / 2)
    assert backward_transfer(table, learned) == pytest.approx((-0.2 + 0.1) / 2)
    assert forward_transfer(table, [0.3, 0.3, 0.3], learned) == pytest.approx(-0.3)


@given(matrices())
def test_equal_loops_over_the_definitions(case):
    table, learned, baseline = case
    last = len(table) - 1
    fell, changed, led = [], [], []
    for j, event in enumerate(learned):
        if event < last:
            fell.append(max(table[t][j] for t in range(last + 1)) - table[last][j])
            changed.append(table[last][j] - table[event][j])
        if event > 0:
            led.append(table[event - 1][j] - baseline[j])
    assert forgetting(table, learned) == pytest.approx(sum(fell) / len(fell), abs=1e-12)
    assert backward_transfer(table, learned) == pytest.approx(sum(changed) / len(changed), abs=1e-12)
    assert forward_transfer(table, baseline, learned) == pytest.approx(sum(led) / len(led), abs=1e-12)


@given(st.integers(2, 5).flatmap(lambda n: st.lists(st.lists(st.floats(0, 1), min_size=n, max_size=n),
                                                    min_size=n, max_size=n)))  # fmt: skip
def test_square_default_learns_task_j_at_event_j(table):
    order = range(len(table))
    assert forgetting(table) == forgetting(table, order)
    assert backward_transfer(table) == backward_transfer(table, order)
    assert forgetting(table) >= -backward_transfer(table) - 1e-12, "the best is no worse than the diagonal"


def test_what_rises_is_not_forgotten_and_hides_nothing_that_is():
    assert forgetting([[0.5, 0.0], [0.9, 0.5]]) == 0
    assert forgetting([[0.5, 0.9, 0.0], [0.9, 0.5, 0.5]], [0, 0, 1]) == pytest.approx(0.2)


@given(matrices())
def test_forgetting_is_never_negative(case):
    table, learned, _ = case
    assert forgetting(table, learned) >= 0


def test_a_task_need_not_be_measured_before_it_is_learned():
    table = np.array(R)
    table[np.triu_indices(3, k=1)] = np.nan
    assert forgetting(table) == pytest.approx(0.2)
    assert backward_transfer(table) == pytest.approx(-0.1)
    with pytest.raises(ValueError, match="expected task 1 measured at event 0, got NaN"):
        forward_transfer(table, [0.1, 0.1, 0.1])


@pytest.mark.parametrize("measure", [forgetting, backward_transfer, lambda m, e=None: forward_transfer(m, [0.1], e)])
@pytest.mark.parametrize(
    ("matrix", "learned", "message"),
    [
        ([], None, r"matrix: expected events x tasks, got an array of shape \(0,\)"),
        ([0.5, 0.5], None, r"matrix: expected events x tasks.*\(2,\)"),
        ([[0.5, 0.5]], None, r"as many events as tasks without `learned`, got \(1, 2\)"),
        ([["x"]], None, "matrix: expected an array of numbers"),
        ([[0.5], [1.5]], [0], r"matrix: expected numbers in \[0, 1\], got 1.5 at \[1, 0\]"),
        ([[0.5], [NAN]], [0], r"matrix: expected numbers in \[0, 1\], got nan at \[1, 0\]"),
        ([[0.5], [0.5]], [2], r"learned: expected events from 0 to 1, got 2 at \[0\]"),
        ([[0.5], [0.5]], [0, 1], "learned: expected one event for each of 1 tasks, got 2"),
        ([[0.5]], None, "matrix: expected a task learned .* event, got none"),
    ],
)
def test_refusals_say_what_was_expected(measure, matrix, learned, message):
    with pytest.raises(ValueError, match=message):
        measure(matrix, learned)


@pytest.mark.parametrize(
    ("baseline", "message"),
    [
        ([0.1, 0.1], "baseline: expected one accuracy for each of 3 tasks, got 2"),
        ([], "baseline: expected at least one value"),
        ([0.1, NAN, 0.1], r"baseline: expected numbers in \[0, 1\], got nan at \[1\]"),
    ],
)
def test_forward_transfer_checks_its_baseline(baseline, message):
    with pytest.raises(ValueError, match=message):
        forward_transfer(R, baseline)
