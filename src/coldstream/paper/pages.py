"""The pages of results: every table and figure of the paper, ours beside the paper's, each claim with its verdict."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from coldstream.lab.files import Folder
from coldstream.metrics import summary
from coldstream.paper import EXPERIMENTS, costs, pictures
from coldstream.paper.catalog import Claim, Comparison, PaperExperiment, Ref, Settings
from coldstream.paper.central import CENTRAL, CentralClaim
from coldstream.paper.results import read_results
from coldstream.paper.verdicts import judge, judge_claim
from coldstream.report.kept import KeptResults, Values, code_note, keep, machine_note, summary_of
from coldstream.report.pages import render
from coldstream.report.run_tables import spread
from coldstream.report.tables import Table
from coldstream.report.verdicts import Outcome, Verdict

NOTES = Path(__file__).parent / "notes"
"""Hand-written notes on results, SLUG.md of an experiment and central.md; numbers stay in the tables."""
OURS = ("lab", "desk")
"""The scales that are run on two cores, the largest last."""
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
    "forgetting": "forgetting",
    "frozen_share": "frozen, head included",
    "bias_to_last_batch": "taken for the last batch",
    "bias_to_last_class": "taken for the last class",
}


def write(runs: Path, out: Path) -> list[Path]:
    """Write the page of all results and a page for each experiment; keep the results beside them."""
    kept, images = out / "results", out / "images" / "results"
    Folder(out / "paper").make()
    sections = []
    written = [out / "results.md"]
    for experiment in EXPERIMENTS.values():
        scales = []
        for scale in (one for one in OURS if one in experiment.scales):
            results = read_results(experiment, scale, runs, kept)
            drawn: dict[str, Path] = {}
            if results is not None:
                keep(results, kept)
                drawn = pictures.draw(experiment, results, images)
            scales.append({**_at_scale(experiment, scale, results), "drawn": drawn})
        section: dict[str, Any] = {
            "experiment": experiment,
            "note": _note(experiment.slug),
            "scales": scales,
            "claims": [_at_largest(scales, number) for number in range(len(experiment.claims))],
        }
        sections.append(section)
        page = render(
            "paper_experiment.md.j2",
            **_with_links(section, out / "paper"),
            settings={scale: _settings(experiment, scale) for scale in experiment.scales},
        )
        Folder(out / "paper").write(f"{experiment.slug}.md", page)
        written.append(out / "paper" / f"{experiment.slug}.md")
    counts = Counter(str(claim["verdict"].outcome) for section in sections for claim in section["claims"])
    linked = [_with_links(section, out) for section in sections]
    central = central_claims({one["experiment"].name: one["scales"] for one in sections})
    page = render(
        "paper.md.j2",
        sections=linked,
        counts=_counts(counts),
        central=central,
        note=_note("central"),
        costs=costs.table(),
        gpu=costs.RATE,
    )
    Folder(out).write("results.md", page)
    return written


def _note(name: str) -> str:
    """Return a hand-written note on results; empty where there is none."""
    path = NOTES / f"{name}.md"
    return path.read_text().strip() if path.is_file() else ""


def central_claims(scales: dict[str, list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Return the paper's central claims, given what `_at_scale` says of each experiment."""
    return [
        {
            "claim": claim,
            "paper": _pair(
                _paper(EXPERIMENTS[claim.experiment].numbers.get((ref, name, claim.paper)))
                for ref, name in (claim.comparison.better, claim.comparison.worse)
            ),
            **_decided(claim, scales),
        }
        for claim in CENTRAL
    ]


