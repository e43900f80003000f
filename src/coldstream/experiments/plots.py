"""Pictures of a run: the same colours everywhere, and markers that tell lines apart in black and white."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from coldstream.experiments.records import Record
from coldstream.metrics import Reliability

if TYPE_CHECKING:
    from matplotlib.axes import Axes

STREAM, OFFLINE, QUIET = "#1f5fa8", "#d1761b", "#9aa3ad"


def _figure(width: float, height: float) -> tuple[object, Axes]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#e6e9ec", linewidth=0.8)
    axes.set_axisbelow(True)
    return figure, axes


def plot_accuracy(path: Path, events: list[Record], offline: list[Record], title: str) -> None:
    """Draw accuracy after each test event over the examples seen, with the offline reference."""
    figure, axes = _figure(6.4, 3.8)
    steps = [event["step"] for event in events]
    if offline:
        axes.plot(
            [event["step"] for event in offline],
            [100 * event["accuracy"] for event in offline],
            color=OFFLINE,
            marker="s",
            linestyle="--",
            label="same network, trained offline on the same images",
        )
    axes.plot(
        steps,
        [100 * event["accuracy"] for event in events],
        color=STREAM,
        marker="o",
        label="streamed, one image at a time",
    )
    for event in events:
        axes.text(
            event["step"],
            1.01,
            f"{len(event['classes'])} classes",
            transform=axes.get_xaxis_transform(),
            ha="center",
            fontsize=7.5,
            color="#55606b",
        )
    values = [100 * event["accuracy"] for event in [*events, *offline]]
    axes.set_ylim(max(0.0, min(values) - 8), 101)
    axes.set_xlim(0, steps[-1] * 1.06)
    axes.set_xlabel("images seen, each once")
    axes.set_ylabel("test accuracy on classes seen, %")
    axes.set_title(title, loc="left", fontsize=11, pad=18)
    axes.legend(frameon=False, loc="lower left", fontsize=8.5)
    figure.savefig(path)  # type: ignore[attr-defined]


def plot_reliability(path: Path, reliability: Reliability, title: str) -> None:
    """Draw accuracy against confidence in each bin, and how many images fall into it."""
    figure, axes = _figure(5.2, 4.8)
    edges = reliability.edges
    counts = list(reliability.count)
    total = max(1, sum(counts))
    width = 1 / len(counts)
    axes.plot([0, 1], [0, 1], color=QUIET, linestyle="--", linewidth=1, label="perfectly calibrated")
    for i, count in enumerate(counts):
        accuracy, confidence = reliability.accuracy[i], reliability.confidence[i]
        if accuracy is None or confidence is None:  # nothing fell into this bin
            continue
        axes.bar(edges[i], count / total, width, align="edge", color="#dfe5ec", zorder=1)
        axes.plot([confidence, confidence], [confidence, accuracy], color=OFFLINE, linewidth=1.4, zorder=2)
        axes.plot(
            confidence, accuracy, marker="o", color=STREAM, markersize=3.5 + 6 * (count / total) ** 0.5, zorder=3
        )
    axes.bar(0, 0, color="#dfe5ec", label="share of images")
    axes.plot([], [], marker="o", linestyle="", color=STREAM, label="accuracy of a bin")
    axes.plot([], [], color=OFFLINE, linewidth=1.4, label="its gap to the confidence")
    axes.set_xlim(0, 1.01)
    axes.set_ylim(0, 1.03)
    axes.set_xlabel("confidence")
    axes.set_ylabel("accuracy, and share of images")
    axes.set_title(title, loc="left", fontsize=10)
    axes.legend(frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.13), ncols=2, fontsize=8)
    figure.savefig(path)  # type: ignore[attr-defined]
