"""Two finished runs side by side."""

from __future__ import annotations

from pathlib import Path

from coldstream.lab.reading import changes_between
from coldstream.lab.records import FinishedRun, LearnerResult
from coldstream.lab.saved import saved_settings
from coldstream.metrics import paired_by_seed, summary
from coldstream.report.tables import Table

_NUMBERS = ("final_accuracy", "omega_per_event", "omega_final", "average_ece", "average_ece_debiased", "forgetting")


def setting_changes(one: Path, other: Path) -> list[str]:
    """Return the settings in which two runs differ, a line each."""
    for path in (one, other):
        if not FinishedRun(path).finished:
            raise ValueError(f"there is no finished run in {str(path)!r} (no summary.json in it)")
    return changes_between(saved_settings(one), saved_settings(other))


def compare_table(one: Path, other: Path) -> Table:
    """Return for each learner and number that both have, both means and the 95% interval of their difference.

    The difference is over the seeds that both ran with.
    """
    first, second = (FinishedRun(path).results.learners for path in (one, other))
    table = [["learner", "number", one.name, other.name, "difference, 95% interval of paired seeds"]]
    pairs = [(name, name) for name in first if name in second]
    if not pairs and len(first) == len(second) == 1:
        pairs = [(next(iter(first)), next(iter(second)))]
    for left, right in pairs:
        for number in _NUMBERS:
            before, after = _by_seed(first[left], number), _by_seed(second[right], number)
            if before and after:
                name = left if left == right else f"{left} → {right}"
                means = [f"{summary(list(values.values())).mean:.4f}" for values in (before, after)]
                table.append([name, number.replace("_", " "), *means, _difference(before, after)])
    return table


def _by_seed(learner: LearnerResult, number: str) -> dict[int, float]:
    numbers = {unit.seed: unit.numbers.get(number) for unit in learner.units}
    return {seed: value for seed, value in numbers.items() if value is not None}


def _difference(before: dict[int, float], after: dict[int, float]) -> str:
    interval = paired_by_seed(after, before)
    if interval is None:
        return "no seed in common"
    decided = "" if interval.excludes(0) else ", not decided"
    return f"{interval:.4f} ({interval.n} seed{'s' * (interval.n > 1)}{decided})"
