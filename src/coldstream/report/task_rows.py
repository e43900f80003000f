"""Tables of an experiment with several tasks."""

from __future__ import annotations

from coldstream.lab.records import Record
from coldstream.lab.results import averages
from coldstream.report.cells import Rows, cost_names, cost_rows, costs, spread


def learner_rows(summary: Record, timing: Record, *, short: bool = False) -> Rows:
    """Return a header, a row a learner and one for what was trained offline: accuracy of each task at the end.

    Mean ± sd over seeds. Learners with networks of their own have offline rows of their own.
    """
    tasks = list(summary["tasks"])
    learners: dict[str, Record] = summary["learners"]
    more = {
        "forgetting": "forgot" if short else "forgetting",
        "omega_per_event": "Ω_all (offline per task)",
        "average_ece": "average ECE",
    }
    shown = [name for name in more if any(name in found["mean"] for found in learners.values())]
    shown = [name for name in shown if not short or name == "forgetting"]
    rows = [["learner", *tasks, "mean", *(more[name] for name in shown), *cost_names(short=short)]]
    for name, found in learners.items():
        cells = [found["tasks"][task].get("final_accuracy") for task in tasks]
        cells += [found["mean"].get(column) for column in ("final_accuracy", *shown)]
        rows.append([name, *map(spread, cells), *costs(found["runs"], timing["learners"][name], short=short)])
    offline = offline_rows(summary)
    return rows + [[*row, *["–"] * (len(rows[0]) - len(row))] for row in offline]


def offline_rows(summary: Record) -> Rows:
    """Return a row for each network that was trained offline: its accuracy on each task, and their mean."""
    rows: Rows = []
    learners: dict[str, Record] = summary["learners"]
    for name, found in learners.items():
        runs = [{task: mine["offline_accuracy"] for task, mine in run["tasks"].items()} for run in found["runs"]]
        cells = [spread(averages(runs).get(task)) for task in summary["tasks"]]
        cells.append(spread(found["mean"].get("offline_accuracy")))
        if any(cell != "–" for cell in cells) and cells not in [row[1:] for row in rows]:
            rows.append([f"offline, network of {name}", *cells])
    return [["offline", *rows[0][1:]]] if len(rows) == 1 else rows


def forgetting_rows(summary: Record) -> Rows:
    """Return a header and a row a learner and task: the accuracy when the task ended, at the end, and offline."""
    rows = [["learner", "task", "when it ended", "at the end", "forgetting", "offline", "Ω_all"]]
    columns = ("learned_accuracy", "final_accuracy", "forgetting", "offline_accuracy", "omega")
    for name, found in summary["learners"].items():
        for task, mine in found["tasks"].items():
            rows.append([name, task, *(spread(mine.get(column)) for column in columns)])
    return rows


def event_rows(run: Record, tasks: Record) -> Rows:
    """Return a header and a row a step with tests: the accuracy of each task then, of one learner and seed."""
    found = {task: {event["step"]: event for event in run["tasks"][task]["events"]} for task in tasks}
    ends = {mine["start"] + mine["train"]: task for task, mine in tasks.items()}
    rows = [["images seen", "after", *tasks]]
    for step in sorted({step for mine in found.values() for step in mine}):
        cells = [f"{mine[step]['accuracy']:.1%}" if step in mine else "–" for mine in found.values()]
        rows.append([f"{step:,}", f"{ends[step]}" if step in ends else "", *cells])
    return rows


def run_rows(run: Record, timing: Record) -> Rows:
    """Return what one learner and seed come down to, as (name, value)."""
    rows = [["final accuracy, mean over tasks", f"{run['final_accuracy']:.1%}"]]
    if run["forgetting"] is not None:
        rows.append(["forgetting (mean fall of a task since its end)", f"{run['forgetting']:.3f}"])
    if run["offline_accuracy"] is not None:
        rows.append(["offline, mean over tasks", f"{run['offline_accuracy']:.1%}"])
    if run["omega_per_event"] is not None:
        rows.append(["Ω_all (an offline model per task)", f"{run['omega_per_event']:.3f}"])
    rows.append(["average ECE (debiased)", f"{run['average_ece']:.3f} ({run['average_ece_debiased']:.3f})"])
    if run["prequential"] is not None:
        rows.append(["accuracy on each image before it was learned", f"{run['prequential']:.1%}"])
    return [*rows, *cost_rows(run, timing)]
