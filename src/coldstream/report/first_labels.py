"""The page about the first labels: the default learner beside fixed policies, offline training and a linear head.

It is made of the experiments called ``first-labels-...``, whose learners have the names below. What it needs of their
runs is kept beside the page, which can be written again without them. Seeds are paired throughout.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coldstream.checkpoint import write_atomically
from coldstream.lab.files import Folder
from coldstream.lab.records import FinishedRun, UnitResult
from coldstream.lab.saved import saved_settings
from coldstream.metrics import Interval, mean_interval, paired_interval, summary
from coldstream.report import plots
from coldstream.report.kept import KeptEvent, KeptPart, KeptResults, KeptRun, code_note, keep, machine_note
from coldstream.report.pages import render
from coldstream.report.tables import Table
from coldstream.report.verdicts import Outcome, Verdict, all_of, is_above, is_below

OURS, LIGHT, FULL, LINEAR = "ColdStart()", "crops and flips", "full policy", "linear head"
PRETRAINED = "linear head, pre-trained"
PREFIX = "first-labels-"
SEEDS = [0, 1, 2]
"""The seeds of the experiments in ./experiments."""
FROM = 50
"""Tests count from this number of labels on."""
SLACK = 0.01
"""How far ours may be below the better fixed policy at any test."""
AVERAGE_ECE, WORST_ECE = 0.05, 0.10
FEW = 1000
"""Tests of fewer images have a debiased ECE."""

Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class Target:
    """A target of a run, the measured value and the verdict."""

    text: str
    limit: str
    measured: str
    verdict: Verdict


class FirstLabels:
    """The results of one experiment as arrays (seeds x tests), of the tests that count."""

    def __init__(self, results: KeptResults) -> None:
        self.results = results
        (self.part,) = results.parts.values()

    @property
    def title(self) -> str:
        return self.results.experiment.removeprefix(PREFIX)

    @property
    def learners(self) -> list[str]:
        return list(self.part.learners)

    @property
    def has_policies(self) -> bool:
        """Whether the run has the fixed policies to compare with."""
        return {LIGHT, FULL} <= set(self.learners)

    def runs(self, learner: str) -> list[KeptRun]:
        """Return the runs of a learner by seed."""
        return sorted(self.part.learners[learner], key=lambda run: run.seed)

    def numbers(self, learner: str, name: str) -> Numbers:
        """Return a number of every test."""
        tests = [[event for event in run.events if event.step >= FROM] for run in self.runs(learner)]
        return np.array([[getattr(event, name) for event in events] for events in tests], np.float64)

    def accuracy(self, learner: str) -> Numbers:
        return self.numbers(learner, "accuracy")

    def calibration(self, learner: str) -> Numbers:
        """Return the ECE of every test, debiased where it has few images."""
        raw, debiased, images = (self.numbers(learner, name) for name in ("ece", "ece_debiased", "images"))
        return np.where(images < FEW, debiased, raw)

    def better_policy(self) -> Numbers:
        """Return the accuracies of the fixed policy that is ahead at each test, in the mean over seeds."""
        light, full = self.accuracy(LIGHT), self.accuracy(FULL)
        return np.where(light.mean(axis=0) >= full.mean(axis=0), light, full)

    def overtakes(self, other: str) -> int | None:
        """Return after how many labels ours stays ahead of another, in the mean over seeds; None: never."""
        leads = (self.accuracy(OURS) - self.accuracy(other)).mean(axis=0)
        behind = np.flatnonzero(leads <= 0)
        first = int(behind[-1]) + 1 if len(behind) else 0
        return round(self.numbers(OURS, "step").mean(axis=0)[first]) if first < len(leads) else None


def targets(run: FirstLabels) -> list[Target]:
    """Return the targets of a run, with verdicts."""
    ours = run.accuracy(OURS)
    asked = [_never_behind("the better fixed policy", ours, run.better_policy())]
    asked += [_ahead_at_the_end(name, ours, run.accuracy(name)) for name in (LIGHT, FULL)]
    asked += _calibrated(run.calibration(OURS))
    asked += _near_offline(run)
    if LINEAR in run.learners:
        linear = run.accuracy(LINEAR)
        asked.append(_never_behind("a linear head on random features", ours, linear))
        asked.append(_ahead_at_the_end("a linear head on random features", ours, linear))
    return asked


def _never_behind(other: str, ours: Numbers, theirs: Numbers) -> Target:
    verdict = all_of([is_above(lead, -SLACK) for lead in _each_test(ours - theirs)])
    limit = f"> {-100 * SLACK:g}"
    return Target(f"points ahead of {other}, at the deciding test", limit, _points(verdict, -SLACK), verdict)


def _ahead_at_the_end(other: str, ours: Numbers, theirs: Numbers) -> Target:
    verdict = is_above(paired_interval(ours[:, -1].tolist(), theirs[:, -1].tolist()))
    return Target(f"points ahead of {other}, at the end", "> 0", _points(verdict), verdict)


def _calibrated(ece: Numbers) -> list[Target]:
    average = mean_interval(ece.mean(axis=1).tolist())
    worst = all_of([is_below(test, WORST_ECE) for test in _each_test(ece)])
    return [
        _error("average ECE", AVERAGE_ECE, is_below(average, AVERAGE_ECE)),
        _error("ECE at the deciding test", WORST_ECE, worst),
    ]


def _error(text: str, limit: float, verdict: Verdict) -> Target:
    lead = _decisive(verdict)
    measured = format(Interval(limit - lead.mean, lead.half, lead.n), ".3f").removeprefix("+")
    return Target(text, f"< {limit:g}", measured, verdict)


def _near_offline(run: FirstLabels) -> list[Target]:
    """Return whether ours ends at a share of what offline training reaches, on the seeds that have a reference."""
    pairs = [
        (unit.numbers["final_accuracy"], unit.numbers["offline_accuracy"])
        for unit in run.runs(OURS)
        if "offline_accuracy" in unit.numbers
    ]
    if not pairs:
        return []
    ours, offline = np.array(pairs).T
    limit = 1.0 if run.part.ordering == "iid" else 0.95
    lead = paired_interval(ours.tolist(), (limit * offline).tolist())
    shares = f"{100 * ours.mean():.1f} of {100 * offline.mean():.1f}%, {_seeds(len(pairs))}"
    measured = f"{ours.mean() / offline.mean():.3f} ({shares})"
    return [
        Target("final accuracy, as a share of the best offline training", f"> {limit:g}", measured, is_above(lead))
    ]


def _each_test(values: Numbers) -> list[Interval]:
    return [mean_interval(column.tolist()) for column in values.T]


def _points(verdict: Verdict, limit: float = 0.0) -> str:
    """Return the difference that decided, in percentage points."""
    lead = _decisive(verdict)
    return f"{Interval(lead.mean + limit, lead.half, lead.n).scaled(100):.1f}"


def _decisive(verdict: Verdict) -> Interval:
    if verdict.interval is None:
        raise ValueError("a run without tests has no verdicts")
    return verdict.interval


def _seeds(count: int) -> str:
    return f"{count} seed{'s' * (count != 1)}"


def learner_table(run: FirstLabels) -> Table:
    """Return one line per learner: final accuracy, difference from ours, ECE."""
    ours = run.accuracy(OURS)
    small = bool((run.numbers(OURS, "images") < FEW).any())
    columns = ["average ECE (raw)", "worst ECE (raw)"] if small else ["average ECE", "worst ECE"]
    table = [["", "final accuracy", f"final, beside {OURS}", f"over all tests, beside {OURS}", *columns]]
    for name in run.learners:
        accuracy = run.accuracy(name)
        final = summary(accuracy[:, -1].tolist())
        spread = "" if final.sd is None else f" ± {100 * final.sd:.1f}"
        gains = ["", ""]
        if name != OURS:
            leads = (accuracy[:, -1] - ours[:, -1], (accuracy - ours).mean(axis=1))
            gains = [f"{mean_interval((100 * lead).tolist()):.1f}" for lead in leads]
        eces = [of_learner.mean(axis=0) for of_learner in (run.calibration(name), run.numbers(name, "ece"))]
        cells = [f"{of(eces[0]):.3f}" + (f" ({of(eces[1]):.3f})" if small else "") for of in (np.mean, np.max)]
        table.append([name, f"{100 * final.mean:.1f}{spread}", *gains, *cells])
    return table


def overview(runs: Sequence[FirstLabels]) -> Table:
    """Return one line per run that has fixed policies: final accuracies, average ECE, how many targets were met."""
    names = (OURS, LIGHT, FULL, LINEAR)
    numbers = [f"{name}: final accuracy, ECE" for name in names]
    table = [["", "labels", *numbers, "targets confirmed", "not decided", "targets missed"]]
    for run in runs:
        if not run.has_policies:
            continue
        cells = [
            f"{100 * run.accuracy(name)[:, -1].mean():.1f}, {run.calibration(name).mean():.3f}"
            if name in run.learners
            else ""
            for name in names
        ]
        asked = targets(run)
        count = Counter(one.verdict.outcome for one in asked)
        met = [f"{count[Outcome.CONFIRMED]} of {len(asked)}", str(count[Outcome.NOT_DECIDED] or "none")]
        missed = [f"{one.text}: {one.measured}" for one in asked if one.verdict.outcome is Outcome.REFUTED]
        table.append([run.title, f"{run.part.examples:,}", *cells, *met, "; ".join(missed) or "none"])
    return table


def draw(run: FirstLabels, path: Path) -> Path:
    """Draw accuracy and ECE over the labels seen, one line per learner, the range over seeds shaded."""
    figure, panels = plots.new_figure(5.6, 3.6, panels=2)
    for axes, label in zip(panels, ("accuracy in percent", "ECE"), strict=True):
        for number, name in enumerate(run.learners):
            values = run.calibration(name) if label == "ECE" else 100 * run.accuracy(name)
            plots.line(axes, run.numbers(name, "step").mean(axis=0).tolist(), values, name, number)
        axes.set_xlabel("labels seen")
        axes.set_ylabel(label)
    plots.legend(panels[1], beside=True)
    return plots.save(figure, path, svg=False)


def write(runs: Path, page: Path) -> Path:
    """Keep the results of finished runs, and write all kept results between the page's marks, with pictures."""
    begin, end = "<!-- runs -->\n", "<!-- end of runs -->\n"
    text = page.read_text() if page.exists() else f"# The first labels\n\n{begin}{end}"
    if begin not in text or end not in text:
        raise ValueError(f"{page} has no lines {begin.strip()!r} and {end.strip()!r} to write between")
    pictures, kept = page.parent / "images" / "first-labels", page.parent / "results"
    for path in sorted(runs.glob(f"{PREFIX}*")):
        if (run := FinishedRun(path)).finished:
            keep(_kept(run), kept)
    files = sorted(kept.glob(f"{PREFIX}*.json"), key=lambda path: path.stem)
    if not files:
        raise ValueError(f"no finished run {PREFIX}... in {str(runs)!r}; for example: coldstream run {PREFIX}digits")
    pictures.mkdir(parents=True, exist_ok=True)
    all_runs = [FirstLabels(Folder(kept).read(path.name, KeptResults)) for path in files]
    sections = [_section(run, pictures, page.parent) for run in all_runs]
    made = render("first_labels.md.j2", overview=overview(all_runs), sections=sections, ours=OURS)
    write_atomically(page, (text.split(begin)[0] + begin + made + end + text.split(end)[1]).encode())
    return page


