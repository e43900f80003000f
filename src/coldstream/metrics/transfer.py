"""What learning one task does to the others: forgetting, backward and forward transfer.

All three read a matrix R of accuracies, events in rows and tasks (or classes) in columns: R[t, j] is the
accuracy on task j after event t. By default task j is learned at event j and R is square, as in the papers;
`learned` gives the event of each task where several (the classes of one batch) are learned together. A task
learned at the last event had no time to be forgotten, and one learned at the first had nothing to gain from.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from coldstream.metrics import _check


def forgetting(matrix: ArrayLike, learned: Sequence[int] | None = None) -> float:
    r"""Return the mean fall of each earlier task from its best accuracy; 0 of one that is best at the end.

    .. math:: F = \frac{1}{|J|} \sum_{j \in J} \max_{t \le T} R_{t,j} - R_{T,j}

    with T the last event and J the tasks learned before it. This is the measure of [1]_ with the last event in the
    maximum. There the maximum is over the events before, so that a task that rises has a negative forgetting, which
    hides that another one falls. What rises is in `backward_transfer`.

    Parameters
    ----------
    matrix : array of shape (events, tasks)
        Accuracies in [0, 1]. NaN says "not measured", and is allowed only before a task is learned.
    learned : sequence of int, optional
        Event at which each task is learned.

    References
    ----------
    .. [1] Chaudhry, Dokania, Ajanthan, Torr, "Riemannian walk for incremental learning: understanding
       forgetting and intransigence", ECCV 2018.

    Examples
    --------
    >>> forgetting([[0.75, 0.0], [0.5, 0.75]])
    0.25
    """
    table, event = _read(matrix, learned)
    old = _some(event < len(table) - 1, "learned before the last event")
    return float(np.mean(np.nanmax(table[:, old], axis=0) - table[-1, old]))


def backward_transfer(matrix: ArrayLike, learned: Sequence[int] | None = None) -> float:
    r"""Return the mean change of each earlier task since it was learned [1]_; negative where it is forgotten.

    .. math:: BWT = \frac{1}{|J|} \sum_{j \in J} R_{T,j} - R_{l_j,j}

    with T the last event, l_j the event at which task j is learned and J the tasks learned before T.

    Parameters
    ----------
    matrix, learned
        As in `forgetting`.

    References
    ----------
    .. [1] Lopez-Paz, Ranzato, "Gradient episodic memory for continual learning", NeurIPS 2017.

    Examples
    --------
    >>> backward_transfer([[0.75, 0.0], [0.5, 0.75]])
    -0.25
    """
    table, event = _read(matrix, learned)
    old = _some(event < len(table) - 1, "learned before the last event")
    return float(np.mean(table[-1, old] - table[event[old], old]))


def forward_transfer(matrix: ArrayLike, baseline: ArrayLike, learned: Sequence[int] | None = None) -> float:
    r"""Return the mean lead of each later task, just before it is learned, over an untrained model [1]_.

    .. math:: FWT = \frac{1}{|J|} \sum_{j \in J} R_{l_j - 1,j} - b_j

    with l_j the event at which task j is learned and J the tasks learned after the first event.

    Parameters
    ----------
    matrix, learned
        As in `forgetting`, with every R[l_j − 1, j] measured.
    baseline : sequence of numbers in [0, 1]
        Accuracy of the model on each task at its random initialisation.

    References
    ----------
    .. [1] Lopez-Paz, Ranzato, "Gradient episodic memory for continual learning", NeurIPS 2017.

    Examples
    --------
    >>> forward_transfer([[0.75, 0.5], [0.5, 0.75]], baseline=[0.25, 0.25])
    0.25
    """
    table, event = _read(matrix, learned)
    start = _check.fractions(baseline, "baseline").astype(np.float64)
    if len(start) != table.shape[1]:
        raise ValueError(f"baseline: expected one accuracy for each of {table.shape[1]} tasks, got {len(start)}")
    new = _some(event > 0, "learned after the first event")
    before = table[event[new] - 1, new]
    if np.isnan(before).any():
        task = new[np.isnan(before)][0]
        raise ValueError(f"matrix: expected task {task} measured at event {event[task] - 1}, got NaN")
    return float(np.mean(before - start[new]))


def _read(matrix: ArrayLike, learned: Sequence[int] | None) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    table = _check.numbers(matrix, "matrix")
    if table.ndim != 2 or table.size == 0:
        raise ValueError(f"matrix: expected events x tasks, got an array of shape {table.shape}")
    events, tasks = table.shape
    if learned is None:
        if events != tasks:
            raise ValueError(f"matrix: expected as many events as tasks without `learned`, got {table.shape}")
        event = np.arange(tasks, dtype=np.int64)
    else:
        event = _check.labels(learned, "learned", events, what="events")
        if len(event) != tasks:
            raise ValueError(f"learned: expected one event for each of {tasks} tasks, got {len(event)}")
    unmeasured = np.isnan(table) & (np.arange(events)[:, None] < event)
    table = np.where(unmeasured, 0.0, table)
    table = _check.fractions(table, "matrix", ndim=2).astype(np.float64)
    return np.where(unmeasured, np.nan, table), event


def _some(tasks: NDArray[np.bool_], which: str) -> NDArray[np.intp]:
    if not tasks.any():
        raise ValueError(f"matrix: expected a task {which}, got none")
    return np.flatnonzero(tasks)
