"""The page about the first labels: what `CSSL()` is worth beside fixed policies, offline training and a linear head.

It is made of the runs of the experiments called ``first-labels-...``, whose learners have the names below. What it
needs of a run is kept beside the page, which can be written again without the others. Seeds are paired throughout.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from coldstream.checkpoint import write_atomically
from coldstream.lab.records import Folder, Record
from coldstream.report.cells import Rows
from coldstream.report.page import markdown
from coldstream.report.plots import legend, look_of, new_figure, save

OURS, LIGHT, FULL, LINEAR = "CSSL()", "crops and flips", "full policy", "linear head"
PRETRAINED = "linear head, pre-trained"
PREFIX = "first-labels-"
SEEDS = [0, 1, 2]
"""Of the experiments as they come."""
FROM = 50
"""Tests count from so many labels on."""
SLACK = 0.01
"""So far below the better of the fixed policies ours may be at any moment."""
AVERAGE_ECE, WORST_ECE = 0.05, 0.10
FEW = 1000
"""Tests of fewer images have a debiased ECE."""

Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class Target:
    """What is asked of a run, what came out, and whether that is enough."""

    what: str
    limit: str
    measured: str
    met: bool


def numbers(summary: Record, learner: str, what: str) -> Numbers:
    """Return a number of every test (seeds, tests), of those that count."""
    runs = sorted(summary["learners"][learner]["runs"], key=lambda run: int(run["seed"]))
    return np.array([[event[what] for event in run["events"] if event["step"] >= FROM] for run in runs])


def calibration(summary: Record, learner: str) -> Numbers:
    """Return the ECE of every test, debiased where it has few images."""
    raw, corrected, images = (numbers(summary, learner, what) for what in ("ece", "ece_debiased", "images"))
    return np.where(images < FEW, corrected, raw)


def behind(ours: Numbers, theirs: Numbers) -> tuple[Numbers, Numbers]:
    """Return how far ours is ahead at every test, the mean of paired seeds, and half its 95% interval."""
    gains = ours - theirs
    if len(gains) < 2:
        return gains.mean(axis=0), np.full(gains.shape[1], np.inf)
    half = stats.t.ppf(0.975, len(gains) - 1) * gains.std(axis=0, ddof=1) / np.sqrt(len(gains))
    return gains.mean(axis=0), half


def better(summary: Record) -> Numbers:
    """Return the accuracies of the fixed policy that is ahead at each test, in the mean over seeds."""
    light, full = (numbers(summary, name, "accuracy") for name in (LIGHT, FULL))
    return np.where(light.mean(axis=0) >= full.mean(axis=0), light, full)


def targets(summary: Record) -> list[Target]:
    """Return what is asked of a run."""
    ours = numbers(summary, OURS, "accuracy")
    found = [_never_behind("the better fixed policy", ours, better(summary))]
    for name in (LIGHT, FULL):
        found.append(_ahead_at_the_end(name, ours, numbers(summary, name, "accuracy")))
    ece = calibration(summary, OURS).mean(axis=0)
    found.append(Target("average ECE", f"≤ {AVERAGE_ECE}", f"{ece.mean():.3f}", bool(ece.mean() <= AVERAGE_ECE)))
    found.append(Target("worst ECE of a test", f"≤ {WORST_ECE}", f"{ece.max():.3f}", bool(ece.max() <= WORST_ECE)))
    pairs = [
        (run["final_accuracy"], run["offline"][-1]["accuracy"])
        for run in summary["learners"][OURS]["runs"]
        if run["offline"]
    ]
    if pairs:
        mine, offline = np.mean(pairs, axis=0)
        share, limit = mine / offline, 1.0 if summary["ordering"] == "iid" else 0.95
        what = "final accuracy, of that of offline training at its best"
        measured = f"{share:.3f} ({100 * mine:.1f} of {100 * offline:.1f}%, {_seeds(len(pairs))})"
        found.append(Target(what, f"≥ {limit}", measured, bool(share >= limit)))
    if LINEAR in summary["learners"]:
        linear = numbers(summary, LINEAR, "accuracy")
        found.append(_never_behind("a linear head on random features", ours, linear))
        found.append(_ahead_at_the_end("a linear head on random features", ours, linear))
    return found


def _never_behind(whom: str, ours: Numbers, theirs: Numbers) -> Target:
    gain, half = behind(ours, theirs)
    reach = gain + np.where(np.isfinite(half), half, 0)
    worst = int(np.argmin(reach))
    met = bool(reach[worst] >= -SLACK)
    limit = f"≥ {-100 * SLACK:g}, or its 95% interval"
    return Target(f"points ahead of {whom}, at the worst test", limit, _points(gain[worst], half[worst]), met)


def _ahead_at_the_end(whom: str, ours: Numbers, theirs: Numbers) -> Target:
    gain, half = behind(ours[:, -1:], theirs[:, -1:])
    return Target(f"points ahead of {whom}, at the end", "> 0", _points(gain[0], half[0]), bool(gain[0] > 0))


def _points(gain: float, half: float) -> str:
    return f"{100 * gain:+.1f}" + (f" ± {100 * half:.1f}" if np.isfinite(half) else "")


def learner_rows(summary: Record) -> Rows:
    """Return a table of all learners of a run."""
    ours = numbers(summary, OURS, "accuracy")
    small = bool((numbers(summary, OURS, "images") < FEW).any())
    columns = ["average ECE", "worst ECE"] if not small else ["average ECE (raw)", "worst ECE (raw)"]
    beside = [f"final, beside {OURS}", f"over all tests, beside {OURS}"]
    rows = [["", "final accuracy", *beside, *columns]]
    for name in summary["learners"]:
        accuracy = numbers(summary, name, "accuracy")
        spread = f" ± {100 * accuracy[:, -1].std(ddof=1):.1f}" if len(accuracy) > 1 else ""
        gains = ["", ""]
        if name != OURS:
            ends, means = accuracy[:, -1:] - ours[:, -1:], (accuracy - ours).mean(axis=1, keepdims=True)
            gains = [_points(*(float(n[0]) for n in behind(gain, np.zeros_like(gain)))) for gain in (ends, means)]
        found = [each.mean(axis=0) for each in (calibration(summary, name), numbers(summary, name, "ece"))]
        eces = [" ".join(_bracketed([f"{of(each):.3f}" for each in found], small)) for of in (np.mean, np.max)]
        rows.append([name, f"{100 * accuracy[:, -1].mean():.1f}{spread}", *gains, *eces])
    return rows


def _bracketed(pair: list[str], both: bool) -> list[str]:
    return [pair[0], f"({pair[1]})"] if both else pair[:1]


def overtakes(summary: Record, whom: str) -> int | None:
    """Return after how many labels ours is ahead of another at every test from there on, in the mean; None: never."""
    ahead = (numbers(summary, OURS, "accuracy") - numbers(summary, whom, "accuracy")).mean(axis=0) > 0
    behind_last = np.flatnonzero(~ahead)
    first = int(behind_last[-1]) + 1 if len(behind_last) else 0
    return round(numbers(summary, OURS, "step").mean(axis=0)[first]) if first < len(ahead) else None


def draw(summary: Record, path: Path) -> Path:
    """Draw accuracy and ECE by labels seen, a line a learner, the range over seeds shaded."""
    figure, panels = new_figure(5.6, 3.6, panels=2)
    for axes, what in zip(panels, ("accuracy in percent", "ECE"), strict=True):
        for number, name in enumerate(summary["learners"]):
            steps = numbers(summary, name, "step").mean(axis=0)
            values = 100 * numbers(summary, name, "accuracy") if what != "ECE" else calibration(summary, name)
            look = look_of(number)
            axes.plot(steps, values.mean(axis=0), label=name, linewidth=1.6, markersize=3.5, **look)
            axes.fill_between(steps, values.min(axis=0), values.max(axis=0), color=look["color"], alpha=0.1, lw=0)
        axes.set_xlabel("labels seen")
        axes.set_ylabel(what)
    legend(panels[1], beside=True)
    return save(figure, path, svg=False)


def write(runs: Path, page: Path) -> Path:
    """Keep what all finished runs found, and write it between the page's marks, with pictures beside it."""
    begin, end = "<!-- runs -->\n", "<!-- end of runs -->\n"
    text = page.read_text() if page.exists() else f"# The first labels\n\n{begin}{end}"
    if begin not in text or end not in text:
        raise ValueError(f"{page} has no lines {begin.strip()!r} and {end.strip()!r} to write between")
    pictures, kept = page.parent / "images" / "first-labels", page.parent / "results"
    for path in sorted(runs.glob(f"{PREFIX}*")):
        if (path / "summary.json").is_file():
            _keep(Folder(path), kept)
    found = [
        json.loads(path.read_bytes()) for path in sorted(kept.glob(f"{PREFIX}*.json"), key=lambda path: path.stem)
    ]
    if not found:
        raise ValueError(f"no finished run {PREFIX}... in {str(runs)!r}; for example: coldstream run {PREFIX}digits")
    pictures.mkdir(parents=True, exist_ok=True)
    parts = [markdown(overview(found)), *(_section(summary, pictures, page.parent) for summary in found)]
    before, after = text.split(begin)[0], text.split(end)[1]
    write_atomically(page, (before + begin + "\n".join(parts) + end + after).encode())
    return page


