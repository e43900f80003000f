"""The results of a benchmark as tables, files and a picture."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from coldstream.benchmarks.measuring import Bench, Row
from coldstream.benchmarks.targets import Verdict, judge
from coldstream.checkpoint import write_atomically
from coldstream.lab.environment import describe_environment

Table = list[list[str]]
_OURS = ("sizes", "storage", "parts")
_IN_PICTURE = ("step", "networks", "parts", "sizes", "batch", "storage", "peers")


def write(bench: Bench, command: str, questions: Mapping[str, str]) -> None:
    """Write bench.json and bench.md; `questions` says for each part what it answers."""
    verdicts = judge(bench.rows)
    found = {
        "command": command,
        "environment": {**describe_environment(), "processor": _processor(), "cores": os.cpu_count()},
        "scale": asdict(bench.scale),
        "verdicts": [{**asdict(v.target), "ratio": v.row and v.row.ratio, "verdict": v.verdict} for v in verdicts],
        "rows": [asdict(row) for row in bench.rows],
        "notes": bench.notes,
    }
    write_atomically(bench.folder / "bench.json", json.dumps(found, indent=1).encode())
    write_atomically(bench.folder / "bench.md", _page(bench, found, questions).encode())


def tables(bench: Bench) -> dict[str, Table]:
    """Return a table for each group of each part, and one of the verdicts, by title."""
    groups: dict[str, list[Row]] = {}
    for row in bench.rows:
        groups.setdefault(f"{row.part}: {row.group}", []).append(row)
    return {**{title: row_table(rows) for title, rows in groups.items()}, "targets": verdict_table(judge(bench.rows))}


def row_table(rows: Sequence[Row]) -> Table:
    """Return results as a table: median and spread, ratio and spread."""
    table = [["", "median (16th-84th)", "ratio (16th-84th)", "to", "note"]]
    for row in rows:
        wide = "" if row.low == row.high else f" ({_amount(row.low)}-{_amount(row.high)})"
        amount = f"{row.value:,.0f} bytes" if row.unit == "bytes" else f"{_amount(row.value)}{wide} ms"
        table.append([row.name, amount, _ratio(row), row.to or "", row.note])
    return table


def verdict_table(verdicts: Sequence[Verdict]) -> Table:
    """Return the targets, what was measured, and the verdict."""
    table = [["target", "limit", "ratio (16th-84th)", "verdict"]]
    for one in verdicts:
        limit = f"{'≥' if one.target.at_least else '≤'} {one.target.limit:g}"
        which = f" ({one.row.name})" if one.row is not None and one.row.name != one.target.name else ""
        table.append([one.target.text, limit, _ratio(one.row), one.verdict + which])
    return table


def _ratio(row: Row | None) -> str:
    if row is None or row.ratio is None:
        return ""
    return f"{row.ratio:.2f}" + ("" if row.low == row.high else f" ({row.ratio_low:.2f}-{row.ratio_high:.2f})")


def _amount(ms: float) -> str:
    return f"{ms:.{max(0, 2 - int(np.floor(np.log10(abs(ms) or 1))))}f}"


def _page(bench: Bench, found: dict[str, Any], questions: Mapping[str, str]) -> str:
    env = found["environment"]
    commit = f", commit {env['commit'][:12]}" if env["commit"] else ""
    lines = [
        f"`{found['command']}` made these tables on {env['processor']}, {env['cores']} cores, "
        f"{env['threads']} threads, {env['machine']}, Python {env['python']}, torch {env['torch']}, "
        f"NumPy {env['numpy']}, Coldstream {env['coldstream']}{commit}.",
        "",
        "Ways of one group are measured in turns. A number is the median over rounds, with the 16th and 84th "
        "percentile. A ratio is taken within each round. B = 100 and "
        f"{bench.scale.stored:,} stored where nothing else is said.",
        "",
    ]
    made = tables(bench)
    lines += ["## targets", "", *_markdown(made.pop("targets")), ""]
    part = ""
    for title, table in made.items():
        before, part = part, title.split(":")[0]
        if part != before:
            lines += [f"## {part}", "", " ".join(questions[part].split()), ""]
        lines += [f"**{title}**", "", *_markdown(table), ""]
    lines += [f"- {note}" for note in bench.notes]
    return "\n".join(lines).rstrip() + "\n"


def _markdown(table: Table) -> list[str]:
    head, *rest = [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in table]
    return [head, f"|{'---|' * len(table[0])}", *rest]


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    return next(
        (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "unknown processor"
    )


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
    for number, ((part, group), mine) in enumerate(groups.items(), 1):
        axes = figure.add_subplot(lines, columns, number)
        values = [row.value for row in mine.values()]
        wide = [[row.value - row.low for row in mine.values()], [row.high - row.value for row in mine.values()]]
        colours = [
            "#1f5fa8" if "learn_one" in name or (part in _OURS and "floor" not in name) else "#9aa3ad"
            for name in mine
        ]
        axes.barh(list(mine), values, xerr=wide, color=colours, ecolor="#55606b")
        axes.invert_yaxis()
        axes.set_title(f"{part}: {group}", fontsize=10)
        axes.set_xlabel("ms a step")
        axes.tick_params(labelsize=8)
    figure.savefig(path, dpi=110)
