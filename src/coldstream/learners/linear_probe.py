"""Frozen features and a linear head: what a practitioner would try first."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import BeforeValidator
from torch import nn

from coldstream.data import Dataset
from coldstream.labels import Label
from coldstream.learners.base import Learner
from coldstream.learners.features import frozen_features
from coldstream.learners.method import Example, Shape
from coldstream.learners.replaying import Rates, ReplaySettings, check_capacity, store, store_base
from coldstream.learners.settings import checked
from coldstream.learners.tasks import TaskState
from coldstream.learners.training.engine import Engine
from coldstream.models import check_init
from coldstream.replay import one_hot


class LinearProbeSettings(ReplaySettings):
    """Settings of the linear probe."""

    init: Annotated[str | Path | Dataset, checked(check_init)] = "base"
    """The frozen weights: ``"base"``, trained by `base_init`, which must come first; a weights file or torchvision's
    name; or ``"random"``."""
    capacity: Annotated[str | int | None, BeforeValidator(check_capacity)] = None
    """Capacity of the buffer of float32 features: ``"30MB"``, a number of examples, or None for no bound."""


class LinearProbe(Learner[TaskState]):
    """A linear head trained with SGD on the features of a frozen network, new ones together with replayed ones.

    With tasks, an update is of the new example's head alone, on B features, whatever the strategy: the others cannot
    be forgotten.
    """

    Settings = LinearProbeSettings
    settings: LinearProbeSettings
    stores = "features"
    multi_task = True
    crops_as_tested = True

    def _set_up(self) -> None:
        self.rates = Rates(self.settings)

    @torch.inference_mode(mode=False)
    def _learn(self, task: TaskState, new: Sequence[Example]) -> None:
        fresh = frozen_features(self.engine, np.stack([example.item for example in new]))
        rate = self.rates.mean(task, (example.label for example in new))
        rows = task.enter(example.label for example in new)
        beside = self.settings.replay if task.name is None else max(0, self.settings.replay - len(new))
        slots = task.buffer.sample(beside, task.draw(self.step, "sample"))
        task.buffer.count(slots)
        x = np.concatenate([fresh, task.buffer.items(slots)])
        y = np.concatenate([one_hot(rows, task.rows), task.buffer.targets(slots, task.rows)])
        features, targets = (torch.from_numpy(part).to(self.engine.device, self.engine.dtype) for part in (x, y))
        self.engine.update(task.head, features, targets, rate, task.seed, self.step, forward=lambda inputs: inputs)
        for example, row, feature in zip(new, rows, fresh, strict=True):
            store(task, feature, row, example.key, self.step)
            self.step += 1

    def _new_task(self, engine: Engine, shape: Shape, **basics: Any) -> TaskState:
        return TaskState(**basics, replay_buffer=self.settings.new_buffer((engine.features,), "float32"))

    def _after_base_init(
        self, task: TaskState, items: NDArray[Any], rows: NDArray[np.int64], keys: list[int]
    ) -> None:
        store_base(task, frozen_features(self.engine, items), rows, keys)

    def _check(self, task: TaskState, example: Example) -> None:
        self.rates.of(task, example.label)

    def _renamed(self, task: TaskState, old: Label, new: Label) -> None:
        self.settings = self.rates.rename(task, old, new, self.settings)

    def _frozen(self) -> nn.Module:
        return self.engine.body
