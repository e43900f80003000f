"""Aggregate the tests of a learner into Ω_all, calibration and transfer, and average over tasks and seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypedDict

import numpy as np

from coldstream import metrics
from coldstream.lab.records import (
    EventResult,
    FinalLearner,
    LearnerResult,
    LearnerSettings,
    Numbers,
    Reference,
    Task,
    TaskData,
    TaskMean,
    TaskResult,
    UnitResult,
)


def unit_result(
    seed: int,
    learner: FinalLearner,
    events: Sequence[EventResult],
    references: Mapping[Task, Sequence[Reference]],
    tasks: Sequence[TaskData],
    first_steps: Mapping[str, int],
) -> UnitResult:
    """Return the numbers of one learner and seed, of each task and over all.

    Parameters
    ----------
    seed, learner
        Which unit, and what its learner was like at the end.
    events
        Its tests, by step.
    references
        The offline references of each task: one for each of its tests, one for the last, or none.
    tasks
        What was streamed.
    first_steps
        For a stream of one task: the number of examples up to and including the first of each class.
    """
    alone = len(tasks) == 1
    results = []
    for data in tasks:
        tests = [event for event in events if event.task == data.task]
        offline = tuple(references.get(data.task, ()))
        if alone:
            numbers = one_task_numbers(tests, offline, first_steps)
        else:
            numbers = task_numbers(tests, offline, data.end, last=data is tasks[-1])
        short = tuple(event.numbers() for event in tests)
        results.append(TaskResult(task=data.task, numbers=numbers, events=short, offline=offline))
    whole = results[0].numbers if alone else all_tasks_numbers(results, tasks)
    whole = whole.model_copy(update={"prequential": learner.prequential})
    return UnitResult(seed=seed, learner=learner, numbers=whole, tasks=tuple(results))


def one_task_numbers(
    events: Sequence[EventResult], offline: Sequence[Reference], first_steps: Mapping[str, int]
) -> Numbers[float]:
    """Return the numbers of a stream of one task, of which all tests count."""
    each = len(offline) == len(events)  # a reference for every test, or one for the last
    last = offline[-1:]
    return Numbers[float](
        final_accuracy=events[-1].accuracy,
        final_top5=events[-1].top5,
        learned_accuracy=events[-1].accuracy,
        offline_accuracy=offline[-1].accuracy if offline else None,
        omega_per_event=_omega(events, offline, "accuracy") if each else None,
        omega_final=_omega(events, last, "accuracy"),
        top5_omega_per_event=_omega(events, offline, "top5") if each else None,
        top5_omega_final=_omega(events, last, "top5"),
        **_calibration(events),
        **transfer(events, first_steps),
    )


def task_numbers(
    events: Sequence[EventResult], offline: Sequence[Reference], end: int, *, last: bool
) -> Numbers[float]:
    """Return the numbers of one task of several: tests from its end on count.

    The learned accuracy is that of the test right at the end of the task, on all of its classes. Forgetting is the
    fall from the best of these tests to the last one; the last task has one test only, and so none.
    """
    after = [event for event in events if event.step >= end]
    omega = _omega(after, offline[-1:], "accuracy")
    return Numbers[float](
        final_accuracy=after[-1].accuracy,
        final_top5=after[-1].top5,
        learned_accuracy=after[0].accuracy,
        offline_accuracy=offline[-1].accuracy if offline else None,
        omega_per_event=omega,
        omega_final=omega,
        forgetting=None if last else metrics.forgetting([[event.accuracy] for event in after], [0]),
        **_calibration(events),
    )


def all_tasks_numbers(results: Sequence[TaskResult], tasks: Sequence[TaskData]) -> Numbers[float]:
    """Return the numbers over several tasks; Ω_all only where all of them have a reference."""
    events = [event for result in results for event in result.events]
    omega = None
    if all(result.offline for result in results):
        pairs = [
            (event.accuracy, result.offline[-1].accuracy)
            for result, data in zip(results, tasks, strict=True)
            for event in result.events
            if event.step >= data.end
        ]
        if min(offline for _, offline in pairs) > 0:
            omega = metrics.omega(*map(list, zip(*pairs, strict=True)))
    means = ("offline_accuracy", "learned_accuracy", "final_accuracy", "final_top5", "forgetting")
    known = {name: [value for one in results if (value := one.numbers.get(name)) is not None] for name in means}
    return Numbers[float].model_validate(
        {
            **{name: float(np.mean(values)) for name, values in known.items() if values},
            "omega_per_event": omega,
            "omega_final": omega,
            "average_ece": metrics.average_ece([event.ece for event in events]),
            "average_ece_debiased": metrics.average_ece([event.ece_debiased for event in events]),
        }
    )


class _Calibration(TypedDict):
    average_ece: float
    average_ece_debiased: float


def _calibration(events: Sequence[EventResult]) -> _Calibration:
    return {
        "average_ece": metrics.average_ece([event.ece for event in events]),
        "average_ece_debiased": metrics.average_ece([event.ece_debiased for event in events]),
    }


def _omega(events: Sequence[EventResult], offline: Sequence[Reference], number: str) -> float | None:
    """Return Ω_all; None without references, or with one whose accuracy is 0."""
    values = [float(getattr(reference, number)) for reference in offline]
    if not values or min(values) <= 0:
        return None
    return metrics.omega([getattr(event, number) for event in events], values if len(values) > 1 else values[0])


class Transfer(TypedDict):
    """Forgetting and transfer over classes; None is what the tests do not show."""

    forgetting: float | None
    backward_transfer: float | None
    forward_transfer: float | None


def transfer(events: Sequence[EventResult], first_steps: Mapping[str, int]) -> Transfer:
    """Return forgetting, backward and forward transfer over classes.

    A class is learned at the first test after it came. Forward transfer is its accuracy at the test before that,
    if it was tested then; an untrained learner knows no class, so that its accuracy, the baseline, is 0. Only
    a learner that was base-initialised on a class can know it before it comes.
    """
    last, tables = events[-1].confusion.truth, [event.confusion.accuracies() for event in events]
    everything = np.array([[table.get(name, np.nan) for name in last] for table in tables], np.float64)
    tested = np.flatnonzero(~np.isnan(everything).all(axis=0))
    classes, matrix = [last[place] for place in tested], everything[:, tested]
    learned = np.array([sum(event.step < first_steps[name] for event in events) for name in classes], int)
    old, new = learned < len(events) - 1, learned > 0
    result = Transfer(forgetting=None, backward_transfer=None, forward_transfer=None)
    if old.any():
        part = matrix[:, old], learned[old].tolist()
        result["forgetting"] = metrics.forgetting(*part)
        result["backward_transfer"] = metrics.backward_transfer(*part)
    if new.any() and not np.isnan(matrix[learned[new] - 1, new]).any():
        untrained = np.zeros(int(new.sum()))
        result["forward_transfer"] = metrics.forward_transfer(matrix[:, new], untrained, learned[new].tolist())
    return result


def learner_result(units: Sequence[UnitResult], ran_with: LearnerSettings | None = None) -> LearnerResult:
    """Return the units of a learner with mean and spread over seeds, and the settings that it ran with."""
    tasks = tuple(
        TaskMean(task=one.task, numbers=averages([unit.task(one.task).numbers for unit in units]))
        for one in units[0].tasks
    )
    numbers = averages([unit.numbers for unit in units])
    return LearnerResult(ran_with=ran_with, units=tuple(units), numbers=numbers, tasks=tasks)


def averages(units: Sequence[Numbers[float]]) -> Numbers[metrics.Summary]:
    """Return mean and spread of every number over the units that have it."""
    values = {
        name: [value for unit in units if (value := unit.get(name)) is not None] for name in Numbers.model_fields
    }
    return Numbers[metrics.Summary].model_validate(
        {name: metrics.summary(several) for name, several in values.items() if several}
    )
