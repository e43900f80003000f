"""The results of a benchmark as tables, files and a picture."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measuring import Bench, Row
from benchmarks.targets import Judgement, judge
from coldstream.checkpoint import write_atomically
from coldstream.lab.environment import describe_environment
from coldstream.report.pages import render
from coldstream.report.tables import Table

_OURS = ("sizes", "storage", "parts")
_IN_PICTURE = ("step", "networks", "parts", "sizes", "batch", "storage", "peers")


def write(bench: Bench, command: str, questions: Mapping[str, str]) -> None:
    """Write bench.json and bench.md; `questions` says for each part what it answers."""
    results = {
        "command": command,
        "environment": {**dict(describe_environment()), "cores": os.cpu_count()},
        "scale": asdict(bench.scale),
        "verdicts": [
            {
                **asdict(one.target),
                "ratio": one.row and one.row.ratio,
                "interval": one.interval,
                "verdict": one.verdict.outcome,
            }
            for one in judge(bench.rows)
        ],
        "rows": [asdict(row) for row in bench.rows],
        "notes": bench.notes,
    }
    write_atomically(bench.folder / "bench.json", json.dumps(results, indent=1).encode())
    write_atomically(bench.folder / "bench.md", _page(bench, results, questions).encode())


def tables(bench: Bench) -> dict[str, Table]:
    """Return a table for each group of each part, and one of the targets, by title."""
    groups: dict[str, list[Row]] = {}
    for row in bench.rows:
        groups.setdefault(f"{row.part}: {row.group}", []).append(row)
    return {**{title: row_table(rows) for title, rows in groups.items()}, "targets": target_table(judge(bench.rows))}


def row_table(rows: Sequence[Row]) -> Table:
    """Return results as a table: median and spread, ratio and spread."""
    table = [["", "median (16th-84th)", "ratio (16th-84th)", "to", "note"]]
    for row in rows:
        wide = "" if row.low == row.high else f" ({_amount(row.low)}-{_amount(row.high)})"
        amount = f"{row.value:,.0f} bytes" if row.unit == "bytes" else f"{_amount(row.value)}{wide} ms"
        table.append([row.name, amount, _ratio(row), row.to or "", row.note])
    return table


def target_table(judged: Sequence[Judgement]) -> Table:
    """Return the targets, what was measured, and the verdict."""
    table = [["target", "limit", "ratio (16th-84th)", "mean (95% interval)", "verdict"]]
    for one in judged:
        limit = f"{'≥' if one.target.at_least else '≤'} {one.target.limit:g}"
        which = f" ({one.row.name})" if one.row is not None and one.row.name != one.target.name else ""
        mean = "" if one.interval is None else "{:.2f} ({:.2f}-{:.2f})".format(*one.interval)
        table.append([one.target.text, limit, _ratio(one.row), mean, one.verdict.outcome + which])
    return table


def _ratio(row: Row | None) -> str:
    if row is None or row.ratio is None:
        return ""
    return f"{row.ratio:.2f}" + ("" if row.low == row.high else f" ({row.ratio_low:.2f}-{row.ratio_high:.2f})")


def _amount(ms: float) -> str:
    return f"{ms:.{max(0, 2 - int(np.floor(np.log10(abs(ms) or 1))))}f}"


def _page(bench: Bench, results: dict[str, Any], questions: Mapping[str, str]) -> str:
    by_title = tables(bench)
    targets = by_title.pop("targets")
    sections: dict[str, dict[str, Table]] = {}
    for title, table in by_title.items():
        sections.setdefault(title.split(":")[0], {})[title] = table
    page = render(
        "bench.md.j2",
        folder=Path(__file__).parent / "templates",
        command=results["command"],
        environment=results["environment"],
        stored=bench.scale.stored,
        targets=targets,
        sections=[
            {"part": part, "question": " ".join(questions[part].split()), "tables": of_part}
            for part, of_part in sections.items()
        ],
        notes=bench.notes,
    )
    return page.rstrip() + "\n"


def draw(path: Path, rows: Sequence[Row]) -> None:
    """Draw the times of every group as bars."""
    from matplotlib.figure import Figure

    groups: dict[tuple[str, str], dict[str, Row]] = {}
    for row in rows:
        if row.part in _IN_PICTURE:
            groups.setdefault((row.part, row.group), {})[row.name] = row
    if not groups:
        return
    columns = min(3, len(groups))
    lines = -(-len(groups) // columns)
    figure = Figure(figsize=(6.2 * columns, 3.4 * lines), layout="constrained")
    for number, ((part, group), by_name) in enumerate(groups.items(), 1):
        axes = figure.add_subplot(lines, columns, number)
        values = [row.value for row in by_name.values()]
        wide = [[row.value - row.low for row in by_name.values()], [row.high - row.value for row in by_name.values()]]
        colours = [
            "#1f5fa8" if "learn_one" in name or (part in _OURS and "floor" not in name) else "#9aa3ad"
            for name in by_name
        ]
        axes.barh(list(by_name), values, xerr=wide, color=colours, ecolor="#55606b")
        axes.invert_yaxis()
        axes.set_title(f"{part}: {group}", fontsize=10)
        axes.set_xlabel("ms per step")
        axes.tick_params(labelsize=8)
    figure.savefig(path, dpi=110)
