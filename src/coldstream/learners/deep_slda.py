"""Deep SLDA (Hayes and Kanan, 2020): streaming linear discriminant analysis on the features of a frozen network."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from coldstream.learners.base import Example
from coldstream.learners.network import NetworkLearner
from coldstream.parsing import unknown

COVARIANCES = ("plastic", "fixed")
_STATISTICS = ("covariance", "means", "seen")


class DeepSLDA(NetworkLearner):
    """A mean a class and one covariance for all, updated by every example; nothing is stored, nothing replayed.

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

    Parameters
    ----------
    covariance
        ``"plastic"``, updated as above, or ``"fixed"``, as base initialisation left it. Fixed without base
        initialisation is zero, which makes this the nearest class mean.
    shrinkage
        ε.
    init
        Where the frozen weights come from: ``"base"``, to be trained by `base_init` before anything else; a weights
        file or torchvision's name; or ``"random"``, features of a network that never learned.
    **settings
        Those of `coldstream.learners.network.NetworkLearner`.
    """

    stores = ""
    as_tested = True

    covariance: NDArray[np.float64]
    means: NDArray[np.float64]
    seen: NDArray[np.int64]
    updates: int
    _linear: tuple[Tensor, Tensor] | None
    multi_task = True
    _OWN = (*NetworkLearner._OWN, *_STATISTICS, "updates", "_linear")

    def __init__(
        self, *, covariance: str = "plastic", shrinkage: float = 1e-4, init: Any = "base", **settings: Any
    ) -> None:
        if covariance not in COVARIANCES:
            raise unknown("covariance", covariance, COVARIANCES)
        if isinstance(shrinkage, bool) or not isinstance(shrinkage, (int, float)) or not 0 < shrinkage <= 1:
            raise ValueError(f"shrinkage is a number above 0 and at most 1, not {shrinkage!r}")
        super().__init__({"covariance": covariance, "shrinkage": shrinkage}, init=init, **settings)

    def _learn(self, new: Sequence[Example]) -> None:
        features = self._features(np.stack([example.item for example in new]))
        rows = [self.classes.enter(example.label) for example in new]
        self._open_rows()
        for x, row in zip(features.astype(np.float64), rows, strict=True):
            self._update(x, row)
            self.classes.counts[row] += 1
            self.classes.updates[row] += 1
            self.step += 1

    def _update(self, x: NDArray[np.float64], row: int) -> None:
        n = self.updates
        away = x - self.means[row]
        if self.settings["covariance"] == "plastic":
            self.covariance *= n / (n + 1)
            self.covariance += np.outer(away * (n / (n + 1) ** 2), away)
        self.means[row] += away / (self.seen[row] + 1)
        self.seen[row] += 1
        self.updates += 1
        self._linear = None

    def _logits(self, items: NDArray[Any]) -> NDArray[np.float64]:
        if self._linear is None:
            self._linear = self._solve()
        weight, bias = self._linear
        scores: NDArray[np.float64] = (torch.from_numpy(self._features(items)).double() @ weight + bias).numpy()
        return scores

    def _solve(self) -> tuple[Tensor, Tensor]:
        """Return Λμ and -½ μᵀΛμ of every class.

        With ε above 0 the matrix is positive definite, so its inverse is the pseudo-inverse of the published code,
        and a Cholesky factorisation gives Λμ without it. Only where features are so large that ε is lost in rounding
        beside them does the pseudo-inverse cut directions off, and is taken itself.
        """
        epsilon = self.settings["shrinkage"]
        matrix = (1 - epsilon) * torch.from_numpy(self.covariance)
        matrix.diagonal().add_(epsilon)
        means = torch.from_numpy(self.means).T
        if epsilon <= len(matrix) * torch.finfo(matrix.dtype).eps * float(matrix.trace()):
            weight = torch.linalg.pinv(matrix, hermitian=True) @ means
        else:
            weight = torch.cholesky_solve(means, torch.linalg.cholesky(matrix))
        return weight, -0.5 * (means * weight).sum(0)

    def _after_base_init(self, items: NDArray[Any], rows: NDArray[np.int64], ids: list[int]) -> None:
        from sklearn.covariance import OAS  # takes seconds, which those who stream from given weights need not wait

        features = self._features(items).astype(np.float64)
        for row in np.unique(rows):
            mine = features[rows == row]
            self.means[row], self.seen[row] = mine.mean(axis=0), len(mine)
        if len(rows) > 1:  # one example is its class's mean and has no covariance
            self.covariance = OAS(assume_centered=True).fit(features - self.means[rows]).covariance_
        self.updates = len(rows)

    def _build(self, shape: tuple[int, ...]) -> None:
        super()._build(shape)
        self._begin_own()

    def _build_own(self, shape: tuple[int, ...]) -> None:
        super()._build_own(shape)
        self._begin_own()

    def _begin_own(self) -> None:
        d = self.engine.classifier.features
        self.covariance, self.means, self.seen = np.zeros((d, d)), np.zeros((0, d)), np.zeros(0, np.int64)
        self.updates, self._linear = 0, None

    def _forget_network(self) -> None:
        super()._forget_network()
        self.updates = 0
        self._linear = None
        for name in _STATISTICS:
            self.__dict__.pop(name, None)

    def _open_rows(self) -> None:
        super()._open_rows()
        if more := len(self.classes) - len(self.means):
            self.means = np.concatenate([self.means, np.zeros((more, self.means.shape[1]))])
            self.seen = np.concatenate([self.seen, np.zeros(more, np.int64)])

    def _frozen(self) -> nn.Module:
        return self.engine.classifier.body

    def _own_state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        plain, arrays = super()._own_state()
        arrays |= {f"slda.{name}": getattr(self, name).copy() for name in _STATISTICS}
        return {**plain, "updates": self.updates}, arrays

    def _restore_own(self, plain: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        super()._restore_own(plain, arrays)
        self.updates = int(plain["updates"])
        for name in _STATISTICS:
            setattr(self, name, arrays[f"slda.{name}"].copy())
