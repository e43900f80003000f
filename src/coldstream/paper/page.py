"""The page of results: every table and figure, ours beside the paper's, each claim with its verdict."""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

import yaml

from coldstream.lab.records import Folder, Record
from coldstream.paper import ROWS, pictures, results
from coldstream.paper.catalog import Ref, Row
from coldstream.paper.verdicts import (
    CONFIRMED,
    CONTRADICTED,
    MISSING,
    UNDECIDED,
    Judgement,
    Values,
    verdict,
)
from coldstream.report.cells import Rows
from coldstream.report.page import STYLE, html_table, markdown

METRICS = {
    "omega_per_event": "Ω_all",
    "omega_final": "Ω_all (final offline)",
    "top5_omega_per_event": "top-5 Ω_all",
    "top5_omega_final": "top-5 Ω_all (final offline)",
    "average_accuracy": "average accuracy",
    "average_top5": "average top-5",
    "final_accuracy": "final accuracy",
    "average_ece": "average ECE",
    "average_ece_debiased": "debiased",
    "frozen_share": "really frozen, head included",
    "bias_to_last_batch": "taken for the last batch",
    "bias_to_last_class": "taken for the last class",
}


@dataclass(frozen=True)
class Block:
    """A piece of a page: a heading, a paragraph, a table, a picture, code; in Markdown and in HTML."""

    markdown: str
    html: str


def heading(level: int, text: str) -> Block:
    return Block(f"{'#' * level} {text}\n", f"<h{level}>{escape(text)}</h{level}>")


def paragraph(text: str) -> Block:
    marked = re.sub("`(.+?)`", r"<code>\1</code>", escape(text))
    return Block(text + "\n", f"<p>{marked}</p>")


def table(rows: Rows, *, words: bool = False) -> Block:
    """Return a table, of numbers or of words, which are set to the left and may be broken."""
    made = html_table(rows)
    return Block(markdown(rows), f'<div class="words">{made}</div>' if words else made)


def code(text: str) -> Block:
    return Block(f"```\n{text}\n```\n", f"<pre>{escape(text)}</pre>")


def picture(title: str, path: Path, page: Path) -> Block:
    where = os.path.relpath(path, page).replace(os.sep, "/")
    data = base64.b64encode(path.read_bytes()).decode()
    return Block(f"![{title}]({where})\n", f'<p><img alt="{escape(title)}" src="data:image/png;base64,{data}"></p>')


def write(runs: Path, out: Path) -> list[Path]:
    """Write the page of results, and a page for each row, of what the runs found and what was kept before."""
    kept, images = out / "results", out / "images" / "results"
    found = {row.name: results.read(row, "lab", runs, kept) for row in ROWS.values()}
    sections: list[Block] = []
    overview: Rows = [["", "claim", "verdict", "seeds"]]
    written = []
    for row in ROWS.values():
        mine = found[row.name]
        if mine is None:
            overview.append([row.name, "", MISSING, ""])
            written.append(_row_page(row, [], out))
            continue
        results.keep(mine, kept)
        values = results.values_of(mine)
        drawn = pictures.draw(row, mine, images)
        for claim in row.claims:
            overview.append([row.name, claim.text, verdict(claim, values)[0], _seeds(row, mine)])
        if not row.claims:
            overview.append([row.name, "(a table to read, no claim to test)", "–", _seeds(row, mine)])
        sections += [*_section(row, mine, values), *(picture(title, path, out) for title, path in drawn.items())]
        pictured = [picture(title, path, out / "paper") for title, path in drawn.items()]
        judged = [
            block
            for claim in row.claims
            for block in (heading(3, claim.text), table(_comparisons(verdict(claim, values)[1])))
        ]
        written.append(_row_page(row, [*_section(row, mine, values), *pictured, *judged], out))
    top = [heading(1, "The paper's tables and figures, measured here"), *map(paragraph, _INTRODUCTION)]
    blocks = [*top, table(overview, words=True), *sections]
    Folder(out).write("results.md", "\n".join(block.markdown for block in blocks))
    body = "\n".join(block.html for block in blocks)
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><style>{STYLE}{_WORDS}</style>'
    Folder(out).write("results.html", f'<!doctype html>\n<html lang="en">{head}\n{body}\n</html>\n')
    return [out / "results.md", out / "results.html", *written]


