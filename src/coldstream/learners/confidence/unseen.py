"""How likely an image is of a class that has not come yet, which no probability of the known ones can say.

A stream comes in runs of one class: single images where it is shuffled, tracks or clips where it is not. Where runs
come in any order, those of classes that came in no other one tell how much is still to come (Good and Turing: of N
runs, N1 of such classes, the next is of a new one with a chance of about N1 / N). Where classes come in turn they
tell nothing: those who ask then ask about the classes that they have shown. Which of the two it is shows in how far
back a class was when it comes again: anywhere, or just before, or always as far as all the others.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Any

_FEW = 2
"""So many classes may come again by chance, or by mistake, in whatever order."""


class Novelty:
    """Counts runs, classes that came in one only, and how far back those were that came in a second one.

    A run is never of the class of the one before it. So with runs in any order a class that comes again in the nth
    one was, at first, anywhere from 2 to n - 1 runs back, at (gap - 2) / (n - 3) of the way, 1/2 in the mean. Means
    within 1/8 of that count as any order, those that are 1/4 off and more as classes in turn, with no `chance` of
    others; between these, in proportion. Of R classes that came again, the part (R - `_FEW`) / R decides.
    """

    def __init__(self) -> None:
        self.once: dict[int, int] = {}
        self._again: set[int] = set()
        self._number = self._gaps = 0
        self._ways = 0.0

    def begin(self, label: int, known: bool = False) -> None:
        """Hear of the class of the run that begins, and whether it was known though no run of it had come."""
        self._number += 1
        first = self.once.pop(label, None)
        if first is not None and self._number > 3:
            self._ways += (self._number - first - 2) / (self._number - 3)
            self._gaps += 1
        if first is not None or known:
            self._again.add(label)
        elif label not in self._again:
            self.once[label] = self._number

    def chance(self, seen: Container[int]) -> float:
        """Return how likely the next run is of a class that has not come; only those `seen` count as having come."""
        if self._gaps <= _FEW:
            return 0.0
        off = abs(self._ways / self._gaps - 0.5)
        any_order = min(1.0, max(0.0, 2 - 8 * off)) * (self._gaps - _FEW) / self._gaps
        once = sum(label in seen for label in self.once)
        return any_order * once / (self._number - len(self.once) + once)

    def merge(self, old: int, new: int) -> None:
        """Hear that a class went into another."""
        number = self.once.pop(old, None)
        if number is None and old not in self._again:
            return
        self._again.discard(old)
        if number is not None and new not in self.once and new not in self._again:
            self.once[new] = number
        else:
            self.once.pop(new, None)
            self._again.add(new)

    def state(self) -> dict[str, Any]:
        """Return a JSON-ready form."""
        return {
            "once": [[label, number] for label, number in self.once.items()],
            "again": sorted(self._again),
            "counts": [self._number, self._gaps],
            "ways": self._ways,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Take over what `state` gave."""
        self.once = {int(label): int(number) for label, number in state["once"]}
        self._again = {int(label) for label in state["again"]}
        self._number, self._gaps = map(int, state["counts"])
        self._ways = float(state["ways"])
