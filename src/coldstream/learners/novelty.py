"""How likely an image is of a class that has not come yet, which no probability of the known ones can say.

A stream comes in runs of one class: single images where it is shuffled, tracks or clips where it is not. Where runs
come in any order, those of classes that came in no other one tell how much is still to come (Good and Turing: of N
runs, N1 of such classes, the next is of a new one with a chance of about N1 / N). Where classes come one after
another they tell nothing: each comes in one run, and those who ask then ask about the classes that they have shown.
Which of the two it is shows in how far back a class was when it comes again: anywhere, or just before.
"""

from __future__ import annotations

from typing import Any


class Novelty:
    """Counts the runs of each class and how far back it was when it came a second time.

    With runs in any order the gap to a class's first run is uniform over all runs before, in the mean half of them.
    So the mean of these shares tells the order, with one of 0 added to them, lest the first ones decide: 1/2 and more
    counts as any order, 1/4 and less as classes in turn, with no `chance` of others; between these, in proportion.
    """

    def __init__(self) -> None:
        self.runs: dict[int, int] = {}
        self._first: dict[int, int] = {}
        self._number = self._twice = 0
        self._shares = 0.0
        self._label: int | None = None

    def meet(self, label: int) -> None:
        """Hear of the class of the next example."""
        if label == self._label:
            return
        self._label = label
        self._number += 1
        times = self.runs[label] = self.runs.get(label, 0) + 1
        if times == 1:
            self._first[label] = self._number
        elif times == 2:
            self._shares += (self._number - self._first.pop(label)) / (self._number - 1)
            self._twice += 1

    @property
    def chance(self) -> float:
        """That the next run is of a class that has not come."""
        if not self._twice:
            return 0.0
        any_order = min(1.0, max(0.0, 4 * self._shares / (self._twice + 1) - 1))
        return any_order * len(self._first) / self._number

    def merge(self, old: int, new: int) -> None:
        """Hear that a class went into another."""
        if old in self.runs:
            self.runs[new] = self.runs.pop(old) + self.runs.get(new, 0)
            self._first.pop(old, None)
            self._first.pop(new, None)
        if self._label == old:
            self._label = new

    def state(self) -> dict[str, Any]:
        """Return a JSON-ready form."""
        return {
            "runs": [[label, times, self._first.get(label)] for label, times in self.runs.items()],
            "number": self._number,
            "twice": self._twice,
            "shares": self._shares,
            "label": self._label,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Take over what `state` gave."""
        self.runs = {int(label): int(times) for label, times, _ in state["runs"]}
        self._first = {int(label): int(first) for label, _, first in state["runs"] if first is not None}
        self._number, self._twice = int(state["number"]), int(state["twice"])
        self._shares = float(state["shares"])
        self._label = None if state["label"] is None else int(state["label"])
