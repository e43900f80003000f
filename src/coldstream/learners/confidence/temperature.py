"""The temperature of predictions, fitted on examples that the network does not replay.

A network that replays the same few images becomes more confident of them than it should be of others. How much more
shows on held-out examples. Where neighbours in the stream are near-duplicates, as in a video, held-out examples show
nothing, because their like was learned; and at first there are none. Then the first example of each run of its class
is the test, before it is learned.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coldstream.learners.confidence.duplicates import NeighbourDistances
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
TOGETHER = 4
"""Steps between two forward passes over held-out examples: small batches are inefficient."""
_MEMBERS = 8
_MEMORY = 0.98
_STEPS, _LONGEST = 50, 0.5
_NO_CHANCE = -1e6


class Confidence:
    """The temperature T that logits are divided by, and the ids of the held-out examples that it is fitted on.

    Tests before learning come first: a Newton step on log T each, from T = 1, with the curvatures of earlier ones
    fading. Their result is the mean of a Gaussian prior on log T; T then maximises the posterior given the held-out
    examples. The precision of the prior is the sum of the tests' curvatures, which goes on fading while no more tests
    are made, but at least `PRIOR`. Where neighbours are near-duplicates none are held out.

    T is fitted again on all held-out examples in *rounds*. Every `TOGETHER` steps some of them are `due`: the network
    as it is then gives their logits (`collect`). When all have theirs, T is fitted (`finish_round`).
    """

    def __init__(self) -> None:
        self.held: list[int] = []
        self._log = self._earned = 0.0
        self._collected: dict[int, NDArray[np.float64]] = {}
        self._first_log, self._first_curvature, self._since = 0.0, PRIOR, 0
        self._before: tuple[int, int] | None = None
        self._distances = NeighbourDistances()
        self.unseen = Unseen()

    @property
    def temperature(self) -> float:
        return math.exp(self._log)

    @property
    def duplicates(self) -> bool:
        """Whether neighbours in the stream are near-duplicates."""
        return self._distances.duplicates

    def register(
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
        slot = buffer.index.find(before[0])
        if slot is not None and len(members) >= _MEMBERS:
            other = members[int(rng.integers(len(members)))]
            if other != slot:
                self._distances.compare(item, *buffer.items(np.array([slot, other])))
        return False

    def test(self, logits: NDArray[np.float64], labels: NDArray[np.integer]) -> None:
        """Update the temperature with the logits of examples that the network has not learned yet."""
        slope, curvature = _derivatives(logits, labels, self._first_log)
        self._first_curvature = _MEMORY * self._first_curvature + curvature
        self._first_log -= min(_LONGEST, max(-_LONGEST, slope / self._first_curvature))
        self._since = 0
        if not self.held:
            self._log = self._first_log

    def holds_out(self, number: int) -> bool:
        """Return whether to hold out a class's example with this number, from 0."""
        return number % EVERY == EVERY // 2 and not self.duplicates

    def hold(self, buffer: ReplayBuffer, id: int) -> None:
        """Register a held-out example that was stored; if there are too many, release some to replay."""
        self.discard_logits(id)
        self.held = [*(other for other, _ in self._slots(buffer) if other != id), id]
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
        self.held, self._collected, self._log = [], {}, self._first_log

    def drop(self, buffer: ReplayBuffer, id: int) -> None:
        """Remove an example that was forgotten. Fewer stored examples may hold out fewer: release the others."""
        if not self.held:
            return
        self.discard_logits(id)
        self.held = [other for other, _ in self._slots(buffer) if other != id]
        self._release_some(buffer)
        if not self.held:
            self._log = self._first_log

    def discard_logits(self, id: int) -> None:
        """Discard this round's logits of an example whose image or label has changed."""
        self._collected.pop(id, None)

    def merge(self, old: int, new: int) -> None:
        """Merge one class into another."""
        if self._before is not None and self._before[1] == old:
            self._before = self._before[0], new
        self.unseen.merge(old, new)

    def _slots(self, buffer: ReplayBuffer, but: Iterable[int] = ()) -> Iterator[tuple[int, int]]:
        """Yield id and slot of the examples that are still held out, `but` those with some ids."""
        for id in self.held:
            slot = None if id in but else buffer.index.find(id)
            if slot is not None and buffer.index.is_held_out(slot):
                yield id, slot

    def due(self, buffer: ReplayBuffer, budget: float) -> dict[int, int] | None:
        """Return the slots, by id, of the held-out examples whose logits are due: `budget` per call on average.

        They come together, every `TOGETHER` calls; None in the calls between.
        """
        self._earned += budget
        if self._earned < TOGETHER * budget:
            return None
        count, self._earned = int(self._earned), self._earned % 1
        return dict(islice(self._slots(buffer, but=self._collected), count))

    def collect(self, ids: Iterable[int], logits: NDArray[np.float64]) -> None:
        """Collect the logits (N, rows of the head) of examples that were due."""
        self._collected.update(zip(ids, logits, strict=True))

    def finish_round(self, buffer: ReplayBuffer, rows: int) -> tuple[NDArray[np.float64], NDArray[np.int64]] | None:
        """Return all logits (N, `rows`) and slots once they are collected, and begin a new round; else None.

        A class that came after an example's logits were collected gets a logit far below the others.
        """
        if not self._collected or any(self._slots(buffer, but=self._collected)):
            return None
        collected, self._collected = self._collected, {}
        slots = dict(self._slots(buffer))
        if not slots:
            return None
        logits = np.full((len(slots), rows), _NO_CHANCE)
        for row, id in zip(logits, slots, strict=True):
            row[: len(collected[id])] = collected[id]
        return logits, np.array([*slots.values()], np.int64)

    def fit(self, logits: NDArray[np.float64], labels: NDArray[np.integer]) -> None:
        """Fit the temperature again, given the logits of all held-out examples, a round."""
        precision = max(PRIOR, self._first_curvature * _MEMORY**self._since)
        self._log = fit_log_temperature(logits, labels, self._first_log, self._log, precision)

    def state(self) -> dict[str, Any]:
        """Return a JSON-ready form of all but the logits (`collected`)."""
        return {
            "held": self.held,
            "log": self._log,
            "earned": self._earned,
            "first": [self._first_log, self._first_curvature, self._since],
            "before": None if self._before is None else list(self._before),
            "likeness": asdict(self._distances),
            "unseen": self.unseen.state(),
        }

    def collected(self) -> dict[str, NDArray[Any]]:
        """Return the logits that this round has collected, as named arrays."""
        collected = [*self._collected.values()]
        return (
            {}
            if not collected
            else {
                "collected.ids": np.array([*self._collected], np.int64),
                "collected.lengths": np.array([len(logits) for logits in collected], np.int64),
                "collected.values": np.concatenate(collected),
            }
        )

    def restore(self, state: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        """Restore what `state` and `collected` returned."""
        self._collected = {}
        if "collected.ids" in arrays:
            ends = np.cumsum(arrays["collected.lengths"])
            if ends[-1:].tolist() != [len(arrays["collected.values"])] or (arrays["collected.lengths"] < 1).any():
                raise ValueError("the logits of held-out examples do not fit their lengths")
            collected = np.split(arrays["collected.values"].astype(np.float64), ends[:-1])
            self._collected = dict(zip(arrays["collected.ids"].tolist(), collected, strict=True))
        self.held = [int(id) for id in state["held"]]
        self._log, self._earned = float(state["log"]), float(state["earned"])
        (self._first_log, self._first_curvature), self._since = map(float, state["first"][:2]), int(state["first"][2])
        before, likeness = state["before"], state["likeness"]
        self._before = None if before is None else (int(before[0]), int(before[1]))
        self._distances = NeighbourDistances(
            float(likeness["beside"]), float(likeness["apart"]), int(likeness["pairs"])
        )
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
