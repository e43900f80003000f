"""Shared by batch-incremental learners: examples wait until their batch ends, then the network is trained on them."""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Generic, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from coldstream.data import Dataset
from coldstream.labels import Classes
from coldstream.learners.base import Learner
from coldstream.learners.method import Arrays, Example, Shape, State
from coldstream.learners.settings import NetworkSettings, PolicyText, checked, number, whole_from
from coldstream.learners.tasks import TaskState
from coldstream.learners.training.engine import Engine, TrainedHead
from coldstream.learners.training.offline import OfflineRecipe, train_offline
from coldstream.models import Body
from coldstream.replay import ReplayBuffer
from coldstream.replay.rows import check_storage

Progress = Callable[[int, int], None]
"""(epochs done, epochs in all)."""
Slots = NDArray[np.int64]
_NEVER = -1e30


class TaughtClasses(Classes):
    """Classes of which only those can be predicted that the network was taught: rows in `taught`."""

    def __init__(self, limit: int | None = None) -> None:
        super().__init__(limit)
        self.taught: set[int] = set()

    def seen(self) -> list[int]:
        """Return the rows of the classes that can be predicted."""
        taught = {self.into[row] for row in self.taught}
        return [row for row in super().seen() if row in taught]

    def state(self) -> dict[str, Any]:
        """Return a JSON-ready form."""
        return {**super().state(), "taught": sorted(self.taught)}

    def restore(self, state: dict[str, Any]) -> None:
        """Restore what `state` returned."""
        super().restore(state)
        self.taught = {int(row) for row in state["taught"]}


class Stored:
    """Slots of a buffer, decoded on demand."""

    def __init__(self, buffer: ReplayBuffer, slots: Slots) -> None:
        self._buffer, self._slots = buffer, slots

    def __len__(self) -> int:
        return len(self._slots)

    def __getitem__(self, which: Slots, /) -> NDArray[Any]:
        return self._buffer.items(self._slots[which])


class BatchSettings(NetworkSettings):
    """Settings of the training at the end of a batch."""

    epochs: Annotated[int, whole_from(1)] = 50
    """Epochs of the training."""
    batch: Annotated[int, whole_from(1)] = 128
    """Examples in a step."""
    rate: Annotated[float, number(above=0)] = 0.1
    """The learning rate that the training begins with."""
    augment: PolicyText = "crop|flip"
    """The policy of augmentation, such as ``"crop|flip"`` or ``"none"``."""
    storage: Annotated[str, checked(check_storage)] = "memory"
    """``"memory"``, ``"disk"`` or ``"disk:FOLDER"``, where the examples are kept."""


@dataclass(kw_only=True)
class BatchTask(TaskState):
    """The state of a batch-incremental stream."""

    until: int = 0
    """The serial number of the last example that was trained on."""
    steps: int = 0
    """SGD steps so far."""

    @property
    def taught(self) -> list[int]:
        """The rows of the classes that the network was taught, in order."""
        assert isinstance(self.classes, TaughtClasses)
        return sorted(self.classes.taught)

    def waiting(self) -> set[int]:
        """Return the classes that have examples waiting: those stored since the last batch ended."""
        index = self.buffer.index
        return set(np.unique(index.labels.view[index.serials.view > self.until]).tolist())

    def present(self) -> list[int]:
        """Return the classes that have examples stored."""
        rows: list[int] = np.unique(self.buffer.index.labels.view).tolist()
        return rows

    def members(self, row: int) -> Slots:
        """Return the slots of a class's examples."""
        return np.flatnonzero(self.buffer.index.labels.view == row)


@dataclass(kw_only=True)
class ScratchTask(BatchTask):
    """The state of a stream whose network is trained from scratch: also the weights that it begins from."""

    first: nn.Module


class Trained(NamedTuple):
    """A network that was trained on a batch, and how many SGD steps there were so far."""

    engine: Engine
    head: TrainedHead
    steps: int


Waiting = TypeVar("Waiting", bound=BatchTask)