_WORDS = ".words td, .words th { text-align: left; white-space: normal }"
_INTRODUCTION = (
    "Made by `coldstream report paper`. Each row is an experiment of its own, `coldstream run paper/NAME --scale "
    "lab`, which takes place on two processor cores: few classes, small images, a small network. `--scale paper` "
    "is the same definition with the paper's settings, for a GPU; it was not run here. How a row is scaled down "
    "is said with it, and its page in docs/paper has the settings of both scales and every comparison.",
    "Ours are mean ± standard deviation over seeds. The paper's Ω_all divide by one final offline accuracy; ours "
    "are given by the definition, an offline model for every test, and in the paper's way beside it where the "
    "table has room. Either way a learner that begins pre-trained is divided by an offline model that does so, too: "
    "between the two kinds accuracies can be compared, Ω_all cannot. By one final offline accuracy Ω_all comes out "
    "above 1 here, for the early tests are of few classes and easy; where tests come after every class, the first "
    "one is of a single class, on which a learner that begins cold cannot be wrong.",
    "Accuracies at lab scale are not meant to equal the paper's: what can be compared is which method is ahead. Tests"
    " have 100 images a class (fewer in T:core50 and with several tasks); ECE of so few comes out too high, hence the"
    " debiased one beside it. A claim is confirmed where every comparison in it is, contradicted where one comparison"
    " goes against it, both beyond two standard errors of the difference between paired seeds; else it is undecided. "
    "One seed decides nothing, and three are few: where nothing is to be found, a comparison of three pairs passes "
    "two standard errors in a given direction with a chance of one in eleven, so that of many comparisons some do.",
)


def _seeds(row: Row, found: Record) -> str:
    """Return how many runs there are of everything: so many seeds, or steps where these are timed."""
    counts = {len(runs) for part in found["parts"].values() for runs in part["learners"].values()}
    shown = str(min(counts)) if len(counts) == 1 else f"{min(counts)}-{max(counts)}"
    return shown if row.measured is None else f"{shown} steps"


def _commits(found: Record) -> str:
    """Return the commits that ran it, oldest seed first."""
    runs = (run for part in found["parts"].values() for mine in part["learners"].values() for run in mine)
    commits = dict.fromkeys(run["commit"] for run in runs if "commit" in run)
    return ", ".join(commits) or str(found["environment"].get("commit"))[:7]


def _heading(row: Row) -> list[Block]:
    return [
        heading(2, f"{row.name}: {row.title}"),
        paragraph(f"Varies: {row.varies}. Fixed: {row.fixed}."),
        paragraph(f"Lab scale: {row.lab}"),
    ]


def _section(row: Row, found: Record, values: Values) -> list[Block]:
    environment = found["environment"]
    threads, seeds = environment.get("threads"), _seeds(row, found)
    how = (
        f"{seeds}, {threads} threads"
        if row.measured is not None
        else f"{seeds} seed{'s' * (seeds != '1')}, {results.seconds(found) / 60:.0f} minutes of one core "
        f"({threads} thread a job)"
    )
    facts = f"{found['date']}, commit {_commits(found)}, {how}, torch {environment.get('torch')}."
    blocks = [*_heading(row), code(_command(row, found)), *map(table, tables(row, found))]
    if row.claims:
        rows = [["claim", "verdict", "comparisons for it", "undecided", "against it", "not run"]]
        for claim in row.claims:
            kind, judged = verdict(claim, values)
            kinds = [one.verdict for one in judged]
            counts = [str(kinds.count(name)) for name in (CONFIRMED, UNDECIDED, CONTRADICTED, MISSING)]
            rows.append([claim.text, kind, *counts])
        blocks.append(table(rows, words=True))
    if missing := [part for part in row.experiments("lab") if part not in found["parts"] and row.measured is None]:
        facts += f" Not run yet: {', '.join(missing)}."
    note = [paragraph(NOTES[row.name])] if row.name in NOTES else []
    return [*blocks, *note, paragraph(facts)]


def _command(row: Row, found: Record) -> str:
    """Return what makes this result again: with those seeds that were run, where these are not all."""
    ran = sorted(
        {run["seed"] for part in found["parts"].values() for runs in part["learners"].values() for run in runs}
    )
    wanted = sorted({seed for tree in row.experiments("lab").values() for seed in tree["seeds"]})
    seeds = "" if row.measured is not None or ran == wanted else "".join(f" --seed {seed}" for seed in ran)
    options = "" if row.measured is not None else f"{seeds} --jobs 2 --set data.root=FOLDER"
    return f"coldstream run {row.name_on_command_line} --scale lab{options}"


NOTES = {
    "T:reservoir": "A reservoir is a uniform sample of what has come, so that class by class every class keeps "
    "about as many images as with eviction from the largest one: a large difference is not to be "
    "expected. The paper prints the test of its reservoir so that it is always true, and says "
    "nothing that would explain its large difference; ours is the usual reservoir.",
    "T:compress": "Images of 16 x 16 pixels lose little that a small network could use by coarser pixels, while "
    "the bytes saved keep more of them: the losses that the paper sees at 4 bits and 66%, and at "
    "50%, would have to show on larger images.",
    "T:data_aug": "Each of Mixup, CutMix and AutoAugment alone is better than crops and flips, as in the paper, and "
    "so is Mixup with CutMix or RandAugment or both. What differs from the paper is AutoAugment together with "
    "mixing: with CutMix it is worse than crops and flips, and the full policy is not ahead of them. Our guess is "
    "that a pasted piece leaves too little of an image of 16 x 16 pixels that was bent and recoloured before, for a "
    "network of this size and so few updates. Average ECE is lower with every policy than without.",
    "T:cssl_timing": "The paper finds that encoding the new example makes REMIND's inference an order of magnitude "
    "slower; here it is a small part of a step, for it is a few matrix products. REMIND's forward pass begins behind "
    "its frozen layers, as in the paper.",
    "crossing": "With 50 and 100 images a class the full policy costs every network several points. With 250 it has "
    "drawn about level for the two smaller ones, and more images do not carry it further: at this size of image the "
    "lines meet rather than cross. A larger network does not bring the meeting nearer. Fewer operations at once do "
    "better: in T:data_aug, where every image is replayed more often, Mixup with or without CutMix or RandAugment is "
    "ahead of crops and flips while the full policy is level with them. Its better calibration shrinks with the "
    "stream's length, too, because that of crops and flips improves.",
}
"""What is to be said about a row's result, by hand; numbers stay in the tables."""


