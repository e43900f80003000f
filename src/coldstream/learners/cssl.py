"""Cold Start Streaming Learning, Algorithm 1 of the paper: sample, augment, update, compress and store, evict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from coldstream.augment import Policy
from coldstream.labels import Label
from coldstream.learners.base import Learner
from coldstream.learners.method import Arrays, Example, Shape, State
from coldstream.learners.recipes import PAPER_POLICY, paper_recipe
from coldstream.learners.replaying import Rates, ReplaySettings
from coldstream.learners.settings import PolicyText, checked
from coldstream.learners.steps import Batch, Steps
from coldstream.learners.tasks import TaskState
from coldstream.learners.training.engine import Engine
from coldstream.learners.training.options import check_compile
from coldstream.learners.training.prefetch import check_prefetch
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


class CSSL(Learner[TaskState]):
    """The paper's algorithm: a deep network learns from one image at a time, from random weights, with no classes.

    Every image is learned at once, together with replayed ones, all augmented, and stored by a codec. This is
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
    rehearses = True
    draws = 1
    """Independent draws of `replay` examples from the buffer in each update."""

    @torch.inference_mode(mode=False)
    def _learn(self, task: TaskState, new: Sequence[Example]) -> None:
        rate, rows = self.steps.begin(task, new)
        # Sample data from the replay buffer to combine with new data
        batch = self.steps.sample(task, new, rows)
        # Augment new and replayed data
        self.steps.augment(task, batch)
        # Update all model parameters over augmented new and replayed data
        with self.steps.update(task, batch, rate):
            extras = self.extra(batch)
            for place in range(len(new)):
                # Compress and store the new data example for replay
                self.steps.store(task, batch, place, extras)
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

    # What else a learner says of itself.

    def _set_up(self) -> None:
        if self.settings.items == "vectors" and self.settings.augment != "none":
            raise ValueError(f"augment={self.settings.augment!r} is for images; vectors take augment='none'")
        self.rates = Rates(self.settings)
        self.policy = Policy.parse(self.settings.augment)
        self.steps = Steps(self)
        self.rehearsed = 0

    @torch.inference_mode(mode=False)
    def _rehearse(self) -> None:
        self.rehearsed += self.steps.rehearse(self.rehearsed)

    def _state(self) -> State:
        plain, arrays = super()._state()
        return {**plain, "rehearsed": self.rehearsed}, arrays

    def _restore(self, plain: dict[str, Any], arrays: Arrays) -> None:
        super()._restore(plain, arrays)
        self.rehearsed = int(plain["rehearsed"])

    def policy_of(self, task: TaskState) -> Policy:
        """Return the policy of augmentation as it is now for a task."""
        return self.policy

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
