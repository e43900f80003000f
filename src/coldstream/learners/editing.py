"""Edits of what was learned: the replay buffer changes at once, the weights only as later updates replay it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from coldstream.labels import as_label
from coldstream.learners.inputs import Id, check_id, id_key
from coldstream.learners.tasks import known_task

if TYPE_CHECKING:
    from coldstream.learners.base import Learner
    from coldstream.learners.tasks import TaskState


def relabel(learner: Learner[Any], id: Id, label: object) -> bool:
    """Correct the label of a stored example; return whether it was still stored."""
    key, new = id_key(check_id(id)), as_label(label)
    for task, old in _where(learner, key):
        task.classes.check([new])
        if task.classes.row(new) != old:
            with learner._changes.change("relabel"):
                (row,) = task.enter([new])
                task.uncount(old)
                task.classes.counts[row] += 1
                task.buffer.relabel(key, row)
                learner._relabelled(task, key, row)
        return True
    return False


def forget(learner: Learner[Any], id: Id) -> bool:
    """Remove an example from the replay buffer; return whether it was still stored."""
    key = id_key(check_id(id))
    for task, row in _where(learner, key):
        with learner._changes.change("forget"):
            _remove(learner, task, key, row)
            if learner._last is not None and id_key(learner._last[0]) == key:
                learner._last = None
        return True
    return False


def forget_elsewhere(learner: Learner[Any], task: TaskState, keys: list[int]) -> None:
    """Remove examples from all tasks but the one that has just learned them."""
    for key in keys:
        for other, row in _where(learner, key):
            if other is not task:
                _remove(learner, other, key, row)


def undo(learner: Learner[Any]) -> Id:
    """Forget the example that was learned last; return its id."""
    if learner._last is None:
        raise ValueError("there is nothing to undo: no example was learned, or the last one was undone")
    id, row, number = learner._last
    task, key = [*learner.tasks.values()][number], id_key(id)
    stored = task.stored_label(key)
    with learner._changes.change("undo"):
        if stored is None:  # it was evicted
            task.uncount(task.classes.into[row])
        else:
            _remove(learner, task, key, stored)
        learner._last = None
    return id


def rename_class(learner: Learner[Any], old: object, new: object, task: object) -> None:
    """Give a class another label."""
    state, before, after = known_task(learner, task), as_label(old), as_label(new)
    state.classes.check_rename(before, after)
    with learner._changes.change("rename_class"):
        state.classes.rename(before, after)
        learner._renamed(state, before, after)


def merge_classes(learner: Learner[Any], source: object, into: object, task: object) -> None:
    """Let one class be another from now on."""
    state = known_task(learner, task)
    old, new = state.classes.rows_to_merge(as_label(source), as_label(into))
    with learner._changes.change("merge_classes"):
        state.classes.merge(old, new)
        if state.replay_buffer is not None:
            state.replay_buffer.relabel_class(old, new)
        learner._merged(state, old, new)


def _where(learner: Learner[Any], key: int) -> Iterator[tuple[TaskState, int]]:
    """Yield the tasks in which an example is stored, and the row of its class there."""
    for task in learner.tasks.values():
        if (row := task.stored_label(key)) is not None:
            yield task, row


def _remove(learner: Learner[Any], task: TaskState, key: int, row: int) -> None:
    task.uncount(row)
    task.buffer.forget(key)
    learner._forgotten(task, key)
