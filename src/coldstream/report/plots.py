"""Plot style: each learner has one colour, marker and dash everywhere, so that grey print can be read too."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from coldstream.parsing import plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from coldstream.lab.records import Confusion

COLOURS = (
    *("#1f5fa8", "#b3342b", "#2c8a57", "#7a4fa3", "#8a6d1f", "#2a8f9e"),
    *("#a3487d", "#55606b", "#0d2c54", "#e0876a", "#7fb069", "#b79ced"),
)
MARKERS = ("o", "^", "D", "v", "P", "X", "<", ">", "p", "h", "*", "d")
DASHES = (
    *("-", "--", "-.", ":", (0, (5, 1, 1, 1)), (0, (3, 1))),
    *((0, (1, 1)), (0, (7, 2)), (0, (7, 1, 3, 1)), (0, (2, 2))),
)
OFFLINE, QUIET, BARS, SHADE, SMALL_PRINT = "#d1761b", "#9aa3ad", "#dfe5ec", "#f0f3f6", "#55606b"


def new_figure(width: float, height: float, panels: int = 1, columns: int = 2) -> tuple[Figure, Sequence[Axes]]:
    """Return a figure of panels, each of that size in inches."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    columns = min(columns, panels)  # more than two side by side are too small to read on a page
    lines = -(-panels // columns)
    figure = Figure(figsize=(width * columns, height * lines), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    all_axes = [figure.add_subplot(lines, columns, i + 1) for i in range(panels)]
    for axes in all_axes:
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", color="#e6e9ec", linewidth=0.8)
        axes.set_axisbelow(True)
    return figure, all_axes


def text(value: object) -> str:
    r"""Return text that a picture shows as it is: a dollar sign would begin a formula.

    Examples
    --------
    >>> text("5$ or 6$")
    '5\\$ or 6\\$'
    """
    return plain(value).replace("$", r"\$")


def look_of(number: int) -> dict[str, Any]:
    """Return colour, marker and dash of a learner."""
    looks = {"color": COLOURS, "marker": MARKERS, "linestyle": DASHES}
    return {name: choices[number % len(choices)] for name, choices in looks.items()}


def line(axes: Axes, where: Sequence[float], values: ArrayLike, label: str, number: int) -> None:
    """Draw the mean of values (seeds x places) as a line, and their range as a band around it."""
    table = np.asarray(values, np.float64)
    look = look_of(number)
    axes.plot(where, table.mean(0), label=text(label), markersize=4.5, **look)
    if len(table) > 1:
        axes.fill_between(where, table.min(0), table.max(0), color=look["color"], alpha=0.15, linewidth=0)


def matrix(axes: Axes, confusion: Confusion) -> list[str]:
    """Draw a confusion matrix as shares of each true class; return the names of its columns."""
    columns = [name for name in confusion.truth if name in confusion.predicted]
    counts = np.array(confusion.counts, np.float64)
    shown = counts[:, [confusion.predicted.index(name) for name in columns]]
    axes.imshow(shown / np.maximum(1, counts.sum(axis=1, keepdims=True)), cmap="Greys", vmin=0, vmax=1)
    axes.grid(visible=False)
    axes.set_ylabel("truth")
    return columns


def legend(axes: Axes, *, beside: bool) -> None:
    """Name the lines, inside of the picture or beside it."""
    where: dict[str, Any] = {"loc": "center left", "bbox_to_anchor": (1.0, 0.5)} if beside else {"loc": "best"}
    axes.legend(frameon=False, fontsize=8.5, **where)


def save(figure: Figure, path: Path, *, svg: bool = True) -> Path:
    """Write a figure as PNG, and as SVG beside it; return the PNG's path."""
    figure.savefig(path)
    if svg:
        figure.savefig(path.with_suffix(".svg"))
    return path
