"""Pictures of an experiment: one colour, marker and dash a learner everywhere, so that grey print can be read too."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from coldstream.lab.records import Record
from coldstream.metrics import Reliability
from coldstream.replay import Capacity

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = (
    *("#1f5fa8", "#b3342b", "#2c8a57", "#7a4fa3", "#8a6d1f", "#2a8f9e"),
    *("#a3487d", "#55606b", "#0d2c54", "#e0876a", "#7fb069", "#b79ced"),
)
MARKERS = ("o", "^", "D", "v", "P", "X", "<", ">", "p", "h", "*", "d")
DASHES = (
    "-",
    "--",
    "-.",
    ":",
    (0, (5, 1, 1, 1)),
    (0, (3, 1)),
    (0, (1, 1)),
    (0, (7, 2)),
    (0, (7, 1, 3, 1)),
    (0, (2, 2)),
)
OFFLINE, QUIET, BARS = "#d1761b", "#9aa3ad", "#dfe5ec"
_FEW = 20  # classes whose names fit an axis


def draw_all(path: Path, summary: Record, lines: list[Record], settings: dict[str, Record]) -> list[Path]:
    """Draw every picture of an experiment into a folder, as PNG and SVG; return the PNG files.

    `settings` are those of each learner: those that differ in capacity only make a picture of their own.
    """
    made = [accuracy(path / "accuracy.png", summary, lines)]
    storing = {name: settings[name] for name, found in summary["learners"].items() if found["runs"][0]["buffer"]}
    if groups := same_but_capacity(storing):
        made.append(capacity(path / "capacity.png", summary, settings, groups))
    made.append(reliability(path / "reliability.png", summary, lines))
    made.append(coverage(path / "coverage.png", summary, lines))
    made.append(confusion(path / "confusion.png", summary, lines))
    return made


def accuracy(path: Path, summary: Record, lines: list[Record]) -> Path:
    """Draw accuracy over the examples seen: mean and range over seeds, with the offline reference."""
    figure, (axes,) = new_figure(6.8, 4.0)
    lowest, highest = 100.0, 0.0
    first = next(iter(summary["learners"].values()))["runs"]
    references = [_references(found["runs"]) for found in summary["learners"].values()]
    if references[0]:
        steps, values = grid(references[0])
        same = all(found == references[0] for found in references)
        label = "trained offline" if same else f"network of {next(iter(summary['learners']))}, trained offline"
        axes.plot(steps, values.mean(0), color=OFFLINE, marker="s", linestyle="--", label=label)
        lowest, highest = min(lowest, float(values.min())), max(highest, float(values.max()))
    for number, (name, found) in enumerate(summary["learners"].items()):
        steps, values = grid([run["events"] for run in found["runs"]])
        axes.plot(steps, values.mean(0), label=f"{name}, streamed", markersize=5, **look_of(number))
        if len(values) > 1:
            axes.fill_between(
                steps, values.min(0), values.max(0), color=look_of(number)["color"], alpha=0.15, linewidth=0
            )
        lowest, highest = min(lowest, float(values.min())), max(highest, float(values.max()))
    marked = [(event["step"], event["classes"]) for event in first[0]["events"]]
    for step, classes in marked if len(marked) <= 10 else ():
        where = axes.get_xaxis_transform()
        axes.text(step, 1.01, f"{classes} classes", transform=where, ha="center", fontsize=7.5, color="#55606b")
    axes.set_ylim(max(0.0, lowest - 8), min(101.0, highest + 8))
    axes.set_xlim(0, marked[-1][0] * 1.06)
    axes.set_xlabel("images seen, each once")
    axes.set_ylabel("test accuracy, %")
    seeds = ", ".join(str(run["seed"]) for run in first)
    axes.set_title(f"{summary['name']}, {summary['ordering']}, seed {seeds}", loc="left", fontsize=11, pad=18)
    legend(axes, beside=len(summary["learners"]) > 5)
    return save(figure, path)


def same_but_capacity(settings: dict[str, Record]) -> dict[str, list[str]]:
    """Return learners of several capacities that are the same otherwise, by what tells them from the other groups.

    Examples
    --------
    >>> same_but_capacity({"a": {"evict": "uniform", "capacity": 9}, "b": {"evict": "uniform", "capacity": "1MB"}})
    {'streamed': ['a', 'b']}
    """
    groups: list[tuple[Record, list[str]]] = []
    for name, mine in settings.items():
        rest = {key: value for key, value in mine.items() if key != "capacity"}
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


def capacity(path: Path, summary: Record, settings: dict[str, Record], groups: dict[str, list[str]]) -> Path:
    """Draw Ω_all over what the buffer held at the end, mean and range over seeds; without Ω the final accuracy."""
    figure, (axes,) = new_figure(6.2, 4.0)
    bounds = [Capacity.parse(settings[name]["capacity"]) for names in groups.values() for name in names]
    unit = "bytes" if any(bound.bytes for bound in bounds) else "examples"
    runs = {name: summary["learners"][name]["runs"] for names in groups.values() for name in names}
    relative = all(run["omega_per_event"] is not None for mine in runs.values() for run in mine)
    number = "omega_per_event" if relative else "final_accuracy"
    filled = {name: float(np.mean([run["buffer"][unit] for run in mine])) for name, mine in runs.items()}
    if relative:
        axes.axhline(1, color=OFFLINE, linestyle="--", linewidth=1.2, label="trained offline")
    for place, (label, names) in enumerate(groups.items()):
        names = sorted(names, key=filled.__getitem__)
        values = np.array([[run[number] for run in runs[name]] for name in names])
        where, look = [filled[name] for name in names], look_of(place)
        axes.plot(where, values.mean(1), label=label, markersize=5, **look)
        if values.shape[1] > 1:
            axes.fill_between(where, values.min(1), values.max(1), color=look["color"], alpha=0.15, linewidth=0)
    _size_axis(axes, sorted(set(filled.values())), unit)
    axes.set_xlabel(f"{unit} in the replay buffer at the end")
    axes.set_ylabel("Ω_all (an offline model per test)" if relative else "final test accuracy")
    seeds = ", ".join(str(run["seed"]) for run in next(iter(runs.values())))
    axes.set_title(f"{summary['name']}, {summary['ordering']}, seed {seeds}", loc="left", fontsize=11)
    axes.legend(frameon=False, loc="best", fontsize=8.5)
    return save(figure, path)


def _size_axis(axes: Axes, sizes: list[float], unit: str) -> None:
    """Mark each size, on a log axis where they span much; sizes too near to a marked one stay unmarked."""
    wide = sizes[-1] >= 8 * sizes[0]
    if wide:
        axes.set_xscale("log")
    places = np.log(sizes) if wide else np.array(sizes)
    marked: list[int] = []
    for i, place in enumerate(places):
        if not marked or place - places[marked[-1]] >= 0.08 * (places[-1] - places[0]):
            marked.append(i)
    axes.set_xticks([sizes[i] for i in marked], [_size(sizes[i], unit) for i in marked])
    axes.set_xticks([], minor=True)


def _size(size: float, unit: str) -> str:
    if unit == "examples":
        return f"{size:,.0f}"
    power = min(3, max(0, int(np.log10(size)) // 3))
    return f"{float(f'{size:.3g}') / 1000**power:g} {('B', 'KB', 'MB', 'GB')[power]}"


def reliability(path: Path, summary: Record, lines: list[Record]) -> Path:
    """Draw accuracy against confidence at the end of the first seed, a panel a learner."""
    ends = _ends(summary, lines)
    figure, panels = new_figure(4.6, 4.7, panels=len(ends))
    for axes, (name, event) in zip(panels, ends.items(), strict=True):
        found = Reliability.from_dict(event["reliability"])
        total, width = max(1, sum(found.count)), 1 / len(found.count)
        axes.plot([0, 1], [0, 1], color=QUIET, linestyle="--", linewidth=1, label="perfectly calibrated")
        for i, count in enumerate(found.count):
            right, sure = found.accuracy[i], found.confidence[i]
            if right is None or sure is None:  # nothing fell into this bin
                continue
            axes.bar(found.edges[i], count / total, width, align="edge", color=BARS, zorder=1)
            axes.plot([sure, sure], [sure, right], color=OFFLINE, linewidth=1.4, zorder=2)
            size = 3.5 + 6 * (count / total) ** 0.5
            axes.plot(sure, right, marker="o", color=COLOURS[0], markersize=size, zorder=3)
        axes.bar(0, 0, color=BARS, label="share of images")
        axes.plot([], [], marker="o", linestyle="", color=COLOURS[0], label="accuracy of a bin")
        axes.plot([], [], color=OFFLINE, linewidth=1.4, label="its gap to the confidence")
        axes.set_xlim(0, 1.01)
        axes.set_ylim(0, 1.03)
        axes.set_xlabel("confidence")
        axes.set_ylabel("accuracy, and share of images")
        title = f"{name}: ECE {event['ece']:.3f} on {event['images']:,} images"
        axes.set_title(title, loc="left", fontsize=10)
        axes.legend(frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.13), ncols=2, fontsize=7.5)
    return save(figure, path)


def coverage(path: Path, summary: Record, lines: list[Record]) -> Path:
    """Draw accuracy against the share of images accepted, by confidence, at the end of the first seed."""
    figure, (axes,) = new_figure(6.8, 4.0)
    lowest = 1.0
    for number, (name, event) in enumerate(_ends(summary, lines).items()):
        curve = event["coverage"]
        look = {**look_of(number), "marker": ""}
        axes.plot(curve["coverage"], curve["accuracy"], label=name, **look)
        lowest = min(lowest, *curve["accuracy"])
    axes.set_xlim(0, 1.01)
    axes.set_ylim(max(0.0, lowest - 0.05), 1.01)
    axes.set_xlabel("share of images that the learner is surest of")
    axes.set_ylabel("accuracy on them")
    axes.set_title("what can be accepted without a look", loc="left", fontsize=10)
    legend(axes, beside=len(summary["learners"]) > 5)
    return save(figure, path)


def confusion(path: Path, summary: Record, lines: list[Record]) -> Path:
    """Draw the confusion matrix at the end of the first seed, a panel a learner; classes as the test lists them."""
    ends = _ends(summary, lines)
    listed = "in order of coming" if summary["ordering"].startswith("class-") else "by name"
    figure, panels = new_figure(4.4, 4.4, panels=len(ends))
    for axes, (name, event) in zip(panels, ends.items(), strict=True):
        columns = event["confusion"]["columns"]
        matrix = np.array(event["confusion"]["rows"], float)
        order = [columns.index(one) for one in event["classes"] if one in columns]
        share = matrix[:, order] / np.maximum(1, matrix.sum(axis=1, keepdims=True))
        axes.imshow(share, cmap="Greys", vmin=0, vmax=1, interpolation="nearest")
        axes.grid(visible=False)
        if len(columns) <= _FEW:
            axes.set_xticks(range(len(order)), [columns[i] for i in order], rotation=90 if _long(columns) else 0)
            axes.set_yticks(range(len(matrix)), event["classes"])
        axes.set_xlabel(f"guess, {listed}")
        axes.set_ylabel("truth")
        axes.set_title(f"{name}: accuracy {event['accuracy']:.1%}", loc="left", fontsize=10)
    return save(figure, path)


def legend(axes: Axes, *, beside: bool) -> None:
    """Name the lines, where they leave room or beside the picture."""
    where: dict[str, Any] = {"loc": "center left", "bbox_to_anchor": (1.0, 0.5)} if beside else {"loc": "best"}
    axes.legend(frameon=False, fontsize=8.5, **where)


def _long(names: Sequence[str]) -> bool:
    return max(map(len, names), default=0) > 2


def new_figure(width: float, height: float, panels: int = 1, columns: int = 2) -> tuple[Figure, Sequence[Axes]]:
    """Return a figure of panels, each of that size in inches."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    columns = min(columns, panels)  # more than two side by side are too small to read on a page
    rows = -(-panels // columns)
    figure = Figure(figsize=(width * columns, height * rows), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    made = [figure.add_subplot(rows, columns, i + 1) for i in range(panels)]
    for axes in made:
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", color="#e6e9ec", linewidth=0.8)
        axes.set_axisbelow(True)
    return figure, made


def save(figure: Figure, path: Path, *, svg: bool = True) -> Path:
    """Write a figure as PNG, and as SVG beside it; return the PNG's path."""
    figure.savefig(path)
    if svg:
        figure.savefig(path.with_suffix(".svg"))
    return path


def look_of(number: int) -> dict[str, Any]:
    """Return colour, marker and dash of a learner."""
    looks = {"color": COLOURS, "marker": MARKERS, "linestyle": DASHES}
    return {what: kinds[number % len(kinds)] for what, kinds in looks.items()}


def _references(runs: list[Record]) -> list[list[Record]]:
    """Return what was trained offline for each seed, where that was done."""
    return [run["offline"] for run in runs if run["offline"]]


def grid(runs: list[list[Record]]) -> tuple[list[int], np.ndarray]:
    """Return the steps of the events (of the first seed) and accuracies in percent, a row a seed."""
    return [event["step"] for event in runs[0]], np.array(
        [[100 * event["accuracy"] for event in run] for run in runs]
    )


def _ends(summary: Record, lines: list[Record]) -> dict[str, Record]:
    """Return the last test of each learner's first seed, of each task where there are several."""
    last = {}
    for name, found in summary["learners"].items():
        for line in lines:
            if (line["learner"], line["seed"]) == (name, found["runs"][0]["seed"]):
                last[f"{name}, {line['task']}" if "task" in line else name] = line
    return last
