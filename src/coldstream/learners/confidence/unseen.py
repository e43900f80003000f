"""The probability that an image is of a class that has not come. The softmax over known classes cannot give it.

A *run* is a sequence of successive examples of one class: single images on a shuffled stream, tracks or clips on
another. Good and Turing estimate the probability that the next run is of a new class as N1 / N, where N is the number
of runs and N1 the number of classes with a single run.

The estimate assumes that runs come in random order. Where classes come one after another, every class has a single
run, and predictions are asked for the classes seen so far: the probability is 0. The two cases differ in the gap
between the first and the second run of a class: random, or the same for all classes.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Any

_FEW = 2
"""Classes with a second run that do not count: a repetition may be an accident."""


class Unseen:
    """Counts runs, classes with a single run, and the gaps between first and second runs.

    The nth run is never of the class of the run before it. In random order, the gap to the first run of its class is
    uniform from 2 to n - 1, and its relative position, (gap - 2) / (n - 3), is 1/2 in the mean. The order counts as
    random if the mean over classes is within 1/8 of 1/2, and as class by class if it is 1/4 or more away, which makes
    `chance` 0. In between, the estimate falls linearly. It is also scaled by (R - `_FEW`) / R, where R is the number
    of classes with a second run.
    """

    def __init__(self) -> None:
        self.once: dict[int, int] = {}
        self._again: set[int] = set()
        self._number = self._gaps = 0
        self._ways = 0.0

    def begin_run(self, label: int, known: bool = False) -> None:
        """Register a new run of a class; `known` says that the class was known before its first run."""
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
        """Return the probability that the next run is of a new class; only the classes in `seen` count as known."""
        if self._gaps <= _FEW:
            return 0.0
        off = abs(self._ways / self._gaps - 0.5)
        any_order = min(1.0, max(0.0, 2 - 8 * off)) * (self._gaps - _FEW) / self._gaps
        once = sum(label in seen for label in self.once)
        return any_order * once / (self._number - len(self.once) + once)

    def merge(self, old: int, new: int) -> None:
        """Merge one class into another."""
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
        """Restore what `state` returned."""
        self.once = {int(label): int(number) for label, number in state["once"]}
        self._again = {int(label) for label in state["again"]}
        self._number, self._gaps = map(int, state["counts"])
        self._ways = float(state["ways"])
