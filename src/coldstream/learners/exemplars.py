"""Exemplars: the few examples of a class that stand for all of it, chosen by herding."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from coldstream.learners.batches import BatchLearner, Rows
from coldstream.learners.inputs import whole
from coldstream.learners.training.engine import Engine


def unit(vectors: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return vectors (..., d) scaled to length 1; those of length 0 stay."""
    length = np.linalg.norm(vectors, axis=-1, keepdims=True)
    scaled: NDArray[np.float64] = vectors / np.maximum(length, 1e-12)
    return scaled


def unit_features(engine: Engine, items: NDArray[Any]) -> NDArray[np.float64]:
    """Return the features of items, scaled to length 1."""
    return unit(engine.features(items).to("cpu", torch.float64).numpy())


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


class ExemplarLearner(BatchLearner):
    """A batch-incremental learner that goes on from its own weights, and keeps exemplars of the classes it knows.

    Parameters
    ----------
    own
        The settings of the method itself, by name.
    exemplars
        K, kept in all once a batch has ended, K/t of each of t classes (at least one): the first ones in herding's
        order, which is made when a class was trained and only shortened later. None: every example is kept.
    **settings
        As `coldstream.learners.batches.BatchLearner` has them.
    """

    def __init__(self, own: dict[str, Any], *, exemplars: int | None, **settings: Any) -> None:
        if exemplars is not None:
            whole("exemplars", exemplars, 1)
        self._herded: dict[int, list[int]] = {}
        super().__init__({**own, "exemplars": exemplars}, **settings)

    def _settled(self, fresh: set[int], engine: Engine) -> dict[str, Any]:
        bound = self.settings["exemplars"]
        if bound is None:
            return {"_herded": {}}
        classes = self._present()
        keep = max(1, bound // len(classes))
        return {"_herded": {row: self._ranked(row, keep, row in fresh, engine) for row in classes}}

    def _shed(self) -> None:
        if self.settings["exemplars"] is None:
            return
        kept = {key for keys in self._herded.values() for key in keys}
        for key in self.buffer.index.ids.view.tolist():
            if key not in kept:
                self.buffer.forget(key)

    def _ranked(self, row: int, keep: int, fresh: bool, engine: Engine) -> list[int]:
        """Return the ids of a class's exemplars in herding's order, made anew where examples were added to it."""
        members = self._members(row)
        keys: list[int] = self.buffer.index.ids.view[members].tolist()
        known = self._herded.get(row, [])
        if not fresh and set(keys) <= set(known):
            stored = set(keys)
            return [key for key in known if key in stored][:keep]
        return [keys[i] for i in herd(unit_features(engine, self.buffer.items(members)), keep)]

    def _balanced(self, engine: Engine) -> Rows:
        """Return the same number of examples of every class: as many as the smallest has, chosen by herding."""
        classes = [self._members(row) for row in self._present()]
        count = min(len(members) for members in classes)
        return np.concatenate(
            [
                members
                if len(members) == count
                else members[herd(unit_features(engine, self.buffer.items(members)), count)]
                for members in classes
            ]
        )

    def _state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        plain, arrays = super()._state()
        pairs = [(row, key) for row, keys in self._herded.items() for key in keys]
        return plain, arrays | {"herded": np.array(pairs, np.int64).reshape(-1, 2)}

    def _restore(self, plain: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        super()._restore(plain, arrays)
        self._herded = {}
        for row, key in arrays["herded"].tolist():
            self._herded.setdefault(row, []).append(key)
