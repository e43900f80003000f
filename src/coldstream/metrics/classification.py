"""Right or wrong: top-k accuracy and log-loss from probabilities, the confusion matrix, accuracy class by class."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from coldstream.metrics import _check


def predictions(probabilities: ArrayLike) -> NDArray[np.int64]:
    """Return the most probable class of every row; of equal ones the lowest index.

    Parameters
    ----------
    probabilities : array of shape (N, K)
        Numbers in [0, 1]. Rows need not sum to one: the classes not seen yet may have been masked out.

    Examples
    --------
    >>> predictions([[0.2, 0.8], [0.5, 0.5]]).tolist()
    [1, 0]
    """
    table = _check.fractions(probabilities, "probabilities", ndim=2)
    return np.asarray(table.argmax(axis=1), dtype=np.int64)


def confidences(probabilities: ArrayLike) -> NDArray[np.float64]:
    """Return the probability of the predicted class of every row.

    Examples
    --------
    >>> confidences([[0.2, 0.8], [0.5, 0.5]]).tolist()
    [0.8, 0.5]
    """
    table = _check.fractions(probabilities, "probabilities", ndim=2)
    return np.asarray(table.max(axis=1), dtype=np.float64)


def hits(probabilities: ArrayLike, labels: ArrayLike, k: int = 1) -> NDArray[np.bool_]:
    """Return, for every row, whether its label is among the `k` most probable classes.

    Classes are ranked by probability and equal ones by index, lower first. The result is therefore the
    same on every machine, and a constant prediction earns only the images of the first `k` classes.

    Parameters
    ----------
    probabilities : array of shape (N, K)
        Numbers in [0, 1]; see `predictions`.
    labels : array of N integers
        Class indices in [0, K).
    k : int
        From 1 to K.

    Examples
    --------
    >>> hits([[0.2, 0.5, 0.3], [0.4, 0.4, 0.2]], [2, 1], k=1).tolist()
    [False, False]
    >>> hits([[0.2, 0.5, 0.3], [0.4, 0.4, 0.2]], [2, 1], k=2).tolist()
    [True, True]
    """
    table = _check.fractions(probabilities, "probabilities", ndim=2)
    truth = _check.labels(labels, "labels", classes=table.shape[1])
    _check.same_length(table, "probabilities (rows)", truth, "labels")
    k = _check.whole(k, "k", 1, table.shape[1])
    expected = np.take_along_axis(table, truth[:, None], axis=1)
    lower = np.arange(table.shape[1]) < truth[:, None]
    # The rank of a label is the number of classes before it: counting them takes no sort.
    rank = np.count_nonzero((table > expected) | ((table == expected) & lower), axis=1)
    within: NDArray[np.bool_] = rank < k
    return within


def accuracy(probabilities: ArrayLike, labels: ArrayLike, k: int = 1) -> float:
    """Return the share of rows whose label is among the `k` most probable classes (see `hits`).

    Examples
    --------
    >>> accuracy([[0.2, 0.5, 0.3], [0.1, 0.1, 0.8]], [2, 2])
    0.5
    >>> accuracy([[0.2, 0.5, 0.3], [0.1, 0.1, 0.8]], [2, 2], k=2)
    1.0
    """
    return float(hits(probabilities, labels, k).mean())


def log_loss(probabilities: ArrayLike, labels: ArrayLike, least: float = 1e-12) -> float:
    """Return the mean negative logarithm of the label's probability; below `least` it counts as `least`.

    Examples
    --------
    >>> round(log_loss([[0.5, 0.5], [0.25, 0.75]], [0, 1]), 3)
    0.49
    """
    table = _check.fractions(probabilities, "probabilities", ndim=2)
    truth = _check.labels(labels, "labels", classes=table.shape[1])
    _check.same_length(table, "probabilities (rows)", truth, "labels")
    return float(-np.log(np.maximum(table[np.arange(len(truth)), truth], least)).mean())


def confusion_matrix(predicted: ArrayLike, labels: ArrayLike, classes: int) -> NDArray[np.int64]:
    """Count how often each class (row) was taken for each class (column).

    Examples
    --------
    >>> confusion_matrix(predicted=[0, 1, 1], labels=[0, 0, 1], classes=2).tolist()
    [[1, 1], [0, 1]]
    """
    classes = _check.whole(classes, "classes", 1)
    guess = _check.labels(predicted, "predicted", classes)
    truth = _check.labels(labels, "labels", classes)
    _check.same_length(guess, "predicted", truth, "labels")
    cells = np.bincount(truth * classes + guess, minlength=classes * classes)
    return cells.reshape(classes, classes).astype(np.int64)


def per_class_accuracy(confusion: ArrayLike, columns: Sequence[int | None] | None = None) -> NDArray[np.float64]:
    """Return the share of each class's images that was recognised; NaN for a class without images.

    Parameters
    ----------
    confusion : array of shape (K, L)
        Counts, truth in rows, as `confusion_matrix` returns them.
    columns : sequence of int or None, optional
        The column of each row's class; None for a class that is never predicted. By default the matrix is square
        and its diagonal has them.

    Examples
    --------
    >>> per_class_accuracy([[1, 1, 0], [0, 4, 0], [0, 0, 0]]).tolist()
    [0.5, 1.0, nan]
    >>> per_class_accuracy([[1, 3], [0, 4]], columns=[1, None]).tolist()
    [0.75, 0.0]
    """
    counts = np.asarray(confusion)
    if counts.ndim != 2 or counts.size == 0 or (columns is None and counts.shape[0] != counts.shape[1]):
        shape = "square matrix" if columns is None else "matrix"
        raise ValueError(f"confusion: expected a {shape}, got an array of shape {counts.shape}")
    if not np.issubdtype(counts.dtype, np.integer) or counts.min() < 0:
        raise ValueError(f"confusion: expected counts (integers >= 0), got {counts.dtype} from {counts.min()}")
    places: Sequence[int | None] = range(len(counts)) if columns is None else columns
    if len(places) != len(counts):
        raise ValueError(f"columns: expected one for each of {len(counts)} rows, got {len(places)}")
    correct = [0 if column is None else counts[row, column] for row, column in enumerate(places)]
    images = counts.sum(axis=1)
    result = np.full(len(counts), np.nan)
    np.divide(correct, images, out=result, where=images > 0)
    return result


def share_taken_for(confusion: ArrayLike, truths: Sequence[int], guesses: Sequence[int]) -> float:
    """Return the share of the images of some classes (rows) that was taken for some classes (columns).

    With older classes in rows and newer ones in columns it is the bias towards what was learned last.

    Examples
    --------
    >>> share_taken_for([[6, 1, 3], [2, 4, 4], [0, 0, 9]], truths=[0, 1], guesses=[2])
    0.35
    """
    counts = np.asarray(confusion)[list(truths)]
    return float(counts[:, list(guesses)].sum() / max(1, counts.sum()))
