"""What an experiment found, from its files alone: tables, pictures and one self-contained page."""

from __future__ import annotations

import base64
import csv
import io
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from coldstream.lab.config import read_config
from coldstream.lab.records import Folder, Record
from coldstream.report import plots, task_plots, task_rows
from coldstream.report.cells import Rows, cost_names, cost_rows, costs, spread

_COLUMNS = {
    "final_accuracy": "final accuracy",
    "final_top5": "top-5",
    "omega_per_event": "Ω_all (offline per event)",
    "omega_final": "Ω_all (final offline)",
    "average_ece": "average ECE",
    "average_ece_debiased": "debiased",
    "prequential": "before learning",
    "forgetting": "forgetting",
    "forward_transfer": "forward transfer",
}

_SHORT = {"final_accuracy": "accuracy", "omega_per_event": "Ω_all", "average_ece": "ECE"}

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; color: #1d242b; max-width: 56rem; margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.5rem; margin-bottom: .2rem } h2 { font-size: 1.1rem; margin-top: 2rem }
p.lead { color: #55606b; margin-top: 0 } img { max-width: 100%; height: auto }
.pictures img { display: block; margin: 1rem 0; max-width: min(100%, 46rem) }
td { white-space: nowrap }
.wide { overflow-x: auto } table { border-collapse: collapse; font-variant-numeric: tabular-nums }
th, td { text-align: right; padding: .25rem .8rem; border-bottom: 1px solid #e6e9ec }
th:first-child, td:first-child { text-align: left } th { font-weight: 600 }
pre { background: #f4f6f8; padding: 1rem; overflow-x: auto; font-size: .85rem }
"""


def learner_rows(summary: Record, timing: Record, *, short: bool = False) -> Rows:
    """Return a header and a row a learner: mean ± sd over seeds, and how many there were.

    A short table has the columns that fit a terminal. With tasks it is the accuracy on each of them.
    """
    if "tasks" in summary:
        return task_rows.learner_rows(summary, timing, short=short)
    means = [found["mean"] for found in summary["learners"].values()]
    shown = [name for name in (_SHORT if short else _COLUMNS) if any(name in mean for mean in means)]
    names = [(_SHORT if short else _COLUMNS)[name] for name in shown]
    rows = [["learner", *names, *cost_names(short=short)]]
    for name, found in summary["learners"].items():
        cells = [spread(found["mean"].get(column)) for column in shown]
        rows.append([name, *cells, *costs(found["runs"], timing["learners"][name], short=short)])
    return rows


def event_rows(summary: Record, run: Record) -> Rows:
    """Return a header and a row a test event of one learner and seed."""
    if "tasks" in summary:
        return task_rows.event_rows(run, summary["tasks"])
    offline = {event["step"]: event for event in run["offline"]}
    rows = [["classes", "images seen", "accuracy", "offline", "ratio", "ECE", "ECE debiased", "test images"]]
    for event in run["events"]:
        reference = offline.get(event["step"])
        rows.append(
            [
                str(event["classes"]),
                f"{event['step']:,}",
                f"{event['accuracy']:.1%}",
                f"{reference['accuracy']:.1%}" if reference else "–",
                f"{event['accuracy'] / reference['accuracy']:.3f}" if reference and reference["accuracy"] else "–",
                f"{event['ece']:.3f}",
                f"{event['ece_debiased']:.3f}",
                f"{event['images']:,}",
            ]
        )
    return rows


def run_rows(run: Record, timing: Record) -> Rows:
    """Return what one learner and seed come down to, as (name, value)."""
    if "tasks" in run:
        return task_rows.run_rows(run, timing)
    rows = []
    if run["omega_per_event"] is not None:
        rows.append(["Ω_all (an offline model per event)", f"{run['omega_per_event']:.3f}"])
    if run["omega_final"] is not None:
        rows.append(["Ω_all (one final offline model)", f"{run['omega_final']:.3f}"])
    rows += [
        ["average ECE (debiased)", f"{run['average_ece']:.3f} ({run['average_ece_debiased']:.3f})"],
        ["final accuracy", f"{run['final_accuracy']:.1%}"],
    ]
    if run["prequential"] is not None:
        rows.append(["accuracy on each image before it was learned", f"{run['prequential']:.1%}"])
    if run["forgetting"] is not None:
        rows += [
            ["forgetting (mean fall of a class from its best)", f"{run['forgetting']:.3f}"],
            ["backward transfer (mean change of a class since it came)", f"{run['backward_transfer']:+.3f}"],
        ]
    if run["forward_transfer"] is not None:
        rows.append(["forward transfer (accuracy on a class before it comes)", f"{run['forward_transfer']:.3f}"])
    return [*rows, *cost_rows(run, timing)]


def write_report(folder: Folder) -> None:
    """Draw the pictures of a finished experiment, and write its tables and its page."""
    summary, timing = folder.read("summary.json"), folder.read("timing.json")
    lines = folder.lines("metrics.jsonl")
    settings = read_config(folder.path / "config.yaml")["learners"]
    draw_all = task_plots.draw_all if "tasks" in summary else plots.draw_all
    pictures = draw_all(folder.path, summary, lines, settings)
    rows = learner_rows(summary, timing)
    folder.write("results.md", markdown(rows))
    folder.write("results.csv", comma_separated(rows))
    folder.write("results.tex", latex(rows))
    folder.write("report.html", _page(folder, summary, timing, lines, pictures))


def markdown(rows: Rows) -> str:
    """Return a table in Markdown."""
    escaped = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    lines = [f"| {' | '.join(row)} |" for row in escaped]
    return "\n".join([lines[0], "|" + "---|" * len(rows[0]), *lines[1:]]) + "\n"


def comma_separated(rows: Rows) -> str:
    """Return a table as CSV."""
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(rows)
    return out.getvalue()


def latex(rows: Rows) -> str:
    """Return a table in LaTeX, for the booktabs package."""
    special = str.maketrans(
        {"&": r"\&", "%": r"\%", "_": r"\_", "#": r"\#", "$": r"\$", "±": r"$\pm$", "Ω": r"$\Omega$", "–": "--"}
    )
    body = [" & ".join(cell.translate(special) for cell in row) + r" \\" for row in rows]
    top = [rf"\begin{{tabular}}{{l{'r' * (len(rows[0]) - 1)}}}", r"\toprule", body[0], r"\midrule"]
    return "\n".join([*top, *body[1:], r"\bottomrule", r"\end{tabular}"]) + "\n"


def _page(folder: Folder, summary: Record, timing: Record, lines: list[Record], pictures: list[Path]) -> str:
    config = (folder.path / "config.yaml").read_text()
    images = "".join(
        f'<img alt="{path.stem}" src="data:image/png;base64,{base64.b64encode(path.read_bytes()).decode()}">'
        for path in pictures
    )
    data = summary["data"]
    lead = (
        f"{summary['examples']:,} images of {data['name']}, {summary['ordering']}, streamed once, one at a time; "
        f"{data['test']:,} test images. Computed in {timing['seconds'] / 60:.1f} minutes."
    )
    parts = []
    if len(summary["learners"]) > 1 or len(next(iter(summary["learners"].values()))["runs"]) > 1:
        parts.append(html_table(learner_rows(summary, timing)))
        parts.append('<p class="lead">Mean ± standard deviation over seeds.</p>')
    if "tasks" in summary:
        parts.append(f"<h2>Tasks</h2>{html_table(task_rows.forgetting_rows(summary))}")
    parts.append(f'<div class="pictures">{images}</div>')
    for name, found in summary["learners"].items():
        for number, run in enumerate(found["runs"]):
            mine = [line for line in lines if line["learner"] == name and line["seed"] == run["seed"]]
            inner = [html_table(run_rows(run, timing["learners"][name][number]), head=False)]
            inner.append(html_table(event_rows(summary, run)))
            for last in {line.get("task"): line for line in mine}.values():
                if len(last["classes"]) <= 20:
                    of = f", {escape(last['task'])}" if "task" in last else ""
                    inner.append(f"<h3>What is taken for what at the end{of}</h3>{_confusion(last)}")
            parts.append(f"<h2>{escape(name)}, seed {run['seed']}</h2>{''.join(inner)}")
    facts = "; ".join(_environments(timing))
    title = escape(summary["name"])
    return f"""<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{title}</title><style>{STYLE}</style>
<h1>{title}</h1>
<p class="lead">{escape(lead)}</p>
{"".join(parts)}
<h2>Settings</h2>
<pre>{escape(config)}</pre>
<p class="lead">{escape(facts)}</p>
</html>
"""


def _environments(timing: Record) -> list[str]:
    """Return what the learners were computed with; one line where it was the same for all."""
    found = [run["environment"] for runs in timing["learners"].values() for run in runs]
    lines = [", ".join(f"{key} {value}" for key, value in one.items() if value is not None) for one in found]
    return list(dict.fromkeys(lines))


def html_table(rows: Sequence[Sequence[str]], head: bool = True) -> str:
    """Return a table in HTML; without `head`, all of its rows are alike."""

    def line(row: Sequence[Any], tag: str) -> str:
        return f"<tr>{''.join(f'<{tag}>{escape(str(cell))}</{tag}>' for cell in row)}</tr>"

    body = [line(row, "th" if head and i == 0 else "td") for i, row in enumerate(rows)]
    return f'<div class="wide"><table>{"".join(body)}</table></div>'


def _confusion(event: Record) -> str:
    names, columns, matrix = event["classes"], event["confusion"]["columns"], event["confusion"]["rows"]
    order = [columns.index(name) for name in names if name in columns]
    rows = [[name, *(str(row[i] or "·") for i in order)] for name, row in zip(names, matrix, strict=True)]
    return html_table([["truth \\ guess", *(columns[i] for i in order)], *rows])
