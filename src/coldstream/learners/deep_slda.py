"""Deep SLDA (Hayes and Kanan, 2020): streaming linear discriminant analysis on the features of a frozen network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from coldstream.data import Dataset
from coldstream.learners.base import Learner
from coldstream.learners.features import frozen_features
from coldstream.learners.method import Arrays, Example, Shape, State
from coldstream.learners.settings import NetworkSettings, checked, number, one_of
from coldstream.learners.tasks import TaskState
from coldstream.learners.training.engine import Engine
from coldstream.models import check_init

COVARIANCES = ("plastic", "fixed")


class DeepSLDASettings(NetworkSettings):
    """Settings of deep SLDA."""

    covariance: Annotated[str, one_of(COVARIANCES, "covariance")] = "plastic"
    """``"plastic"``, updated by every example, or ``"fixed"``, as base initialisation left it. Fixed without base
    initialisation is zero, which makes this the nearest class mean."""
    shrinkage: Annotated[float, number(above=0, most=1)] = 1e-4
    """ε, the shrinkage of the covariance: scores use the inverse of (1 - ε) Σ + ε I."""
    init: Annotated[str | Path | Dataset, checked(check_init)] = "base"
    """The frozen weights: ``"base"``, trained by `base_init`, which must come first; a weights file or torchvision's
    name; or ``"random"``."""


@dataclass(kw_only=True)
class Statistics(TaskState):
    """The state of a task: the covariance Σ, the class means μ, and how many examples made them."""

    covariance: NDArray[np.float64]
    means: NDArray[np.float64]
    seen: NDArray[np.int64]
    updates: int = 0
    linear: tuple[Tensor, Tensor] | None = None
    """The classifier that follows from them, once it was needed."""

    def grow(self) -> None:
        """Give the head and the statistics a row for every class."""
        super().grow()
        if more := len(self.classes) - len(self.means):
            self.means = np.concatenate([self.means, np.zeros((more, self.means.shape[1]))])
            self.seen = np.concatenate([self.seen, np.zeros(more, np.int64)])

    def update(self, x: NDArray[np.float64], row: int, plastic: bool) -> None:
        """Update the statistics with the features of an example."""
        n = self.updates
        away = x - self.means[row]
        if plastic:
            self.covariance *= n / (n + 1)
            self.covariance += np.outer(away * (n / (n + 1) ** 2), away)
        self.means[row] += away / (self.seen[row] + 1)
        self.seen[row] += 1
        self.updates += 1
        self.linear = None

    def solve(self, epsilon: float) -> tuple[Tensor, Tensor]:
        """Return Λμ and -½ μᵀΛμ of every class.

        With ε above 0 the matrix is positive definite, so its inverse is the pseudo-inverse of the published code,
        and a Cholesky factorisation gives Λμ without it. Where features are so large that ε is lost in rounding, the
        pseudo-inverse drops directions; there it is computed itself.
        """
        matrix = (1 - epsilon) * torch.from_numpy(self.covariance)
        matrix.diagonal().add_(epsilon)
        means = torch.from_numpy(self.means).T
        if epsilon <= len(matrix) * torch.finfo(matrix.dtype).eps * float(matrix.trace()):
            weight = torch.linalg.pinv(matrix, hermitian=True) @ means
        else:
            weight = torch.cholesky_solve(means, torch.linalg.cholesky(matrix))
        return weight, -0.5 * (means * weight).sum(0)


class DeepSLDA(Learner[Statistics]):
    """One mean per class and one shared covariance, updated by every example; nothing is stored or replayed.

    For features x of an example of class k, of which c came before, as the n-th update from 0, with the mean as it
    was before:

        Σ ← (n Σ + (x - μ_k)(x - μ_k)ᵀ n/(n + 1)) / (n + 1);  μ_k ← μ_k + (x - μ_k)/(c + 1)

    This is the published update. It is not the pooled covariance within classes: the weight n/(n + 1) is that of
    one common mean, and a class begins at μ = 0, so that its first example adds x xᵀ. A class scores
    xᵀΛμ_k - ½ μ_kᵀΛμ_k with Λ the inverse of (1 - ε) Σ + ε I, without priors; the softmax of the scores is the
    prediction.

    Base initialisation takes the classes' means and, for Σ, the OAS estimate around them, with n the number of
    examples. Examples that are streamed again count again: there is nothing by which they could be known. For the
    same reason `relabel` and `forget` find no example, and `undo` takes back a count but not the statistics.
    """

    Settings = DeepSLDASettings
    settings: DeepSLDASettings
    stores = ""
    multi_task = True
    crops_as_tested = True

    def _learn(self, task: Statistics, new: Sequence[Example]) -> None:
        features = frozen_features(self.engine, np.stack([example.item for example in new]))
        rows = task.enter(example.label for example in new)
        for x, row in zip(features.astype(np.float64), rows, strict=True):
            task.update(x, row, self.settings.covariance == "plastic")
            task.classes.counts[row] += 1
            task.classes.updates[row] += 1
            self.step += 1

    def _logits(self, task: Statistics, items: NDArray[Any]) -> NDArray[np.float64]:
        weight, bias = self._classifier(task)
        features = torch.from_numpy(frozen_features(self.engine, items)).double()
        scores: NDArray[np.float64] = (features @ weight + bias).numpy()
        return scores

    def _linear(self, task: Statistics) -> tuple[nn.Module, Tensor, Tensor]:
        weight, bias = self._classifier(task)
        return self.engine.answering, weight.T, bias

    def _classifier(self, task: Statistics) -> tuple[Tensor, Tensor]:
        if task.linear is None:
            task.linear = task.solve(self.settings.shrinkage)
        return task.linear

    def _new_task(self, engine: Engine, shape: Shape, **basics: Any) -> Statistics:
        d = engine.features
        return Statistics(**basics, covariance=np.zeros((d, d)), means=np.zeros((0, d)), seen=np.zeros(0, np.int64))

    def _after_base_init(
        self, task: Statistics, items: NDArray[Any], rows: NDArray[np.int64], keys: list[int]
    ) -> None:
        from sklearn.covariance import OAS  # takes seconds, which those who stream from given weights need not wait

        features = frozen_features(self.engine, items).astype(np.float64)
        for row in np.unique(rows):
            members = features[rows == row]
            task.means[row], task.seen[row] = members.mean(axis=0), len(members)
        if len(rows) > 1:  # one example is its class's mean and has no covariance
            task.covariance = OAS(assume_centered=True).fit(features - task.means[rows]).covariance_
        task.updates = len(rows)

    def _frozen(self) -> nn.Module:
        return self.engine.body

    def _task_state(self, task: Statistics) -> State:
        plain, arrays = super()._task_state(task)
        statistics = {"covariance": task.covariance, "means": task.means, "seen": task.seen}
        arrays |= {f"slda.{name}": values.copy() for name, values in statistics.items()}
        return {**plain, "updates": task.updates}, arrays

    def _restore_task(self, task: Statistics, plain: dict[str, Any], arrays: Arrays) -> None:
        super()._restore_task(task, plain, arrays)
        task.updates = int(plain["updates"])
        task.covariance, task.means, task.seen = (
            arrays[f"slda.{name}"].copy() for name in ("covariance", "means", "seen")
        )
