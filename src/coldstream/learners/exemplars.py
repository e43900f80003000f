"""Exemplars: the few examples of a class that stand for all of it, chosen by herding."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any

import numpy as np
import torch
from numpy.typing import NDArray

from coldstream.learners.batches import BatchSettings, BatchTask, Slots
from coldstream.learners.settings import optional, whole_from
from coldstream.learners.training.engine import Engine


def unit(vectors: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return vectors (..., d) scaled to length 1; those of length 0 stay."""
    length = np.linalg.norm(vectors, axis=-1, keepdims=True)
    scaled: NDArray[np.float64] = vectors / np.maximum(length, 1e-12)
    return scaled


def unit_features(engine: Engine, items: NDArray[Any]) -> NDArray[np.float64]:
    """Return the features of items, scaled to length 1."""
    return unit(engine.features_of(items).to("cpu", torch.float64).numpy())


def herd(features: NDArray[np.float64], count: int) -> list[int]:
    """Return `count` rows of `features` (N, d), each of length 1, in the order in which herding chooses them.

    Each choice brings the mean of those chosen so far as close as it can to the mean of all. As iCaRL's paper has
    it, means are scaled to length 1 too, so that the closest is the one at the smallest angle.
    """
    goal = unit(features.mean(axis=0))
    chosen: list[int] = []
    total = np.zeros_like(goal)
    for _ in range(min(count, len(features))):
        closeness = unit(total + features) @ goal
        closeness[chosen] = -np.inf
        chosen.append(int(closeness.argmax()))
        total += features[chosen[-1]]
    return chosen


class ExemplarSettings(BatchSettings):
    """Settings of a learner that keeps exemplars."""

    exemplars: Annotated[int | None, optional(whole_from(1))] = 2000
    """K, the number of exemplars after a batch (2,000 in the publication): K/t for each of t classes, at least one.
    They are the first in herding's order, which is made when the class is trained and only shortened later. None:
    every example is kept (the CSSL paper)."""


@dataclass(kw_only=True)
class ExemplarTask(BatchTask):
    """The state of a stream of which exemplars are kept."""

    herded: dict[int, list[int]] = field(default_factory=dict)
    """The ids of each class's exemplars in herding's order."""

    def rank(self, bound: int | None, fresh: set[int], engine: Engine) -> dict[int, list[int]]:
        """Return the ids of each class's exemplars, once the classes `fresh` were trained."""
        if bound is None:
            return {}
        classes = self.present()
        keep = max(1, bound // len(classes))
        return {row: self._rank_class(row, keep, row in fresh, engine) for row in classes}

    def _rank_class(self, row: int, keep: int, fresh: bool, engine: Engine) -> list[int]:
        """Return the ids of a class's exemplars in herding's order, made again where examples were added to it."""
        members = self.members(row)
        keys: list[int] = self.buffer.index.ids.view[members].tolist()
        known = self.herded.get(row, [])
        if not fresh and set(keys) <= set(known):
            stored = set(keys)
            return [key for key in known if key in stored][:keep]
        return [keys[i] for i in herd(unit_features(engine, self.buffer.items(members)), keep)]

    def shed(self) -> None:
        """Drop all stored examples but the exemplars."""
        kept = {key for keys in self.herded.values() for key in keys}
        for key in self.buffer.index.ids.view.tolist():
            if key not in kept:
                self.buffer.forget(key)

    def balanced(self, engine: Engine) -> Slots:
        """Return the same number of examples of every class: as many as the smallest has, chosen by herding."""
        classes = [self.members(row) for row in self.present()]
        count = min(len(members) for members in classes)
        return np.concatenate(
            [
                members
                if len(members) == count
                else members[herd(unit_features(engine, self.buffer.items(members)), count)]
                for members in classes
            ]
        )

    def herded_array(self) -> NDArray[np.int64]:
        """Return pairs of class and id, in order."""
        pairs = [(row, key) for row, keys in self.herded.items() for key in keys]
        return np.array(pairs, np.int64).reshape(-1, 2)

    def restore_herded(self, pairs: NDArray[np.int64]) -> None:
        """Restore what `herded_array` returned."""
        self.herded = {}
        for row, key in pairs.tolist():
            self.herded.setdefault(row, []).append(key)