def tables(row: Row, found: Record) -> list[Rows]:
    """Return the tables of a row, ours beside the paper's numbers where it gives some."""
    values = results.values_of(found)
    parts = found["parts"]
    if row.layout == "columns":
        learners = list(next(iter(parts.values()))["learners"])
        return [_with_columns(row, metric, list(parts), learners, values) for metric in row.metrics]
    lines = {part: [((part, name), name) for name in content["learners"]] for part, content in parts.items()}
    if row.layout == "lines":
        together = [(ref, ", ".join(ref)) for mine in lines.values() for ref, _ in mine]
        return [_with_metrics(row, "", together, values)]
    return [_with_metrics(row, part, mine, values) for part, mine in lines.items()]


def _with_metrics(row: Row, corner: str, lines: list[tuple[Ref, str]], values: Values) -> Rows:
    given = [m for m in row.metrics if any((*ref, m) in row.numbers for ref, _ in lines)]
    header = [corner]
    for metric in row.metrics:
        header += [name_of(metric)] + (["paper"] if metric in given else [])
    rows = [header]
    for ref, label in lines:
        cells = [label]
        for metric in row.metrics:
            cells.append(_number(results.summary_of(values, *ref, metric)))
            if metric in given:
                cells.append(_paper(row.numbers.get((*ref, metric))))
        rows.append(cells)
    return rows


def _with_columns(row: Row, metric: str, parts: list[str], learners: list[str], values: Values) -> Rows:
    """Return one table with a column a part, the paper's number in brackets."""
    given = any((part, name, metric) in row.numbers for part in parts for name in learners)
    rows = [[name_of(metric) + " (paper)" * given, *parts]]
    for name in learners:
        cells = [name]
        for part in parts:
            paper = _paper(row.numbers.get((part, name, metric)))
            cells.append(_number(results.summary_of(values, part, name, metric)) + (f" ({paper})" if paper else ""))
        rows.append(cells)
    return rows


def name_of(metric: str) -> str:
    """Return what a column is headed."""
    return METRICS.get(metric, metric.removeprefix("accuracy of "))


def _number(found: object) -> str:
    return "–" if found is None else str(found).rpartition(" (n=")[0]


def _paper(number: tuple[float, float | None] | None) -> str:
    if number is None:
        return ""
    mean, sd = number
    exact = all(value is None or round(value, 3) == round(value, 5) for value in number)
    digits = 3 if exact else 4
    return f"{mean:.{digits}f}" + ("" if sd is None else f" ± {sd:.{digits}f}")


def _row_page(row: Row, result: list[Block], out: Path) -> Path:
    """Write the page of one row: its result where there is one, and the settings of both scales."""
    folder = out / "paper"
    blocks = result or [*_heading(row), paragraph("It was not run yet.")]
    for scale in ("lab", "paper"):
        blocks.append(heading(2, f"Settings at {scale} scale"))
        place = " --set data.root=FOLDER" if row.measured is None else ""
        blocks.append(code(f"coldstream run {row.name_on_command_line} --scale {scale}{place}"))
        for tree in row.experiments(scale).values() if row.measured is None else [row.measured[scale]]:
            blocks.append(code(yaml.safe_dump(dict(tree), sort_keys=False, width=110).strip()))
    Folder(folder).make()
    Folder(folder).write(f"{row.slug}.md", "\n".join(block.markdown for block in blocks))
    return folder / f"{row.slug}.md"


def _comparisons(judged: Sequence[Judgement]) -> Rows:
    rows = [["first", "second", "in", "first ahead by (mean ± standard error)", "pairs", "verdict"]]
    for one in judged:
        comparison = one.comparison
        parts = (comparison.better[0], comparison.worse[0])
        names = [ref[1] if parts[0] == parts[1] else ", ".join(ref) for ref in (comparison.better, comparison.worse)]
        gain = "–" if one.gain is None else f"{one.gain + comparison.margin:+.3f}"
        error = "" if one.error is None else f" ± {one.error:.3f}"
        margin = f", by more than {comparison.margin:g}" if comparison.margin else ""
        margin += f", {comparison.share:.1%} of the first" if comparison.share != 1 else ""
        where = f"{name_of(comparison.metric)}{margin}" + (f" ({parts[0]})" if parts[0] == parts[1] else "")
        rows.append([*names, where, gain + error, str(one.pairs), one.verdict])
    return rows
