"""Test, then train: accuracy over the stream itself, each example predicted before it is learned."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np

from coldstream.metrics import _check


class Prequential:
    """Running accuracy, over the whole stream and over its last `window` examples [1]_.

    Parameters
    ----------
    window : int
        Length of the sliding window, in examples. A shorter stream is averaged as a whole.

    References
    ----------
    .. [1] Gama, Sebastião, Rodrigues, "On evaluating stream learning algorithms", Machine Learning 2013.

    Examples
    --------
    >>> running = Prequential(window=2)
    >>> for correct in [True, False, False]:
    ...     running.update(correct)
    >>> running.count, running.cumulative, running.windowed
    (3, 0.3333333333333333, 0.0)
    >>> running.to_dict()
    {'window': 2, 'count': 3, 'correct': 1, 'recent': [0, 0]}
    """

    def __init__(self, window: int = 1000) -> None:
        self.window = _check.whole(window, "window", 1)
        self.count = 0
        self.correct = 0
        self._recent: deque[bool] = deque(maxlen=self.window)
        self._recent_correct = 0

    def update(self, correct: bool) -> None:
        """Add an example, `correct` if it was predicted correctly."""
        if not isinstance(correct, bool | np.bool_):
            raise ValueError(f"correct: expected True or False, got {correct!r}")
        if len(self._recent) == self.window:
            self._recent_correct -= self._recent[0]
        self._recent.append(bool(correct))
        self._recent_correct += bool(correct)
        self.correct += bool(correct)
        self.count += 1

    @property
    def cumulative(self) -> float | None:
        """Accuracy over all examples so far; None before the first."""
        return self.correct / self.count if self.count else None

    @property
    def windowed(self) -> float | None:
        """Accuracy over the last `window` examples; None before the first."""
        return self._recent_correct / len(self._recent) if self._recent else None

    def to_dict(self) -> dict[str, Any]:
        """Return the whole state as plain numbers, for a checkpoint or a JSON report."""
        return {
            "window": self.window,
            "count": self.count,
            "correct": self.correct,
            "recent": [int(correct) for correct in self._recent],
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Prequential:
        """Return an object that continues from a saved state."""
        _check.keys(data, ("window", "count", "correct", "recent"), "Prequential")
        running = cls(data["window"])
        running.count = _check.whole(data["count"], "count", 0)
        running.correct = _check.whole(data["correct"], "correct", 0, running.count)
        held = min(running.count, running.window)
        recent = _check.row(data["recent"], "recent")
        if len(recent) != held:
            raise ValueError(f"recent: expected the last {held} examples, got {len(recent)}")
        running._recent.extend(_check.flags(recent, "recent").tolist() if held else ())
        running._recent_correct = sum(running._recent)
        if not 0 <= running.correct - running._recent_correct <= running.count - held:
            raise ValueError(
                f"correct: {running.correct} of {running.count} does not agree with "
                f"{running._recent_correct} of the last {held}"
            )
        return running
