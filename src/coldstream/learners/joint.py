"""Offline training as a learner: joint training on everything seen so far, the upper bound."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from coldstream.learners.batches import ScratchLearner
from coldstream.learners.intake import whole
from coldstream.learners.offline import OfflineRecipe


class Offline(ScratchLearner):
    """Trains from scratch on all examples seen so far whenever a batch ends.

    It learns nothing from a stream that a data set would not give: the bound that others are held against. With
    ``epochs=200`` and ``model="resnet18-cifar"`` it is the paper's offline model of CIFAR-100.

    Parameters
    ----------
    epochs, batch, rate, momentum, weight_decay, augment, drops
        As `coldstream.learners.OfflineRecipe` has them.
    **settings
        `storage`, and those of `coldstream.learners.network.NetworkLearner`.
    """

    def __init__(
        self,
        *,
        epochs: int = 50,
        batch: int = 128,
        rate: float = 0.1,
        momentum: float = 0.9,
        weight_decay: float = 5e-4,
        augment: str = "crop|flip",
        drops: Sequence[int] = (),
        **settings: Any,
    ) -> None:
        own = {"drops": [whole("drops", epoch, 0) for epoch in drops]}
        settings |= {"epochs": epochs, "batch": batch, "rate": rate, "augment": augment}
        super().__init__(own, momentum=momentum, weight_decay=weight_decay, **settings)

    def _recipe(self, kind: type[OfflineRecipe] = OfflineRecipe, **changes: Any) -> OfflineRecipe:
        return super()._recipe(kind, drops=tuple(self.settings["drops"]), **changes)
