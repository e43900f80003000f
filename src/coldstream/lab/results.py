"""What the tests of a learner come down to: one number each for Ω_all, calibration and transfer, and their means."""

from __future__ import annotations

import numpy as np

from coldstream import metrics
from coldstream.lab.records import Record
from coldstream.streams import Stream


def first_steps(stream: Stream) -> dict[str, int]:
    """Return how many examples had come when a class came for the first time, its own included."""
    labels, first = np.unique(stream.dataset.labels[stream.order], return_index=True)
    return {stream.dataset.names[label]: int(step) + 1 for label, step in zip(labels, first, strict=True)}


def unit_results(unit: Record, events: list[Record], offline: list[Record], came: dict[str, int]) -> Record:
    """Return the numbers of one learner and seed; `came` says at which step each class came first."""
    accuracies, reference = ([event["accuracy"] for event in found] for found in (events, offline))
    top5, top5_reference = ([event["top5"] for event in found] for found in (events, offline))
    each = len(offline) == len(events)  # a reference for every test, or one for all
    return {
        **unit,
        "events": [_event(event) for event in events],
        "offline": [_offline(event) for event in offline],
        "final_accuracy": accuracies[-1],
        "final_top5": events[-1]["top5"],
        "omega_per_event": _omega(accuracies, reference) if each else None,
        "omega_final": _omega(accuracies, reference[-1:]),
        "top5_omega_per_event": _omega(top5, top5_reference) if each else None,
        "top5_omega_final": _omega(top5, top5_reference[-1:]),
        "average_ece": metrics.average_ece([event["ece"] for event in events]),
        "average_ece_debiased": metrics.average_ece([event["ece_debiased"] for event in events]),
        **transfer(events, came),
    }


def task_results(unit: Record, events: list[Record], offline: dict[str, Record], ends: dict[str, int]) -> Record:
    """Return the numbers of one learner and seed on several tasks, `ends` saying at which step each was over.

    The accuracy of a task when it was learned is that of the test right at its end, on all of its classes; it has
    forgotten what is missing of that at the last test, in which the last task cannot differ. Ω_all is over the tests
    of tasks that are over, each divided by the offline reference of that task's own data; None unless all tasks have
    one.
    """
    last = max(ends.values())
    tasks: Record = {}
    shares: list[tuple[float, float]] = []
    for task, end in ends.items():
        mine = [event for event in events if event["task"] == task]
        after = [event["accuracy"] for event in mine if event["step"] >= end]
        reference = offline.get(task)
        tasks[task] = {
            "events": [_event(event) for event in mine],
            "offline": None if reference is None else _offline(reference),
            "offline_accuracy": None if reference is None else reference["accuracy"],
            "learned_accuracy": after[0],
            "final_accuracy": after[-1],
            "final_top5": mine[-1]["top5"],
            "forgetting": after[0] - after[-1] if end < last else None,
            "omega": _omega(after, [] if reference is None else [reference["accuracy"]]),
        }
        shares += [(accuracy, reference["accuracy"]) for accuracy in after if reference is not None]
    complete = len(offline) == len(ends)
    means = ("offline_accuracy", "learned_accuracy", "final_accuracy", "final_top5", "forgetting")
    return {
        **unit,
        "tasks": tasks,
        **{name: _mean([found[name] for found in tasks.values()]) for name in means},
        "omega_per_event": _omega(*map(list, zip(*shares, strict=True))) if complete else None,
        "average_ece": metrics.average_ece([event["ece"] for event in events]),
        "average_ece_debiased": metrics.average_ece([event["ece_debiased"] for event in events]),
    }


def _mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None


_KEPT = ("step", "images", "accuracy", "top5", "ece", "ece_debiased")


def _event(event: Record) -> Record:
    return {key: event[key] for key in _KEPT} | {"classes": len(event["classes"])}


def _offline(event: Record) -> Record:
    return {key: event[key] for key in (*_KEPT, "rate", "augment") if key in event}


def _omega(accuracies: list[float], reference: list[float]) -> float | None:
    """Return Ω_all; None without references for all tests, or with one that knows nothing to be a share of."""
    if not reference or min(reference) <= 0:
        return None
    return metrics.omega(accuracies, reference if len(reference) > 1 else reference[0])


def transfer(events: list[Record], came: dict[str, int]) -> Record:
    """Return forgetting, backward and forward transfer over classes; None for what the tests do not show.

    A class is learned at the first test after it came. Forward transfer is its accuracy at the test before that,
    if it was tested then; an untrained learner knows no class, so that its accuracy, the baseline, is 0. So it is
    for every learner that begins cold: only one that was initialised on a class can know it before it comes.
    """
    classes = [name for name in events[-1]["classes"] if any(_accuracy(event, name) is not None for event in events)]
    table = [[_accuracy(event, name) for name in classes] for event in events]
    matrix = np.array(table, np.float64)
    learned = np.array([sum(event["step"] < came[name] for event in events) for name in classes], int)
    old, new = learned < len(events) - 1, learned > 0
    found: Record = {"forgetting": None, "backward_transfer": None, "forward_transfer": None}
    if old.any():
        part = matrix[:, old], learned[old].tolist()
        found |= {"forgetting": metrics.forgetting(*part), "backward_transfer": metrics.backward_transfer(*part)}
    if new.any() and not np.isnan(matrix[learned[new] - 1, new]).any():
        untrained = np.zeros(int(new.sum()))
        found["forward_transfer"] = metrics.forward_transfer(matrix[:, new], untrained, learned[new].tolist())
    return found


def _accuracy(event: Record, name: str) -> float | None:
    """Return the accuracy on one class, or None if it was not tested."""
    if name not in event["classes"]:
        return None
    row, columns = event["confusion"]["rows"][event["classes"].index(name)], event["confusion"]["columns"]
    if not sum(row):
        return None
    return float(row[columns.index(name)] / sum(row)) if name in columns else 0.0


def averages(runs: list[Record]) -> Record:
    """Return mean, standard deviation and number of every plain number that some of the runs have."""
    values = {name: [run[name] for run in runs if isinstance(run[name], float)] for name in runs[0]}
    return {name: metrics.summary(found).to_dict() for name, found in values.items() if found}
