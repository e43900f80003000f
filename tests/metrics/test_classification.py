"""Top-k accuracy, confusion matrix, accuracy by class."""

import numpy as np
import pytest
import sklearn.metrics
from hypothesis import given
from hypothesis import strategies as st

from coldstream.metrics import (
    accuracy,
    confidences,
    confusion_matrix,
    hits,
    log_loss,
    per_class_accuracy,
    predictions,
)


@st.composite
def tables(draw):
    """Probabilities from a coarse grid, so that ties are the rule, with labels and k."""
    n, classes = draw(st.integers(1, 6)), draw(st.integers(1, 6))
    cell = st.sampled_from([0.0, 0.25, 0.5, 1.0])
    table = draw(st.lists(st.lists(cell, min_size=classes, max_size=classes), min_size=n, max_size=n))
    labels = draw(st.lists(st.integers(0, classes - 1), min_size=n, max_size=n))
    return table, labels, draw(st.integers(1, classes))


def test_top_k_by_hand():
    table = [[0.1, 0.2, 0.7], [0.6, 0.3, 0.1], [0.3, 0.5, 0.2]]
    assert predictions(table).tolist() == [2, 0, 1]
    assert confidences(table).tolist() == [0.7, 0.6, 0.5]
    assert hits(table, [2, 1, 2]).tolist() == [True, False, False]
    assert hits(table, [2, 1, 2], k=2).tolist() == [True, True, False]
    assert accuracy(table, [2, 1, 2]) == 1 / 3
    assert accuracy(table, [2, 1, 2], k=2) == 2 / 3
    assert accuracy(table, [2, 1, 2], k=3) == 1.0


def test_equal_probabilities_go_to_the_lower_index():
    constant = np.full((4, 4), 0.25)
    assert predictions(constant).tolist() == [0, 0, 0, 0]
    assert hits(constant, [0, 1, 2, 3], k=1).tolist() == [True, False, False, False]
    assert hits(constant, [0, 1, 2, 3], k=3).tolist() == [True, True, True, False]


@given(tables())
def test_hits_equal_a_stable_sort(case):
    table, labels, k = case
    expected = []
    for row, label in zip(table, labels, strict=True):
        ranked = sorted(range(len(row)), key=lambda c, row=row: (-row[c], c))
        expected.append(label in ranked[:k])
    assert hits(table, labels, k).tolist() == expected
    assert accuracy(table, labels, k) == pytest.approx(sum(expected) / len(expected))


@given(tables())
def test_top_1_hits_are_the_predictions_that_equal_the_label(case):
    table, labels, _ = case
    assert hits(table, labels).tolist() == (predictions(table) == np.array(labels)).tolist()
    assert confidences(table).tolist() == [max(row) for row in table]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("k", [1, 2, 5])
def test_accuracy_agrees_with_scikit_learn_without_ties(dtype, k):
    rng = np.random.default_rng(k)
    table = rng.dirichlet(np.ones(7), size=200).astype(dtype)
    labels = rng.integers(7, size=200)
    expected = sklearn.metrics.top_k_accuracy_score(labels, table, k=k, labels=np.arange(7))
    assert accuracy(table, labels, k) == pytest.approx(expected)
    top_1 = sklearn.metrics.accuracy_score(labels, predictions(table))
    assert accuracy(table, labels) == pytest.approx(top_1)


def test_rounding_just_outside_the_unit_interval_is_clipped():
    table = np.array([[1.0 + 5e-7, -5e-7]])
    assert confidences(table).tolist() == [1.0]
    assert table[0, 0] > 1.0, "the caller's array is left alone"


def test_confusion_by_hand():
    matrix = confusion_matrix(predicted=[1, 1, 0, 2], labels=[0, 1, 0, 1], classes=4)
    assert matrix.tolist() == [[1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 0, 0], [0, 0, 0, 0]]
    got = per_class_accuracy(matrix)
    assert got[:2].tolist() == [0.5, 0.5]
    assert np.isnan(got[2:]).all()
    got = per_class_accuracy([[1, 3], [0, 0], [0, 4]], columns=[1, 0, None])
    assert got[[0, 2]].tolist() == [0.75, 0.0]
    assert np.isnan(got[1])


