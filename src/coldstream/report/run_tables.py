"""Tables of a finished run."""

from __future__ import annotations

from coldstream.lab.records import Confusion, EventNumbers, FinishedRun, Results, UnitResult, UnitTiming
from coldstream.metrics import Summary
from coldstream.report.tables import Table

_COLUMNS = {
    "final_accuracy": "final accuracy",
    "final_top5": "top-5",
    "omega_per_event": "Ω_all (offline per event)",
    "omega_final": "Ω_all (final offline)",
    "average_ece": "average ECE",
    "average_ece_debiased": "debiased",
    "prequential": "before learning",
    "forgetting": "forgetting",
    "forward_transfer": "forward transfer",
}
_SHORT = {"final_accuracy": "accuracy", "omega_per_event": "Ω_all", "average_ece": "ECE"}
_SHORT_TASKS = {"final_accuracy": "mean", "forgetting": "forgetting"}
DASH = "–"


def spread(value: Summary | None) -> str:
    """Return mean ± standard deviation, or a dash.

    Examples
    --------
    >>> from coldstream.metrics import summary
    >>> spread(summary([0.25, 0.75])), spread(summary([0.5])), spread(None)
    ('0.500 ± 0.354', '0.500', '–')
    """
    return DASH if value is None else str(value).rpartition(" (n=")[0]


def learner_table(run: FinishedRun, *, short: bool = False) -> Table:
    """Return one line per learner: mean ± sd over seeds, and the number of seeds.

    With several tasks the final accuracy on each of them comes first, and their offline references last. A short
    table has the columns that fit a terminal.
    """
    results = run.results
    tasks = [task.task for task in results.tasks] if results.has_tasks else []
    columns = (_SHORT_TASKS if tasks else _SHORT) if short else _COLUMNS
    if tasks:
        columns = {**columns, "final_accuracy": "mean"}
    shown = [
        name
        for name in columns
        if (name != "omega_per_event" or len(results.tasks) == 1)
        and any(learner.numbers.get(name) is not None for learner in results.learners.values())
    ]
    costs = ["ms", "seeds"] if short else ["ms per example", "buffer", "parameters", "seeds"]
    table = [["learner", *map(str, tasks), *(columns[name] for name in shown), *costs]]
    for name, learner in results.learners.items():
        numbers = [learner.task(task).numbers.final_accuracy for task in tasks]
        cells = [*map(spread, numbers), *(spread(learner.numbers.get(column)) for column in shown)]
        timing = [run.timing.units[name][unit.seed] for unit in learner.units]
        table.append([name, *cells, *_costs(learner.units, timing, short=short)])
    for line in _offline_lines(results) if tasks else ():
        table.append([*line, *[DASH] * (len(table[0]) - len(line))])
    return table


def _costs(units: tuple[UnitResult, ...], timing: list[UnitTiming], *, short: bool) -> list[str]:
    """Return time, memory and parameters of a learner, and over how many seeds."""
    last = units[-1].learner
    buffer = f"{last.buffer.examples:,} / {last.buffer.bytes:,} B" if last.buffer else DASH
    sizes = [] if short else [buffer, f"{last.parameters:,}"]
    return [f"{sum(unit.ms_per_example for unit in timing) / len(timing):.1f}", *sizes, str(len(units))]


def _offline_lines(results: Results) -> Table:
    """Return a line for each network that was trained offline: its accuracy on each task, and their mean."""
    lines: Table = []
    for name, learner in results.learners.items():
        numbers = [*(learner.task(task.task).numbers for task in results.tasks), learner.numbers]
        cells = [spread(each.offline_accuracy) for each in numbers]
        if cells != [DASH] * len(cells) and cells not in [line[1:] for line in lines]:
            lines.append([f"offline, network of {name}", *cells])
    return [["offline", *lines[0][1:]]] if len(lines) == 1 else lines


def task_table(results: Results) -> Table:
    """Return one line per learner and task: the accuracy when the task ended, at the end, and offline."""
    table = [["learner", "task", "when it ended", "at the end", "forgetting", "offline", "Ω_all"]]
    columns = ("learned_accuracy", "final_accuracy", "forgetting", "offline_accuracy", "omega_final")
    for name, learner in results.learners.items():
        for task in learner.tasks:
            table.append([name, str(task.task), *(spread(task.numbers.get(column)) for column in columns)])
    return table


