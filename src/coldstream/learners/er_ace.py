"""ER-ACE (Caccia et al., 2022): experience replay with an asymmetric cross-entropy."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F

from coldstream.learners.er import ER
from coldstream.learners.steps import Batch


class ERACE(ER):
    """Experience replay whose new examples compete with each other's classes only.

    The loss of an update is the sum of two cross-entropies: of the new examples over the classes among them, and of
    the replayed ones over all classes. So a new class does not push the old ones away before it is replayed beside
    them. With one new example per update the first term is zero, and the example is learned when it is replayed; the
    publication's results are with updates of 10 new examples (``per_update=10``).
    """

    def loss(self, logits: Tensor, batch: Batch, targets: Tensor) -> Tensor:
        """Return the asymmetric cross-entropy."""
        new, classes = len(batch.new), sorted(set(batch.rows))
        value = logits.sum() * 0.0
        if new:
            value = value + F.cross_entropy(logits[:new, classes], targets[:new, classes])
        if len(logits) > new:
            value = value + F.cross_entropy(logits[new:], targets[new:])
        return value

    def _set_up(self) -> None:
        super()._set_up()
        if self.policy.mixing is not None:
            raise ValueError(f"augment={self.settings.augment!r} mixes images, whose classes this loss tells apart")
