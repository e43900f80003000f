"""GDumb (Prabhu et al. 2020): a greedy class-balanced buffer, and a network trained on it from scratch."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from coldstream.learners.batches import ScratchLearner
from coldstream.replay import Capacity, ReplayBuffer
from coldstream.replay.eviction import largest_class


class GDumb(ScratchLearner):
    """Keeps a balanced sample of the stream, and trains a network from scratch on it alone.

    The buffer follows Algorithm 1 of the publication. With k the capacity and Y the classes so far, an example is
    accepted if its class is new or has fewer than k/|Y| examples stored, also where the buffer has room left; if it
    is full, a random member of the largest class (ties drawn) makes room first.

    The publication trains "dumbly" whenever it is tested. Here a test changes nothing and costs little, so the
    training comes when a batch ends, which is where experiments test. It is SGD along one cosine, with the
    publication's batch size, rate and weight decay; its warm restarts, early stopping and clipped gradients are
    left out, and its CutMix is ``augment="crop|flip|cutmix(1.0)"``.

    Parameters
    ----------
    capacity
        Of the buffer: a number of examples, ``"30MB"``, or None for no bound.
    epochs, batch, rate, weight_decay, augment
        Of the training from scratch.
    **settings
        `storage`, and those of `coldstream.learners.network.NetworkLearner`.
    """

    def __init__(
        self,
        *,
        capacity: str | int | None = 2000,
        epochs: int = 50,
        batch: int = 16,
        rate: float = 0.05,
        weight_decay: float = 1e-6,
        augment: str = "crop|flip",
        **settings: Any,
    ) -> None:
        Capacity.parse(capacity)
        settings |= {"epochs": epochs, "batch": batch, "rate": rate, "augment": augment}
        super().__init__({"capacity": capacity}, weight_decay=weight_decay, **settings)

    def _collect(self, item: NDArray[Any], row: int, key: int) -> None:
        k, stored = self._capacity(), self.buffer.index.sizes.view
        held = int(stored[row]) if row < len(stored) else 0
        again = self.buffer.label_of(key) is not None
        if k is not None and not again:
            if held and held >= k / len(set(self.classes.into)):
                return
            if len(self.buffer) >= k:
                largest_class(self.buffer, self._draw("evict"))
        super()._collect(item, row, key)

    def _capacity(self) -> int | None:
        """Return k, the number of examples that the buffer may hold."""
        limit, size = self.buffer.capacity, self.buffer.codec.row_bytes
        return limit.examples if limit.bytes is None or size is None else limit.bytes // size

    def _make_buffer(self, shape: tuple[int, ...]) -> ReplayBuffer:
        return ReplayBuffer(shape, capacity=self.settings["capacity"], storage=self.settings["storage"])
