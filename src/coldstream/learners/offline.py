"""Offline training as a learner: joint training on everything seen so far, the upper bound."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import BeforeValidator

from coldstream.labels import shown
from coldstream.learners.batches import BatchSettings, ScratchLearner
from coldstream.learners.inputs import whole
from coldstream.learners.method import Shape
from coldstream.learners.settings import BelowOne, checked
from coldstream.learners.training.offline import OfflineRecipe
from coldstream.models import Body
from coldstream.models.freezing import check_share, first_layers


def _drops(epochs: Any) -> tuple[int, ...]:
    if not isinstance(epochs, Sequence) or isinstance(epochs, (str, bytes)):
        raise ValueError(f"drops are epochs, such as (100, 150), not {shown(epochs)}")
    return tuple(whole("drops", epoch, 0) for epoch in epochs)


class OfflineSettings(BatchSettings):
    """Settings of offline training, as `coldstream.learners.OfflineRecipe` has them."""

    weight_decay: BelowOne = 5e-4
    """Weight decay of SGD."""
    drops: Annotated[tuple[int, ...], BeforeValidator(_drops)] = ()
    """The epochs at which the rate is divided by ten; without any it falls along a cosine."""
    freeze: Annotated[float, checked(check_share)] = 0.0
    """The largest share of the body's parameters to freeze at their first values, from 0 to 1. Whole layers are
    frozen, from the input on, as long as their parameters do not exceed this share. A frozen BatchNorm keeps its
    statistics too. With 1 only the head is trained. `frozen_share` returns the share that results, head included."""


class Offline(ScratchLearner):
    """Trains from scratch on all examples seen so far whenever a batch ends: joint training.

    It keeps every example and is the upper bound for learners that see each example once. With ``epochs=200`` and
    ``model="resnet18-cifar"`` it is the paper's offline model of CIFAR-100.
    """

    Settings = OfflineSettings
    settings: OfflineSettings

    def _body(self, shape: Shape) -> Body:
        body = super()._body(shape)
        body.freeze(first_layers(body.module, shape, self.settings.freeze))
        return body

    def frozen_share(self) -> float:
        """Return the share of the network's parameters that training never changes."""
        with self._lock:
            if not self.built:
                return 0.0
            frozen = (p.numel() for p in self.engine.body.parameters() if not p.requires_grad)
            return sum(frozen) / self.parameters()

    def _recipe(self, kind: type[OfflineRecipe] = OfflineRecipe, **changes: Any) -> OfflineRecipe:
        return super()._recipe(kind, drops=self.settings.drops, **changes)