def _decided(claim: CentralClaim, scales: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    """Return our numbers, their difference and the verdict where the claim counts most of what has several seeds."""
    ran = []
    for scale, name, comparison in claim.places():
        for one in scales[name]:
            if one["scale"] == scale and one["results"]:
                verdict = judge(comparison, one["results"].values)
                ran += [(one, name, comparison, verdict)] * (verdict.interval is not None)
    if not ran:
        experiment = EXPERIMENTS[claim.experiment]
        return {"experiment": experiment, "ours": "", "lead": "", "verdict": Verdict(Outcome.NOT_RUN), "data": ""}
    one, name, comparison, verdict = max(ran[::-1], key=lambda place: _several(place[3]))
    assert verdict.interval is not None
    metric = comparison.metric
    better, worse = (one["results"].values[(*ref, metric)] for ref in (comparison.better, comparison.worse))
    paired = better.keys() & worse.keys()
    means = (spread(summary([numbers[seed] for seed in paired])) for numbers in (better, worse))
    seeds = f"{verdict.interval.n} seed{'s' * (verdict.interval.n > 1)}"
    return {
        "experiment": EXPERIMENTS[name],
        "ours": f"{METRICS.get(metric, metric)} {_pair(means)}",
        "lead": verdict.interval,
        "verdict": verdict,
        "data": f"{one['scale']}, {seeds}",
    }


def _pair(numbers: Iterable[str]) -> str:
    """Return two numbers in words, or nothing where one is not known."""
    first, second = numbers
    return f"{first} against {second}" if first and second else ""


def _with_links(section: dict[str, Any], page: Path) -> dict[str, Any]:
    """Return a section with its pictures as links from the folder of a page."""
    return {
        **section,
        "scales": [
            {
                **one,
                "pictures": {
                    title: os.path.relpath(path, page).replace(os.sep, "/") for title, path in one["drawn"].items()
                },
            }
            for one in section["scales"]
        ],
    }


def _at_largest(scales: list[dict[str, Any]], number: int) -> dict[str, Any]:
    """Return a claim as it is judged at the largest scale that has all of its comparisons, with several seeds."""
    ran = [one for one in scales if one["claims"][number]["verdict"].outcome is not Outcome.NOT_RUN] or scales[:1]

    def worth(one: dict[str, Any]) -> tuple[bool, bool]:
        claim = one["claims"][number]
        return claim["whole"], _several(claim["verdict"])

    best = max(ran[::-1], key=worth)
    return {**best["claims"][number], "scale": best["scale"], "seeds": best.get("seeds", "")}


def _several(verdict: Verdict) -> bool:
    """Return whether a verdict is on several seeds."""
    return verdict.interval is not None and verdict.interval.n > 1


def _counts(counts: Counter[str]) -> dict[str, int]:
    return {str(outcome): counts[str(outcome)] for outcome in Outcome}


def _at_scale(experiment: PaperExperiment, scale: str, results: KeptResults | None) -> dict[str, Any]:
    """Return what the templates say about one experiment at one scale."""
    values = results.values if results else {}
    section: dict[str, Any] = {
        "scale": scale,
        "about": experiment.about[scale],
        "results": results,
        "claims": [
            _claim(claim, values, len(whole.comparisons))
            for claim, whole in zip(experiment.claims_at(scale), experiment.claims, strict=True)
        ],
    }
    if results is None:
        return section
    return {
        **section,
        "command": _command(experiment, scale, results),
        "tables": tables(experiment, results),
        "seeds": _seeds(experiment, results),
        "commits": _commits(results),
        "minutes": results.duration / 60,
        "missing": [] if experiment.measured else _missing(experiment, scale, results),
        "machines": machine_note(results),
        "code": code_note(results),
    }


def _missing(experiment: PaperExperiment, scale: str, results: KeptResults) -> list[str]:
    """Return the runs of which there is no result."""
    return [
        run.part if len(run.learners) > 1 else "/".join((run.part, *run.learners))
        for run in experiment.runs(scale)
        if run.part not in results.parts or not {*run.learners} <= results.parts[run.part].learners.keys()
    ]


def _claim(claim: Claim, values: Values, whole: int) -> dict[str, Any]:
    """Return a claim with its verdict; `whole` is the number of its comparisons at all scales together."""
    verdict, verdicts = judge_claim(claim, values)
    there = len(claim.comparisons)
    return {
        "text": claim.text if there == whole else f"{claim.text} ({there} of {whole} comparisons)",
        "whole": there == whole,
        "verdict": verdict,
        "counts": _counts(Counter(str(one.outcome) for one in verdicts)),
        "comparisons": _comparisons(claim.comparisons, verdicts),
    }


def _comparisons(comparisons: tuple[Comparison, ...], verdicts: list[Verdict]) -> Table:
    table = [["first", "second", "in", "first better by (95% interval)", "pairs", "verdict"]]
    for comparison, verdict in zip(comparisons, verdicts, strict=True):
        parts = (comparison.better[0], comparison.worse[0])
        same = parts[0] == parts[1]
        names = [ref[1] if same else ", ".join(ref) for ref in (comparison.better, comparison.worse)]
        share = f", {comparison.share:.1%} of the first" if comparison.share != 1 else ""
        where = f"{name_of(comparison.metric)}{share}" + (f" ({parts[0]})" if same else "")
        lead = "–" if verdict.interval is None else str(verdict.interval)
        pairs = 0 if verdict.interval is None else verdict.interval.n
        table.append([*names, where, lead, str(pairs), str(verdict)])
    return table


def _seeds(experiment: PaperExperiment, results: KeptResults) -> str:
    """Return how many seeds, or timed steps, the learners have."""
    counts = {len(runs) for part in results.parts.values() for runs in part.learners.values()}
    shown = str(min(counts)) if len(counts) == 1 else f"{min(counts)}-{max(counts)}"
    unit = "step" if experiment.measured else "seed"
    return f"{shown} {unit}{'s' * (shown != '1')}"


def _commits(results: KeptResults) -> str:
    """Return the commits of the code that ran, in the order of learners and seeds."""
    commits = dict.fromkeys(run.commit for run in results.runs if run.commit)
    return ", ".join(commits) or str((results.environment or {}).get("commit"))[:7]


def _command(experiment: PaperExperiment, scale: str, results: KeptResults) -> str:
    """Return the command that repeats a result, with the seeds that were run if these are not all."""
    if experiment.measured is not None:
        return f"coldstream run paper/{experiment.name} --scale {scale}"
    wanted = sorted({seed for tree in experiment.configs(scale).values() for seed in tree["seeds"]})
    seeds = "" if results.seeds == wanted else "".join(f" --seed {seed}" for seed in results.seeds)
    return f"coldstream run paper/{experiment.name} --scale {scale}{seeds} --jobs 2 --set data.root=FOLDER"


def _settings(experiment: PaperExperiment, scale: str) -> list[str]:
    """Return the settings of the first part as YAML, and of each other part those that differ."""
    if experiment.measured is not None:
        return [_as_yaml(dict(experiment.measured[scale]))]
    first, *others = _compact([*experiment.configs(scale).values()])
    return [_as_yaml(tree) for tree in (first, *(_difference(tree, first) for tree in others))]


def _compact(trees: list[Settings]) -> list[Settings]:
    """Return the parts of an experiment with what all learners of all parts have in common said once in each."""
    one, *others = [arm for tree in trees for arm in tree["learners"].values()]
    common = {
        key: value
        for key, value in one.items()
        if key not in ("base", "base_init") and all(key in arm and arm[key] == value for arm in others)
    }
    return [
        {
            **tree,
            "learner": {**tree["learner"], **common},
            "learners": {
                name: {key: value for key, value in arm.items() if key not in common}
                for name, arm in tree["learners"].items()
            },
        }
        for tree in trees
    ]


def _difference(tree: Settings, first: Settings) -> Settings:
    """Return the settings that differ from those of the first part; all of them where it lacks some of those."""
    changed = {}
    for key, value in tree.items():
        before = first.get(key)
        if key != "learners" and isinstance(value, dict) and isinstance(before, dict):
            if before.keys() - value.keys():
                return tree
            if nested := {name: one for name, one in value.items() if name not in before or before[name] != one}:
                changed[key] = nested
        elif key not in first or before != value:
            changed[key] = value
    return tree if first.keys() - tree.keys() else changed


def _as_yaml(tree: Settings) -> str:
    text: str = yaml.safe_dump(tree, sort_keys=False, width=110, default_flow_style=None)
    return text.strip()


def tables(experiment: PaperExperiment, results: KeptResults) -> list[Table]:
    """Return the tables of an experiment, ours beside the paper's numbers where it gives some."""
    parts, values = results.parts, results.values
    if experiment.layout == "columns":
        learners = list(dict.fromkeys(name for part in parts.values() for name in part.learners))
        return [_with_columns(experiment, metric, list(parts), learners, values) for metric in experiment.metrics]
    lines = {name: [((name, learner), learner) for learner in part.learners] for name, part in parts.items()}
    if experiment.layout == "lines":
        together = [(ref, ", ".join(ref)) for refs in lines.values() for ref, _ in refs]
        return [_with_metrics(experiment, "", together, values)]
    return [_with_metrics(experiment, part, refs, values) for part, refs in lines.items()]


def _with_metrics(experiment: PaperExperiment, corner: str, lines: list[tuple[Ref, str]], values: Values) -> Table:
    """Return a table with one column per metric, and the paper's numbers in a column beside it."""
    given = [metric for metric in experiment.metrics if any((*ref, metric) in experiment.numbers for ref, _ in lines)]
    header = [corner]
    for metric in experiment.metrics:
        header += [name_of(metric)] + (["paper"] if metric in given else [])
    table = [header]
    for ref, label in lines:
        cells = [label]
        for metric in experiment.metrics:
            cells.append(spread(summary_of(values, *ref, metric)))
            if metric in given:
                cells.append(_paper(experiment.numbers.get((*ref, metric))))
        table.append(cells)
    return table


def _with_columns(
    experiment: PaperExperiment, metric: str, parts: list[str], learners: list[str], values: Values
) -> Table:
    """Return a table with one column per part, and the paper's number in brackets."""
    given = any((part, name, metric) in experiment.numbers for part in parts for name in learners)
    table = [[name_of(metric) + " (paper)" * given, *parts]]
    for name in learners:
        cells = [name]
        for part in parts:
            paper = _paper(experiment.numbers.get((part, name, metric)))
            cells.append(spread(summary_of(values, part, name, metric)) + (f" ({paper})" if paper else ""))
        table.append(cells)
    return table


def name_of(metric: str) -> str:
    """Return the heading of a metric's column."""
    return METRICS.get(metric, metric.removeprefix("accuracy of "))


def _paper(number: tuple[float, float | None] | None) -> str:
    if number is None:
        return ""
    mean, sd = number
    exact = all(value is None or round(value, 3) == round(value, 5) for value in number)
    digits = 3 if exact else 4
    return f"{mean:.{digits}f}" + ("" if sd is None else f" ± {sd:.{digits}f}")
