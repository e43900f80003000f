"""Cold Start Streaming Learning, Algorithm 1 of the paper: sample, augment, update, compress and store, evict."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Annotated, Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from coldstream.augment import Policy
from coldstream.labels import Label
from coldstream.learners.base import Example, Learner, Shape
from coldstream.learners.recipes import PAPER_POLICY, paper_recipe
from coldstream.learners.replaying import Rates, ReplaySettings
from coldstream.learners.settings import PolicyText, checked
from coldstream.learners.tasks import TaskBatch, TaskState, others, update_tasks
from coldstream.learners.training.engine import Engine, check_compile
from coldstream.learners.training.prefetch import Background, check_prefetch, prefetches
from coldstream.replay import one_hot
from coldstream.replay.codecs import check_chain


class CSSLSettings(ReplaySettings):
    """Settings of CSSL."""

    codec: Annotated[str, checked(check_chain)] = "raw"
    """How stored examples are compressed, such as ``"resize(0.66)|quantize(6)"``, ``"jpeg(90)"`` or ``"raw"``."""
    augment: PolicyText = PAPER_POLICY
    """The policy of augmentation, such as ``"crop|flip|autoaugment(cifar10)|mixup(0.1)/cutmix(0.8)"``, the paper's,
    or ``"none"``, the only one for vectors."""
    compile: Annotated[bool, checked(check_compile)] = False
    """Whether full batches go through torch.compile: half a minute at first, then faster steps on small networks,
    with other last bits (docs/performance.md)."""
    prefetch: Annotated[str | bool, checked(check_prefetch)] = "auto"
    """Whether the next replayed examples are decoded and augmented while the network learns, with the same bits.
    ``"auto"``: where that is free, on a GPU, from disk, or with a core to spare."""


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
    """The images, augmented or about to be: all of them, or the replayed ones alone where those were prefetched."""
    policy: Policy
    """How the images are augmented and mixed."""
    targets: NDArray[np.float32] = field(default_factory=lambda: np.empty((0, 0), np.float32))
    extras: list[NDArray[np.float32] | None] = field(default_factory=list)
    """What was stored beside each replayed example (`CSSL.extra`)."""
    forward: Tensor | None = None
    update: Future[None] | None = None

    @property
    def logits(self) -> Tensor:
        """The logits (rows of the batch, rows of the head) of the update's forward pass; waits for it."""
        if self.update is not None:
            self.update.result()
        assert self.forward is not None, "the update has not begun"
        return self.forward


