"""GDumb (Prabhu et al. 2020): a greedy class-balanced buffer, and a network trained on it from scratch."""

from __future__ import annotations

from typing import Annotated, Any

from numpy.typing import NDArray
from pydantic import BeforeValidator

from coldstream.learners.batches import BatchSettings, ScratchLearner, ScratchTask
from coldstream.learners.method import Shape
from coldstream.learners.replaying import check_capacity
from coldstream.learners.settings import BelowOne, number, whole_from
from coldstream.replay import ReplayBuffer
from coldstream.replay.eviction import largest_class


class GDumbSettings(BatchSettings):
    """Settings of GDumb."""

    capacity: Annotated[str | int | None, BeforeValidator(check_capacity)] = 2000
    """Capacity of the buffer: a number of examples, ``"30MB"``, or None for no bound."""
    batch: Annotated[int, whole_from(1)] = 16
    """Examples in a step of the training."""
    rate: Annotated[float, number(above=0)] = 0.05
    """The learning rate that the training begins with."""
    weight_decay: BelowOne = 1e-6
    """Weight decay of SGD."""


class GDumb(ScratchLearner):
    """Keeps a balanced sample of the stream, and trains a network from scratch on it alone.

    The buffer follows Algorithm 1 of the publication. With k the capacity and Y the classes so far, an example is
    accepted if its class is new or has fewer than k/|Y| examples stored, also where the buffer has room left; if it
    is full, a random member of the largest class (ties drawn) makes room first.

    The publication trains "dumbly" whenever it is tested. Here a test changes nothing and costs little, so the
    training comes when a batch ends, which is where experiments test. It is SGD along one cosine, with the
    publication's batch size, rate and weight decay; its warm restarts, early stopping and clipped gradients are
    left out, and its CutMix is ``augment="crop|flip|cutmix(1.0)"``.
    """

    Settings = GDumbSettings
    settings: GDumbSettings

    def _collect(self, task: ScratchTask, item: NDArray[Any], row: int, key: int) -> None:
        k, stored = self._capacity(task.buffer), task.buffer.index.sizes.view
        held = int(stored[row]) if row < len(stored) else 0
        again = task.buffer.label_of(key) is not None
        if k is not None and not again:
            if held and held >= k / len(set(task.classes.into)):
                return
            if len(task.buffer) >= k:
                largest_class(task.buffer, task.draw(self.step, "evict"))
        super()._collect(task, item, row, key)

    @staticmethod
    def _capacity(buffer: ReplayBuffer) -> int | None:
        """Return k, the number of examples that the buffer may hold."""
        limit, size = buffer.capacity, buffer.codec.row_bytes
        return limit.examples if limit.bytes is None or size is None else limit.bytes // size

    def _new_buffer(self, shape: Shape) -> ReplayBuffer:
        return ReplayBuffer(shape, capacity=self.settings.capacity, storage=self.settings.storage)
