"""Pictures of a finished run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from coldstream.lab.records import FinishedRun, LearnerResult, Results, TaskData, TaskResult, UnitEvent
from coldstream.replay import Capacity
from coldstream.report import plots

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Settings = dict[str, Any]
_FEW = 20  # classes whose names fit an axis


def draw_all(run: FinishedRun, settings: dict[str, Settings]) -> list[Path]:
    """Draw every picture of a run into its folder, as PNG and SVG; return the PNG files.

    `settings` are those of each learner: learners that differ in capacity only get a picture of their own.
    """
    path, results = run.folder.path, run.results
    drawn = [accuracy(path / "accuracy.png", results)]
    storing = {name: settings[name] for name, learner in results.learners.items() if learner.units[0].learner.buffer}
    if groups := same_but_capacity(storing):
        drawn.append(capacity(path / "capacity.png", results, settings, groups))
    events = _last_events(run)
    drawn.append(reliability(path / "reliability.png", events))
    drawn.append(coverage(path / "coverage.png", events))
    drawn.append(confusion(path / "confusion.png", events, results.ordering))
    return drawn


def _last_events(run: FinishedRun) -> dict[str, UnitEvent]:
    """Return the last test of each task, of the first seed of each learner."""
    return {
        name if event.task is None else f"{name}, {event.task}": event
        for name, learner in run.results.learners.items()
        for event in run.last_events(name, learner.units[0].seed)
    }


def _title(results: Results) -> str:
    seeds = ", ".join(str(unit.seed) for unit in next(iter(results.learners.values())).units)
    return plots.text(f"{results.name}, {results.ordering}, seed {seeds}")


def accuracy(path: Path, results: Results) -> Path:
    """Draw accuracy over the stream, one panel per task: mean and range over seeds, with the offline reference.

    With several tasks, vertical lines are where tasks begin; a panel is shaded where its task is streamed.
    """
    several = len(results.tasks) > 1
    figure, panels = plots.new_figure(6.8, 2.1 if several else 4.0, panels=len(results.tasks), columns=1)
    for axes, task in zip(panels, results.tasks, strict=True):
        _draw_task(axes, task, results)
        axes.set_ylim(*_accuracy_range(results))
        axes.set_xlim(0, results.examples * 1.04)
        axes.set_ylabel(plots.text(task.task) if several else "test accuracy, %")
    _annotate(panels[0], results)
    panels[-1].set_xlabel("images seen, each once")
    labelled = [zip(*axes.get_legend_handles_labels(), strict=True) for axes in panels]
    handles = {text: handle for pairs in labelled for handle, text in pairs}
    figure.legend(handles.values(), handles.keys(), frameon=False, loc="outside lower center", ncols=3, fontsize=8.5)
    title = _title(results) + (": test accuracy, %" if several else "")
    figure.suptitle(title, x=0.01, ha="left", fontsize=11)
    return plots.save(figure, path)


def _draw_task(axes: Axes, task: TaskData, results: Results) -> None:
    if len(results.tasks) > 1:
        axes.axvspan(task.start, task.end, color=plots.SHADE, zorder=0)
        for other in results.tasks:
            axes.axvline(other.start, color=plots.QUIET, linewidth=0.8, zorder=1)
    _draw_references(axes, task, results)
    for number, (name, learner) in enumerate(results.learners.items()):
        tests = _of_task(learner, task)
        values = [[100 * event.accuracy for event in unit.events] for unit in tests]
        plots.line(axes, [event.step for event in tests[0].events], values, f"{name}, streamed", number)


def _of_task(learner: LearnerResult, task: TaskData) -> list[TaskResult]:
    return [unit.task(task.task) for unit in learner.units]


def _draw_references(axes: Axes, task: TaskData, results: Results) -> None:
    """Draw the offline reference of the first learner: a line, or a level where there is one for all tests."""
    references = [
        [unit.offline for unit in _of_task(learner, task) if unit.offline] for learner in results.learners.values()
    ]
    if not references[0]:
        return
    same = all(other == references[0] for other in references)
    label = "trained offline" if same else plots.text(f"network of {next(iter(results.learners))}, trained offline")
    values = 100 * np.mean([[event.accuracy for event in events] for events in references[0]], axis=0)
    look: Settings = {"color": plots.OFFLINE, "linestyle": "--", "label": label}
    if len(values) == 1:
        axes.hlines(values[0], task.start, results.examples, linewidth=1.2, **look)
    else:
        axes.plot([event.step for event in references[0][0]], values, marker="s", **look)


def _accuracy_range(results: Results) -> tuple[float, float]:
    """Return the limits of accuracy, in percent, that all panels share."""
    tasks = [task for _, unit in results.units for task in unit.tasks]
    values = [100 * event.accuracy for task in tasks for event in (*task.events, *task.offline)]
    return max(0.0, min(values) - 8), min(102.0, max(values) + 8)


def _annotate(axes: Axes, results: Results) -> None:
    """Label the top of the picture with the tasks, or with the number of classes in each test."""
    first = next(iter(results.learners.values())).units[0]
    labels = [((task.start + task.end) / 2, str(task.task)) for task in results.tasks]
    if not results.has_tasks:
        labels = [(event.step, f"{event.classes} classes") for event in first.events]
    for step, text in labels if len(labels) <= 10 else ():
        where = axes.get_xaxis_transform()
        axes.text(step, 1.01, plots.text(text), transform=where, ha="center", fontsize=7.5, color=plots.SMALL_PRINT)


def same_but_capacity(settings: dict[str, Settings]) -> dict[str, list[str]]:
    """Return the groups of learners that differ in capacity only; the settings that groups differ in name them.

    Examples
    --------
    >>> same_but_capacity({"a": {"evict": "uniform", "capacity": 9}, "b": {"evict": "uniform", "capacity": "1MB"}})
    {'streamed': ['a', 'b']}
    """
    groups: list[tuple[Settings, list[str]]] = []
    for name, learner in settings.items():
        rest = {key: value for key, value in learner.items() if key != "capacity"}
        for other, names in groups:
            if other == rest:
                names.append(name)
                break
        else:
            groups.append((rest, [name]))
    several = [(rest, names) for rest, names in groups if len({str(settings[n].get("capacity")) for n in names}) > 1]
    keys = dict.fromkeys(key for rest, _ in several for key in rest)
    telling = [key for key in keys if any(rest.get(key) != several[0][0].get(key) for rest, _ in several)]
    return {", ".join(f"{key} {rest.get(key)}" for key in telling) or "streamed": names for rest, names in several}


def capacity(path: Path, results: Results, settings: dict[str, Settings], groups: dict[str, list[str]]) -> Path:
    """Draw Ω_all over what the buffer held at the end, mean and range over seeds; without Ω the final accuracy."""
    figure, (axes,) = plots.new_figure(6.2, 4.0)
    units = {name: results.learners[name].units for names in groups.values() for name in names}
    in_bytes = any(Capacity.parse(settings[name]["capacity"]).bytes for name in units)
    relative = all(unit.numbers.omega_per_event is not None for several in units.values() for unit in several)
    metric = "omega_per_event" if relative else "final_accuracy"
    filled = {}
    for name, several in units.items():
        buffers = [unit.learner.buffer for unit in several if unit.learner.buffer]
        filled[name] = float(np.mean([buffer.bytes if in_bytes else buffer.examples for buffer in buffers]))
    if relative:
        axes.axhline(1, color=plots.OFFLINE, linestyle="--", linewidth=1.2, label="trained offline")
    for number, (label, group) in enumerate(groups.items()):
        names = sorted(group, key=filled.__getitem__)
        values = np.array([[unit.numbers.get(metric) for unit in units[name]] for name in names], np.float64).T
        plots.line(axes, [filled[name] for name in names], values, label, number)
    _size_axis(axes, sorted(set(filled.values())), in_bytes)
    axes.set_xlabel(f"{'bytes' if in_bytes else 'examples'} in the replay buffer at the end")
    axes.set_ylabel("Ω_all (an offline model per test)" if relative else "final test accuracy")
    axes.set_title(_title(results), loc="left", fontsize=11)
    plots.legend(axes, beside=False)
    return plots.save(figure, path)


def _size_axis(axes: Axes, sizes: list[float], in_bytes: bool) -> None:
    """Mark each size, on a log axis where they span much; sizes too near to a marked one stay unmarked."""
    wide = sizes[-1] >= 8 * sizes[0]
    if wide:
        axes.set_xscale("log")
    places = np.log(sizes) if wide else np.array(sizes)
    marked: list[int] = []
    for i, place in enumerate(places):
        if not marked or place - places[marked[-1]] >= 0.08 * (places[-1] - places[0]):
            marked.append(i)
    axes.set_xticks([sizes[i] for i in marked], [size_text(sizes[i], in_bytes) for i in marked])
    axes.set_xticks([], minor=True)


def size_text(size: float, in_bytes: bool) -> str:
    """Return a number of bytes or examples in short.

    Examples
    --------
    >>> size_text(12345, in_bytes=True), size_text(12345, in_bytes=False)
    ('12.3 KB', '12,345')
    """
    if not in_bytes:
        return f"{size:,.0f}"
    power = min(3, max(0, int(np.log10(size)) // 3))
    return f"{float(f'{size:.3g}') / 1000**power:g} {('B', 'KB', 'MB', 'GB')[power]}"


def reliability(path: Path, events: dict[str, UnitEvent]) -> Path:
    """Draw accuracy against confidence at the end of the first seed, one panel per learner."""
    figure, panels = plots.new_figure(4.6, 4.7, panels=len(events))
    for axes, (name, event) in zip(panels, events.items(), strict=True):
        diagram = event.reliability
        width = 1 / len(diagram.count)
        axes.plot([0, 1], [0, 1], color=plots.QUIET, linestyle="--", linewidth=1, label="perfectly calibrated")
        for edge, count, right, sure in zip(
            diagram.edges, diagram.count, diagram.accuracy, diagram.confidence, strict=False
        ):
            if right is None or sure is None:  # an empty bin
                continue
            share = count / diagram.images
            axes.bar(edge, share, width, align="edge", color=plots.BARS, zorder=1)
            axes.plot([sure, sure], [sure, right], color=plots.OFFLINE, linewidth=1.4, zorder=2)
            axes.plot(sure, right, marker="o", color=plots.COLOURS[0], markersize=3.5 + 6 * share**0.5, zorder=3)
        axes.bar(0, 0, color=plots.BARS, label="share of images")
        axes.plot([], [], marker="o", linestyle="", color=plots.COLOURS[0], label="accuracy of a bin")
        axes.plot([], [], color=plots.OFFLINE, linewidth=1.4, label="gap to the confidence")
        axes.set_xlim(0, 1.01)
        axes.set_ylim(0, 1.03)
        axes.set_xlabel("confidence")
        axes.set_ylabel("accuracy, and share of images")
        title = plots.text(f"{name}: ECE {event.ece:.3f} on {event.images:,} images")
        axes.set_title(title, loc="left", fontsize=10)
        axes.legend(frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.13), ncols=2, fontsize=7.5)
    return plots.save(figure, path)


def coverage(path: Path, events: dict[str, UnitEvent]) -> Path:
    """Draw accuracy against the share of images accepted, by confidence, at the end of the first seed."""
    figure, (axes,) = plots.new_figure(6.8, 4.0)
    for number, (name, event) in enumerate(events.items()):
        look = plots.look_of(number) | {"marker": "", "label": plots.text(name)}
        axes.plot(event.coverage.coverage, event.coverage.accuracy, **look)
    lowest = min(min(event.coverage.accuracy) for event in events.values())
    axes.set_xlim(0, 1.01)
    axes.set_ylim(max(0.0, lowest - 0.05), 1.01)
    axes.set_xlabel("share of predictions accepted, the most confident first")
    axes.set_ylabel("accuracy of those")
    axes.set_title("accuracy if only the most confident predictions are accepted", loc="left", fontsize=10)
    plots.legend(axes, beside=len(events) > 5)
    return plots.save(figure, path)


def confusion(path: Path, events: dict[str, UnitEvent], ordering: str) -> Path:
    """Draw the confusion matrix at the end of the first seed, one panel per learner; classes in test order."""
    order = "in order of coming" if ordering.startswith("class-") else "by name"
    figure, panels = plots.new_figure(4.4, 4.4, panels=len(events))
    for axes, (name, event) in zip(panels, events.items(), strict=True):
        columns = plots.matrix(axes, event.confusion)
        if max(len(event.confusion.predicted), len(event.confusion.truth)) <= _FEW:
            long = max(map(len, event.confusion.predicted), default=0) > 2
            axes.set_xticks(range(len(columns)), map(plots.text, columns), rotation=90 if long else 0)
            axes.set_yticks(range(len(event.confusion.truth)), map(plots.text, event.confusion.truth))
        axes.set_xlabel(f"guess, {order}")
        axes.set_title(plots.text(f"{name}: accuracy {event.accuracy:.1%}"), loc="left", fontsize=10)
    return plots.save(figure, path)
