"""What a run found, from its files alone: a table for the terminal, pictures, and one self-contained page."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from html import escape
from pathlib import Path

from coldstream.checkpoint import write_atomically
from coldstream.experiments.plots import plot_accuracy, plot_reliability
from coldstream.experiments.records import Record, RunFolder
from coldstream.metrics import Reliability

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; color: #1d242b; max-width: 52rem; margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.5rem; margin-bottom: .2rem } h2 { font-size: 1.1rem; margin-top: 2rem }
p.lead { color: #55606b; margin-top: 0 } img { max-width: 100%; height: auto }
.pictures { display: flex; flex-wrap: wrap; gap: 1rem; align-items: flex-start }
.pictures img { flex: 1 1 20rem; min-width: 0 } .pictures img:first-child { flex-grow: 1.5 }
table { border-collapse: collapse; font-variant-numeric: tabular-nums }
th, td { text-align: right; padding: .25rem .8rem; border-bottom: 1px solid #e6e9ec }
th:first-child, td:first-child { text-align: left } th { font-weight: 600 }
pre { background: #f4f6f8; padding: 1rem; overflow-x: auto; font-size: .85rem }
"""


def event_rows(summary: Record) -> list[list[str]]:
    """Return a header and a row a test event."""
    offline = {event["step"]: event for event in summary["offline"]}
    rows = [["classes", "images seen", "accuracy", "offline", "ratio", "ECE", "ECE debiased", "test images"]]
    for event in summary["events"]:
        reference = offline.get(event["step"])
        rows.append(
            [
                str(event["classes"]),
                f"{event['step']:,}",
                f"{event['accuracy']:.1%}",
                f"{reference['accuracy']:.1%}" if reference else "–",
                f"{event['accuracy'] / reference['accuracy']:.3f}" if reference else "–",
                f"{event['ece']:.3f}",
                f"{event['ece_debiased']:.3f}",
                f"{event['images']:,}",
            ]
        )
    return rows


def result_rows(summary: Record, timing: Record) -> list[tuple[str, str]]:
    """Return what the whole run comes down to, as (name, value)."""
    buffer = summary["buffer"]
    rows = []
    if summary["omega_per_event"] is not None:
        rows += [
            ("Ω_all (an offline model per event)", f"{summary['omega_per_event']:.3f}"),
            ("Ω_all (one final offline model)", f"{summary['omega_final']:.3f}"),
        ]
    rows += [
        ("average ECE (debiased)", f"{summary['average_ece']:.3f} ({summary['average_ece_debiased']:.3f})"),
        ("final accuracy", f"{summary['final_accuracy']:.1%}"),
    ]
    if summary["prequential"] is not None:
        rows.append(("accuracy on each image before it was learned", f"{summary['prequential']:.1%}"))
    return [
        *rows,
        ("time an example", f"{timing['ms_per_example']:.1f} ms"),
        ("replay buffer", f"{buffer['examples']:,} examples, {buffer['bytes']:,} bytes"),
        ("its index (ids, labels)", f"{timing['index_bytes']:,} bytes"),
        ("parameters", f"{summary['parameters']:,}, {summary['frozen_share']:.0%} frozen"),
    ]


def write_report(folder: RunFolder) -> None:
    """Draw the pictures of a finished run and write its page."""
    summary, timing = folder.read("summary.json"), folder.read("timing.json")
    events, offline = folder.read_lines("metrics.jsonl"), folder.read_lines("offline.jsonl")
    accuracy, reliability = folder.path / "accuracy.png", folder.path / "reliability.png"
    plot_accuracy(accuracy, events, offline, f"{summary['name']}, seed {summary['seed']}: from a cold start")
    last = events[-1]
    title = f"confidence at the end: ECE {last['ece']:.3f} on {last['images']:,} images"
    plot_reliability(reliability, Reliability.from_dict(last["reliability"]), title)
    write_atomically(folder.path / "report.html", _page(folder, summary, timing, [accuracy, reliability]).encode())


def _page(folder: RunFolder, summary: Record, timing: Record, pictures: list[Path]) -> str:
    config = (folder.path / "config.yaml").read_text()
    environment = folder.read("environment.json")
    header, *rows = event_rows(summary)
    images = "".join(
        f'<img alt="{path.stem}" src="data:image/png;base64,{base64.b64encode(path.read_bytes()).decode()}">'
        for path in pictures
    )
    confusion = folder.read_lines("metrics.jsonl")[-1]
    facts = ", ".join(f"{key} {value}" for key, value in environment.items() if value is not None)
    return f"""<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{escape(summary["name"])}, seed {summary["seed"]}</title><style>{_STYLE}</style>
<h1>{escape(summary["name"])}, seed {summary["seed"]}</h1>
<p class="lead">{summary["examples"]:,} images, streamed once, one at a time, from random weights and no classes.</p>
{_table(["", ""], result_rows(summary, timing), head=False)}
<h2>Test events</h2>
{_table(header, rows)}
<div class="pictures">{images}</div>
<h2>What is taken for what at the end</h2>
{_confusion(confusion)}
<h2>Settings</h2>
<pre>{escape(config)}</pre>
<p class="lead">{escape(facts)}</p>
</html>
"""


def _table(header: Sequence[str], rows: Sequence[Sequence[str]], head: bool = True) -> str:
    top = f"<tr>{''.join(f'<th>{escape(cell)}</th>' for cell in header)}</tr>" if head else ""
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table>{top}{body}</table>"


def _confusion(event: Record) -> str:
    names, columns, matrix = event["classes"], event["confusion"]["columns"], event["confusion"]["rows"]
    order = [columns.index(name) for name in names if name in columns]
    rows = [[name, *(str(row[i] or "·") for i in order)] for name, row in zip(names, matrix, strict=True)]
    return _table(["truth \\ guess", *(columns[i] for i in order)], rows)
