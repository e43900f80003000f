"""The steps of Algorithm 1: sample, augment, update, store. `CSSL` and `ColdStart` put them together."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from coldstream.augment import Policy
from coldstream.learners.method import Example
from coldstream.learners.tasks import TaskBatch, TaskState, others, update_tasks
from coldstream.learners.training.prefetch import Background, prefetches
from coldstream.randomness import generator, torch_seed
from coldstream.replay import one_hot

if TYPE_CHECKING:
    from coldstream.learners.cssl import CSSL

Drawn = tuple[NDArray[np.int64], tuple[int, ...]]
"""Slots of the buffer, and how many each draw gave."""
Replayed = tuple[NDArray[np.int64], tuple[int, ...], NDArray[Any]]
"""Slots of the buffer, how many each draw gave, and the augmented images."""


@dataclass
class Batch:
    """What an update learns from: new examples first, then replayed ones."""

    step: int
    new: Sequence[Example]
    rows: list[int]
    """Rows of the head of the new examples' classes."""
    slots: NDArray[np.int64]
    """Slots of the replayed examples in the buffer."""
    draws: tuple[int, ...]
    """How many examples each draw from the buffer gave: they follow each other in `slots`."""
    items: NDArray[Any]
    """The images of the batch. Until `Steps.augment`, prefetched batches have the replayed images only, augmented."""
    policy: Policy
    """How the images are augmented and mixed."""
    targets: NDArray[np.float32] = field(default_factory=lambda: np.empty((0, 0), np.float32))
    extras: list[NDArray[np.float32] | None] = field(default_factory=list)
    """What was stored beside each replayed example (`CSSL.extra`)."""
    forward: Tensor | None = None
    running: Future[None] | None = None

    @property
    def logits(self) -> Tensor:
        """The logits (rows of the batch, rows of the head) of the update's forward pass; waits for it."""
        if self.running is not None:
            self.running.result()
        assert self.forward is not None, "the update has not begun"
        return self.forward