def _section(run: FirstLabels, pictures: Path, page: Path) -> dict[str, Any]:
    """Return what the template says about one run."""
    asked = targets(run) if run.has_policies else []
    lines = [[one.text, one.limit, one.measured, str(one.verdict)] for one in asked]
    seeds = [unit.seed for unit in run.runs(OURS)]
    return {
        "title": run.title,
        "name": run.results.experiment,
        "examples": run.part.examples,
        "ordering": run.part.ordering,
        "seeds": _seeds(len(seeds)),
        "options": "" if seeds == SEEDS else f' --set "seeds={seeds}"',
        "learners": learner_table(run),
        "targets": [["target", "limit", "measured", "verdict"], *lines] if lines else None,
        "pretrained": PRETRAINED in run.learners,
        "overtakes": run.overtakes(PRETRAINED) if PRETRAINED in run.learners else None,
        "picture": draw(run, pictures / f"{run.results.experiment}.png").relative_to(page).as_posix(),
        "machines": machine_note(run.results),
        "code": code_note(run.results),
    }


def _kept(run: FinishedRun) -> KeptResults:
    """Return what the page needs of a run."""
    results = run.results
    settings = saved_settings(run.folder.path)["learners"]
    kinds = {name: str(arm.get("kind", "cssl")) for name, arm in settings.items()}
    learners: dict[str, list[KeptRun]] = {name: [] for name in results.learners}
    for name, unit in results.units:
        learners[name].append(_kept_run(unit, run.timing.units[name][unit.seed].environment.hardware))
    part = KeptPart(ordering=results.ordering, examples=results.examples, kinds=kinds, learners=learners)
    environment = next(unit.environment for units in run.timing.units.values() for unit in units.values())
    return KeptResults(experiment=results.name, environment=environment.model_dump(), parts={"": part})


def _kept_run(unit: UnitResult, machine: str | None) -> KeptRun:
    numbers = {"final_accuracy": unit.numbers.final_accuracy}
    if unit.numbers.offline_accuracy is not None:
        numbers["offline_accuracy"] = unit.numbers.offline_accuracy
    shown = ("step", "accuracy", "ece", "ece_debiased", "images")
    events = [KeptEvent(**{name: getattr(event, name) for name in shown}) for event in unit.events]
    return KeptRun(seed=unit.seed, numbers=numbers, events=events, machine=machine, code=unit.learner.code)
