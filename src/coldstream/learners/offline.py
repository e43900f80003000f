"""Offline training as a learner: joint training on everything seen so far, the upper bound."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from coldstream.learners.batches import ScratchLearner
from coldstream.learners.inputs import whole
from coldstream.learners.training.offline import OfflineRecipe
from coldstream.models import Classifier
from coldstream.models.freezing import check_share, first_layers


class Offline(ScratchLearner):
    """Trains from scratch on all examples seen so far whenever a batch ends.

    It learns nothing from a stream that a data set would not give: the bound that others are held against. With
    ``epochs=200`` and ``model="resnet18-cifar"`` it is the paper's offline model of CIFAR-100.

    Parameters
    ----------
    epochs, batch, rate, momentum, weight_decay, augment, drops
        As `coldstream.learners.OfflineRecipe` has them.
    freeze
        The share of the body's parameters that stay as `init` gave them, from 0 to 1: whole layers in the order in
        which they work, from the input on, as many as do not exceed it. A frozen BatchNorm keeps its statistics
        too. With 1 only the head is trained. `frozen_share` says what it comes to in all, head included.
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
        freeze: float = 0.0,
        **settings: Any,
    ) -> None:
        check_share(freeze)
        own = {"drops": [whole("drops", epoch, 0) for epoch in drops], "freeze": freeze}
        settings |= {"epochs": epochs, "batch": batch, "rate": rate, "augment": augment}
        super().__init__(own, momentum=momentum, weight_decay=weight_decay, **settings)

    def _network(self, shape: tuple[int, ...]) -> Classifier:
        classifier = super()._network(shape)
        classifier.freeze(first_layers(classifier.body, shape, self.settings["freeze"]))
        return classifier

    def frozen_share(self) -> float:
        """Return the share of the network's parameters that training never changes."""
        if self.shape is None:
            return 0.0
        frozen = (p.numel() for p in self.engine.classifier.parameters() if not p.requires_grad)
        return sum(frozen) / self.parameters()

    def _recipe(self, kind: type[OfflineRecipe] = OfflineRecipe, **changes: Any) -> OfflineRecipe:
        return super()._recipe(kind, drops=tuple(self.settings["drops"]), **changes)