class CSSL(Learner[TaskState]):
    """The paper's algorithm: a deep network learns from one image at a time, from random weights, with no classes.

    Every image is learned at once, together with replayed ones, all augmented, and stored compressed. This is
    Algorithm 1 and nothing else; `coldstream.ColdStart` adds our recipe for short streams.

    Two hooks are for methods that derive from this one (docs/own-learner.md): `loss`, what an update minimises, and
    `extra`, what is stored beside an example.

    Examples
    --------
    >>> import numpy as np
    >>> learner = CSSL(replay=8, size=8, augment="crop|flip")
    >>> learner.predict_one(np.zeros((8, 8, 3), np.uint8)) is None
    True
    >>> for shade, label in [(0, "dark"), (255, "bright")] * 8:
    ...     id = learner.learn_one(np.full((8, 8, 3), shade, np.uint8), label)
    >>> learner.predict_one(np.full((8, 8, 3), 250, np.uint8)), id
    ('bright', 15)
    """

    Settings = CSSLSettings
    settings: CSSLSettings
    multi_task = True
    draws = 1
    """Independent draws of `replay` examples from the buffer in each update."""
    _prefetched: tuple[tuple[int, ...], tuple[NDArray[np.int64], tuple[int, ...], NDArray[Any]]] | None = None
    """A key that says for which step and state of the buffer; slots, draws and augmented items."""

    @torch.inference_mode(mode=False)
    def _learn(self, task: TaskState, new: Sequence[Example]) -> None:
        rate, rows = self._begin(task, new)
        # Sample data from the replay buffer to combine with new data
        batch = self._sample(task, new, rows)
        # Augment new and replayed data
        self._augment(task, batch)
        # Update all model parameters over augmented new and replayed data
        with self._update(task, batch, rate):
            for place in range(len(new)):
                # Compress and store the new data example for replay
                self._store(task, batch, place)
                # Evict data from the replay buffer to maintain capacity
                task.buffer.evict(task.draw(self.step, "evict"))
                self.step += 1

    # Hooks.

    def loss(self, logits: Tensor, batch: Batch, targets: Tensor) -> Tensor:
        """Return what an update minimises.

        Parameters
        ----------
        logits
            (rows of the batch, rows of the head), with gradient.
        batch
            The new examples come first, `len(batch.new)` of them, then the replayed ones (`batch.draws`); what was
            stored beside these is in `batch.extras`.
        targets
            Class probabilities in the layout of `logits`: one-hot, or mixed where the policy mixes.
        """
        return F.cross_entropy(logits, targets)

    def extra(self, batch: Batch) -> Sequence[NDArray[np.float32]] | None:
        """Return a vector to store beside each new example, or None for nothing; `batch.logits` may be used."""
        return None

    # The words of the algorithm.

    def _begin(self, task: TaskState, new: Sequence[Example]) -> tuple[float, list[int]]:
        """Return the learning rate of an update, and the head rows of new examples, which are opened if need be."""
        rate = self.rates.mean(task, (example.label for example in new))
        rows = [task.classes.enter(example.label) for example in new]
        self._grow(task)
        return rate, rows

    def _sample(self, task: TaskState, new: Sequence[Example], rows: list[int]) -> Batch:
        """Draw what is replayed beside new examples, or take what was prefetched."""
        count = self.settings.beside(task, len(self.tasks), len(new))
        key = (self.step, count, len(new), task.buffer.version)
        prefetched, self._prefetched = self._prefetched, None
        if prefetched is not None and prefetched[0] == key:
            slots, draws, items = prefetched[1]
        else:
            slots, draws = self._draw(task, self.step, count)
            items = np.concatenate([np.stack([example.item for example in new]), task.buffer.items(slots)])
        extras = task.buffer.extra_of(slots)
        return Batch(self.step, new, rows, slots, draws, items, self._policy(task), extras=extras)

    def _draw(self, task: TaskState, step: int, count: int) -> tuple[NDArray[np.int64], tuple[int, ...]]:
        """Return the slots of replayed examples, and how many each draw gave."""
        roles = ["sample", *(f"sample {number}" for number in range(2, self.draws + 1))]
        slots = [task.buffer.sample(count, task.draw(step, role)) for role in roles]
        return np.concatenate(slots), tuple(map(len, slots))

    def _augment(self, task: TaskState, batch: Batch) -> None:
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
    def _update(self, task: TaskState, batch: Batch, rate: float) -> Iterator[None]:
        """Update the network, and let the caller store the new examples meanwhile.

        With prefetching the update runs in a thread of its own while the examples are stored and the next step's
        batch is prepared; otherwise before that.
        """

        def work() -> None:
            update_tasks(self.engine, self._strategy, self._batches(task, batch), rate, batch.step)

        if not self._prefetching or task.name is not None:
            work()
            yield
            return
        update = batch.update = self._background.start(work)
        try:
            yield
            with suppress(Exception):  # the step that needs it does it again, and says what is wrong
                self._prefetch(task, len(batch.new))
        finally:
            update.result()

    def _store(self, task: TaskState, batch: Batch, place: int, *, held_out: bool = False) -> None:
        """Count, compress and store a new example, with what the method keeps beside it."""
        example, row, extras = batch.new[place], batch.rows[place], self.extra(batch)
        packed = task.buffer.compress(example.item)
        extra = None if extras is None else np.asarray(extras[place], np.float32)
        task.count(row, example.key)
        task.buffer.store(packed, row, example.key, held_out=held_out, extra=extra)

    # What is behind them.

    def _set_up(self) -> None:
        if self.settings.items == "vectors" and self.settings.augment != "none":
            raise ValueError(f"augment={self.settings.augment!r} is for images; vectors take augment='none'")
        self.rates = Rates(self.settings)
        self.policy = Policy.parse(self.settings.augment)
        self._background = Background()
        self._prefetching = False

    def _policy(self, task: TaskState) -> Policy:
        """Return the policy as it is now for a task."""
        return self.policy

    @property
    def _strategy(self) -> str:
        return self.settings.strategy if len(self.tasks) > 1 else "full+separate"

    def _batches(self, task: TaskState, batch: Batch) -> Iterator[TaskBatch]:
        """Give the batch of the new examples, then one of replayed examples alone for each other task."""
        yield self._prepared(task, batch)
        shares = self.settings.shares_of(task, len(self.tasks))
        for other in others(self.tasks, task):
            slots, draws = self._draw(other, batch.step, shares[other.number])
            policy = self._policy(other)
            items = policy.augment(other.buffer.items(slots), other.seed, batch.step, (0, len(slots)))
            extras, targets = other.buffer.extra_of(slots), other.buffer.targets(slots, other.rows)
            other.buffer.count(slots)
            if len(slots):
                yield self._prepared(other, Batch(batch.step, [], [], slots, draws, items, policy, targets, extras))

    def _prepared(self, task: TaskState, batch: Batch) -> TaskBatch:
        """Return a batch as the network takes it, normalised and mixed, with its loss."""

        def loss(logits: Tensor, targets: Tensor) -> Tensor:
            batch.forward = logits.detach()
            return self.loss(logits, batch, targets)

        inputs, targets = self.engine.prepare(batch.items, batch.targets, batch.policy, task.seed, batch.step)
        return TaskBatch(task, inputs, targets, loss)

    def _prefetch(self, task: TaskState, new: int) -> None:
        """Draw, decode and augment what the next step replays beside as many new examples."""
        count, buffer = self.settings.beside(task, len(self.tasks), new), task.buffer
        slots, draws = self._draw(task, self.step, count)
        place = (new, new + len(slots))
        items = self._policy(task).augment(buffer.items(slots), task.seed, self.step, place)
        self._prefetched = (self.step, count, new, buffer.version), (slots, draws, items)

    def _build(self, shape: Shape) -> Engine:
        engine = super()._build(shape)
        self._prefetching = prefetches(self.settings.prefetch, engine.device, self.settings.storage)
        return engine

    def _new_task(self, engine: Engine, shape: Shape, **basics: Any) -> TaskState:
        if self.settings.compile and not self.tasks:
            engine.compile_for(self.settings.replay * self.draws + (basics["name"] is None))
        dtype = "float32" if self.settings.items == "vectors" else "uint8"
        return TaskState(**basics, replay_buffer=self.settings.new_buffer(shape, dtype, self.settings.codec))

    def _check(self, task: TaskState, example: Example) -> None:
        task.buffer.check(example.item)
        self.rates.of(task, example.label)

    def _renamed(self, task: TaskState, old: Label, new: Label) -> None:
        self.settings = self.rates.rename(task, old, new, self.settings)

    @classmethod
    def paper(cls, name: str, *, counts: Mapping[Any, int] | None = None, **changes: Any) -> Self:
        """Return the learner of an experiment of the paper: ``cifar100``, ``imagenet``, ``core50``, ``multi-task``.

        Parameters
        ----------
        name
            Which experiment's settings (`coldstream.learners.recipes`).
        counts
            Examples of each class that will come; the paper's learning rate falls along them (not on CORe50).
        **changes
            Settings to replace, such as ``capacity="60MB"`` or ``device="cuda"``.
        """
        return cls(**{**paper_recipe(name), "counts": counts, **changes})
