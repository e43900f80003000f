"""Pictures of an experiment with several tasks."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from coldstream.lab.records import Record
from coldstream.report import plots

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NOW = "#f0f3f6"


def draw_all(path: Path, summary: Record, lines: list[Record], settings: dict[str, Record]) -> list[Path]:
    """Draw every picture of an experiment with tasks into a folder, as PNG and SVG; return the PNG files."""
    made = [accuracy(path / "accuracy.png", summary)]
    storing = {name: settings[name] for name, found in summary["learners"].items() if found["runs"][0]["buffer"]}
    if groups := plots.same_but_capacity(storing):
        made.append(plots.capacity(path / "capacity.png", summary, settings, groups))
    made.append(plots.reliability(path / "reliability.png", summary, lines))
    made.append(plots.confusion(path / "confusion.png", summary, lines))
    return made


def accuracy(path: Path, summary: Record) -> Path:
    """Draw the accuracy of each task over the whole stream, a panel a task: how it is learned, and how forgotten.

    Mean and range over seeds. Vertical lines are where tasks begin; the panel's own task comes where it is shaded.
    """
    figure, panels = plots.new_figure(6.8, 2.1, panels=len(summary["tasks"]), columns=1)
    for axes, task in zip(panels, summary["tasks"], strict=True):
        _draw_task(axes, task, summary)
        axes.set_ylim(max(0.0, 100 * _lowest(summary) - 8), 103)
    _name_tasks(panels[0], summary)
    panels[-1].set_xlabel("images seen, each once")
    named = [zip(*axes.get_legend_handles_labels(), strict=True) for axes in panels]
    handles = {text: handle for pairs in named for handle, text in pairs}
    figure.legend(handles.values(), handles.keys(), frameon=False, loc="outside lower center", ncols=3, fontsize=8.5)
    seeds = ", ".join(str(run["seed"]) for run in next(iter(summary["learners"].values()))["runs"])
    title = f"{summary['name']}, {summary['ordering']}, seed {seeds}: test accuracy, %"
    figure.suptitle(title, x=0.01, ha="left", fontsize=11)
    return plots.save(figure, path)


def _draw_task(axes: Axes, task: str, summary: Record) -> None:
    mine = summary["tasks"][task]
    begin, end = mine["start"], mine["start"] + mine["train"]
    axes.axvspan(begin, end, color=NOW, zorder=0)
    for other in summary["tasks"].values():
        axes.axvline(other["start"], color=plots.QUIET, linewidth=0.8, zorder=1)
    references = [
        [found for run in each["runs"] if (found := run["tasks"][task]["offline_accuracy"]) is not None]
        for each in summary["learners"].values()
    ]
    if references[0]:
        same = all(other == references[0] for other in references)
        label = "trained offline" if same else f"network of {next(iter(summary['learners']))}, trained offline"
        height = 100 * float(np.mean(references[0]))
        axes.hlines(
            height, begin, summary["examples"], color=plots.OFFLINE, linestyle="--", linewidth=1.2, label=label
        )
    for number, (name, found) in enumerate(summary["learners"].items()):
        steps, values = plots.grid([run["tasks"][task]["events"] for run in found["runs"]])
        look = plots.look_of(number)
        axes.plot(steps, values.mean(0), label=name, markersize=5, **look)
        if len(values) > 1:
            axes.fill_between(steps, values.min(0), values.max(0), color=look["color"], alpha=0.15, linewidth=0)
    axes.set_xlim(0, summary["examples"] * 1.02)
    axes.set_ylabel(task)


def _lowest(summary: Record) -> float:
    """Return the lowest accuracy of all, so that the panels have one scale."""
    tasks = [
        mine for found in summary["learners"].values() for run in found["runs"] for mine in run["tasks"].values()
    ]
    offline = [mine["offline_accuracy"] for mine in tasks if mine["offline_accuracy"] is not None]
    return float(min([*offline, *(event["accuracy"] for mine in tasks for event in mine["events"])]))


def _name_tasks(axes: Axes, summary: Record) -> None:
    where = axes.get_xaxis_transform()
    for task, mine in summary["tasks"].items():
        middle = mine["start"] + mine["train"] / 2
        axes.text(middle, 1.02, task, transform=where, ha="center", fontsize=8, color="#55606b")
