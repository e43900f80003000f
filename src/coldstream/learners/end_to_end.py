"""End-to-End Incremental Learning (Castro et al. 2018): cross-entropy, distillation a head, balanced fine-tuning."""

from __future__ import annotations

from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from coldstream.learners.batches import Progress, above_zero, at_shares
from coldstream.learners.exemplars import ExemplarLearner
from coldstream.learners.inputs import whole
from coldstream.learners.training.engine import Engine


def cross_distilled_loss(
    logits: Tensor, targets: Tensor, old_logits: Tensor, known: list[int], heads: list[list[int]], temperature: float
) -> Tensor:
    """Return the cross-entropy over the `known` classes, and beside it each head's distillation loss.

    A head's is the cross-entropy between what the old and the new logits of its classes say, both by a softmax
    among these classes alone and at the given temperature.
    """
    loss = F.cross_entropy(logits[:, known], targets[:, known])
    for head in heads:
        wanted = (old_logits[:, head] / temperature).softmax(dim=1)
        loss = loss + F.cross_entropy(logits[:, head] / temperature, wanted)
    return loss


class EndToEnd(ExemplarLearner):
    """End-to-end incremental learning: the cross-distilled loss, one head a step, and balanced fine-tuning.

    The classes that are first taught together make up a head. When a batch ends, the network goes on from its
    weights with cross-entropy over all classes and a distillation loss for each old head, which holds it to what
    the network gave before, for the augmented image. Then it is fine-tuned at a lower rate on as many examples of
    each class, chosen by herding; meanwhile every head, the new one included, is held to the network as it was
    before the fine-tuning. The first batch has neither distillation nor fine-tuning. Exemplars are chosen last.

    As in the official code the distillation loss is not scaled by the temperature's square. The publication's noise
    on the gradients, and its changes of brightness and contrast, are left out: crops and flips as everywhere here.

    Parameters
    ----------
    exemplars
        Kept in all once a batch has ended (2,000 in the publication). None: every example (the CSSL paper).
    temperature
        Of the distillation.
    epochs, rate
        Of the training; the rate is divided by 10 after every quarter of the epochs.
    fine_epochs, fine_rate
        Of the balanced fine-tuning; the rate is divided by 10 after every third. 0 epochs: none.
    batch, momentum, weight_decay, augment
        Of both.
    **settings
        `storage`, and those of `coldstream.learners.network.NetworkLearner`.
    """

    def __init__(
        self,
        *,
        exemplars: int | None = 2000,
        temperature: float = 2.0,
        epochs: int = 40,
        rate: float = 0.1,
        fine_epochs: int = 30,
        fine_rate: float = 0.01,
        batch: int = 128,
        momentum: float = 0.9,
        weight_decay: float = 1e-4,
        augment: str = "crop|flip",
        **settings: Any,
    ) -> None:
        own = {"temperature": above_zero("temperature", temperature)}
        own |= {"fine_epochs": whole("fine_epochs", fine_epochs, 0), "fine_rate": above_zero("fine_rate", fine_rate)}
        self._heads: list[list[int]] = []
        settings |= {"epochs": epochs, "batch": batch, "rate": rate, "augment": augment}
        settings |= {"momentum": momentum, "weight_decay": weight_decay}
        super().__init__(own, exemplars=exemplars, **settings)

    def _train(self, fresh: set[int], progress: Progress | None) -> tuple[Engine, int]:
        epochs, fine_epochs = self.settings["epochs"], self.settings["fine_epochs"] if self._heads else 0
        total = epochs + fine_epochs

        recipe = self._recipe(drops=at_shares(epochs, (1 / 4, 2 / 4, 3 / 4)))
        trained = self._copied(self.engine.classifier)
        held = self._held_to(self.engine, self._heads)
        steps = self._fit(trained, recipe, progress, epochs=(0, total), after=self._steps, **held)
        if not fine_epochs:
            return trained, steps

        rate, drops = self.settings["fine_rate"], at_shares(fine_epochs, (1 / 3, 2 / 3))
        recipe = self._recipe(epochs=fine_epochs, rate=rate, drops=drops)
        tuned, which = self._copied(trained.classifier), self._balanced(trained)
        held = self._held_to(trained, self._with_new_head())
        steps = self._fit(tuned, recipe, progress, which=which, epochs=(epochs, total), after=steps, **held)
        return tuned, steps

    def _held_to(self, teacher: Engine, heads: list[list[int]]) -> dict[str, Any]:
        """Return how `train_offline` holds these heads to what another network gives."""
        known = sorted(row for head in self._with_new_head() for row in head)

        def teach(inputs: Tensor, targets: Tensor) -> Tensor:
            return torch.cat([targets, teacher.teach(inputs)], dim=1) if heads else targets

        def loss(logits: Tensor, both: Tensor) -> Tensor:
            rows = logits.shape[1]
            return cross_distilled_loss(
                logits, both[:, :rows], both[:, rows:], known, heads, self.settings["temperature"]
            )

        return {"teach": teach, "loss": loss}

    def _with_new_head(self) -> list[list[int]]:
        """Return the heads, with one more for the classes that have examples and belong to none."""
        old = {row for head in self._heads for row in head}
        new = [row for row in self._present() if row not in old]
        return [*self._heads, new] if new else self._heads

    def _settled(self, fresh: set[int], engine: Engine) -> dict[str, Any]:
        return {**super()._settled(fresh, engine), "_heads": self._with_new_head()}

    def _state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        plain, arrays = super()._state()
        return {**plain, "heads": self._heads}, arrays

    def _restore(self, plain: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        super()._restore(plain, arrays)
        self._heads = [[int(row) for row in head] for head in plain["heads"]]
