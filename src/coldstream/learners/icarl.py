"""iCaRL (Rebuffi et al. 2017): sigmoids held to the old network's, herded exemplars, nearest mean of exemplars."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from coldstream.augment import Policy
from coldstream.augment.crops import Flip
from coldstream.learners.batches import Progress, Rows, at_shares
from coldstream.learners.exemplars import ExemplarLearner, unit, unit_features
from coldstream.learners.training.engine import Engine
from coldstream.learners.training.offline import OfflineRecipe


class _Recipe(OfflineRecipe):
    drop: ClassVar[float] = 0.2


class ICaRL(ExemplarLearner):
    """Incremental classifier and representation learning.

    When a batch ends, the network goes on from its weights with a binary cross-entropy a class, averaged over
    examples and rows of the head: the targets of the batch's classes are 1 and 0, those of the other known classes
    are what the network gave before, for the augmented image. (The publication's batches bring new classes only,
    so that the batch's classes are the new ones. Where known classes come again, they are learned, not kept.)
    Then exemplars are chosen. A class is represented by the mean of its exemplars' features, each scaled to length
    1, the mean too; an image belongs to the nearest. As in the official code the mean is over exemplars and their
    mirror images, provided that `augment` flips, and the test image is taken as it is.

    The score of a class is minus the squared distance to its mean, from -4 to 0: the best is the nearest, and the
    probabilities, a softmax of these scores, are much flatter than a trained softmax would give.

    Parameters
    ----------
    exemplars
        Kept in all once a batch has ended (2,000 in the publication). None: every example (the CSSL paper).
    epochs, batch, rate, momentum, weight_decay, augment
        Of the training at the end of a batch; the defaults are the publication's for CIFAR-100. Its rate goes with a
        head of 100 rows (``classes=100``): the loss is a mean over rows, so that fewer rows want a lower rate. Its L2
        penalty of 1e-5 is a decay of 2e-5.
    drops
        The shares of the epochs after which the rate is divided by 5: at 49 and 63 of 70. Without any it falls along
        a cosine, as `coldstream.learners.OfflineRecipe` has it.
    **settings
        `storage`, and those of `coldstream.learners.network.NetworkLearner`. With `classes` given, rows of classes
        that have not come yet are trained towards 0, as the official code does.
    """

    def __init__(
        self,
        *,
        exemplars: int | None = 2000,
        epochs: int = 70,
        batch: int = 128,
        rate: float = 2.0,
        momentum: float = 0.9,
        weight_decay: float = 2e-5,
        augment: str = "crop|flip",
        drops: Sequence[float] = (0.7, 0.9),
        **settings: Any,
    ) -> None:
        if any(
            isinstance(share, bool) or not isinstance(share, (int, float)) or not 0 < share < 1 for share in drops
        ):
            raise ValueError(f"drops are shares of the epochs, above 0 and below 1, not {drops!r}")
        self._means = np.empty((0, 0))
        settings |= {"epochs": epochs, "batch": batch, "rate": rate, "augment": augment}
        settings |= {"momentum": momentum, "weight_decay": weight_decay}
        super().__init__({"drops": tuple(drops)}, exemplars=exemplars, **settings)

    def _train(self, fresh: set[int], progress: Progress | None) -> tuple[Engine, int]:
        old = sorted(self.classes.taught - fresh)
        teacher, pupil = self.engine, self._copied(self.engine.classifier)

        def teach(inputs: Tensor, targets: Tensor) -> Tensor:
            if old:
                targets[:, old] = teacher.teach(inputs)[:, old].sigmoid()
            return targets

        recipe = self._recipe(_Recipe, drops=at_shares(self.settings["epochs"], self.settings["drops"]))
        loss = F.binary_cross_entropy_with_logits
        return pupil, self._fit(pupil, recipe, progress, teach=teach, loss=loss, after=self._steps)

    def _settled(self, fresh: set[int], engine: Engine) -> dict[str, Any]:
        found = super()._settled(fresh, engine)
        kept = {key for keys in found["_herded"].values() for key in keys}
        bounded = self.settings["exemplars"] is not None
        ids = self.buffer.index.ids.view
        members = [self._members(row) for row in self._present()]
        exemplars = [[place for place in mine if not bounded or int(ids[place]) in kept] for mine in members]
        return {**found, "_means": np.stack([self._mean(engine, np.array(mine)) for mine in exemplars])}

    def _mean(self, engine: Engine, exemplars: Rows) -> NDArray[np.float64]:
        """Return the mean of a class's exemplars, scaled to length 1."""
        images = self.buffer.items(exemplars)
        mean = unit_features(engine, images).mean(axis=0)
        if any(isinstance(stage, Flip) for stage in Policy.parse(self.settings["augment"]).stages):
            mirrored = np.ascontiguousarray(images[:, :, ::-1])
            mean = (mean + unit_features(engine, mirrored).mean(axis=0)) / 2
        return unit(mean)

    def _scores(self, items: NDArray[Any]) -> NDArray[np.float64]:
        features = unit_features(self.engine, items)
        squares = (features**2).sum(axis=1, keepdims=True) + (self._means**2).sum(axis=1)
        scores: NDArray[np.float64] = 2 * features @ self._means.T - squares
        return scores

    def _state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        plain, arrays = super()._state()
        return plain, arrays | {"means": self._means}

    def _restore(self, plain: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        super()._restore(plain, arrays)
        self._means = arrays["means"]
