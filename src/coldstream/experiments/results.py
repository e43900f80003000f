"""What the tests of a learner come down to: one number each for Ω_all, calibration and transfer, and their means."""

from __future__ import annotations

import numpy as np

from coldstream import metrics
from coldstream.experiments.records import Record
from coldstream.streams import Stream


def first_steps(stream: Stream) -> dict[str, int]:
    """Return how many examples had come when a class came for the first time, its own included."""
    labels, first = np.unique(stream.dataset.labels[stream.order], return_index=True)
    return {stream.dataset.names[label]: int(step) + 1 for label, step in zip(labels, first, strict=True)}


def unit_results(unit: Record, events: list[Record], offline: list[Record], came: dict[str, int]) -> Record:
    """Return the numbers of one learner and seed; `came` says at which step each class came first."""
    accuracies, reference = ([event["accuracy"] for event in found] for found in (events, offline))
    keep = ("step", "images", "accuracy", "top5", "ece", "ece_debiased")
    return {
        **unit,
        "events": [{key: event[key] for key in keep} | {"classes": len(event["classes"])} for event in events],
        "offline": [{key: event[key] for key in keep} for event in offline],
        "final_accuracy": accuracies[-1],
        "final_top5": events[-1]["top5"],
        "omega_per_event": _omega(accuracies, reference),
        "omega_final": _omega(accuracies, reference[-1:]),
        "top5_omega_per_event": _omega([e["top5"] for e in events], [e["top5"] for e in offline]),
        "top5_omega_final": _omega([e["top5"] for e in events], [e["top5"] for e in offline[-1:]]),
        "average_ece": metrics.average_ece([event["ece"] for event in events]),
        "average_ece_debiased": metrics.average_ece([event["ece_debiased"] for event in events]),
        **transfer(events, came),
    }


def _omega(accuracies: list[float], reference: list[float]) -> float | None:
    """Return Ω_all; None without references, or with one that knows nothing, which nothing can be a share of."""
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
