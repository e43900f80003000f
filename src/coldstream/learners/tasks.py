"""The tasks of a multi-task stream: what each has of its own, and how an update is shared among them.

A task has classes, a head and whatever else a method keeps for its classifier (`Learner._OWN`); the body of the
network is everybody's. One task is at work at a time: what is its own is in the learner's attributes, so that the
code of a method knows nothing of tasks, and that of the others rests here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from coldstream.labels import Label, as_label, spelled
from coldstream.parsing import unknown
from coldstream.randomness import torch_seed

if TYPE_CHECKING:
    from coldstream.learners.base import Learner

STRATEGIES = ("full+separate", "full+sum", "split+separate", "split+sum")
_NOBODY = -1


def check_strategy(name: object) -> None:
    """Refuse a strategy that there is not."""
    if name not in STRATEGIES:
        raise unknown("strategy", name, STRATEGIES)


def shares(strategy: str, rows: int, tasks: int, current: int) -> dict[int, int]:
    """Return how many rows of an update each task has, the current one first, then in order of appearance.

    Examples
    --------
    >>> shares("full+separate", 8, tasks=3, current=1)
    {1: 8, 0: 8, 2: 8}
    >>> shares("split+separate", 8, tasks=3, current=1)
    {1: 3, 0: 3, 2: 2}
    """
    order = [current, *(task for task in range(tasks) if task != current)]
    if strategy.startswith("full"):
        return dict.fromkeys(order, rows)
    each, rest = divmod(rows, tasks)
    return {task: each + (place < rest) for place, task in enumerate(order)}


@dataclass
class Task:
    """A task, and what is its own while another is at work."""

    name: Label
    own: dict[str, Any]


class Tasks:
    """The tasks of one learner in order of first appearance; none, where it has a single task without a name.

    `at` is the number of the one at work, 0 also for a single task. Task 0 draws with the learner's seed, each other
    with one of its own, a function of that and of its number.
    """

    def __init__(self, seed: int) -> None:
        self.at = 0
        self._seed = seed
        self._all: list[Task] = []

    def __len__(self) -> int:
        return len(self._all)

    @property
    def names(self) -> list[Label]:
        return [task.name for task in self._all]

    @property
    def name(self) -> Label:
        """Of the task at work."""
        return self._all[self.at].name

    def check(self, learner: Learner, task: object) -> Label | None:
        """Return a task's name in its plain form, or None for no task; refuse what does not fit the learner."""
        if task is None:
            if self._all:
                raise ValueError(f"this learner has tasks; say which one with task= (known: {self.names[:8]})")
            return None
        if not learner.multi_task:
            raise ValueError(f"{type(learner).__name__} has no tasks; leave task=None (got {task!r})")
        try:
            name = as_label(task)
        except ValueError as error:
            raise ValueError(f"a task is named as a label is: {error}") from None
        if not self._all and (learner.step or learner.prepared):
            raise ValueError(
                f"this learner began without tasks and has none, so leave task=None (got {name!r}); for a stream "
                "with tasks begin a new one"
            )
        known = next((other for other in self.names if other == name), name)
        if spelled(known) != spelled(name):
            raise ValueError(f"task {name!r} cannot be told from the known task {known!r}; use one of them")
        return name

    def find(self, learner: Learner, task: object) -> bool:
        """Turn to a task, None for a learner without; return whether there is such a one."""
        name = self.check(learner, task)
        if name is not None and name not in self.names:
            return False
        self.turn_to(learner, 0 if name is None else self.names.index(name))
        return True

    def need(self, learner: Learner, task: object) -> None:
        """Turn to a task that must be known."""
        if not self.find(learner, task):
            raise ValueError(f"there is no task {task!r}; known: {self.names[:8]}")

    def enter(self, learner: Learner, name: Label | None) -> int | None:
        """Turn to a task, a new one for a name not seen yet; then return which was at work, for `close`."""
        if name is None or name in self.names:
            self.turn_to(learner, 0 if name is None else self.names.index(name))
            return None
        before = self.at
        if not self._all:  # the first one takes what the learner has
            self._all.append(Task(name, {}))
            return before
        self._rest(learner)
        learner.seed = torch_seed(self._seed, len(self._all), "task")
        learner.classes = type(learner.classes)(learner.classes.limit)
        assert learner.shape is not None
        learner._build_own(learner.shape)
        self._all.append(Task(name, _own(learner)))
        self.at = len(self._all) - 1
        return before

    def close(self, learner: Learner, before: int) -> None:
        """Take back a task that was just entered."""
        del self._all[-1]
        if self._all:
            self.at = _NOBODY
            self.turn_to(learner, before)

    def clear(self, learner: Learner) -> None:
        """Forget all tasks; the learner has what the first one had."""
        self.turn_to(learner, 0)
        self._all.clear()

    def turn_to(self, learner: Learner, number: int) -> None:
        """Let a task be at work."""
        if number != self.at:
            self._rest(learner)
            for name, value in self._all[number].own.items():
                setattr(learner, name, value)
            self.at = number

    def each(self, learner: Learner) -> Iterator[int]:
        """Turn to one task after another; a learner without any has one all the same."""
        for number in range(max(1, len(self._all))):
            self.turn_to(learner, number)
            yield number

    def count_classes(self, learner: Learner) -> int:
        """Return how many classes all tasks have."""
        others = (task.own["classes"] for number, task in enumerate(self._all) if number != self.at)
        return len(learner.classes) + sum(map(len, others))

    def stored_label(self, learner: Learner, key: int) -> int | None:
        """Turn to the task that stores an example, and return its label there; None where none does."""
        for _ in self.each(learner):
            if (label := learner._stored_label(key)) is not None:
                return label
        return None

    def forget_elsewhere(self, learner: Learner, keys: list[int]) -> None:
        """Remove examples from all tasks but the one at work, which has learned them."""
        here = self.at
        for number in self.each(learner):
            for key in keys if number != here else ():
                if (label := learner._stored_label(key)) is not None:
                    learner._uncount(label)
                    learner._forget(key)
        self.turn_to(learner, here)

    def _rest(self, learner: Learner) -> None:
        """Put away what is the own of the task at work. An interrupt at any moment leaves all tasks whole."""
        if self.at != _NOBODY:
            self._all[self.at].own = _own(learner)
            self.at = _NOBODY


def _own(learner: Learner) -> dict[str, Any]:
    return {name: getattr(learner, name) for name in learner._OWN}