_OF_A_TEST = ("step", "accuracy", "ece", "ece_debiased", "images")


def _keep(run: Folder, kept: Path) -> None:
    """Keep what the page needs of a run, in place of an earlier one."""
    summary = run.read("summary.json")
    learners = {
        name: {
            "runs": [
                {
                    "seed": one["seed"],
                    "final_accuracy": one["final_accuracy"],
                    "events": [{what: event[what] for what in _OF_A_TEST} for event in one["events"]],
                    "offline": [{"accuracy": event["accuracy"]} for event in one["offline"]],
                }
                for one in found["runs"]
            ]
        }
        for name, found in summary["learners"].items()
    }
    environment = run.read("environment.json") if run.has("environment.json") else None
    facts = {what: summary[what] for what in ("name", "ordering", "examples")}
    kept.mkdir(parents=True, exist_ok=True)
    text = json.dumps({**facts, "environment": environment, "learners": learners})
    write_atomically(kept / f"{summary['name']}.json", text.encode() + b"\n")


def overview(found: list[Record]) -> Rows:
    """Return a table of the runs beside fixed policies: final accuracies, average ECE, and the targets missed."""
    names = (OURS, LIGHT, FULL, LINEAR)
    rows = [["", "labels", *(f"{name}: final accuracy, ECE" for name in names), "asked and not met"]]
    for summary in found:
        if not {LIGHT, FULL} <= set(summary["learners"]):
            continue
        cells = [
            f"{100 * numbers(summary, name, 'accuracy')[:, -1].mean():.1f}, {calibration(summary, name).mean():.3f}"
            if name in summary["learners"]
            else ""
            for name in names
        ]
        missed = [f"{one.what}: {one.measured}" for one in targets(summary) if not one.met]
        title = str(summary["name"]).removeprefix(PREFIX)
        rows.append([title, f"{summary['examples']:,}", *cells, "; ".join(missed) or "nothing"])
    return rows


