"""What a method is made of: the state that it may use, and the hooks that it may replace."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Generic

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from coldstream.labels import Classes, Label
from coldstream.learners.inputs import Id, id_key
from coldstream.learners.settings import NetworkSettings
from coldstream.learners.tasks import Task
from coldstream.learners.training.engine import Engine
from coldstream.models import Body, load_weights

Shape = tuple[int, ...]
Arrays = dict[str, NDArray[Any]]
State = tuple[dict[str, Any], Arrays]
"""JSON-ready values, and arrays that no later step changes."""


@dataclass(frozen=True)
class Example:
    """A new example, checked and brought to the network's size before anything is changed."""

    item: NDArray[Any]
    label: Label
    id: Id

    @property
    def key(self) -> int:
        """The number under which a replay buffer knows the example."""
        return id_key(self.id)


class Method(ABC, Generic[Task]):
    """The part of a learner that a method fills in; `Learner` adds the verbs that a user calls.

    A method is a subclass of `Learner`. It declares its settings in a class `Settings`, and says how it learns in
    `_learn` and, where it does not answer with its network, how it answers in `_logits`. Both are given the state of
    the task that they are about (a `TaskState`). A method may replace the hooks of this class, and nothing else.

    State: `engine` is the network, shared by all tasks; `tasks` has a `TaskState` for each, by name, and a single
    one under None on a stream without tasks. Before the first example `built` is False, and there are no tasks.
    """

    Settings: ClassVar[type[NetworkSettings]] = NetworkSettings
    """What can be set, declared once (`coldstream.learners.settings`)."""
    needs_base_init: bool = False
    """Whether `base_init` must be called before anything else; settings may decide."""
    advice: ClassVar[str] = "call base_init(dataset) first, or give it weights to start from (init=...)"
    """What to do where base initialisation is missing."""
    batch_incremental: ClassVar[bool] = False
    """Whether examples wait until `end_batch` before the network learns from them."""
    stores: ClassVar[str] = "images"
    """Kind of the stored examples, in a word or two; empty for a method without replay."""
    multi_task: ClassVar[bool] = False
    """Whether the stream may have tasks."""
    rehearses: ClassVar[bool] = False
    """Whether the method has updates on replayed examples alone."""
    crops_as_tested: ClassVar[bool] = False
    """Whether new images are cropped as for predictions: for methods that learn from a frozen network's features."""

    settings: NetworkSettings
    seed: int
    step: int
    """Number of examples learned."""
    prepared: bool
    """Whether base initialisation was done."""
    tasks: dict[Label | None, Task]
    shape: Shape | None
    """Shape of the items that the network takes, (height, width, channels); None before the first."""
    _engine: Engine | None

    @property
    def built(self) -> bool:
        """Whether there is a network yet: the first image decides its shape."""
        return self._engine is not None

    @property
    def engine(self) -> Engine:
        """The network; an error before there is one."""
        if self._engine is None:
            raise RuntimeError("there is no network before the first example: ask `built` first")
        return self._engine

    # Hooks.

    def _set_up(self) -> None:
        """Prepare what the method has before its network; check settings that depend on each other."""

    def _body(self, shape: Shape) -> Body:
        """Return the body of the network for items of `shape`, (channels, height, width), with its first weights."""
        body = Body.build(self.settings.model, shape, self.seed)
        init = self.settings.init
        if isinstance(init, (str, Path)) and init not in ("random", "base"):
            load_weights(body.module, self.settings.model, init)
        return body

    def _build(self, shape: Shape) -> Engine:
        """Return the network for items of `shape`, (height, width, channels)."""
        return self._make_engine(self._body(self._channels_first(shape)))

    def _new_classes(self, limit: int | None) -> Classes:
        """Return the classes of a new task: none yet."""
        return Classes(limit)

    @abstractmethod
    def _new_task(self, engine: Engine, shape: Shape, **basics: Any) -> Task:
        """Return the state of a new task: `TaskState(**basics)`, and what else the method keeps for a task."""

    @abstractmethod
    def _learn(self, task: Task, new: Sequence[Example]) -> None:
        """Learn examples that were checked, in one update, and add their number to `step`."""

    def _logits(self, task: Task, items: NDArray[Any]) -> NDArray[np.float64]:
        """Return scores (N, rows of the head) whose softmax is the prediction."""
        return self.engine.logits(task.head, items)

    def _linear(self, task: Task) -> tuple[nn.Module, Tensor, Tensor]:
        """Return what `_logits` computes in parts, for `export`: a body, and weight and bias of a layer behind it.

        Who replaces `_logits` replaces this too, or the learner cannot be exported.
        """
        body = self.engine.answering_body()
        return body, *(task.head.averages() if body is not self.engine.answering else task.head.parameters())

    def _unseen(self, task: Task) -> float:
        """Return the probability that an image is of a class that has not come."""
        return 0.0

    def _rehearse(self) -> None:
        """Make one update on replayed examples alone, if any are stored, of a method that `rehearses`."""
        raise NotImplementedError

    def _check(self, task: Task, example: Example) -> None:
        """Refuse an example for a reason of the method's own, before anything changes."""

    def _after_base_init(self, task: Task, items: NDArray[Any], rows: NDArray[np.int64], keys: list[int]) -> None:
        """Fit what else a method has on the data of base initialisation."""

    def _relabelled(self, task: Task, key: int, row: int) -> None:
        """React: a stored example has another label now."""

    def _forgotten(self, task: Task, key: int) -> None:
        """React: a stored example was removed."""

    def _merged(self, task: Task, old: int, new: int) -> None:
        """React: one class was merged into another."""

    def _renamed(self, task: Task, old: Label, new: Label) -> None:
        """React: a class has another label now."""

    def _state(self) -> State:
        """Return what a checkpoint holds of the network and of what else all tasks share."""
        return {}, self.engine.state()

    def _restore(self, plain: dict[str, Any], arrays: Arrays) -> None:
        """Take over what `_state` gave."""
        self.engine.restore(arrays)

    def _task_state(self, task: Task) -> State:
        """Return what a checkpoint holds of a task, its classes and its replay buffer apart."""
        return {}, task.head.state()

    def _restore_task(self, task: Task, plain: dict[str, Any], arrays: Arrays) -> None:
        """Take over what `_task_state` gave; the head has its rows."""
        task.head.restore(arrays)

    def _frozen(self) -> nn.Module | None:
        """Return the part of the network that streaming never changes."""
        return None

    def _memory(self, task: Task) -> tuple[int, int]:
        """Return how many examples a task keeps for replay, and in how many bytes."""
        buffer = task.replay_buffer
        return (0, 0) if buffer is None else (len(buffer), buffer.nbytes)

    def _overhead(self, task: Task) -> int:
        """Return the bytes of what belongs to a task's replay beside the examples."""
        return 0 if task.replay_buffer is None else task.replay_buffer.overhead_bytes

    # What a method may use.

    def _make_engine(self, body: Body, **changes: Any) -> Engine:
        """Return an engine with the learner's settings."""
        return Engine(body, **{**self._engine_settings(), **changes})

    def _engine_settings(self) -> dict[str, Any]:
        """Return the settings that the engine takes."""
        names = ("momentum", "weight_decay", "normalize", "device", "precision", "memory_format")
        return {name: getattr(self.settings, name) for name in names}

    def _channels_first(self, shape: Shape) -> Shape:
        """Return (channels, height, width) of (height, width, channels); vectors have one side."""
        return shape if self.settings.items == "vectors" else (shape[2], shape[0], shape[1])