def test_log_loss_by_hand():
    table = [[0.5, 0.25, 0.25], [0.0, 1.0, 0.0], [0.0, 1.0, 0.0]]
    assert log_loss(table, [1, 1, 0], least=1e-6) == pytest.approx((np.log(4) + 0 + np.log(1e6)) / 3)
    assert log_loss(table[:1], [1]) == sklearn.metrics.log_loss([1], table[:1], labels=range(3))


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=40))
def test_confusion_and_class_accuracy_agree_with_scikit_learn_and_a_loop(pairs):
    predicted, labels = zip(*pairs, strict=True)
    matrix = confusion_matrix(predicted, labels, classes=5)
    assert np.array_equal(matrix, sklearn.metrics.confusion_matrix(labels, predicted, labels=range(5)))
    for c, got in enumerate(per_class_accuracy(matrix)):
        correct = [p == c for p, label in pairs if label == c]
        assert np.isnan(got) if not correct else got == pytest.approx(sum(correct) / len(correct))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: hits(np.empty((0, 3)), []), r"probabilities: expected at least one value.*\(0, 3\)"),
        (lambda: hits([0.5, 0.5], [0]), r"probabilities: expected 2 dimension.*\(2,\)"),
        (lambda: hits([[0.5, np.nan]], [0]), r"probabilities: expected numbers in \[0, 1\], got nan at \[0, 1\]"),
        (lambda: hits([[0.5, 2.5]], [0]), r"got 2.5 at \[0, 1\]"),
        (lambda: hits([[-0.1, 0.5]], [0]), r"got -0.1 at \[0, 0\]"),
        (lambda: predictions([["a", "b"]]), "probabilities: expected an array of numbers"),
        (lambda: confidences([[np.inf, 0.5]]), r"got inf at \[0, 0\]"),
        (lambda: hits([[0.5, 0.5]], [2]), r"labels: expected class indices from 0 to 1, got 2 at \[0\]"),
        (lambda: hits([[0.5, 0.5]], [-1]), r"got -1 at \[0\]"),
        (lambda: hits([[0.5, 0.5]], [0.0]), "labels: expected integer class indices, got an array of float64"),
        (lambda: hits([[0.5, 0.5]], [0, 1]), "got 2 for 1"),
        (lambda: hits([[0.5, 0.5]], [0], k=3), "k: expected an integer from 1 to 2, got 3"),
        (lambda: hits([[0.5, 0.5]], [0], k=0), "k: expected an integer from 1 to 2, got 0"),
        (lambda: hits([[0.5, 0.5]], [0], k=True), "k: expected an integer from 1 to 2, got True"),
        (lambda: accuracy([[0.5, 0.5]], [0], k=1.0), "k: expected an integer from 1 to 2, got 1.0"),
        (lambda: confusion_matrix([0], [2], 2), "labels: expected class indices from 0 to 1, got 2"),
        (lambda: confusion_matrix([2], [0], 2), "predicted: expected class indices from 0 to 1, got 2"),
        (lambda: confusion_matrix([], [], 2), "predicted: expected at least one value"),
        (lambda: confusion_matrix([0, 1], [0], 2), "got 1 for 2"),
        (lambda: confusion_matrix([0], [0], 0), "classes: expected an integer >= 1, got 0"),
        (lambda: per_class_accuracy([[1, 0]]), r"expected a square matrix.*\(1, 2\)"),
        (lambda: per_class_accuracy([[0.5]]), "expected counts.*float64"),
        (lambda: per_class_accuracy([[-1]]), "expected counts.*from -1"),
        (lambda: per_class_accuracy([[1, 0]], columns=[0, 1]), "columns: expected one for each of 1 rows, got 2"),
        (lambda: log_loss([[0.5, 0.5]], [2]), r"labels: expected class indices from 0 to 1, got 2 at \[0\]"),
    ],
)
def test_refusals_say_what_was_expected(call, message):
    with pytest.raises(ValueError, match=message):
        call()
