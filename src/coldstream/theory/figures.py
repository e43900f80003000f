"""The pictures of docs/theory.md."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from coldstream.report import plots
from coldstream.theory.fits import ZERO, Curves, Variable
from coldstream.theory.measurements.bound import RADII, ROOTS
from coldstream.theory.measurements.neighbourhood import DIRECTIONS
from coldstream.theory.network import omega
from coldstream.theory.statements import GRADIENTS, OMEGA, XI, All, L, M, N

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SIZE = (4.6, 3.3)


def draw_all(curves: All, folder: Path) -> list[Path]:
    """Draw every figure whose measurement has results; return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, (needed, draw) in FIGURES.items():
        if curves[needed].rows:
            paths.append(draw(curves[needed], folder / f"{name}.png"))
    return paths


def _line(axes: Axes, own: Curves, name: str, variable: Variable, label: str, number: int, sign: float = 1) -> None:
    """Draw mean and 95% interval over seeds."""
    where, intervals = [], []
    for point in sorted(own.points, key=variable):
        interval = own.interval(point, name)
        if interval is not None and (axes.get_yscale() != "log" or sign * interval.mean > ZERO):
            where.append(variable(point))
            intervals.append(interval)
    if not where:
        return
    means = sign * np.array([one.mean for one in intervals])
    halves = np.array([one.half or 0.0 for one in intervals])
    look = plots.look_of(number)
    axes.plot(where, means, label=plots.text(label), markersize=4, **look)
    low = means - halves
    if axes.get_yscale() == "log":
        low = np.maximum(low, means / 10)
    axes.fill_between(where, low, means + halves, color=look["color"], alpha=0.15, linewidth=0)


def _guide(axes: Axes, where: Sequence[float], start: float, slope: float, text: str) -> None:
    """Draw a power law for comparison."""
    values = start * (np.array(where) / where[0]) ** slope
    axes.plot(where, values, color=plots.QUIET, linestyle=":", linewidth=1.2)
    axes.annotate(text, (where[-1], values[-1]), fontsize=7.5, color=plots.SMALL_PRINT, ha="right", va="bottom")


def _logs(axes: Axes, x: str, y: str) -> None:
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel(x)
    axes.set_ylabel(y)


def _legend(axes: Axes, size: float) -> None:
    """Name the lines, where there are any."""
    if axes.get_legend_handles_labels()[0]:
        axes.legend(frameon=False, fontsize=size)


def _ticks(axes: Axes, own: Curves, variable: Variable) -> None:
    """Mark the places that were measured, instead of powers of ten."""
    places = sorted({variable(point) for point in own.points})
    axes.set_xticks(places, [f"{place:,g}" for place in places])
    axes.set_xticks([], minor=True)


def _start(own: Curves, name: str, variable: Variable, sign: float = 1) -> tuple[list[float], float]:
    where, table = own.table(name, variable)
    means = sign * table.mean(axis=0) if where else np.empty(0)
    usable = [place for place, mean in enumerate(means) if mean > ZERO]
    return ([where[place] for place in usable], float(means[usable[0]])) if usable else ([], 1.0)


def iterates(own: Curves, path: Path) -> Path:
    figure, panels = plots.new_figure(*SIZE, panels=4)
    first = panels[0]
    _logs(first, "m", "largest ‖W(t) - W(0)‖")
    for number, name in enumerate(("m, lazy", "m, useful")):
        kappa = own.where(name).points[0].kappa
        _line(first, own.where(name), "distance", M, f"κ = {kappa:g}", number)
    where, start = _start(own.where("m, lazy"), "distance", M)
    _ticks(first, own.where("m, lazy"), M)
    _guide(first, where, start, -1, "1/m")
    _guide(first, where, start, -0.5, "1/√m (printed)")
    first.plot(where, [omega(int(m), 3) for m in where], color="#b3342b", linewidth=1, label="ω, constant 1")
    for axes, (sweep, variable, slope, text) in zip(
        panels[1:], (("n", N, 1, "n"), ("B", GRADIENTS, 1, "B + 1"), ("xi", XI, 0.5, "1 + Ξ")), strict=True
    ):
        _logs(axes, text, "largest ‖W(t) - W(0)‖")
        part = own.where(sweep)
        _ticks(axes, part, variable)
        _line(axes, part, "distance", variable, "κ = 0.01", 0)
        where, start = _start(part, "distance", variable)
        _guide(axes, where, start, slope, f"exponent {slope:g}")
    _legend(first, 7.5)
    return plots.save(figure, path, svg=False)


