"""Two finished runs beside each other."""

from __future__ import annotations

from pathlib import Path

from coldstream.lab.config import changes_between, read_config
from coldstream.lab.records import Folder, Record
from coldstream.report.cells import Rows

_SHOWN = ("final_accuracy", "omega_per_event", "omega_final", "average_ece", "average_ece_debiased", "forgetting")


def setting_changes(one: Path, other: Path) -> list[str]:
    """Return what differs in the settings of two runs, a line each."""
    for path in (one, other):
        if not (path / "summary.json").is_file():
            raise ValueError(f"there is no finished run in {str(path)!r} (no summary.json in it)")
    return changes_between(read_config(one / "config.yaml"), read_config(other / "config.yaml"))


def compare_rows(one: Path, other: Path) -> Rows:
    """Return a header and, for each learner and number that both have, both means and their difference.

    Seeds that both ran are paired: the difference is the mean over those, with its standard error.
    """
    first, second = (Folder(path).read("summary.json")["learners"] for path in (one, other))
    rows = [["learner", "number", one.name, other.name, "difference (paired seeds)"]]
    pairs = [(name, name) for name in first if name in second]
    if not pairs and len(first) == len(second) == 1:
        pairs = [(next(iter(first)), next(iter(second)))]
    for left, right in pairs:
        for number in _SHOWN:
            values = [_by_seed(found["runs"], number) for found in (first[left], second[right])]
            if not all(values):
                continue
            means = [sum(mine.values()) / len(mine) for mine in values]
            rows.append([left if left == right else f"{left} → {right}", number.replace("_", " ")])
            rows[-1] += [f"{mean:.4f}" for mean in means] + [_difference(*values)]
    return rows


def _by_seed(runs: list[Record], number: str) -> dict[int, float]:
    return {run["seed"]: run[number] for run in runs if run.get(number) is not None}


def _difference(one: dict[int, float], other: dict[int, float]) -> str:
    shared = [other[seed] - one[seed] for seed in one if seed in other]
    if not shared:
        return "no seed in common"
    mean = sum(shared) / len(shared)
    if len(shared) == 1:
        return f"{mean:+.4f} (1 seed)"
    spread = (sum((value - mean) ** 2 for value in shared) / (len(shared) - 1) / len(shared)) ** 0.5
    return f"{mean:+.4f} ± {spread:.4f} ({len(shared)} seeds)"
