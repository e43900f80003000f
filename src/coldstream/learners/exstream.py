"""ExStream (Hayes, Cahill and Kanan, 2019): a linear head trained on streaming prototypes of frozen features."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional as F

from coldstream.learners.base import Example
from coldstream.learners.inputs import whole
from coldstream.learners.network import NetworkLearner
from coldstream.learners.training.adam import Adam


class Prototypes:
    """At most `limit` points that stand for all points of one class, each with the number that it stands for.

    While there is room a new point is a prototype. Later the two closest prototypes become one, their mean weighted
    by their counts, in the place of the first, and the new point takes the place of the second. Of pairs equally
    close, the one whose first place is lowest goes, then the one whose second is.

    Distances are squared Euclidean, rounded to float32. Those between all prototypes are remembered from the first
    merge on, so that a point costs two rows of distances, not all pairs: `limit`² numbers, beside the prototypes.
    (To remember only each one's nearest other would not do: a mean of many points is the nearest of nearly all, and
    it is such a mean that moves.) They are a function of the prototypes alone, and so no part of a checkpoint.
    """

    def __init__(self, limit: int, features: int) -> None:
        self.limit = limit
        self.points = np.empty((0, features), np.float32)
        self.counts = np.empty(0, np.int64)
        self._gaps = np.empty((0, 0), np.float32)

    def __len__(self) -> int:
        return len(self.counts)

    @property
    def gap_bytes(self) -> int:
        """Bytes of the remembered distances."""
        return self._gaps.nbytes

    def add(self, point: NDArray[np.float32], count: int = 1) -> None:
        """Take in a point that stands for `count` of them."""
        if len(self) < self.limit:
            self.points = np.concatenate([self.points, point[None]])
            self.counts = np.append(self.counts, count)
            return
        one, other = self._closest()
        pair = [one, other]
        self.points[one] = np.average(self.points[pair].astype(np.float64), axis=0, weights=self.counts[pair])
        self.counts[one] += self.counts[other]
        self.points[other], self.counts[other] = point, count
        for place in pair:
            self._gaps[place] = self._gaps[:, place] = self._distances(place)

    def _closest(self) -> tuple[int, int]:
        """Return the places of the two closest prototypes, of as many as there will be."""
        if not len(self._gaps):
            self._gaps = np.stack([self._distances(place) for place in range(len(self))])
        return divmod(int(self._gaps.argmin()), len(self))

    def _distances(self, place: int) -> NDArray[np.float32]:
        away = np.subtract(self.points, self.points[place], dtype=np.float64)
        squares: NDArray[np.float64] = (away**2).sum(axis=1)
        squares[place] = np.inf
        return squares.astype(np.float32)


class ExStream(NetworkLearner):
    """A linear head on frozen features; after each example, an epoch over every class's prototypes.

    An epoch takes each prototype once, shuffled, in batches, by Adam without weight decay; a prototype weighs the
    same however many points it stands for.

    In base initialisation the features of the data go through the same merging, in its order, and the head is the
    one that was trained with the network. Examples that are streamed again are points like any other. Prototypes
    cannot be taken apart, so `relabel` and `forget` find no example, and `undo` takes back a count only.

    Parameters
    ----------
    per_class
        Prototypes of a class, at least 2. The paper: 20 and 100 on ImageNet, 100 to 500 on CIFAR-100.
    rate
        Of Adam.
    batch
        Prototypes in one step of an epoch.
    init
        Where the frozen weights come from: ``"base"``, to be trained by `base_init` before anything else; a weights
        file or torchvision's name; or ``"random"``, features of a network that never learned.
    **settings
        Those of `coldstream.learners.network.NetworkLearner`.
    """

    stores = "prototypes"
    as_tested = True

    prototypes: list[Prototypes]
    adam: Adam
    multi_task = True
    _OWN = (*NetworkLearner._OWN, "prototypes", "adam")

    def __init__(
        self, *, per_class: int = 20, rate: float = 2e-3, batch: int = 256, init: Any = "base", **settings: Any
    ) -> None:
        whole("per_class", per_class, 2)
        whole("batch", batch, 1)
        if isinstance(rate, bool) or not isinstance(rate, (int, float)) or not rate > 0:
            raise ValueError(f"rate is a number above 0, not {rate!r}")
        super().__init__({"per_class": per_class, "rate": rate, "batch": batch}, init=init, **settings)

    @torch.inference_mode(mode=False)
    def _learn(self, new: Sequence[Example]) -> None:
        features = self._features(np.stack([example.item for example in new]))
        rows = [self.classes.enter(example.label) for example in new]
        self._open_rows()
        for x, row in zip(features, rows, strict=True):
            self.prototypes[row].add(x)
            self.classes.counts[row] += 1
            self.classes.updates[row] += 1
        self._epoch()
        self.step += len(new)

    def _epoch(self) -> None:
        device, classifier = self.engine.device, self.engine.classifier
        points = np.concatenate([mine.points for mine in self.prototypes])
        labels = np.repeat(np.arange(len(self.prototypes)), [len(mine) for mine in self.prototypes])
        order = self._draw("epoch").permutation(len(points))
        for start in range(0, len(order), self.settings["batch"]):
            batch = order[start : start + self.settings["batch"]]
            x = torch.from_numpy(points[batch]).to(device, self.engine.dtype)
            y = torch.from_numpy(labels[batch]).to(device)
            with torch.enable_grad():
                loss = F.cross_entropy(classifier.head(x), y)
                weight, bias = torch.autograd.grad(loss, (classifier.weight, classifier.bias))
            self.adam.step({"weight": weight, "bias": bias})

    def _after_base_init(self, items: NDArray[Any], rows: NDArray[np.int64], ids: list[int]) -> None:
        for x, row in zip(self._features(items), rows.tolist(), strict=True):
            self.prototypes[row].add(x)

    def _merge(self, old: int, new: int) -> None:
        source, self.prototypes[old] = self.prototypes[old], self._no_prototypes()
        for point, count in zip(source.points, source.counts.tolist(), strict=True):
            self.prototypes[new].add(point, count)

    def _memory(self) -> tuple[int, int]:
        kept = [] if self.shape is None else self.prototypes
        return sum(map(len, kept)), sum(mine.points.nbytes + mine.counts.nbytes for mine in kept)

    def _overhead(self) -> int:
        return 0 if self.shape is None else sum(mine.gap_bytes for mine in self.prototypes)

    def _no_prototypes(self) -> Prototypes:
        return Prototypes(self.settings["per_class"], self.engine.classifier.features)

    def _build(self, shape: tuple[int, ...]) -> None:
        super()._build(shape)
        self._begin_own()

    def _build_own(self, shape: tuple[int, ...]) -> None:
        super()._build_own(shape)
        self._begin_own()

    def _begin_own(self) -> None:
        self.prototypes = []
        self.adam = Adam(self.engine.classifier, self.settings["rate"])

    def _forget_network(self) -> None:
        super()._forget_network()
        self.__dict__.pop("prototypes", None)
        self.__dict__.pop("adam", None)

    def _open_rows(self) -> None:
        super()._open_rows()
        self.adam.grow()
        self.prototypes += [self._no_prototypes() for _ in range(len(self.prototypes), len(self.classes))]

    def _frozen(self) -> nn.Module:
        return self.engine.classifier.body

    def _own_state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        plain, arrays = super()._own_state()
        kept = [*self.prototypes, self._no_prototypes()]
        arrays |= {f"adam.{name}": value for name, value in self.adam.state().items()}
        arrays["prototypes.points"] = np.concatenate([mine.points for mine in kept])
        arrays["prototypes.counts"] = np.concatenate([mine.counts for mine in kept])
        return {**plain, "prototypes": [len(mine) for mine in self.prototypes]}, arrays

    def _restore_own(self, plain: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        super()._restore_own(plain, arrays)
        self.adam.restore({n.removeprefix("adam."): a for n, a in arrays.items() if n.startswith("adam.")})
        cuts = np.cumsum(plain["prototypes"], dtype=np.int64)
        points, counts = (np.split(arrays[f"prototypes.{name}"], cuts)[:-1] for name in ("points", "counts"))
        for mine, own_points, own_counts in zip(self.prototypes, points, counts, strict=True):
            mine.points, mine.counts = own_points.copy(), own_counts.copy()
