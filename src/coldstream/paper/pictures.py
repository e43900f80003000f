"""Pictures of the paper's figures, from what was kept of the runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from coldstream.lab.records import Record
from coldstream.paper import crossing
from coldstream.paper.catalog import Figure, Row
from coldstream.paper.results import summary_of, values_of
from coldstream.report import plots


def draw(row: Row, found: Record, folder: Path) -> dict[str, Path]:
    """Draw the figures of a row into a folder; return them by title."""
    folder.mkdir(parents=True, exist_ok=True)
    made = {}
    for figure in row.figures:
        path = folder / f"{row.slug}-{figure.kind}.png"
        KINDS[figure.kind](path, row, figure, found)
        made[figure.title] = path
    return made


def _events(path: Path, row: Row, figure: Figure, found: Record) -> None:
    """Draw one number over the stream, a panel a part and a line a learner: mean and range over seeds."""
    value, scale = figure.options["value"], 100 if "%" in figure.options["label"] else 1
    whole, panels = plots.new_figure(7.2, 4.0, panels=len(found["parts"]), columns=1)
    for axes, (part, content) in zip(panels, found["parts"].items(), strict=True):
        for number, (name, runs) in enumerate(content["learners"].items()):
            steps = [event["step"] for event in runs[0]["events"]]
            values = scale * np.array([[event[value] for event in run["events"]] for run in runs])
            _line(axes, steps, values, name, number)
        axes.set_xlabel("images seen, each once")
        axes.set_ylabel(figure.options["label"])
        axes.set_title(f"{row.name}, {part}, {_seeds(content)}", loc="left", fontsize=10)
        plots.legend(axes, beside=True)
    plots.save(whole, path, svg=False)


def _line(axes: Any, where: Any, values: Any, label: str, number: int) -> None:
    look = plots.look_of(number)
    axes.plot(where, values.mean(0), label=label, markersize=4, **look)
    if len(values) > 1:
        axes.fill_between(where, values.min(0), values.max(0), color=look["color"], alpha=0.15, linewidth=0)


def _seeds(content: Record) -> str:
    most = max(len(runs) for runs in content["learners"].values())
    return f"mean and range of {most} seeds" if most > 1 else "one seed"


def _capacity(path: Path, row: Row, figure: Figure, found: Record) -> None:
    """Draw Ω over the capacity; a method without one is a level line."""
    ((part, content),) = found["parts"].items()
    values = values_of(found)
    whole, (axes,) = plots.new_figure(7.2, 4.2)
    groups: dict[str, dict[float, list[float]]] = {}
    for name in content["learners"]:
        method, _, size = name.rpartition(", ")
        numbers = list(values[part, name, "omega_per_event"].values())
        for capacity in [30, 60, 90, 120, 150] if not method else _capacities(size):
            groups.setdefault(method or name, {})[capacity] = numbers
    for number, (method, mine) in enumerate(groups.items()):
        where = sorted(mine)
        _line(axes, where, np.array([mine[size] for size in where]).T, method, number)
    axes.axhline(1, color=plots.OFFLINE, linestyle="--", linewidth=1.2, label="trained offline")
    axes.set_xticks([30, 60, 90, 120, 150], ["30 Mb", "60 Mb", "90 Mb", "120 Mb", "150 Mb"])
    axes.set_xlabel("capacity; at lab scale the same share of the stream's raw bytes")
    axes.set_ylabel("Ω_all (an offline model per test)")
    axes.set_title(f"{row.name}, {_seeds(content)}", loc="left", fontsize=10)
    plots.legend(axes, beside=True)
    plots.save(whole, path, svg=False)


def _capacities(size: str) -> list[int]:
    first, _, last = size.removesuffix(" Mb").partition("-")
    return list(range(int(first), int(last or first) + 1, 30))


def _bars(path: Path, row: Row, figure: Figure, found: Record) -> None:
    """Draw one number of each learner as a bar, with its standard deviation."""
    values = values_of(found)
    whole, panels = plots.new_figure(7.2, 3.6, panels=len(found["parts"]), columns=1)
    for axes, (part, content) in zip(panels, found["parts"].items(), strict=True):
        names = list(content["learners"])
        summaries = [summary_of(values, part, name, figure.options["value"]) for name in names]
        means = [100 * one.mean if one else 0 for one in summaries]
        spreads = [100 * one.sd if one and one.sd is not None else 0 for one in summaries]
        axes.bar(range(len(names)), means, yerr=spreads, color=plots.COLOURS[0], capsize=3, width=0.6)
        axes.set_xticks(range(len(names)), names)
        axes.set_ylabel(figure.options["label"])
        axes.set_title(f"{row.name}, {part}, {_seeds(content)}", loc="left", fontsize=10)
    plots.save(whole, path, svg=False)


def _confusion(path: Path, row: Row, figure: Figure, found: Record) -> None:
    """Draw what is taken for what at the end of the first seed, a panel a learner."""
    ((_, content),) = found["parts"].items()
    shown = {name: runs[0]["confusion"] for name, runs in content["learners"].items() if name != "offline"}
    whole, panels = plots.new_figure(3.9, 3.9, panels=len(shown))
    for axes, (name, one) in zip(panels, shown.items(), strict=True):
        matrix = np.array(one["rows"], float)
        order = [one["columns"].index(known) for known in one["classes"] if known in one["columns"]]
        share = matrix[:, order] / np.maximum(1, matrix.sum(axis=1, keepdims=True))
        axes.imshow(share, cmap="Greys", vmin=0, vmax=1, interpolation="nearest")
        axes.grid(visible=False)
        axes.yaxis.set_ticks(axes.get_xticks())  # whole numbers on both
        axes.set_xlim(-0.5, len(order) - 0.5)
        axes.set_ylim(len(matrix) - 0.5, -0.5)
        axes.set_xlabel("guess, in order of coming")
        axes.set_ylabel("truth")
        axes.set_title(name, loc="left", fontsize=10)
    plots.save(whole, path, svg=False)


def _tasks(path: Path, row: Row, figure: Figure, found: Record) -> None:
    """Draw the accuracy of each task over the stream, a row of panels a part and a panel a task."""
    parts = found["parts"]
    tasks = list(dict.fromkeys(event["task"] for event in next(iter(_streamed(parts).values()))[0]["events"]))
    whole, panels = plots.new_figure(3.4, 2.9, panels=len(parts) * len(tasks), columns=len(tasks))
    axes_of = iter(panels)
    for part, content in parts.items():
        for task in tasks:
            axes = next(axes_of)
            for number, (name, runs) in enumerate(content["learners"].items()):
                if name == "offline":
                    known = [run["numbers"][f"accuracy of {task}"] for run in runs]
                    axes.axhline(100 * float(np.mean(known)), color=plots.OFFLINE, linestyle="--", label="offline")
                    continue
                mine = [[event for event in run["events"] if event["task"] == task] for run in runs]
                steps = [event["step"] for event in mine[0]]
                _line(axes, steps, 100 * np.array([[e["accuracy"] for e in one] for one in mine]), name, number)
            axes.set_ylim(0, 100)
            axes.set_xlim(0, content["examples"] * 1.04)
            axes.set_title(f"{task}, {part}", loc="left", fontsize=9)
            axes.set_xlabel("images seen")
        axes.legend(frameon=False, fontsize=7)
    plots.save(whole, path, svg=False)


def _streamed(parts: Record) -> dict[str, list[Record]]:
    first = next(iter(parts.values()))["learners"]
    return {name: runs for name, runs in first.items() if name != "offline"}


def _crossing(path: Path, row: Row, figure: Figure, found: Record) -> None:
    """Draw how much better the strong policy is, over the images a class, a line a network."""
    values = values_of(found)
    whole, panels = plots.new_figure(6.0, 3.8, panels=2)
    for axes, metric, label, factor in zip(
        panels,
        ("final_accuracy", "average_ece"),
        ("accuracy: points that the full policy is better", "average ECE: how much lower the full policy's is"),
        (100, -1),
        strict=True,
    ):
        axes.axhline(0, color=plots.QUIET, linewidth=1)
        for number, (network, parameters) in enumerate(crossing.NETWORKS.items()):
            gains = {}
            for length in crossing.LENGTHS[network]:
                part = crossing.part(network, length)
                light, strong = (values.get((part, arm, metric), {}) for arm in (crossing.LIGHT, crossing.STRONG))
                if seeds := sorted(light.keys() & strong.keys()):
                    gains[length] = [factor * (strong[seed] - light[seed]) for seed in seeds]
            fewest = min(map(len, gains.values()), default=0)
            table = np.array([one[:fewest] for one in gains.values()]).T
            if fewest:
                _line(axes, list(gains), table, f"{network}, {parameters} parameters", number)
        axes.set_xscale("log")
        lengths = sorted({length for mine in crossing.LENGTHS.values() for length in mine})
        axes.set_xticks(lengths, [str(length) for length in lengths])
        axes.set_xticks([], minor=True)
        axes.set_xlabel("images of each of ten classes")
        axes.set_ylabel(label, fontsize=9)
        axes.legend(frameon=False, fontsize=8)
    plots.save(whole, path, svg=False)


KINDS: dict[str, Callable[[Path, Row, Figure, Record], None]] = {
    "events": _events,
    "capacity": _capacity,
    "bars": _bars,
    "confusion": _confusion,
    "tasks": _tasks,
    "crossing": _crossing,
}