class BatchLearner(Learner[Waiting], Generic[Waiting]):
    """A learner whose examples wait, as images at the network's size, until `end_batch` trains the network on them.

    A subclass trains in `_train`. Until its batch has ended a class is not predicted. An example that is relabelled
    waits like a new one. `end_batch` trains a copy of the network and takes it at the end: training that is
    interrupted leaves the learner as it was, its examples still waiting.
    """

    Settings = BatchSettings
    settings: BatchSettings
    batch_incremental = True

    def _set_up(self) -> None:
        if self.settings.init == "base" or isinstance(self.settings.init, Dataset):
            raise ValueError(f"{type(self).__name__} has no base initialisation: its first batch is one")
        if self.settings.items != "images":
            raise ValueError(f"{type(self).__name__} learns images, not {self.settings.items!r}")

    def _new_classes(self, limit: int | None) -> Classes:
        return TaughtClasses(limit)

    def _new_buffer(self, shape: Shape) -> ReplayBuffer:
        return ReplayBuffer(shape, storage=self.settings.storage)

    # Collecting.

    def _learn(self, task: Waiting, new: Sequence[Example]) -> None:
        for example in new:
            (row,) = task.enter([example.label])
            task.uncount(task.buffer.label_of(example.key))
            task.classes.counts[row] += 1
            self._collect(task, example.item, row, example.key)
            self.step += 1

    def _collect(self, task: Waiting, item: NDArray[Any], row: int, key: int) -> None:
        """Store a new example until the batch ends; the method may keep it longer."""
        task.buffer.store(task.buffer.compress(item), row, key)

    def _relabelled(self, task: Waiting, key: int, row: int) -> None:
        slot = task.buffer.index.find(key)
        assert slot is not None
        task.buffer.index.renew(slot)

    # Training.

    @torch.inference_mode(mode=False)
    def end_batch(self, progress: Progress | None = None) -> None:
        """Train on what has come since the last batch ended, if anything has; `progress` is called every epoch."""
        with self._lock:
            self._changes.check()
            for task in self.tasks.values():
                if fresh := task.waiting():
                    self._end_batch(task, fresh, progress)

    def _end_batch(self, task: Waiting, fresh: set[int], progress: Progress | None) -> None:
        trained = self._train(task, fresh, progress)
        trained.engine.velocity.clear()
        trained.head.velocity.clear()
        if not trained.engine.is_finite(trained.head):
            raise FloatingPointError(
                "the network diverged while it was trained on this batch, and was not taken; its examples wait "
                "still: begin again with a lower rate"
            )
        take_over = self._after_training(task, fresh, trained.engine)
        assert isinstance(task.classes, TaughtClasses)
        with self._changes.change("end_batch"):
            self._engine, task.head, task.steps = trained.engine, trained.head, trained.steps
            take_over()
            task.classes.taught = set(task.present())
            task.until = task.buffer.index.next_serial

    @abstractmethod
    def _train(self, task: Waiting, fresh: set[int], progress: Progress | None) -> Trained:
        """Return a network trained on what is stored; `fresh` are the classes of which examples waited."""

    def _after_training(self, task: Waiting, fresh: set[int], engine: Engine) -> Callable[[], None]:
        """Compute what depends on the trained network, such as exemplars; return a function that stores it.

        It also drops stored examples that the method does not keep after their batch.
        """
        return lambda: None

    def _fit(
        self,
        task: Waiting,
        engine: Engine,
        head: TrainedHead,
        recipe: OfflineRecipe,
        progress: Progress | None,
        *,
        which: Slots | None = None,
        epochs: tuple[int, int] | None = None,
        **how: Any,
    ) -> Trained:
        """Train a network on the stored examples, or on some of them, as `train_offline` does.

        `epochs` are those done before and those in all, of a training that has several parts.
        """
        which = np.arange(len(task.buffer)) if which is None else which
        rows = task.buffer.index.labels.view[which].astype(np.int64)
        before, total = epochs or (0, recipe.epochs)

        def report(epoch: int) -> None:
            if progress is not None:
                progress(before + epoch, total)

        items = Stored(task.buffer, which)
        return Trained(engine, head, train_offline(engine, head, items, rows, recipe, self.seed, report, **how))

    def _copied(self, task: Waiting, body: Body, head: TrainedHead) -> tuple[Engine, TrainedHead]:
        """Return a network without momentum: a body, and a copy of a head with a row for every class."""
        head = copy.deepcopy(head)
        head.velocity.clear()
        head.grow(task.rows)
        return self._make_engine(body), head

    def _recipe(self, kind: type[OfflineRecipe] = OfflineRecipe, **changes: Any) -> OfflineRecipe:
        names = ("epochs", "batch", "rate", "weight_decay", "momentum", "augment")
        return kind(**{**{name: getattr(self.settings, name) for name in names}, **changes})

    # Asking.

    def _logits(self, task: Waiting, items: NDArray[Any]) -> NDArray[np.float64]:
        logits = np.full((len(items), task.rows), _NEVER)
        logits[:, task.taught] = self._scores(task, items)
        return logits

    def _scores(self, task: Waiting, items: NDArray[Any]) -> NDArray[np.float64]:
        """Return the logits (N, taught classes) of items, classes in the order of their rows."""
        return self.engine.logits(task.head, items)[:, task.taught]

    # Persistence.

    def _task_state(self, task: Waiting) -> State:
        plain, arrays = super()._task_state(task)
        return {**plain, "until": task.until, "steps": task.steps}, arrays

    def _restore_task(self, task: Waiting, plain: dict[str, Any], arrays: Arrays) -> None:
        super()._restore_task(task, plain, arrays)
        task.until, task.steps = int(plain["until"]), int(plain["steps"])


class ScratchLearner(BatchLearner[ScratchTask]):
    """A network that is trained from its first weights on all that is stored whenever a batch ends."""

    def _train(self, task: ScratchTask, fresh: set[int], progress: Progress | None) -> Trained:
        body = Body(copy.deepcopy(task.first), self.engine.features, self.engine.draws)
        engine, head = self._copied(task, body, self.engine.new_head(task.seed, task.classes.limit or 0))
        return self._fit(task, engine, head, self._recipe(), progress)

    def _new_task(self, engine: Engine, shape: Shape, **basics: Any) -> ScratchTask:
        return ScratchTask(**basics, replay_buffer=self._new_buffer(shape), first=copy.deepcopy(engine.body))

    def _task_state(self, task: ScratchTask) -> State:
        plain, arrays = super()._task_state(task)
        first = task.first.state_dict().items()
        return plain, arrays | {f"first.{name}": value.to("cpu", copy=True).numpy() for name, value in first}

    def _restore_task(self, task: ScratchTask, plain: dict[str, Any], arrays: Arrays) -> None:
        super()._restore_task(task, plain, arrays)
        names = task.first.state_dict()
        task.first.load_state_dict({name: torch.from_numpy(arrays[f"first.{name}"].copy()) for name in names})


def at_shares(epochs: int, shares: Iterable[float]) -> tuple[int, ...]:
    """Return the epochs before which these shares of the training are done; never the first."""
    return tuple(max(1, round(share * epochs)) for share in shares)
