"""Numbers of a measurement by seed, fitted exponents with intervals, and verdicts on rates."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from coldstream.metrics import Interval, mean_interval
from coldstream.report.kept import KeptResults
from coldstream.report.verdicts import Outcome, Verdict, is_above, is_below
from coldstream.theory.points import Numbers, Point

MARGIN = 0.1
"""An exponent may pass its limit by so much: logarithms and small sizes bend the lines."""
WORDS = {
    Outcome.CONFIRMED: "supports",
    Outcome.REFUTED: "contradicts",
    Outcome.NOT_DECIDED: "cannot tell",
    Outcome.NOT_RUN: "not run",
}
ZERO = 1e-12
"""What is smaller is rounding, and not fitted."""
Variable = Callable[[Point], float]


@dataclass(frozen=True)
class Check:
    """One number of a statement, what the statement says of it, and the verdict."""

    what: str
    limit: str
    measured: str
    verdict: Verdict

    @property
    def word(self) -> str:
        return WORDS[self.verdict.outcome]


class Curves:
    """The results of a measurement, by sweep, point and seed."""

    def __init__(self, results: KeptResults | None) -> None:
        self.rows: list[tuple[Point, int, Numbers]] = [
            (Point.of_label(label), run.seed, run.numbers)
            for part in (results.parts.values() if results else ())
            for label, runs in part.learners.items()
            for run in runs
        ]

    def where(self, sweep: str, **wanted: object) -> Curves:
        """Return the part of one sweep whose points have these values."""
        part = Curves(None)
        part.rows = [
            row
            for row in self.rows
            if row[0].sweep == sweep and all(getattr(row[0], name) == value for name, value in wanted.items())
        ]
        return part

    def kept(self, test: Callable[[Point], bool]) -> Curves:
        """Return the part whose points pass a test."""
        part = Curves(None)
        part.rows = [row for row in self.rows if test(row[0])]
        return part

    @property
    def points(self) -> list[Point]:
        return list(dict.fromkeys(point for point, _, _ in self.rows))

    @property
    def sweeps(self) -> list[str]:
        return list(dict.fromkeys(point.sweep for point, _, _ in self.rows))

    @property
    def seeds(self) -> list[int]:
        return sorted({seed for _, seed, _ in self.rows})

    def values(self, point: Point, name: str) -> list[float]:
        """Return a number of one point, of each seed that has it."""
        return [numbers[name] for one, _, numbers in self.rows if one == point and name in numbers]

    def interval(self, point: Point, name: str) -> Interval | None:
        """Return mean and 95% interval over seeds of a number."""
        values = self.values(point, name)
        return mean_interval(values) if values else None

    def table(self, name: str, variable: Variable) -> tuple[list[float], np.ndarray]:
        """Return where a curve was measured, and its values (seeds, places), of places that all seeds have."""
        where, columns = [], []
        for point in sorted(self.points, key=variable):
            values = self.values(point, name)
            if len(values) == len(self.seeds):
                where.append(variable(point))
                columns.append(values)
        return where, np.array(columns, np.float64).T

    def exponent(self, name: str, variable: Variable, sign: float = 1.0) -> Interval | None:
        """Return the slope of log(sign · number) over log(variable), fitted for each seed; None without three points.

        Values that are not above `ZERO` have no logarithm; a seed with fewer than three others does not count.
        """
        slopes = []
        for seed in self.seeds:
            pairs = [
                (variable(point), sign * numbers[name])
                for point, one, numbers in self.rows
                if one == seed and name in numbers
            ]
            usable = np.array([(a, b) for a, b in pairs if a > 0 and b > ZERO])
            if len(usable) >= 3:
                slopes.append(float(np.polyfit(np.log(usable[:, 0]), np.log(usable[:, 1]), 1)[0]))
        return mean_interval(slopes) if slopes else None


def grows_at_most(what: str, exponent: Interval | None, limit: float) -> Check:
    """Judge an upper bound on growth: the exponent is at most `limit`, give or take the margin."""
    verdict = is_below(exponent, limit + MARGIN)
    return Check(what, f"≤ {_short(limit)}", _shown(exponent), verdict)


def falls_at_least(what: str, exponent: Interval | None, limit: float) -> Check:
    """Judge an upper bound that vanishes with the variable: the exponent is at least `limit`, but for the margin."""
    verdict = is_above(exponent, limit - MARGIN)
    return Check(what, f"≥ {_short(limit)}", _shown(exponent), verdict)


def below(what: str, value: Interval | None, limit: float) -> Check:
    """Judge that a mean is below a limit."""
    return Check(what, f"< {limit:g}", _shown(value), is_below(value, limit))


def above(what: str, value: Interval | None, limit: float) -> Check:
    """Judge that a mean is above a limit."""
    return Check(what, f"> {limit:.3g}", _shown(value), is_above(value, limit))


def never_above(what: str, values: Sequence[float], limit: float) -> Check:
    """Judge an inequality that holds for every value, but for rounding; one value above contradicts."""
    largest = Interval(max(values), 0.0, len(values)) if values else None
    shown = "–" if largest is None else f"{largest.mean:.3g} of {largest.n:,}"
    return Check(what, f"≤ {limit:g}", shown, is_below(largest, limit + 1e-5))


def verdict_of(checks: Iterable[Check]) -> str:
    """Return one word for several checks: contradicts if one does, supports if all do."""
    outcomes = [check.verdict.outcome for check in checks]
    for outcome in (Outcome.REFUTED, Outcome.NOT_RUN, Outcome.NOT_DECIDED):
        if outcome in outcomes:
            return WORDS[outcome]
    return WORDS[Outcome.CONFIRMED] if outcomes else WORDS[Outcome.NOT_RUN]


def _short(limit: float) -> str:
    thirds = {1 / 3: "1/3", 4 / 3: "4/3"}
    return thirds.get(limit, f"{limit:g}")


def _shown(value: Interval | None) -> str:
    if value is None:
        return "–"
    text = format(value, ".2f" if abs(value.mean) >= 0.05 or value.mean == 0 else ".2g")
    return text.removeprefix("+")
