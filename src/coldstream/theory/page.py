"""docs/theory.md, written from results: prose in the templates, verdicts from intervals, pictures beside it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from coldstream.checkpoint import write_atomically
from coldstream.report.kept import KeptResults, keep
from coldstream.report.pages import render
from coldstream.report.tables import Table
from coldstream.theory import figures, statements
from coldstream.theory.fits import MARGIN, Check, Curves, verdict_of
from coldstream.theory.measurements import MEASUREMENTS
from coldstream.theory.measurements.bound import DELTA, RADII, ROOTS
from coldstream.theory.runs import other_code, read_results
from coldstream.theory.sizes import SIZES

TEMPLATES = Path(__file__).parent / "templates"


def write(runs: Path, docs: Path) -> list[Path]:
    """Keep the results of finished points, draw the pictures and write the page; return what was written."""
    results = {name: read_results(name, runs, docs / "results") for name in MEASUREMENTS}
    there = {name: one for name, one in results.items() if one is not None}
    if not there:
        raise ValueError(
            f"no measurement of the theory in {str(runs)!r} or {str(docs / 'results')!r}; run theory first"
        )
    for one in there.values():
        keep(one, docs / "results")
    curves = {name: Curves(one) for name, one in results.items()}
    pictures = figures.draw_all(curves, docs / "images" / "theory")
    page = docs / "theory.md"
    write_atomically(page, render("theory.md.j2", folder=TEMPLATES, **context(there, curves, pictures)).encode())
    return [page, *pictures]


def context(results: dict[str, KeptResults], curves: statements.All, pictures: list[Path]) -> dict[str, Any]:
    """Return what the templates are told."""
    checks = {
        "iterates": statements.iterates(curves),
        "exponents of iterates": statements.exponents_of_iterates(curves),
        "printed iterates": statements.printed_iterates(curves),
        "linearisation": [*statements.linearisation(curves), *statements.perturbation(curves)],
        "attained": statements.attained(curves),
        "convexity": statements.convexity(curves),
        "changes": statements.changes(curves),
        "products": statements.products(curves),
        "activations": statements.activations(curves),
        "corrected activations": statements.corrected_activations(curves),
        "norms": statements.norms(curves),
        "gradients": statements.gradients(curves),
        "regret": statements.regret(curves),
        "mended regret": statements.mended_regret(curves),
        "iid": statements.online_to_batch(curves, "iid"),
        "class order": statements.online_to_batch(curves, "class"),
        "informative": statements.informative(curves),
        "first term": statements.first_term(curves),
        "practice": statements.practice(curves),
    }
    return {
        "checks": checks,
        "verdicts": {name: verdict_of(one) for name, one in checks.items()},
        "tables": {name: table(one) for name, one in checks.items()},
        "pictures": {path.stem for path in pictures},
        "radius": statements.radius(curves),
        "known_form": statements.known_form(curves),
        "data": data_table(curves["bound"]),
        "bounds": bound_table(curves["bound"]),
        "sizes": size_table(),
        "replay": [one.word for one in checks["practice"] if "instead of" in one.what],
        "smallest": min(SIZES, key=lambda size: size.width),
        "coverage": coverage(results),
        "margin": MARGIN,
        "delta": DELTA,
        "roots": ROOTS,
        "command": "coldstream run theory --set data.root=FOLDER",
    }


def table(checks: list[Check]) -> Table:
    """Return checks as a table."""
    return [["", "stated", "measured", "verdict"], *([c.what, c.limit, c.measured, c.word] for c in checks)]


def _number(own: Curves, point: Any, name: str, spec: str = ".2f") -> str:
    interval = own.interval(point, name)
    return "–" if interval is None else format(interval, spec).removeprefix("+")


def data_table(own: Curves) -> Table:
    """Return the separation of each data set, and what the iterates do on it."""
    lines = [["data", "order", "B", "λ", "error of the iterates", "last iterate", "stream error", "second term"]]
    part = own.where("data")
    for point in part.points:
        columns = [
            ("separation", ".3f"),
            ("error", ".3f"),
            ("last error", ".3f"),
            ("stream error", ".3f"),
            ("second term", ".3f"),
        ]
        shown = [_number(part, point, name, spec).removesuffix(" ± 0.000") for name, spec in columns]
        lines.append([point.data, point.order, str(point.replay), *shown])
    return lines


def bound_table(own: Curves) -> Table:
    """Return the terms of the bound beside the error: a line per size."""
    names = [f"R = {radius:g}" for radius in RADII]
    head = [
        "m",
        "n",
        "L",
        "error",
        "second",
        *(f"first, {name}" for name in names),
        *(f"third, {name}" for name in names),
    ]
    lines = [[*head, "R for first + second = 1/2"]]
    for sweep in ("m", "n", "L"):
        part = own.where(sweep)
        for point in part.points:
            cells = [f"{point.width:,}", str(point.steps), str(point.depth), _number(part, point, "error")]
            cells.append(_number(part, point, "second term").removesuffix(" ± 0.00"))
            cells += [_number(part, point, f"first term, {name}") for name in names]
            cells += [f"{part.values(point, f'third term, {name}')[0]:.3g}" for name in names]
            cells.append(
                _number(part, point, "radius for half", ".0f") if part.values(point, "radius for half") else "none"
            )
            lines.append(cells)
    return lines


def size_table() -> Table:
    """Return the smallest admissible networks and the terms there, with constants of 1."""
    lines = [
        [
            "n",
            "L",
            "least m",
            "trained weights",
            "ω",
            "third term, R → 0",
            "m for a third term below 1",
            "third term, R = √m",
            "output moves at most",
        ]
    ]
    for one in SIZES:
        cells = [f"{one.steps:,}", str(one.depth), _power(one.width), _power(one.weights), _power(one.omega)]
        cells += [f"{one.third:.2g}", _power10(one.log10_below_one), _power(one.with_radius), f"{one.movement:.2g}"]
        lines.append(cells)
    return lines


def _power(value: float) -> str:
    exponent = math.floor(math.log10(value))
    return f"{value / 10**exponent:.1f}e{exponent}"


def _power10(logarithm: float) -> str:
    return f"{10 ** (logarithm % 1):.1f}e{math.floor(logarithm)}"


def coverage(results: dict[str, KeptResults]) -> Table:
    """Return what was measured: points, seeds, widths, minutes, machine, commits."""
    lines = [["measurement", "points", "seeds", "m", "L", "n", "minutes", "code", "machine"]]
    for name, one in results.items():
        points = Curves(one).points
        changed = other_code(one)
        code = f"{changed} of {len(list(one.runs))} lines of other code" if changed else "today's"
        ranges = [
            f"{min(values):,}" + (f"–{max(values):,}" if max(values) > min(values) else "")
            for values in ([p.width for p in points], [p.depth for p in points], [p.steps for p in points])
        ]
        machines = "; ".join(sorted({str(run.machine) for run in one.runs}))
        lines.append(
            [name, str(len(points)), str(len(one.seeds)), *ranges, f"{one.duration / 60:.0f}", code, machines]
        )
    return lines
