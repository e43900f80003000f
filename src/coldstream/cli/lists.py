"""`coldstream list` and `coldstream learners`."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from coldstream.cli.output import console, say, show


def list_(
    what: Annotated[
        str | None,
        typer.Argument(
            metavar="[paper|theory]", help="The paper's tables and figures; or measurements of its theory."
        ),
    ] = None,
) -> None:
    """List learners, orderings and the experiments in ./experiments; or the paper's tables."""
    if what == "paper":
        _list_paper()
        return
    if what is not None:
        raise ValueError(f"coldstream list takes nothing, or paper; not {what!r}")
    from coldstream.lab.names import experiments_here
    from coldstream.lab.yaml_files import read_config
    from coldstream.learners import LEARNERS
    from coldstream.streams import ORDERINGS

    say(f"learners: {', '.join(LEARNERS)}")
    say(f"orderings: {', '.join(ORDERINGS)}")
    experiments = {name: read_config(file) for name, file in experiments_here().items()}
    if not experiments:
        say("no experiments in ./experiments")
        return
    say("experiments, each with its data, seeds and learners; run one with: coldstream run NAME")
    for name, tree in experiments.items():
        tasks = tree.get("tasks")
        sets = list(tasks.values()) if isinstance(tasks, dict) and tasks else [tree.get("data") or {}]
        data = dict.fromkeys(str(one.get("name", "digits")) if isinstance(one, dict) else str(one) for one in sets)
        say(f"  {name}: {', '.join(data)}; seeds {tree.get('seeds', [0])}")
        say(_in_lines(map(str, tree.get("learners") or {"cold-start": {}}), " " * 6))


def _in_lines(names: Iterable[str], indent: str) -> str:
    """Return names in lines as wide as the terminal, none of them broken."""
    whole = ", ".join(name.replace(" ", "\u00a0") for name in names)
    layout: dict[str, Any] = {"initial_indent": indent, "subsequent_indent": indent, "break_on_hyphens": False}
    return textwrap.fill(whole, console.width, break_long_words=False, **layout).replace("\u00a0", " ")


def _list_paper() -> None:
    from coldstream.paper import EXPERIMENTS, results

    table = Table(title="run one with: coldstream run paper/NAME --scale lab|desk|paper --set data.root=FOLDER")
    table.title_justify = "left"
    table.add_column("name", no_wrap=True)
    table.add_column("title")
    for column in ("runs", "minutes", "result"):
        table.add_column(column, justify="right", no_wrap=True)
    for experiment in EXPERIMENTS.values():
        trees = experiment.configs("lab").values()
        runs = sum(len(tree["learners"]) * len(tree["seeds"]) for tree in trees)
        kept = results.read_results(experiment, "lab", Path("runs"), Path("docs/results"))
        minutes = f"{results.minutes(experiment, kept):,.0f}" if kept else "?"
        date = kept.date if kept else "not run"
        table.add_row(experiment.name, experiment.title, str(runs or "–"), minutes, date)
    console.print(table)
    say(
        "runs, minutes: all seeds at lab scale; minutes are estimated for --jobs 2 on two cores, each table by itself"
    )


def learners() -> None:
    """Show what each learner needs, freezes and replays, for ResNet18, beside the paper's figures."""
    from coldstream.learners.properties import properties_table

    show(properties_table(), "learners")
    say("base: whether it needs base initialisation")
    say("ImageNet, CIFAR-100: the share of that ResNet18's parameters (their number) that streaming never changes")
    say("paper: the share that the paper's table gives")
    say("learns: from each example as it comes, or when a batch ends")