class Steps:
    """The steps of Algorithm 1, on the network and the settings of one learner.

    With prefetching the network is updated in a thread of its own. Meanwhile the new examples are stored, and what
    the next step replays is drawn, decoded and augmented, with the same bits.
    """

    def __init__(self, learner: CSSL) -> None:
        # Not one of its own: a cycle would keep learners in memory until the garbage collector comes.
        self._learner: CSSL = weakref.proxy(learner)
        self._background = Background()
        self._prefetched: tuple[tuple[int, ...], Replayed] | None = None
        """A key that says for which step and which state of the buffer; then what is replayed."""

    def begin(self, task: TaskState, new: Sequence[Example]) -> tuple[float, list[int]]:
        """Return the learning rate of an update, and the head rows of new examples; a new class gets a new row."""
        labels = [example.label for example in new]
        return self._learner.rates.mean(task, labels), task.enter(labels)

    def sample(self, task: TaskState, new: Sequence[Example], rows: list[int]) -> Batch:
        """Draw what is replayed beside new examples, or take what was prefetched."""
        learner, step = self._learner, self._learner.step
        count = learner.settings.beside(task, len(learner.tasks), len(new))
        key = (step, count, len(new), task.buffer.version)
        prefetched, self._prefetched = self._prefetched, None
        if prefetched is not None and prefetched[0] == key:
            slots, draws, items = prefetched[1]
        else:
            slots, draws = self._draw(task, count, task.seed, step)
            items = np.concatenate([np.stack([example.item for example in new]), task.buffer.items(slots)])
        extras = task.buffer.extra_of(slots)
        return Batch(step, new, rows, slots, draws, items, learner.policy_of(task), extras=extras)

    def augment(self, task: TaskState, batch: Batch) -> None:
        """Augment the batch, and give it targets."""
        policy, new = batch.policy, len(batch.new)
        if len(batch.items) == len(batch.slots):  # the replayed ones were prefetched, before the new ones had come
            fresh = np.stack([example.item for example in batch.new])
            fresh = policy.augment(fresh, task.seed, batch.step, (0, new + len(batch.items)))
            batch.items = np.concatenate([fresh, batch.items])
        else:
            batch.items = policy.augment(batch.items, task.seed, batch.step, (0, len(batch.items)))
        replayed = task.buffer.targets(batch.slots, task.rows)
        batch.targets = np.concatenate([one_hot(batch.rows, task.rows), replayed])
        task.buffer.count(batch.slots)

    @contextmanager
    def update(self, task: TaskState, batch: Batch, rate: float) -> Iterator[None]:
        """Update the network, and let the caller store the new examples, meanwhile (with prefetching) or after it."""
        learner, settings = self._learner, self._learner.settings

        def work() -> None:
            update_tasks(learner.engine, self._strategy, self._batches(task, batch), rate, batch.step)

        if task.name is not None or not prefetches(settings.prefetch, learner.engine.device, settings.storage):
            work()
            yield
            return
        batch.running = self._background.start(work)
        try:
            yield
            with suppress(Exception):  # the step that needs it does it again, and says what is wrong
                self._prefetch(task, len(batch.new))
        finally:
            batch.running.result()

    def store(
        self,
        task: TaskState,
        batch: Batch,
        place: int,
        extras: Sequence[NDArray[np.float32]] | None = None,
        *,
        held_out: bool = False,
    ) -> None:
        """Count, compress and store a new example, with what the method keeps beside it."""
        example, row = batch.new[place], batch.rows[place]
        packed = task.buffer.compress(example.item)
        extra = None if extras is None else np.asarray(extras[place], np.float32)
        task.count(row, example.key)
        task.buffer.store(packed, row, example.key, held_out=held_out, extra=extra)

    def prepared(self, task: TaskState, batch: Batch, seed: int | None = None) -> TaskBatch:
        """Return a batch as the network takes it, normalised and mixed, with its loss."""

        def loss(logits: Tensor, targets: Tensor) -> Tensor:
            batch.forward = logits.detach()
            return self._learner.loss(logits, batch, targets)

        drawn = task.seed if seed is None else seed
        prepare = self._learner.engine.prepare
        return TaskBatch(task, *prepare(batch.items, batch.targets, batch.policy, drawn, batch.step), loss, drawn)

    def rehearse(self, number: int, *, warm_up: bool = False) -> bool:
        """Make one update on replayed examples alone, of every task; return False where there is nothing to replay.

        The learning rate is the mean over the replayed examples of the rates of their classes. Classes that no
        example of the stream had, as after base initialisation, have none.

        Parameters
        ----------
        number
            How many such updates there were before: the draws follow from it. The tasks take turns in leading.
        warm_up
            Whether to scale the learning rate by batch size / full batch size.
        """
        learner, step = self._learner, self._learner.step
        tasks = [*learner.tasks.values()]
        tasks = tasks[number % len(tasks) :] + tasks[: number % len(tasks)]
        shares = learner.settings.shares_of(tasks[0], len(tasks))
        seeds = [torch_seed(task.seed, number, "rehearse") for task in tasks]
        drawn = [self._draw(task, shares[task.number], seed, step) for task, seed in zip(tasks, seeds, strict=True)]
        rates = [
            rate for task, (slots, _) in zip(tasks, drawn, strict=True) for rate in learner.rates.stored(task, slots)
        ]
        if not rates:
            return False
        rate = float(np.mean(rates))
        if warm_up:
            rate *= sum(len(slots) for slots, _ in drawn) / (learner.draws * sum(shares.values()))
        self._prefetched = None  # drawn before these examples count as replayed
        batches = (
            self.prepared(task, self._replayed(task, part, seed, step), seed)
            for task, part, seed in zip(tasks, drawn, seeds, strict=True)
            if len(part[0])
        )
        update_tasks(learner.engine, self._strategy, batches, rate, step)
        return True

    @property
    def _strategy(self) -> str:
        """How an update is shared among the tasks."""
        return self._learner.settings.strategy if len(self._learner.tasks) > 1 else "full+separate"

    def _draw(self, task: TaskState, count: int, seed: int, step: int) -> Drawn:
        """Return the slots of replayed examples, and how many each draw gave."""
        roles = ["sample", *(f"sample {number}" for number in range(2, self._learner.draws + 1))]
        slots = [task.buffer.sample(count, generator(seed, step, role)) for role in roles]
        return np.concatenate(slots), tuple(map(len, slots))

    def _replayed(self, task: TaskState, drawn: Drawn, seed: int, step: int) -> Batch:
        """Return a batch of replayed examples alone, augmented."""
        (slots, draws), policy = drawn, self._learner.policy_of(task)
        items = policy.augment(task.buffer.items(slots), seed, step, (0, len(slots)))
        extras, targets = task.buffer.extra_of(slots), task.buffer.targets(slots, task.rows)
        task.buffer.count(slots)
        return Batch(step, [], [], slots, draws, items, policy, targets, extras)

    def _batches(self, task: TaskState, batch: Batch) -> Iterator[TaskBatch]:
        """Give the batch of the new examples, then one of replayed examples alone for each other task."""
        yield self.prepared(task, batch)
        learner = self._learner
        shares = learner.settings.shares_of(task, len(learner.tasks))
        for other in others(learner.tasks, task):
            drawn = self._draw(other, shares[other.number], other.seed, batch.step)
            replayed = self._replayed(other, drawn, other.seed, batch.step)
            if len(replayed.slots):
                yield self.prepared(other, replayed)

    def _prefetch(self, task: TaskState, new: int) -> None:
        """Draw, decode and augment what the next step replays beside as many new examples."""
        learner, step, buffer = self._learner, self._learner.step, task.buffer
        count = learner.settings.beside(task, len(learner.tasks), new)
        slots, draws = self._draw(task, count, task.seed, step)
        place = (new, new + len(slots))
        items = learner.policy_of(task).augment(buffer.items(slots), task.seed, step, place)
        self._prefetched = (step, count, new, buffer.version), (slots, draws, items)
