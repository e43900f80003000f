"""Confidence that can be believed: a temperature, found on examples that the network does not replay.

A network that sees the same few images again and again becomes surer of them than it should be of others. How much
surer, only others can tell: examples that are kept back from replay. Where neighbours in the stream are all but the
same image, as in a video, those tell nothing, for their like was learned; and at first there are none. Then the first
example of each run of its class is the test, before it is learned.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coldstream.learners.confidence.unseen import Novelty
from coldstream.replay import ReplayBuffer

EVERY = 10
"""One example of so many of a class is kept back."""
MOST = 128
"""So many are kept back at most, all classes together: enough for one number."""
PRIOR = 4.0
"""That T is about 1 counts as much as four examples or so."""
ALIKE = 0.8
"""Neighbours are near-duplicates if their distance is less than this part of that of others of their class,"""
PAIRS = 20
"""by so many comparisons."""
ENOUGH = 16
"""With so many kept back no other tests are needed."""
_MEMBERS = 8
_NEWEST, _MEMORY = 0.01, 0.98
_STEPS, _LONGEST = 50, 0.5


@dataclass
class Likeness:
    """How far an example is from the one before it and from others of its class, as running means."""

    beside: float = 0.0
    apart: float = 0.0
    pairs: int = 0

    @property
    def duplicates(self) -> bool:
        """Whether neighbours in the stream are near-duplicates."""
        return self.pairs >= PAIRS and self.beside < ALIKE * self.apart

    def compare(self, item: NDArray[Any], before: NDArray[Any], other: NDArray[Any]) -> None:
        """Take in the mean distance of an example's values to those of the one before it, and to those of another."""
        beside, apart = (float(np.abs(item.astype(np.float64) - one).mean()) for one in (before, other))
        self.beside += (beside - self.beside) * _NEWEST
        self.apart += (apart - self.apart) * _NEWEST
        self.pairs += 1