def event_table(results: Results, unit: UnitResult) -> Table:
    """Return one line per test event of one learner and seed, in the order of the stream."""
    offline = {(task.task, event.step): event.accuracy for task in unit.tasks for event in task.offline}
    header = ["classes", "images seen", "accuracy", "offline", "ratio", "ECE", "ECE debiased", "test images"]
    table = [["task", *header] if results.has_tasks else header]
    for event in sorted(unit.events, key=lambda event: event.step):
        cells = _event_cells(event, offline.get((event.task, event.step)))
        table.append([str(event.task), *cells] if results.has_tasks else cells)
    return table


def _event_cells(event: EventNumbers, offline: float | None) -> list[str]:
    return [
        str(event.classes),
        f"{event.step:,}",
        f"{event.accuracy:.1%}",
        DASH if offline is None else f"{offline:.1%}",
        f"{event.accuracy / offline:.3f}" if offline else DASH,
        f"{event.ece:.3f}",
        f"{event.ece_debiased:.3f}",
        f"{event.images:,}",
    ]


_LINES = {
    "omega_per_event": ("Ω_all (an offline model per event)", ".3f"),
    "omega_final": ("Ω_all (one final offline model)", ".3f"),
    "average_ece": ("average ECE", ".3f"),
    "average_ece_debiased": ("average ECE, debiased", ".3f"),
    "final_accuracy": ("final accuracy", ".1%"),
    "offline_accuracy": ("offline accuracy", ".1%"),
    "prequential": ("accuracy on each image before it was learned", ".1%"),
    "forgetting": ("forgetting (mean fall of a class from its best)", ".3f"),
    "backward_transfer": ("backward transfer (mean change of a class since it came)", "+.3f"),
    "forward_transfer": ("forward transfer (accuracy on a class before it comes)", ".3f"),
}
_LINES_TASKS = {
    "omega_final": ("Ω_all (an offline model per task)", ".3f"),
    "final_accuracy": ("final accuracy, mean over tasks", ".1%"),
    "offline_accuracy": ("offline accuracy, mean over tasks", ".1%"),
    "forgetting": ("forgetting (mean fall of a task since its best test after its end)", ".3f"),
}


def unit_table(results: Results, unit: UnitResult, timing: UnitTiming) -> Table:
    """Return the numbers of one learner and seed, as (name, value)."""
    labels = {**_LINES, **_LINES_TASKS} if results.has_tasks else dict(_LINES)
    if len(results.tasks) > 1:
        del labels["omega_per_event"]  # the same: a test that counts comes after the end of its task
    lines = [
        [label, format(value, spec)]
        for name, (label, spec) in labels.items()
        if (value := unit.numbers.get(name)) is not None
    ]
    lines.append(["time per example", f"{timing.ms_per_example:.1f} ms"])
    if buffer := unit.learner.buffer:
        lines.append(["replay buffer", f"{buffer.examples:,} examples, {buffer.bytes:,} bytes"])
        lines.append(["beside it: ids, labels, tables", f"{timing.index_bytes or 0:,} bytes"])
    return [*lines, ["parameters", f"{unit.learner.parameters:,}, {unit.learner.frozen_share:.0%} frozen"]]


def settings_table(results: Results) -> Table:
    """Return one line per learner: its class, and the settings that differ from the class's defaults."""
    table = [["learner", "class", "settings that differ from its defaults"]]
    for name, learner in results.learners.items():
        if learner.ran_with is None:
            table.append([name, "not recorded", "not recorded"])
            continue
        changed = ", ".join(f"{key} {value}" for key, value in learner.ran_with.changed.items())
        table.append([name, learner.ran_with.kind, changed or "none"])
    return table


def confusion_table(confusion: Confusion) -> Table:
    """Return a confusion matrix as counts, classes in the order of the test."""
    guesses = [name for name in confusion.truth if name in confusion.predicted]
    columns = [confusion.predicted.index(name) for name in guesses]
    lines = [
        [name, *(str(counts[column] or "·") for column in columns)]
        for name, counts in zip(confusion.truth, confusion.counts, strict=True)
    ]
    return [["truth \\ guess", *guesses], *lines]
