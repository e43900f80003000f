"""The temperature of predictions, fitted on examples that the network does not replay.

A network that replays the same few images becomes more confident of them than it should be of others. How much more
shows on held-out examples. Where neighbours in the stream are near-duplicates, as in a video, held-out examples show
nothing, because their like was learned; and at first there are none. Then the first example of each run of its class
is the test, before it is learned.
"""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coldstream.learners.confidence.duplicates import Likeness
from coldstream.learners.confidence.unseen import Unseen
from coldstream.replay import ReplayBuffer

EVERY = 10
"""One example in this many of a class is held out."""
MOST = 128
"""At most this many are held out, all classes together: enough for one number."""
PRIOR = 4.0
"""Precision of the prior on log T: it weighs about as much as four examples."""
ENOUGH = 16
"""With this many held-out examples no tests before learning are needed."""
_MEMBERS = 8
_MEMORY = 0.98
_STEPS, _LONGEST = 50, 0.5


class Confidence:
    """The temperature T that logits are divided by, and the ids of the held-out examples that it is fitted on.

    Tests before learning come first: a Newton step on log T each, from T = 1, with the curvatures of earlier ones
    fading. Their result is the mean of a Gaussian prior on log T; T then maximises the posterior given the held-out
    examples. The precision of the prior is the sum of the tests' curvatures, which goes on fading while no more tests
    are made, but at least `PRIOR`. T is fitted again on all held-out examples, with the network as it is then, once
    the work in between makes that a small part of the cost. Where neighbours are near-duplicates none are held out.
    """

    def __init__(self) -> None:
        self.held: list[int] = []
        self._log = self._earned = 0.0
        self._first_log, self._first_curvature, self._since = 0.0, PRIOR, 0
        self._before: tuple[int, int] | None = None
        self._likeness = Likeness()
        self.unseen = Unseen()

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
        """Register an example before it is learned; return whether the network should be tested on it (`test`).

        `known` says whether its class is known.
        """
        before, self._before = self._before, (id, label)
        self._since += 1
        members = buffer.index.members[label] if label < len(buffer.index.members) else ()
        if before is None or before[1] != label:
            self.unseen.begin_run(label, known)
            return len(members) > 0 and (self.duplicates or len(self.held) < ENOUGH)
        row = buffer.index.find(before[0])
        if row is not None and len(members) >= _MEMBERS:
            other = members[int(rng.integers(len(members)))]
            if other != row:
                self._likeness.compare(item, *buffer.items(np.array([row, other])))
        return False

    def test(self, logits: NDArray[np.float64], labels: NDArray[np.integer]) -> None:
        """Update the temperature with the logits of examples that the network has not learned yet."""
        slope, curvature = _derivatives(logits, labels, self._first_log)
        self._first_curvature = _MEMORY * self._first_curvature + curvature
        self._first_log -= min(_LONGEST, max(-_LONGEST, slope / self._first_curvature))
        self._since = 0
        if not self.held:
            self._log = self._first_log

    def wants(self, number: int) -> bool:
        """Return whether to hold out a class's example with this number, from 0."""
        return number % EVERY == EVERY // 2 and not self.duplicates

    def hold(self, buffer: ReplayBuffer, id: int) -> None:
        """Register a held-out example that was stored; if there are too many, release some to replay."""
        self.held = [*(other for other in self.slots(buffer) if other != id), id]
        self._release_some(buffer)

    def _release_some(self, buffer: ReplayBuffer) -> None:
        """Release examples of the largest class to replay until few enough are left."""
        stored = len(buffer)
        most = min(MOST, 1 + stored // EVERY) if stored > EVERY // 2 else 0  # of a small buffer, few or none
        while len(self.held) > most:
            labels = [buffer.label_of(held) for held in self.held]
            largest = max(labels, key=labels.count)
            buffer.release(self.held.pop(labels.index(largest)))

    def release(self, buffer: ReplayBuffer) -> None:
        """Release all to replay."""
        for id in self.held:
            buffer.release(id)
        self.held, self._log = [], self._first_log

    def drop(self, buffer: ReplayBuffer, id: int) -> None:
        """Remove an example that was forgotten: of fewer stored examples, fewer are held out."""
        if not self.held:
            return
        self.held = [other for other in self.slots(buffer) if other != id]
        self._release_some(buffer)
        if not self.held:
            self._log = self._first_log

    def merge(self, old: int, new: int) -> None:
        """Merge one class into another."""
        if self._before is not None and self._before[1] == old:
            self._before = self._before[0], new
        self.unseen.merge(old, new)

    def slots(self, buffer: ReplayBuffer) -> dict[int, int]:
        """Return the slots of the examples that are still held out, by id."""
        slots = {id: buffer.index.find(id) for id in self.held}
        return {id: slot for id, slot in slots.items() if slot is not None and buffer.index.is_held_out(slot)}

    def is_due(self, budget: float) -> bool:
        """Add to the budget of held-out examples that may be looked at; return whether it is enough for all."""
        self._earned += budget
        if not self.held or self._earned < len(self.held):
            return False
        self._earned = 0.0
        return True

    def fit(self, logits: NDArray[np.float64], labels: NDArray[np.integer]) -> None:
        """Fit the temperature again, given the logits of all held-out examples."""
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
            "unseen": self.unseen.state(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Restore what `state` returned."""
        self.held = [int(id) for id in state["held"]]
        self._log, self._earned = float(state["log"]), float(state["earned"])
        (self._first_log, self._first_curvature), self._since = map(float, state["first"][:2]), int(state["first"][2])
        before, likeness = state["before"], state["likeness"]
        self._before = None if before is None else (int(before[0]), int(before[1]))
        self._likeness = Likeness(float(likeness["beside"]), float(likeness["apart"]), int(likeness["pairs"]))
        self.unseen.restore(state["unseen"])


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