def regimes(own: Curves, path: Path) -> Path:
    figure, panels = plots.new_figure(*SIZE, panels=2)
    for axes, name, label in zip(
        panels,
        ("accuracy", "taylor error"),
        ("accuracy of the last iterate", "largest linearisation error"),
        strict=True,
    ):
        for number, sweep in enumerate(one for one in own.sweeps if one.startswith("kappa")):
            part = own.where(sweep)
            x = [np.mean(part.values(point, "distance")) for point in part.points]
            y = [np.mean(part.values(point, name)) for point in part.points]
            axes.plot(x, y, label=sweep.removeprefix("kappa, "), markersize=4, **plots.look_of(number))
            axes.axvline(
                omega(part.points[0].width, 3), color=plots.look_of(number)["color"], linewidth=0.8, alpha=0.6
            )
        axes.set_xscale("log")
        axes.set_xlabel("largest ‖W(t) - W(0)‖, by κ; thin lines: ω with constant 1")
        axes.set_ylabel(label)
        _legend(axes, 8)
    panels[1].set_yscale("log")
    return plots.save(figure, path, svg=False)


def linearisation(own: Curves, path: Path) -> Path:
    figure, panels = plots.new_figure(*SIZE, panels=4)
    sweeps = (("omega", OMEGA, "ω", 4 / 3), ("m", M, "m", 0.5), ("L", L, "L - 2", 3))
    for axes, (sweep, variable, text, slope) in zip(panels, sweeps, strict=False):
        _logs(axes, text, "linearisation error, rms")
        for number, one in enumerate(DIRECTIONS):
            _line(axes, own.where(sweep, direction=one), "rms error", variable, one, number)
        where, start = _start(own.where(sweep, direction="nearest units"), "rms error", variable)
        _guide(axes, where, start, slope, f"exponent {slope:.3g}")
        if sweep != "omega":
            _ticks(axes, own.where(sweep), variable)
    panels[0].set_ylim(1e-9, None)
    _legend(panels[0], 7)
    last = panels[3]
    _logs(last, "1 + ‖ξ‖²", "linearisation error, nearest units")
    part = own.where("xi")
    for number, kind in enumerate(("orthogonal", "parallel", "opposed")):
        _line(last, part.where("xi", perturbation=kind), "rms error", XI, f"ξ {kind}", number)
    where, start = _start(part.where("xi", perturbation="orthogonal"), "rms error", XI)
    _ticks(last, part.where("xi", perturbation="orthogonal"), XI)
    _guide(last, where, start, 0.5, "exponent 1/2")
    _legend(last, 8)
    return plots.save(figure, path, svg=False)


def convexity(own: Curves, path: Path) -> Path:
    figure, panels = plots.new_figure(*SIZE, panels=2)
    for axes, (sweep, variable, text) in zip(panels, (("omega", OMEGA, "ω"), ("m", M, "m")), strict=True):
        _logs(axes, text, "-(smallest defect), where negative")
        for number, one in enumerate(DIRECTIONS):
            _line(axes, own.where(sweep, direction=one), "defect", variable, one, number, -1)
        where, start = _start(own.where(sweep, direction="nearest units"), "defect", variable, -1)
        slope = 4 / 3 if sweep == "omega" else 0.5
        if where:
            _guide(axes, where, start, slope, f"exponent {slope:.3g}")
    _ticks(panels[1], own.where("m"), M)
    panels[0].set_ylim(1e-9, None)
    _legend(panels[0], 7)
    return plots.save(figure, path, svg=False)


def neighbourhood(own: Curves, path: Path) -> Path:
    figure, panels = plots.new_figure(*SIZE, panels=4)
    for axes, (name, sweep, variable, text, label, slope) in zip(
        panels,
        (
            ("change of h", "omega", OMEGA, "ω", "largest ‖h - h(0)‖ / ‖x + ξ‖", 1),
            ("product", "omega", OMEGA, "ω", "difference of products, with D″", 1 / 3),
            ("gradient", "m", M, "m", "largest ‖∇f‖ / (√m ‖x + ξ‖)", 0),
            ("norm of h", "m", M, "m", "largest ‖h‖ / ‖x + ξ‖", 0),
        ),
        strict=True,
    ):
        _logs(axes, text, label)
        if slope == 0:
            axes.set_yscale("linear")
            axes.set_ylim(0, 1.6)
        for number, one in enumerate(("random", "gradient", "nearest units")):
            _line(axes, own.where(sweep, direction=one), name, variable, one, number)
        where, start = _start(own.where(sweep, direction="nearest units"), name, variable)
        if sweep == "m":
            _ticks(axes, own.where("m"), M)
        if slope:
            _guide(axes, where, start, slope, f"exponent {slope:.2g}")
    _legend(panels[0], 8)
    return plots.save(figure, path, svg=False)