def _section(summary: Record, pictures: Path, page: Path) -> str:
    name = str(summary["name"])
    picture = draw(summary, pictures / f"{name}.png").relative_to(page).as_posix()
    seeds = [int(run["seed"]) for run in summary["learners"][OURS]["runs"]]
    facts = f"{summary['examples']:,} labels, {summary['ordering']}, {_seeds(len(seeds))}."
    these = "" if seeds == SEEDS else f' --set "seeds={seeds}"'
    command = f"```\ncoldstream run {name} --jobs 2 --set data.root=FOLDER{these}\n```\n"
    parts = [facts + "\n", command, markdown(learner_rows(summary))]
    if {LIGHT, FULL} <= set(summary["learners"]):
        asked = [["asked", "limit", "measured", "met"]]
        asked += [[one.what, one.limit, one.measured, "yes" if one.met else "no"] for one in targets(summary)]
        parts.append(markdown(asked))
    if PRETRAINED in summary["learners"]:
        labels = overtakes(summary, PRETRAINED)
        when = f"from {labels:,} labels on" if labels else "at no moment for good"
        parts.append(f"{OURS} is ahead of the linear head on pre-trained features {when}.\n")
    return "\n".join([f"## {name.removeprefix(PREFIX)}\n", *parts, f"![{name}]({picture})\n"])


def _seeds(count: int) -> str:
    return f"{count} seed{'s' * (count != 1)}"
