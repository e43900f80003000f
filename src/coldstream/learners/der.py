"""DER++ (Buzzega et al., 2020): dark experience replay, which also replays the logits of the network."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, from_numpy
from torch.nn import functional as F

from coldstream.learners.er import ER, ERSettings
from coldstream.learners.replaying import Rate
from coldstream.learners.settings import number
from coldstream.learners.steps import Batch


class DERSettings(ERSettings):
    """Settings of DER++."""

    rate: Rate = 0.01
    """The learning rate. It is lower than that of experience replay, because the new examples of an update weigh as
    much as all replayed ones."""
    alpha: Annotated[float, number(least=0)] = 0.1
    """Weight of the distance to the stored logits. The publication searches 0.1 to 1."""
    beta: Annotated[float, number(least=0)] = 0.5
    """Weight of the cross-entropy of replayed examples; 0 is DER. The publication searches 0.1 to 1."""


class DERpp(ER):
    """Experience replay that also holds the network to the logits it gave when an example was new.

    Every update draws twice from the buffer: cross-entropy of the new examples, plus `alpha` times the mean squared
    distance between the logits of the first draw and those stored, plus `beta` times the cross-entropy of the second.
    Of classes that came later a stored example has no logits, and the distance leaves them out.
    """

    Settings = DERSettings
    settings: DERSettings

    @property
    def draws(self) -> int:  # type: ignore[override]
        """Two draws from the buffer per update; without the second term of cross-entropy, one."""
        return 2 if self.settings.beta else 1

    def loss(self, logits: Tensor, batch: Batch, targets: Tensor) -> Tensor:
        """Return the three terms of the loss, those of draws that gave something."""
        new, first = len(batch.new), len(batch.new) + batch.draws[0]
        value = F.cross_entropy(logits[:new], targets[:new]) if new else logits.sum() * 0.0
        if first > new:
            value = value + self.settings.alpha * self._distance(logits[new:first], batch.extras[: first - new])
        if len(logits) > first:
            value = value + self.settings.beta * F.cross_entropy(logits[first:], targets[first:])
        return value

    @staticmethod
    def _distance(logits: Tensor, stored: Sequence[NDArray[np.float32] | None]) -> Tensor:
        """Return the mean squared difference over all logits that were stored."""
        known = np.zeros(logits.shape, np.float32)
        before = np.zeros(logits.shape, np.float32)
        for place, values in enumerate(stored):
            if values is not None:
                known[place, : len(values)], before[place, : len(values)] = 1, values
        mask, old = (from_numpy(part).to(logits) for part in (known, before))
        return ((logits - old) ** 2 * mask).sum() / mask.sum().clamp(min=1)

    def extra(self, batch: Batch) -> Sequence[NDArray[np.float32]]:
        """Store the logits that the network gave for the new examples."""
        return [*batch.logits[: len(batch.new)].float().cpu().numpy()]

    def _set_up(self) -> None:
        super()._set_up()
        if self.policy.mixing is not None:
            raise ValueError(f"augment={self.settings.augment!r} mixes images, whose logits could not be stored")
        if self.settings.evict.startswith("consolidate"):
            raise ValueError(f"evict={self.settings.evict!r} mixes stored images, which have no logits; use another")
