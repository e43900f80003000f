"""Frozen features and a linear head: what a practitioner would try first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from coldstream.learners.base import Example
from coldstream.learners.inputs import id_key
from coldstream.learners.replaying import ReplayLearner
from coldstream.replay import ReplayBuffer, one_hot


class LinearProbe(ReplayLearner):
    """A linear head trained with SGD on the features of a frozen network, new ones together with replayed ones.

    With tasks, an update is of the new example's head alone, on B features, whatever the strategy: the others cannot
    be forgotten.

    Parameters
    ----------
    init
        Where the frozen weights come from: ``"base"``, to be trained by `base_init` before anything else; a weights
        file or torchvision's name; or ``"random"``, features of a network that never learned.
    capacity
        Of the buffer of features, float32.
    **settings
        Those of `coldstream.learners.replaying.ReplayLearner` and of the network.
    """

    stores = "features"
    as_tested = True

    def __init__(self, *, init: Any = "base", capacity: str | int | None = None, **settings: Any) -> None:
        super().__init__({}, init=init, capacity=capacity, **settings)

    @torch.inference_mode(mode=False)
    def _learn(self, new: Sequence[Example]) -> None:
        fresh = self._features(np.stack([example.item for example in new]))
        rate, labels = self._begin(new)
        replayed = self.buffer.sample(self._beside(len(new)), self._draw("sample"))
        self.buffer.count(replayed)
        x = np.concatenate([fresh, self.buffer.items(replayed)])
        y = np.concatenate([one_hot(labels, self._rows), self.buffer.targets(replayed, self._rows)])
        features, targets = (torch.from_numpy(part).to(self.engine.device, self.engine.dtype) for part in (x, y))
        self._update(features, targets, rate, self.step, forward=self.engine.classifier.head)
        for example, label, feature in zip(new, labels, fresh, strict=True):
            self._keep(feature, label, id_key(example.id))
            self.step += 1

    def _after_base_init(self, items: NDArray[Any], rows: NDArray[np.int64], ids: list[int]) -> None:
        self._keep_base(self._features(items), rows, ids)

    def _shares(self) -> dict[int, int]:
        return {self._tasks.at: self.replay}  # heads have nothing in common: no other task is forgotten meanwhile

    def _new_buffer(self, shape: tuple[int, ...]) -> ReplayBuffer:
        return self._make_buffer((self.engine.classifier.features,), "float32")

    def _frozen(self) -> nn.Module:
        return self.engine.classifier.body
