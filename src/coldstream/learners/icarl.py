"""iCaRL (Rebuffi et al. 2017): sigmoids held to the old network's, herded exemplars, nearest mean of exemplars."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import BeforeValidator
from torch import Tensor
from torch.nn import functional as F

from coldstream.augment import Policy
from coldstream.augment.crops import Flip
from coldstream.learners.batches import BatchLearner, Progress, Slots, Trained, at_shares
from coldstream.learners.exemplars import ExemplarSettings, ExemplarTask, unit, unit_features
from coldstream.learners.method import Arrays, Shape, State
from coldstream.learners.settings import BelowOne, number, whole_from
from coldstream.learners.training.engine import Engine
from coldstream.learners.training.offline import OfflineRecipe


class _Recipe(OfflineRecipe):
    drop: ClassVar[float] = 0.2


def _drops(shares: Any) -> tuple[float, ...]:
    if not isinstance(shares, Sequence) or any(
        isinstance(share, bool) or not isinstance(share, (int, float)) or not 0 < share < 1 for share in shares
    ):
        raise ValueError(f"drops are shares of the epochs, above 0 and below 1, not {shares!r}")
    return tuple(shares)


class ICaRLSettings(ExemplarSettings):
    """Settings of iCaRL. The defaults are the publication's for CIFAR-100."""

    epochs: Annotated[int, whole_from(1)] = 70
    """Epochs of the training at the end of a batch."""
    rate: Annotated[float, number(above=0)] = 2.0
    """The learning rate that it begins with. The publication's goes with a head of 100 rows (``classes=100``): the
    loss is a mean over rows, so that fewer rows want a lower rate."""
    weight_decay: BelowOne = 2e-5
    """Weight decay of SGD: the publication's L2 penalty of 1e-5."""
    drops: Annotated[tuple[float, ...], BeforeValidator(_drops)] = (0.7, 0.9)
    """The shares of the epochs after which the rate is divided by 5: at 49 and 63 of 70. Without any it falls along
    a cosine, as `coldstream.learners.OfflineRecipe` has it."""


@dataclass(kw_only=True)
class ICaRLTask(ExemplarTask):
    """The state of the stream: also the mean of each class's exemplars."""

    means: NDArray[np.float64] = field(default_factory=lambda: np.empty((0, 0)))


class ICaRL(BatchLearner[ICaRLTask]):
    """Incremental classifier and representation learning.

    When a batch ends, the network goes on from its weights with a binary cross-entropy per class, averaged over
    examples and rows of the head: the targets of the batch's classes are 1 and 0, those of the other known classes
    are what the network gave before, for the augmented image. (The publication's batches bring new classes only,
    so that the batch's classes are the new ones. Where known classes come again, they are learned, not kept.)
    Then exemplars are chosen. A class is represented by the mean of its exemplars' features, each scaled to length
    1, the mean too; an image belongs to the nearest. As in the official code the mean is over exemplars and their
    mirror images, provided that `augment` flips, and the test image is taken as it is.

    The score of a class is minus the squared distance to its mean, from -4 to 0: the best is the nearest, and the
    probabilities, a softmax of these scores, are much flatter than a trained softmax would give.

    With `classes` given, rows of classes that have not come yet are trained towards 0, as the official code does.
    """

    Settings = ICaRLSettings
    settings: ICaRLSettings

    def _new_task(self, engine: Engine, shape: Shape, **basics: Any) -> ICaRLTask:
        return ICaRLTask(**basics, replay_buffer=self._new_buffer(shape))

    def _train(self, task: ICaRLTask, fresh: set[int], progress: Progress | None) -> Trained:
        old = [row for row in task.taught if row not in fresh]
        teacher, teaching_head = self.engine, task.head
        pupil, head = self._copied(task, teacher.copy_body(), task.head)

        def teach(inputs: Tensor, targets: Tensor) -> Tensor:
            if old:
                targets[:, old] = teacher.teach(teaching_head, inputs)[:, old].sigmoid()
            return targets

        recipe = self._recipe(_Recipe, drops=at_shares(self.settings.epochs, self.settings.drops))
        loss = F.binary_cross_entropy_with_logits
        return self._fit(task, pupil, head, recipe, progress, teach=teach, loss=loss, after=task.steps)

    def _after_training(self, task: ICaRLTask, fresh: set[int], engine: Engine) -> Callable[[], None]:
        bound = self.settings.exemplars
        herded = task.rank(bound, fresh, engine)
        kept = {key for keys in herded.values() for key in keys}
        ids = task.buffer.index.ids.view
        members = [task.members(row) for row in task.present()]
        exemplars = [[slot for slot in slots if bound is None or int(ids[slot]) in kept] for slots in members]
        means = np.stack([self._mean(task, engine, np.array(slots)) for slots in exemplars])

        def take_over() -> None:
            task.herded, task.means = herded, means
            if self.settings.exemplars is not None:
                task.shed()

        return take_over

    def _mean(self, task: ICaRLTask, engine: Engine, exemplars: Slots) -> NDArray[np.float64]:
        """Return the mean of a class's exemplars, scaled to length 1."""
        images = task.buffer.items(exemplars)
        mean = unit_features(engine, images).mean(axis=0)
        if any(isinstance(stage, Flip) for stage in Policy.parse(self.settings.augment).stages):
            mirrored = np.ascontiguousarray(images[:, :, ::-1])
            mean = (mean + unit_features(engine, mirrored).mean(axis=0)) / 2
        return unit(mean)

    def _scores(self, task: ICaRLTask, items: NDArray[Any]) -> NDArray[np.float64]:
        features = unit_features(self.engine, items)
        squares = (features**2).sum(axis=1, keepdims=True) + (task.means**2).sum(axis=1)
        scores: NDArray[np.float64] = 2 * features @ task.means.T - squares
        return scores

    def _task_state(self, task: ICaRLTask) -> State:
        plain, arrays = super()._task_state(task)
        return plain, {**arrays, "herded": task.herded_array(), "means": task.means}

    def _restore_task(self, task: ICaRLTask, plain: dict[str, Any], arrays: Arrays) -> None:
        super()._restore_task(task, plain, arrays)
        task.restore_herded(arrays["herded"])
        task.means = arrays["means"]