def activations(own: Curves, path: Path) -> Path:
    figure, panels = plots.new_figure(*SIZE, panels=4)
    part = own.where("m")
    kinds = list(dict.fromkeys(point.perturbation for point in part.points))
    labels = ("share in [1 - ‖ξ‖², 1 + ‖ξ‖²]", "share in ‖x + ξ‖² (1 ± ε)", "mean ‖h‖²")
    for axes, name, label in zip(panels, ("inside", "inside corrected", "mean"), labels, strict=False):
        axes.set_xscale("log")
        axes.set_xlabel("m")
        axes.set_ylabel(label)
        for number, kind in enumerate(kinds):
            text = "ξ = 0" if kind == "none" else kind
            _line(axes, part.where("m", perturbation=kind), name, M, text, number)
        if name != "mean":
            axes.set_ylim(-0.04, 1.04)
        _ticks(axes, part, M)
    last = panels[3]
    _logs(last, "m", "deviation of ‖h‖² / ‖x + ξ‖²")
    _line(last, part.where("m", perturbation="none"), "deviation", M, "measured, ξ = 0", 0)
    _line(last, part.where("m", perturbation="none"), "exact deviation", M, "√((1 + 5/m)^(L - 1) - 1)", 1)
    panels[2].legend(frameon=False, fontsize=7, ncols=2)
    _ticks(last, part, M)
    _legend(last, 8)
    return plots.save(figure, path, svg=False)


def regret(own: Curves, path: Path) -> Path:
    figure, panels = plots.new_figure(*SIZE, panels=2)
    for number, sweep in enumerate(own.sweeps):
        text = sweep.replace("one label then the other, iid", "+1, then -1")
        which = panels[0] if "B = 10" in sweep else panels[1]
        _line(which, own.where(sweep), "ratio", N, text, number)
    panels[0].set_ylabel("regret / the lemma's two terms")
    panels[0].set_title("B = 10", fontsize=9)
    panels[1].set_title("B = 0", fontsize=9)
    for axes in panels:
        axes.set_xscale("log")
        axes.set_xlabel("n (m = 2.56 n)")
        axes.axhline(0, color=plots.QUIET, linewidth=1)
        _ticks(axes, own, N)
        _legend(axes, 7)
    return plots.save(figure, path, svg=False)


def bound(own: Curves, path: Path) -> Path:
    figure, panels = plots.new_figure(*SIZE, panels=2)
    part = own.where("m")
    for axes, radii, form in ((panels[0], RADII, "R = {:g}"), (panels[1], ROOTS, "R/√m, R = {:g}")):
        for number, radius in enumerate(radii):
            name = form.format(radius)
            _line(axes, part, f"first term, {name}", M, f"first term, {name}", number)
        _line(axes, part, "error", M, "error of the iterates", 6)
        _line(axes, part, "second term", M, "second term", 7)
        axes.axhline(1, color=plots.QUIET, linewidth=1)
        axes.set_xscale("log")
        axes.set_xlabel("m")
        axes.set_ylim(0, None)
        _ticks(axes, part, M)
        _legend(axes, 7)
    panels[0].set_title("the paper's radius R/m", fontsize=9)
    panels[1].set_title("the radius R/√m of earlier work", fontsize=9)
    return plots.save(figure, path, svg=False)


def practice(own: Curves, path: Path) -> Path:
    figure, panels = plots.new_figure(*SIZE, panels=2)
    axes = panels[0]
    _line(axes, own.where("xi"), "error", lambda p: p.size, "theory's network, noise on a sphere", 0)
    places = {"none": 0, "crops": 1, "crops and flips": 2}
    for number, model in enumerate(dict.fromkeys(point.model for point in own.points)):
        part = own.where("images", model=model)
        for point in part.points:
            interval = own.interval(point, "error")
            if interval is not None:
                axes.errorbar(
                    5 + places[point.perturbation] + 0.12 * number,
                    interval.mean,
                    yerr=interval.half or 0.0,
                    label=_name(model) + ", images" if point.perturbation == "none" else None,
                    color=plots.COLOURS[number + 1],
                    marker=plots.MARKERS[number + 1],
                )
        for offset, order in enumerate(("iid", "class")):
            _line(
                panels[1],
                own.where("B", model=model, order=order),
                "error",
                lambda p: p.replay + 1,
                f"{_name(model)}, {order}",
                2 * number + offset,
            )
    axes.set_xticks([0, 1, 4, 5, 6, 7], ["0", "1", "4", "no", "crops", "crops,\nflips"])
    axes.set_xlabel("‖ξ‖² of noise; augmentation of images")
    panels[1].set_xscale("log")
    _ticks(panels[1], own.kept(lambda point: point.sweep == "B"), GRADIENTS)
    panels[1].set_xlabel("B + 1")
    for one in panels:
        one.set_ylabel("average error of the iterates")
        one.set_ylim(0, None)
        _legend(one, 7)
    return plots.save(figure, path, svg=False)


def _name(model: str) -> str:
    return "theory's network" if model == "theory" else f"CSSL, {model}"


FIGURES = {
    "iterates": ("iterates", iterates),
    "regimes": ("iterates", regimes),
    "linearisation": ("neighbourhood", linearisation),
    "convexity": ("neighbourhood", convexity),
    "neighbourhood": ("neighbourhood", neighbourhood),
    "activations": ("activations", activations),
    "regret": ("regret", regret),
    "bound": ("bound", bound),
    "practice": ("practice", practice),
}
"""Of each picture, the measurement it shows and the function that draws it."""
