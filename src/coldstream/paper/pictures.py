"""The paper's figures, drawn from kept results."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from coldstream.paper import crossing
from coldstream.paper.catalog import Figure, PaperExperiment
from coldstream.report import plots
from coldstream.report.kept import KeptPart, KeptResults, summary_of


def draw(experiment: PaperExperiment, results: KeptResults, folder: Path) -> dict[str, Path]:
    """Draw the figures of an experiment into a folder; return them by title."""
    folder.mkdir(parents=True, exist_ok=True)
    drawn = {}
    for figure in experiment.figures:
        scale = "" if results.scale == "lab" else f"-{results.scale}"
        path = folder / f"{experiment.slug}-{figure.kind}{scale}.png"
        KINDS[figure.kind](path, experiment, figure, results)
        drawn[figure.title] = path
    return drawn


def _seeds(part: KeptPart) -> str:
    counts = {len(runs) for runs in part.learners.values()}
    if counts == {1}:
        return "one seed"
    return f"mean and range of {min(counts)}{f'-{max(counts)}' if len(counts) > 1 else ''} seeds"


def _events(path: Path, experiment: PaperExperiment, figure: Figure, results: KeptResults) -> None:
    """Draw one number over the stream, one panel per part and one line per learner: mean and range over seeds."""
    value, scale = figure.options["value"], 100 if "%" in figure.options["label"] else 1
    whole, panels = plots.new_figure(7.2, 4.0, panels=len(results.parts), columns=1)
    for axes, (name, part) in zip(panels, results.parts.items(), strict=True):
        for number, (learner, runs) in enumerate(part.learners.items()):
            values = [[scale * getattr(event, value) for event in run.events] for run in runs]
            plots.line(axes, [event.step for event in runs[0].events], values, learner, number)
        axes.set_xlabel("images seen, each once")
        axes.set_ylabel(figure.options["label"])
        axes.set_title(f"{experiment.name}, {name}, {_seeds(part)}", loc="left", fontsize=10)
        plots.legend(axes, beside=True)
    plots.save(whole, path, svg=False)


_MEGABYTES = (30, 60, 90, 120, 150)


def _capacity(path: Path, experiment: PaperExperiment, figure: Figure, results: KeptResults) -> None:
    """Draw Ω over the capacity; a method without one is a level line."""
    ((name, part),) = results.parts.items()
    values = results.values
    whole, (axes,) = plots.new_figure(7.2, 4.2)
    methods: dict[str, dict[int, Mapping[int, float]]] = {}
    for learner in part.learners:
        method, _, size = learner.rpartition(", ")
        numbers = values[name, learner, "omega_per_event"]
        for capacity in _capacities(size) if method else _MEGABYTES:
            methods.setdefault(method or learner, {})[capacity] = numbers
    for number, (method, by_capacity) in enumerate(methods.items()):
        sizes = sorted(by_capacity)
        seeds = sorted(set.intersection(*({*numbers} for numbers in by_capacity.values())))
        if seeds:  # a line has those that all of its capacities have
            plots.line(axes, sizes, [[by_capacity[size][seed] for size in sizes] for seed in seeds], method, number)
    axes.axhline(1, color=plots.OFFLINE, linestyle="--", linewidth=1.2, label="trained offline")
    axes.set_xticks(_MEGABYTES, [f"{size} Mb" for size in _MEGABYTES])
    axes.set_xlabel("capacity; below the paper's scale the same share of the stream's raw bytes")
    axes.set_ylabel("Ω_all (an offline model per test)")
    axes.set_title(f"{experiment.name}, {_seeds(part)}", loc="left", fontsize=10)
    plots.legend(axes, beside=True)
    plots.save(whole, path, svg=False)


def _capacities(size: str) -> list[int]:
    first, _, last = size.removesuffix(" Mb").partition("-")
    return list(range(int(first), int(last or first) + 1, 30))


def _bars(path: Path, experiment: PaperExperiment, figure: Figure, results: KeptResults) -> None:
    """Draw one number of each learner as a bar, with its standard deviation."""
    values = results.values
    whole, panels = plots.new_figure(7.2, 3.6, panels=len(results.parts), columns=1)
    for axes, (name, part) in zip(panels, results.parts.items(), strict=True):
        learners = list(part.learners)
        summaries = [summary_of(values, name, learner, figure.options["value"]) for learner in learners]
        means = [100 * one.mean if one else 0 for one in summaries]
        spreads = [100 * one.sd if one and one.sd is not None else 0 for one in summaries]
        axes.bar(range(len(learners)), means, yerr=spreads, color=plots.COLOURS[0], capsize=3, width=0.6)
        axes.set_xticks(range(len(learners)), learners)
        axes.set_ylabel(figure.options["label"])
        axes.set_title(f"{experiment.name}, {name}, {_seeds(part)}", loc="left", fontsize=10)
    plots.save(whole, path, svg=False)


def _confusion(path: Path, experiment: PaperExperiment, figure: Figure, results: KeptResults) -> None:
    """Draw the confusion matrix at the end of the first seed, one panel per learner."""
    (part,) = results.parts.values()
    matrices = {
        learner: runs[0].confusion
        for learner, runs in part.learners.items()
        if learner != "offline" and runs[0].confusion is not None
    }
    whole, panels = plots.new_figure(3.9, 3.9, panels=len(matrices))
    for axes, (learner, confusion) in zip(panels, matrices.items(), strict=True):
        columns = plots.matrix(axes, confusion)
        axes.yaxis.set_ticks(axes.get_xticks())  # whole numbers on both
        axes.set_xlim(-0.5, len(columns) - 0.5)
        axes.set_ylim(len(confusion.truth) - 0.5, -0.5)
        axes.set_xlabel("guess, in order of coming")
        axes.set_title(learner, loc="left", fontsize=10)
    plots.save(whole, path, svg=False)


def _tasks(path: Path, experiment: PaperExperiment, figure: Figure, results: KeptResults) -> None:
    """Draw the accuracy of each task over the stream, one line of panels per part and one panel per task."""
    tasks = list(dict.fromkeys(event.task for run in results.runs for event in run.events))
    whole, panels = plots.new_figure(3.4, 2.9, panels=len(results.parts) * len(tasks), columns=len(tasks))
    places = iter(panels)
    for name, part in results.parts.items():
        for task in tasks:
            axes = next(places)
            for number, (learner, runs) in enumerate(part.learners.items()):
                if learner == "offline":
                    level = float(np.mean([run.numbers[f"accuracy of {task}"] for run in runs]))
                    axes.axhline(100 * level, color=plots.OFFLINE, linestyle="--", label="offline")
                    continue
                tests = [[event for event in run.events if event.task == task] for run in runs]
                values = [[100 * event.accuracy for event in events] for events in tests]
                plots.line(axes, [event.step for event in tests[0]], values, learner, number)
            axes.set_ylim(0, 100)
            axes.set_xlim(0, part.examples * 1.04)
            axes.set_title(f"{task}, {name}", loc="left", fontsize=9)
            axes.set_xlabel("images seen")
        axes.legend(frameon=False, fontsize=7)
    plots.save(whole, path, svg=False)


def _crossing(path: Path, experiment: PaperExperiment, figure: Figure, results: KeptResults) -> None:
    """Draw how much better the strong policy is, over the images per class, one line per network."""
    values = results.values
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
            if fewest:
                table = np.array([gain[:fewest] for gain in gains.values()]).T
                plots.line(axes, list(gains), table, f"{network}, {parameters} parameters", number)
        axes.set_xscale("log")
        lengths = sorted({length for of_network in crossing.LENGTHS.values() for length in of_network})
        axes.set_xticks(lengths, [str(length) for length in lengths])
        axes.set_xticks([], minor=True)
        axes.set_xlabel("images of each of ten classes")
        axes.set_ylabel(label, fontsize=9)
        axes.legend(frameon=False, fontsize=8)
    plots.save(whole, path, svg=False)


KINDS: dict[str, Callable[[Path, PaperExperiment, Figure, KeptResults], None]] = {
    "events": _events,
    "capacity": _capacity,
    "bars": _bars,
    "confusion": _confusion,
    "tasks": _tasks,
    "crossing": _crossing,
}