class Calibration:
    """The temperature T that logits are divided by, and the ids of the examples that it is found on.

    Tests before learning come first: a Newton step on log T each, from T = 1, with the curvatures of earlier ones
    fading. What they say is the mean of a Gaussian prior on log T, under which T makes those that are kept back
    likeliest. Its precision is the sum of their curvatures, which fades on while no more are made, but at least
    `PRIOR`. Those that are kept back are all looked at again, with the network as it is then, as soon as there was
    work enough meanwhile that looking takes a small part of it. Where neighbours are near-duplicates none are kept.
    """

    def __init__(self) -> None:
        self.held: list[int] = []
        self._log = self._earned = 0.0
        self._first_log, self._first_curvature, self._since = 0.0, PRIOR, 0
        self._before: tuple[int, int] | None = None
        self._likeness = Likeness()
        self.novelty = Novelty()

    @property
    def temperature(self) -> float:
        return math.exp(self._log)

    @property
    def duplicates(self) -> bool:
        """Whether neighbours in the stream are near-duplicates."""
        return self._likeness.duplicates

    def meet(
        self, buffer: ReplayBuffer, item: NDArray[Any], label: int, id: int, rng: np.random.Generator, known: bool
    ) -> bool:
        """Hear of an example before it is learned, and whether its class is known; return whether to `hear` more."""
        before, self._before = self._before, (id, label)
        self._since += 1
        members = buffer.index.members[label] if label < len(buffer.index.members) else ()
        if before is None or before[1] != label:
            self.novelty.begin(label, known)
            return len(members) > 0 and (self.duplicates or len(self.held) < ENOUGH)
        row = buffer.index.find(before[0])
        if row is not None and len(members) >= _MEMBERS:
            other = members[int(rng.integers(len(members)))]
            if other != row:
                self._likeness.compare(item, *buffer.items(np.array([row, other])))
        return False

    def hear(self, logits: NDArray[np.float64], labels: NDArray[np.integer]) -> None:
        """Hear what the network made of an example before it was learned."""
        slope, curvature = _derivatives(logits, labels, self._first_log)
        self._first_curvature = _MEMORY * self._first_curvature + curvature
        self._first_log -= min(_LONGEST, max(-_LONGEST, slope / self._first_curvature))
        self._since = 0
        if not self.held:
            self._log = self._first_log

    def wants(self, number: int) -> bool:
        """Return whether to keep back a class's example with this number, from 0."""
        return number % EVERY == EVERY // 2 and not self.duplicates

    def hold(self, buffer: ReplayBuffer, id: int) -> None:
        """Hear that an example was stored and kept back; if there are too many, give some back to replay."""
        self.held = [*(other for other in self.rows(buffer) if other != id), id]
        self._give_back(buffer)

    def _give_back(self, buffer: ReplayBuffer) -> None:
        """Give those of the largest class back to replay until few enough are left."""
        stored = len(buffer)
        most = min(MOST, 1 + stored // EVERY) if stored > EVERY // 2 else 0  # of a small buffer, few or none
        while len(self.held) > most:
            labels = [buffer.label_of(held) for held in self.held]
            largest = max(labels, key=labels.count)
            buffer.release(self.held.pop(labels.index(largest)))

    def release(self, buffer: ReplayBuffer) -> None:
        """Give all back to replay."""
        for id in self.held:
            buffer.release(id)
        self.held, self._log = [], self._first_log

    def drop(self, buffer: ReplayBuffer, id: int) -> None:
        """Hear that an example was forgotten: of fewer that are stored, fewer are kept back."""
        if not self.held:
            return
        self.held = [other for other in self.rows(buffer) if other != id]
        self._give_back(buffer)
        if not self.held:
            self._log = self._first_log

    def merge(self, old: int, new: int) -> None:
        """Hear that a class went into another."""
        if self._before is not None and self._before[1] == old:
            self._before = self._before[0], new
        self.novelty.merge(old, new)

    def rows(self, buffer: ReplayBuffer) -> dict[int, int]:
        """Return the rows of those that are still kept back, by id."""
        found = {id: buffer.index.find(id) for id in self.held}
        return {id: row for id, row in found.items() if row is not None and buffer.index.is_held_out(row)}

    def earns(self, looks: float) -> bool:
        """Return whether there was work enough to look at all of them again, with this much more of it."""
        self._earned += looks
        if not self.held or self._earned < len(self.held):
            return False
        self._earned = 0.0
        return True

    def fit(self, logits: NDArray[np.float64], labels: NDArray[np.integer]) -> None:
        """Find the temperature anew, given the logits of all that are kept back."""
        precision = max(PRIOR, self._first_curvature * _MEMORY**self._since)
        self._log = fit_log_temperature(logits, labels, self._first_log, self._log, precision)

    def state(self) -> dict[str, Any]:
        """Return a JSON-ready form."""
        return {
            "held": self.held,
            "log": self._log,
            "earned": self._earned,
            "first": [self._first_log, self._first_curvature, self._since],
            "before": None if self._before is None else list(self._before),
            "likeness": asdict(self._likeness),
            "novelty": self.novelty.state(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Take over what `state` gave."""
        self.held = [int(id) for id in state["held"]]
        self._log, self._earned = float(state["log"]), float(state["earned"])
        (self._first_log, self._first_curvature), self._since = map(float, state["first"][:2]), int(state["first"][2])
        before, likeness = state["before"], state["likeness"]
        self._before = None if before is None else (int(before[0]), int(before[1]))
        self._likeness = Likeness(float(likeness["beside"]), float(likeness["apart"]), int(likeness["pairs"]))
        self.novelty.restore(state["novelty"])


def fit_log_temperature(
    logits: NDArray[np.float64],
    labels: NDArray[np.integer],
    prior: float = 0.0,
    start: float = 0.0,
    precision: float = PRIOR,
) -> float:
    """Return the log of the likeliest temperature, given prior mean and precision, by Newton from a first guess."""
    log = start
    for _ in range(_STEPS):
        slope, curvature = _derivatives(logits, labels, log)
        change = min(_LONGEST, max(-_LONGEST, (slope + precision * (log - prior)) / (curvature + precision)))
        log -= change
        if abs(change) < 1e-4:
            break
    return log


def _derivatives(logits: NDArray[np.float64], labels: NDArray[np.integer], log: float) -> tuple[float, float]:
    """Return slope and curvature of the negative log-likelihood as a function of u = log T.

    With s = z / T and p = softmax(s) a label y has the slope s_y - E_p s and, where confidence is right, the
    curvature Var_p s, which is never negative.
    """
    s = logits / math.exp(log)
    p = np.exp(s - s.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    mean = (p * s).sum(axis=1)
    slope = (s[np.arange(len(s)), labels] - mean).sum()
    return float(slope), float((p * (s - mean[:, None]) ** 2).sum())
