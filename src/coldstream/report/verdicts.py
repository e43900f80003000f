"""The verdict on a claim, decided by a 95% interval everywhere: claims of the paper, targets, benchmarks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from coldstream.metrics import CONFIDENCE, Interval, holm
from coldstream.metrics.paired import MOST_PAIRS


class Outcome(StrEnum):
    """What numbers say about a claim."""

    CONFIRMED = "confirmed"
    REFUTED = "refuted"
    NOT_DECIDED = "not decided"
    NOT_RUN = "not run"


@dataclass(frozen=True)
class Verdict:
    """Whether a claim holds, and the interval that decided it.

    Attributes
    ----------
    outcome : Outcome
    interval : Interval or None
        By how much the claim holds: the distance to its limit, positive where it is met. None if not run.

    Examples
    --------
    >>> from coldstream.metrics import paired_interval
    >>> print(is_above(paired_interval([0.5, 0.6, 0.7], [0.4, 0.52, 0.57])))
    confirmed
    >>> print(is_above(paired_interval([0.5], [0.4])))
    one seed: not decided
    """

    outcome: Outcome
    interval: Interval | None = None

    def __str__(self) -> str:
        if self.outcome is not Outcome.NOT_DECIDED or self.interval is None:
            return str(self.outcome)
        if self.interval.n == 1:
            return f"one seed: {self.outcome}"
        return f"{self.outcome}{_needed(self.interval)}"


def _needed(interval: Interval) -> str:
    """Return in words how many seeds of the same mean and spread would decide."""
    needed = interval.pairs_needed()
    if needed is None or needed <= interval.n:  # no difference, or taken back by the correction for several
        return ""
    return f" ({MOST_PAIRS} seeds or more)" if needed >= MOST_PAIRS else f" (some {needed} seeds would)"


def is_above(interval: Interval | None, limit: float = 0.0) -> Verdict:
    """Return the verdict on the claim that a mean is above a limit; None says that nothing was run."""
    if interval is None:
        return Verdict(Outcome.NOT_RUN)
    lead = Interval(interval.mean - limit, interval.half, interval.n)
    if not lead.excludes(0):
        return Verdict(Outcome.NOT_DECIDED, lead)
    return Verdict(Outcome.CONFIRMED if lead.mean > 0 else Outcome.REFUTED, lead)


def is_below(interval: Interval | None, limit: float = 0.0) -> Verdict:
    """Return the verdict on the claim that a mean is below a limit."""
    return is_above(interval and interval.scaled(-1), -limit)


def corrected(verdicts: Sequence[Verdict]) -> list[Verdict]:
    """Return the verdicts on several comparisons of one claim, corrected for their number by Holm's method."""
    compared = [(place, one.interval) for place, one in enumerate(verdicts) if one.interval is not None]
    whole = list(verdicts)
    for (place, _), p in zip(compared, holm([interval.p for _, interval in compared]), strict=True):
        if p >= 1 - CONFIDENCE:
            whole[place] = replace(whole[place], outcome=Outcome.NOT_DECIDED)
    return whole


_WEIGHT = (Outcome.REFUTED, Outcome.NOT_RUN, Outcome.NOT_DECIDED, Outcome.CONFIRMED)


def all_of(verdicts: Sequence[Verdict]) -> Verdict:
    """Return the verdict on several claims at once: refuted if one is, confirmed if all are.

    The interval is the lowest one among the claims that decide.
    """
    weightiest = min((one.outcome for one in verdicts), key=_WEIGHT.index)
    deciding = [one for one in verdicts if one.outcome is weightiest]
    return min(deciding, key=lambda one: one.interval.mean if one.interval else 0.0)
