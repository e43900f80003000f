"""ExStream (Hayes, Cahill and Kanan, 2019): a linear head trained on streaming prototypes of frozen features."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional as F

from coldstream.data import Dataset
from coldstream.learners.base import Learner
from coldstream.learners.features import frozen_features
from coldstream.learners.method import Arrays, Example, Shape, State
from coldstream.learners.settings import NetworkSettings, checked, number, whole_from
from coldstream.learners.tasks import TaskState
from coldstream.learners.training.adam import Adam
from coldstream.learners.training.engine import Engine
from coldstream.models import check_init


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
        """Add a prototype that stands for `count` points; if there are too many, merge the closest two."""
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
        """Return the places of the two closest prototypes."""
        if not len(self._gaps):
            self._gaps = np.stack([self._distances(place) for place in range(len(self))])
        return divmod(int(self._gaps.argmin()), len(self))

    def _distances(self, place: int) -> NDArray[np.float32]:
        away = np.subtract(self.points, self.points[place], dtype=np.float64)
        squares: NDArray[np.float64] = (away**2).sum(axis=1)
        squares[place] = np.inf
        return squares.astype(np.float32)


class ExStreamSettings(NetworkSettings):
    """Settings of ExStream."""

    per_class: Annotated[int, whole_from(2)] = 20
    """Prototypes of a class, at least 2. The paper: 20 and 100 on ImageNet, 100 to 500 on CIFAR-100."""
    rate: Annotated[float, number(above=0)] = 2e-3
    """Learning rate of Adam."""
    batch: Annotated[int, whole_from(1)] = 256
    """Prototypes in one step of an epoch."""
    init: Annotated[str | Path | Dataset, checked(check_init)] = "base"
    """The frozen weights: ``"base"``, trained by `base_init`, which must come first; a weights file or torchvision's
    name; or ``"random"``."""


@dataclass(kw_only=True)
class ExStreamTask(TaskState):
    """The state of a task: the prototypes of each class, and the optimiser of the head."""

    per_class: int
    """The most prototypes of a class."""
    adam: Adam
    prototypes: list[Prototypes] = field(default_factory=list)

    def no_prototypes(self) -> Prototypes:
        """Return the prototypes of a new class."""
        return Prototypes(self.per_class, self.head.weight.shape[1])

    def grow(self) -> None:
        """Give the head, its optimiser and the prototypes a row for every class."""
        super().grow()
        self.adam.grow()
        self.prototypes += [self.no_prototypes() for _ in range(len(self.prototypes), len(self.classes))]


class ExStream(Learner[ExStreamTask]):
    """A linear head on frozen features; after each example, an epoch over every class's prototypes.

    An epoch takes each prototype once, shuffled, in batches, by Adam without weight decay; a prototype weighs the
    same however many points it stands for.

    In base initialisation the features of the data go through the same merging, in its order, and the head is the
    one that was trained with the network. Examples that are streamed again are points like any other. Prototypes
    cannot be taken apart, so `relabel` and `forget` find no example, and `undo` takes back a count only.
    """

    Settings = ExStreamSettings
    settings: ExStreamSettings
    stores = "prototypes"
    multi_task = True
    crops_as_tested = True

    @torch.inference_mode(mode=False)
    def _learn(self, task: ExStreamTask, new: Sequence[Example]) -> None:
        features = frozen_features(self.engine, np.stack([example.item for example in new]))
        rows = task.enter(example.label for example in new)
        for x, row in zip(features, rows, strict=True):
            task.prototypes[row].add(x)
            task.classes.counts[row] += 1
            task.classes.updates[row] += 1
        self._epoch(task)
        self.step += len(new)

    def _epoch(self, task: ExStreamTask) -> None:
        device, head = self.engine.device, task.head
        points = np.concatenate([each.points for each in task.prototypes])
        labels = np.repeat(np.arange(len(task.prototypes)), [len(each) for each in task.prototypes])
        order = task.draw(self.step, "epoch").permutation(len(points))
        for start in range(0, len(order), self.settings.batch):
            batch = order[start : start + self.settings.batch]
            x = torch.from_numpy(points[batch]).to(device, self.engine.dtype)
            y = torch.from_numpy(labels[batch]).to(device)
            with torch.enable_grad():
                loss = F.cross_entropy(head(x), y)
                weight, bias = torch.autograd.grad(loss, (head.weight, head.bias))
            task.adam.step({"weight": weight, "bias": bias})

    def _new_task(self, engine: Engine, shape: Shape, **basics: Any) -> ExStreamTask:
        return ExStreamTask(
            **basics, per_class=self.settings.per_class, adam=Adam(basics["head"], self.settings.rate)
        )

    def _after_base_init(
        self, task: ExStreamTask, items: NDArray[Any], rows: NDArray[np.int64], keys: list[int]
    ) -> None:
        for x, row in zip(frozen_features(self.engine, items), rows.tolist(), strict=True):
            task.prototypes[row].add(x)

    def _merged(self, task: ExStreamTask, old: int, new: int) -> None:
        source, task.prototypes[old] = task.prototypes[old], task.no_prototypes()
        for point, count in zip(source.points, source.counts.tolist(), strict=True):
            task.prototypes[new].add(point, count)

    def _memory(self, task: ExStreamTask) -> tuple[int, int]:
        sizes = [each.points.nbytes + each.counts.nbytes for each in task.prototypes]
        return sum(map(len, task.prototypes)), sum(sizes)

    def _overhead(self, task: ExStreamTask) -> int:
        return sum(each.gap_bytes for each in task.prototypes)

    def _frozen(self) -> nn.Module:
        return self.engine.body

    def _task_state(self, task: ExStreamTask) -> State:
        plain, arrays = super()._task_state(task)
        kept = [*task.prototypes, task.no_prototypes()]
        arrays |= {f"adam.{name}": value for name, value in task.adam.state().items()}
        arrays["prototypes.points"] = np.concatenate([each.points for each in kept])
        arrays["prototypes.counts"] = np.concatenate([each.counts for each in kept])
        return {**plain, "prototypes": [len(each) for each in task.prototypes]}, arrays

    def _restore_task(self, task: ExStreamTask, plain: dict[str, Any], arrays: Arrays) -> None:
        super()._restore_task(task, plain, arrays)
        task.adam.restore({n.removeprefix("adam."): a for n, a in arrays.items() if n.startswith("adam.")})
        cuts = np.cumsum(plain["prototypes"], dtype=np.int64)
        points, counts = (np.split(arrays[f"prototypes.{name}"], cuts)[:-1] for name in ("points", "counts"))
        for each, saved_points, saved_counts in zip(task.prototypes, points, counts, strict=True):
            each.points, each.counts = saved_points.copy(), saved_counts.copy()
