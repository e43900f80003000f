"""Algorithm 1 as the theory has it: a sum over the new and B replayed examples, constant rate, no compression."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from coldstream.randomness import generator
from coldstream.replay import ReplayBuffer
from coldstream.theory.examples import Examples
from coldstream.theory.network import Array, Network, loss_slope
from coldstream.theory.perturbations import IMAGES, Kind, draw

_POLICIES = {"crops": "crop", "crops and flips": "crop|flip"}


@dataclass(frozen=True)
class Step:
    """One step of the stream, before the update.

    Attributes
    ----------
    t : int
        Counted from 0.
    network : Network
        W^(t), which the next step changes in place.
    x, y : Array
        The perturbed inputs and labels that the update is over; row 0 is the new example.
    sizes : Array
        ‖ξ‖² of each row.
    margins : Array
        y · f(x) of each row, with W^(t).
    update : Array
        W^(t+1) - W^(t).
    """

    t: int
    network: Network
    x: Array
    y: Array
    sizes: Array
    margins: Array
    update: Array


@dataclass(frozen=True)
class Algorithm:
    """Rate, replay and perturbation of a stream.

    Attributes
    ----------
    kappa : float
        η = κ · m^(-3/2).
    replay : int
        B; the first steps replay what there is.
    capacity : int or None
        C; one example is evicted uniformly while there are more.
    perturbation, size
        Kind of ξ and ‖ξ‖²; drawn anew for every example of every update.
    """

    kappa: float = 1.0
    replay: int = 10
    capacity: int | None = None
    perturbation: Kind = "none"
    size: float = 0.0

    def rate(self, network: Network) -> float:
        """Return η."""
        return self.kappa / float(network.width**1.5)

    def run(self, network: Network, stream: Examples, seed: int) -> Iterator[Step]:
        """Stream all examples once; each step is given before its update is applied. Changes `network`."""
        buffer = ReplayBuffer(
            (stream.x.shape[1],), "float32", capacity=self.capacity, evict="uniform", sample="uniform"
        )
        rate = self.rate(network)
        for t in range(len(stream)):
            places = np.array([t])
            if self.replay and len(buffer):
                slots = buffer.sample(self.replay, generator(seed, t, "theory sample"))
                places = np.concatenate([places, buffer.index.ids.view[slots]])
                inputs = np.concatenate([stream.x[[t]], buffer.items(slots).astype(np.float64)])
            else:
                inputs = stream.x[[t]]
            y = stream.y[places]
            xi = self.perturb(network, stream, places, inputs, seed, t)
            x = inputs + xi
            gradients = network.gradients(x)
            margins = y * gradients.outputs
            update = gradients.combine(-rate * loss_slope(margins) * y)
            yield Step(t, network, x, y, np.sum(xi * xi, axis=1), margins, update)
            np.add(network.hidden, update, out=network.hidden)
            buffer.store(buffer.compress(stream.x[t].astype(np.float32)), int(stream.y[t] < 0), t)
            buffer.evict(generator(seed, t, "theory evict"))

    def perturb(
        self, network: Network, examples: Examples, places: NDArray[np.int64], x: Array, seed: int, step: int
    ) -> Array:
        """Return ξ for the examples at `places`, whose unperturbed inputs are `x`."""
        if self.perturbation in IMAGES:
            return examples.augmented(places, _POLICIES[self.perturbation], seed, step)
        rng = generator(seed, step, "theory perturbation")
        return draw(self.perturbation, self.size, x, examples.y[places], network, rng)
