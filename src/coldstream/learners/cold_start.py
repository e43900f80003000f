"""ColdStart: CSSL with our recipe for short streams. What a user gets first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from coldstream.augment import Policy
from coldstream.learners.confidence.temperature import Confidence
from coldstream.learners.cssl import CSSL, CSSLSettings
from coldstream.learners.method import Arrays, Example, Shape, State
from coldstream.learners.replaying import Sampler
from coldstream.learners.settings import BelowOne, Flag, PolicyText, Share, whole_from
from coldstream.learners.steps import Batch
from coldstream.learners.tasks import TaskState
from coldstream.learners.training.engine import Engine
from coldstream.randomness import torch_seed

LOGITS_PER_REPLAYED = 0.1
"""Held-out examples whose logits are collected for each replayed one; at least one for each update."""


class ColdStartSettings(CSSLSettings):
    """Settings of ColdStart. Every ingredient of the recipe is one setting; docs/first-labels.md has their worth."""

    augment: PolicyText = "crop|flip|autoaugment(cifar10)"
    """The policy of augmentation. Its crops and flips are done to all examples, what comes after them to
    `strong_share` of them. The default leaves out the paper's Mixup and CutMix, which cost accuracy on short streams
    and small networks."""
    strong_share: Share = 0.5
    """The share of examples in a batch that get more than crops and flips."""
    full_on_duplicates: Flag = True
    """Whether all examples get the whole policy where neighbours in the stream are near-duplicates, which would be
    learned by heart otherwise."""
    sample: Sampler = "least-replayed"
    """``"uniform"``; ``"class-balanced"``; or ``"least-replayed"``, balanced too, and within a class the more likely
    the less often an example was replayed."""
    weight_decay: BelowOne = 1e-3
    """Weight decay of SGD."""
    average: Flag = True
    """Whether predictions are made with the average of the latest weights
    (`coldstream.learners.training.averaging`)."""
    calibrate: Flag = True
    """Whether the temperature of predictions is fitted on examples that are held out from replay, or where neighbours
    in the stream are near-duplicates, on some before they are learned
    (`coldstream.learners.confidence.temperature`)."""
    unseen: Flag = True
    """Whether predictions leave room for classes that have not come (`coldstream.learners.confidence.unseen`)."""
    passes: Annotated[int, whole_from(1)] = 8
    """Maximum updates per new example, while the whole buffer fits into a batch at least twice and holds examples of
    every known class."""
    warm_up: Flag = True
    """Whether to scale the learning rate by batch size / full batch size: the first batches are small."""
    rehearse: Annotated[int, whole_from(0)] = 0
    """Updates on replayed examples alone after each update with new ones. They take as much time each
    (docs/teach-measurements.md has measurements); `Learner.rehearse` makes them whenever there is time."""


@dataclass(kw_only=True)
class ColdStartTask(TaskState):
    """The state of a task, and the confidence of its predictions."""

    confidence: Confidence = field(default_factory=Confidence)


def _confidence(task: TaskState) -> Confidence:
    assert isinstance(task, ColdStartTask)
    return task.confidence


class ColdStart(CSSL):
    """Learns a deep network from one image at a time, from nothing: random weights, no classes, no data.

    This is CSSL with our recipe for short streams: strong augmentation for a share of the examples, balanced replay,
    more passes and a warm-up at the start, predictions by the average of the latest weights, and calibrated
    confidence. Each ingredient is one setting.

    Examples
    --------
    >>> import numpy as np
    >>> learner = ColdStart(replay=8, size=8)
    >>> learner.predict_one(np.zeros((8, 8, 3), np.uint8)) is None
    True
    >>> for shade, label in [(0, "dark"), (255, "bright")] * 4:
    ...     id = learner.learn_one(np.full((8, 8, 3), shade, np.uint8), label)
    >>> learner.predict_one(np.full((8, 8, 3), 250, np.uint8)), id
    ('bright', 7)
    """

    Settings = ColdStartSettings
    settings: ColdStartSettings

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        if cls.extra is not CSSL.extra or cls.draws != 1:
            raise TypeError(
                f"{cls.__name__} replaces extra or draws, which ColdStart does not take: it stores an example before "
                "the update that gives its logits; derive from CSSL or ER instead"
            )

    @torch.inference_mode(mode=False)
    def _learn(self, task: TaskState, new: Sequence[Example]) -> None:
        known = len(task.classes)
        rate, rows = self.steps.begin(task, new)
        for row in range(known, len(task.classes)):
            self._shorten_window(task, row)
        batch = self.steps.sample(task, new, rows)
        self.steps.augment(task, batch)
        if self.settings.warm_up:
            rate *= len(batch.items) / (len(new) + self.settings.beside(task, len(self.tasks), len(new)))
        # Before the update: the network is tested on what it has not learned yet.
        for place, example in enumerate(new):
            held_out = self._register(task, example, rows[place], rows[place] < known)
            self.steps.store(task, batch, place, held_out=held_out)
            if held_out:
                _confidence(task).hold(task.buffer, example.key)
            task.buffer.evict(task.draw(self.step, "evict"))
            self.step += 1
        with self.steps.update(task, batch, rate):
            pass
        self._extra_passes(task, rate, batch.step)
        self._calibrate(task)
        for _ in range(self.settings.rehearse):
            self._rehearse()

    @torch.inference_mode(mode=False)
    def _rehearse(self) -> None:
        if self.steps.rehearse(self.rehearsed, warm_up=self.settings.warm_up):
            self.rehearsed += 1
            self._calibrate(next(iter(self.tasks.values())))

    def _set_up(self) -> None:
        super()._set_up()
        self.policy = Policy.parse(self.settings.augment).at(self.settings.strong_share)
        self._full_policy = Policy.parse(self.settings.augment)

    def _engine_settings(self) -> dict[str, Any]:
        return {**super()._engine_settings(), "average": self.settings.average}

    def _new_task(self, engine: Engine, shape: Shape, **basics: Any) -> ColdStartTask:
        return ColdStartTask(**vars(super()._new_task(engine, shape, **basics)))

    def policy_of(self, task: TaskState) -> Policy:
        full = self.settings.full_on_duplicates and _confidence(task).duplicates
        return self._full_policy if full else self.policy

    def _shorten_window(self, task: TaskState, row: int) -> None:
        """Shorten the averaging window: this row's class is new."""
        if self.engine.average:
            classes = sum(len(other.classes) for other in self.tasks.values())
            self.engine.average.shorten(task.head.average, row, classes)

    def _register(self, task: TaskState, example: Example, row: int, known: bool) -> bool:
        """Register a new example, and test the network on it where that is fair; return whether to hold it out."""
        confidence, buffer = _confidence(task), task.buffer
        slot = buffer.index.find(example.key)
        if slot is not None:  # learned before
            return buffer.index.is_held_out(slot)
        draws = task.draw(self.step, "likeness")
        fair = confidence.register(buffer, example.item, row, example.key, draws, known)
        if not self.settings.calibrate:
            return False
        if fair and known:
            logits = self.engine.logits(task.head, example.item[None])
            confidence.test(*self._answers(task, logits, [row]))
        if confidence.duplicates and confidence.held:
            confidence.release(buffer)
        return confidence.holds_out(task.classes.counts[row])

    def _answers(
        self, task: TaskState, logits: NDArray[np.float64], rows: Sequence[int]
    ) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Return logits of all classes that can be predicted, and the right column: of merged ones, the likeliest."""
        seen, columns = set(task.classes.seen()), dict[int, list[int]]()
        shown = [row for row, into in enumerate(task.classes.into) if into in seen]
        for column, row in enumerate(shown):
            columns.setdefault(task.classes.into[row], []).append(column)
        logits = logits[:, shown]
        right = [max(columns[row], key=lambda column: each[column]) for each, row in zip(logits, rows, strict=True)]
        return logits, np.array(right, np.int64)

    def _extra_passes(self, task: TaskState, rate: float, step: int) -> None:
        """Make more passes over everything that is stored, while a batch has room for it several times.

        Not where the network knows more than what is stored, which it would forget: other tasks, or classes of which
        nothing is stored, as after base initialisation.
        """
        buffer = task.buffer
        stored = len(buffer) - buffer.index.held_out
        times = min(self.settings.passes, self.settings.replay // max(1, stored))
        known, here = len(task.classes.seen()), np.count_nonzero(buffer.index.sizes.view)
        if times < 2 or known < 2 or here < known or len(self.tasks) > 1:
            return
        slots = buffer.sample(stored, task.draw(self.step, "practise"))
        items, targets, policy = buffer.items(slots), buffer.targets(slots, task.rows), self.policy_of(task)
        for number in range(1, times):
            seed = torch_seed(task.seed, step, f"pass {number}")
            augmented = policy.augment(items, seed, step)
            batch = Batch(step, [], [], slots, (stored,), augmented, policy, targets, buffer.extra_of(slots))
            part = self.steps.prepared(task, batch, seed)
            self.engine.update(task.head, part.inputs, part.targets, rate, seed, step, loss=part.loss)

    def _calibrate(self, current: TaskState) -> None:
        """Collect logits of held-out examples of each task; fit its temperature when all have been collected."""
        shares = self.settings.shares_of(current, len(self.tasks))
        for task in self.tasks.values():
            confidence, buffer = _confidence(task), task.buffer
            due = confidence.due(buffer, max(1.0, LOGITS_PER_REPLAYED * shares[task.number]))
            if due is None:
                continue
            if due:
                items = buffer.items(np.array([*due.values()], np.int64))
                confidence.collect(due, self.engine.logits(task.head, items))
            if (finished := confidence.finish_round(buffer, task.rows)) is not None:
                logits, slots = finished
                confidence.fit(*self._answers(task, logits, buffer.index.labels.view[slots].tolist()))

    def _logits(self, task: TaskState, items: NDArray[Any]) -> NDArray[np.float64]:
        return super()._logits(task, items) / _confidence(task).temperature

    def _linear(self, task: TaskState) -> tuple[nn.Module, Tensor, Tensor]:
        body, weight, bias = super()._linear(task)
        temperature = _confidence(task).temperature
        return body, weight / temperature, bias / temperature

    def _unseen(self, task: TaskState) -> float:
        if not self.settings.unseen or task.classes.limit == len(task.classes):
            return 0.0
        return _confidence(task).unseen.chance(set(task.classes.seen()))

    def _relabelled(self, task: TaskState, key: int, row: int) -> None:
        if task.classes.counts[row] == 1:
            self._shorten_window(task, row)
        _confidence(task).discard_logits(key)

    def _forgotten(self, task: TaskState, key: int) -> None:
        _confidence(task).drop(task.buffer, key)

    def _merged(self, task: TaskState, old: int, new: int) -> None:
        _confidence(task).merge(old, new)

    def _task_state(self, task: TaskState) -> State:
        plain, arrays = super()._task_state(task)
        return {**plain, "confidence": _confidence(task).state()}, {**arrays, **_confidence(task).collected()}

    def _restore_task(self, task: TaskState, plain: dict[str, Any], arrays: Arrays) -> None:
        super()._restore_task(task, plain, arrays)
        _confidence(task).restore(plain["confidence"], arrays)
