"""The tasks of a stream: what belongs to each, and how an update is shared among them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from torch import Tensor
from torch.nn import functional as F

from coldstream.labels import Classes, Label, as_label, spelled
from coldstream.learners.training.engine import Engine, Loss, TrainedHead
from coldstream.randomness import generator
from coldstream.replay import ReplayBuffer

if TYPE_CHECKING:
    from coldstream.learners.method import Method

Task = TypeVar("Task", bound="TaskState")
STRATEGIES = ("full+separate", "full+sum", "split+separate", "split+sum")


@dataclass(kw_only=True)
class TaskState:
    """The state of one task. A stream without tasks has one task, whose name is None.

    The body of the network is shared by all tasks. A method that keeps more for a task derives from this class.
    """

    name: Label | None
    number: int
    """In the order of first appearance, from 0."""
    seed: int
    """Seed of all draws for this task. The first task has the learner's seed; others derive theirs from it."""
    classes: Classes
    head: TrainedHead
    replay_buffer: ReplayBuffer | None = None

    @property
    def buffer(self) -> ReplayBuffer:
        """The replay buffer, of a method that has one."""
        assert self.replay_buffer is not None, "this method has no replay buffer"
        return self.replay_buffer

    @property
    def rows(self) -> int:
        """Number of head rows: one per class, or the number of classes declared in advance."""
        return self.classes.limit or len(self.classes)

    def enter(self, labels: Iterable[Label]) -> list[int]:
        """Return the head rows of classes; a new class gets a new row."""
        rows = [self.classes.enter(label) for label in labels]
        self.grow()
        return rows

    def grow(self) -> None:
        """Add the missing rows to the head, and to everything else that has a row for every class."""
        self.head.grow(self.rows)

    def draw(self, step: int, role: str) -> np.random.Generator:
        """Return the generator of one role's draws at one step."""
        return generator(self.seed, step, role)

    def uncount(self, row: int | None) -> None:
        """Subtract one example from a class's count: it was forgotten, relabelled or learned again."""
        if row is not None:
            self.classes.counts[row] = max(0, self.classes.counts[row] - 1)

    def count(self, row: int, key: int) -> None:
        """Count an example that is learned; one that is learned again under its id counts once."""
        if self.replay_buffer is not None:
            self.uncount(self.replay_buffer.label_of(key))
        self.classes.counts[row] += 1
        self.classes.updates[row] += 1

    def stored_label(self, key: int) -> int | None:
        """Return the row of the class under which an example is stored; None where it is not."""
        return None if self.replay_buffer is None else self.replay_buffer.label_of(key)


def shares(strategy: str, replay: int, tasks: int, current: int) -> dict[int, int]:
    """Return how many examples of an update each task has, the current one first, then in order of appearance.

    Examples
    --------
    >>> shares("full+separate", 8, tasks=3, current=1)
    {1: 8, 0: 8, 2: 8}
    >>> shares("split+separate", 8, tasks=3, current=1)
    {1: 3, 0: 3, 2: 2}
    """
    order = [current, *(task for task in range(tasks) if task != current)]
    if strategy.startswith("full"):
        return dict.fromkeys(order, replay)
    each, rest = divmod(replay, tasks)
    return {task: each + (place < rest) for place, task in enumerate(order)}


@dataclass
class TaskBatch:
    """The examples of one task in an update."""

    task: TaskState
    inputs: Tensor
    targets: Tensor
    loss: Loss = F.cross_entropy
    drawn_from: int | None = None
    """Seed of what the layers of a network draw; None: the task's."""

    @property
    def seed(self) -> int:
        """Seed of what the layers of a network draw."""
        return self.task.seed if self.drawn_from is None else self.drawn_from


def update_tasks(
    engine: Engine, strategy: str, batches: Iterable[TaskBatch], rate: float, step: int, **forward: Any
) -> None:
    """Update the network over the batches of its tasks: a step for each, or one along the sum of their gradients."""
    if strategy.endswith("separate"):
        for batch in batches:
            head = batch.task.head
            engine.update(head, batch.inputs, batch.targets, rate, batch.seed, step, loss=batch.loss, **forward)
        return
    heads: list[TrainedHead] = []
    for batch in batches:
        task, more = batch.task, bool(heads)
        engine.gather(task.head, batch.inputs, batch.targets, batch.seed, step, more=more, loss=batch.loss, **forward)
        heads.append(task.head)
    for head in heads:  # the body moves with the first head: its gradient is used up then
        engine.descend(head, rate)


def others(tasks: Mapping[Any, TaskState], task: TaskState) -> Iterator[TaskState]:
    """Return all tasks but one, in order of appearance."""
    return (other for other in tasks.values() if other is not task)


def task_name(learner: Method[Any], task: object) -> Label | None:
    """Return a task's name in its plain form, or None for no task; refuse one that does not fit the stream."""
    known = [name for name in learner.tasks if name is not None]
    if task is None:
        if known:
            raise ValueError(f"this learner has tasks; say which one with task= (known: {known[:8]})")
        return None
    if not learner.multi_task:
        raise ValueError(f"{type(learner).__name__} has no tasks; leave task=None (got {task!r})")
    try:
        name = as_label(task)
    except ValueError as error:
        raise ValueError(f"a task is named as a label is: {error}") from None
    if None in learner.tasks:
        raise ValueError(
            f"this learner began without tasks and has none, so leave task=None (got {name!r}); for a stream "
            "with tasks begin a new one"
        )
    same = next((other for other in known if other == name), name)
    if spelled(same) != spelled(name):
        raise ValueError(f"task {name!r} cannot be told from the known task {same!r}; use one of them")
    return name


def known_task(learner: Method[Task], task: object) -> Task:
    """Return the state of a task; refuse one that the learner does not have."""
    name = task_name(learner, task)
    if name in learner.tasks:
        return learner.tasks[name]
    if name is None:
        raise ValueError("there is no class yet: nothing was learned")
    raise ValueError(f"there is no task {task!r}; known: {[*learner.tasks][:8]}")
