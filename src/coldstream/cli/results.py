"""`coldstream status`, `report` and `compare`: runs that are there."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from coldstream.cli.output import console, say, show

if TYPE_CHECKING:
    from coldstream.lab.records import FinishedRun


def status(folder: Annotated[Path, typer.Argument(help="The folder of a run.")]) -> None:
    """Show which jobs of a run are finished and how far the others are."""
    from coldstream.lab.experiment import Experiment

    experiment = Experiment.open(folder)
    rows = [["job", "done", "of", "state"]]
    for job in experiment.jobs:
        done, total = job.progress()
        state = "finished" if job.finished else "begun" if done else "waiting"
        rows.append([job.title, f"{done:,}", f"{total:,} {job.counted}", state])
    show(rows, experiment.plan.name)


def report(
    folders: Annotated[
        list[Path], typer.Argument(help="Folders of finished runs; or paper; or first-labels; or theory.")
    ],
    out: Annotated[
        Path, typer.Option(help="For paper and theory: the folder of the page, and of earlier results.")
    ] = Path("docs"),
) -> None:
    """Write tables, pictures and the page of finished runs again, from their files.

    `coldstream report paper` writes one page of all the paper's tables, from the runs in ./runs and, for those that
    are not there, from the results that are kept beside the page: a seed today and another one tomorrow add up.
    `coldstream report first-labels` writes the runs of the experiments first-labels-... into docs/first-labels.md.
    `coldstream report theory` writes docs/theory.md from the measurements of `coldstream run theory`.
    """
    from coldstream.lab.records import FinishedRun
    from coldstream.report.pages import write_report

    if folders == [Path("paper")]:
        from coldstream.paper import EXPERIMENTS, pages, results

        runs, kept = Path("runs"), out / "results"
        left_out = [
            text
            for one in EXPERIMENTS.values()
            for scale in pages.OURS
            if scale in one.scales
            for text in results.left_out(one, scale, runs, kept)
        ]
        for line in [*map(str, pages.write(runs, out)), *left_out]:
            say(line)
        return
    if folders == [Path("theory")]:
        from coldstream.theory import page

        for path in page.write(Path("runs"), out):
            say(str(path))
        return
    if folders == [Path("first-labels")]:
        from coldstream.report import first_labels

        say(str(first_labels.write(Path("runs"), out / "first-labels.md")))
        return
    for folder in folders:
        run = FinishedRun(folder)
        if not run.finished:
            from coldstream.lab import Experiment

            experiment = Experiment.open(folder)
            if not experiment.finished:
                raise ValueError(f"run {str(folder)!r} is unfinished; resume with: coldstream run --resume {folder}")
            experiment.results()
        print_results(run)
        say(f"report: {write_report(folder)}")


def compare(
    one: Annotated[Path, typer.Argument(help="The folder of a finished run.")],
    other: Annotated[Path, typer.Argument(help="Another one.")],
) -> None:
    """Show what differs between two runs: settings, and results side by side."""
    from coldstream.report.compare import compare_table, setting_changes

    for line in setting_changes(one, other):
        say(line)
    show(compare_table(one, other), f"{one} → {other}")


def print_results(run: FinishedRun) -> None:
    from coldstream.report.run_tables import event_table, learner_table, unit_table

    results = run.results
    if len(results.units) > 1:
        show(learner_table(run, short=True), results.name)
        return
    ((name, unit),) = results.units
    show(event_table(results, unit), f"{results.name}, {name}, seed {unit.seed}")
    lines = Table(show_header=False, box=None)
    for label, value in unit_table(results, unit, run.timing.units[name][unit.seed]):
        lines.add_row(label, Text(value, style="bold"))
    console.print(lines)
