"""End-to-End Incremental Learning (Castro et al. 2018): cross-entropy, distillation by head, balanced fine-tuning."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Any

import torch
from torch import Tensor
from torch.nn import functional as F

from coldstream.learners.batches import BatchLearner, Progress, Trained, at_shares
from coldstream.learners.exemplars import ExemplarSettings, ExemplarTask
from coldstream.learners.method import Arrays, Shape, State
from coldstream.learners.settings import BelowOne, number, whole_from
from coldstream.learners.training.engine import Engine, TrainedHead


def cross_distilled_loss(
    logits: Tensor, targets: Tensor, old_logits: Tensor, known: list[int], heads: list[list[int]], temperature: float
) -> Tensor:
    """Return the cross-entropy over the `known` classes, and beside it each head's distillation loss.

    The distillation loss of a head is the cross-entropy between its old and its new class probabilities: softmax over
    the head's classes alone, at the given temperature.
    """
    loss = F.cross_entropy(logits[:, known], targets[:, known])
    for head in heads:
        wanted = (old_logits[:, head] / temperature).softmax(dim=1)
        loss = loss + F.cross_entropy(logits[:, head] / temperature, wanted)
    return loss


class EndToEndSettings(ExemplarSettings):
    """Settings of end-to-end incremental learning."""

    epochs: Annotated[int, whole_from(1)] = 40
    """Epochs of the training at the end of a batch; the rate is divided by 10 after every quarter of them."""
    weight_decay: BelowOne = 1e-4
    """Weight decay of SGD."""
    temperature: Annotated[float, number(above=0)] = 2.0
    """Softmax temperature of the distillation loss."""
    fine_epochs: Annotated[int, whole_from(0)] = 30
    """Epochs of the balanced fine-tuning; the rate is divided by 10 after every third. 0: none."""
    fine_rate: Annotated[float, number(above=0)] = 0.01
    """The learning rate that the fine-tuning begins with."""


@dataclass(kw_only=True)
class EndToEndTask(ExemplarTask):
    """The state of the stream: also the classes that were first taught together."""

    heads: list[list[int]] = field(default_factory=list)

    def with_new_head(self) -> list[list[int]]:
        """Return the heads, with one more for the classes that have examples and belong to none."""
        old = {row for head in self.heads for row in head}
        new = [row for row in self.present() if row not in old]
        return [*self.heads, new] if new else self.heads


class EndToEnd(BatchLearner[EndToEndTask]):
    """End-to-end incremental learning: the cross-distilled loss, one head per batch, and balanced fine-tuning.

    The classes that are first taught together make up a head. When a batch ends, the network goes on from its
    weights with cross-entropy over all classes and a distillation loss for each old head, which holds it to what
    the network gave before, for the augmented image. Then it is fine-tuned at a lower rate on as many examples of
    each class, chosen by herding; meanwhile every head, the new one included, is held to the network as it was
    before the fine-tuning. The first batch has neither distillation nor fine-tuning. Exemplars are chosen last.

    As in the official code the distillation loss is not scaled by the temperature's square. The publication's noise
    on the gradients, and its changes of brightness and contrast, are left out: crops and flips as everywhere here.
    """

    Settings = EndToEndSettings
    settings: EndToEndSettings

    def _new_task(self, engine: Engine, shape: Shape, **basics: Any) -> EndToEndTask:
        return EndToEndTask(**basics, replay_buffer=self._new_buffer(shape))

    def _train(self, task: EndToEndTask, fresh: set[int], progress: Progress | None) -> Trained:
        epochs, fine_epochs = self.settings.epochs, self.settings.fine_epochs if task.heads else 0
        total = epochs + fine_epochs

        recipe = self._recipe(drops=at_shares(epochs, (1 / 4, 2 / 4, 3 / 4)))
        engine, head = self._copied(task, self.engine.copy_body(), task.head)
        how = self._held_to(task, self.engine, task.head, task.heads)
        trained = self._fit(task, engine, head, recipe, progress, epochs=(0, total), after=task.steps, **how)
        if not fine_epochs:
            return trained

        rate, drops = self.settings.fine_rate, at_shares(fine_epochs, (1 / 3, 2 / 3))
        recipe = self._recipe(epochs=fine_epochs, rate=rate, drops=drops)
        engine, head = self._copied(task, trained.engine.copy_body(), trained.head)
        which, after = task.balanced(trained.engine), trained.steps
        how = self._held_to(task, trained.engine, trained.head, task.with_new_head())
        done = (epochs, total)
        return self._fit(task, engine, head, recipe, progress, which=which, epochs=done, after=after, **how)

    def _held_to(
        self, task: EndToEndTask, teacher: Engine, teaching_head: TrainedHead, heads: list[list[int]]
    ) -> dict[str, Any]:
        """Return how `train_offline` holds these heads to what another network gives."""
        known = sorted(row for head in task.with_new_head() for row in head)

        def teach(inputs: Tensor, targets: Tensor) -> Tensor:
            return torch.cat([targets, teacher.teach(teaching_head, inputs)], dim=1) if heads else targets

        def loss(logits: Tensor, both: Tensor) -> Tensor:
            rows = logits.shape[1]
            return cross_distilled_loss(
                logits, both[:, :rows], both[:, rows:], known, heads, self.settings.temperature
            )

        return {"teach": teach, "loss": loss}

    def _after_training(self, task: EndToEndTask, fresh: set[int], engine: Engine) -> Callable[[], None]:
        herded, heads = task.rank(self.settings.exemplars, fresh, engine), task.with_new_head()

        def take_over() -> None:
            task.herded, task.heads = herded, heads
            if self.settings.exemplars is not None:
                task.shed()

        return take_over

    def _task_state(self, task: EndToEndTask) -> State:
        plain, arrays = super()._task_state(task)
        return {**plain, "heads": task.heads}, {**arrays, "herded": task.herded_array()}

    def _restore_task(self, task: EndToEndTask, plain: dict[str, Any], arrays: Arrays) -> None:
        super()._restore_task(task, plain, arrays)
        task.restore_herded(arrays["herded"])
        task.heads = [[int(row) for row in head] for head in plain["heads"]]
