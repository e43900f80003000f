"""The average of a network's latest weights: what a falling learning rate would lead to, at any moment.

SGD at a rate that has not fallen walks around a good place, and the mean of where it has been is nearer to that than
where it is. A stream has no end that a rate could fall towards; an average needs to know none.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.func import functional_call

SHORTEST = 4
"""After a new class the average goes over about so many updates,"""
PART = 1 / 8
"""then over this part of those since,"""
LONGEST = 300
"""up to so many."""


class Average:
    """The average m of a network's weights w, and of its statistics, over its latest updates.

    After each update m += (w - m) / n. Of k updates since the last new class, n = `SHORTEST` + `PART` k, at most
    `LONGEST`: a network that has just met a class is soon another one, and an average that lags would not know the
    class. Among the very first updates n is their number, which makes m their mean.
    """

    def __init__(self, network: nn.Module) -> None:
        self._network = network
        self.updates = self.since = 0
        self.values: dict[str, Tensor] = {}

    def hurry(self) -> None:
        """Follow closely from now on: there is a new class."""
        self.since = 0

    def follow(self) -> None:
        """Take in the weights after an update."""
        self.updates += 1
        self.since += 1
        share = 1 / min(self.updates, SHORTEST + PART * self.since, LONGEST)
        current = self._network.state_dict()
        mine, theirs = [], []
        for name, value in current.items():
            if not value.is_floating_point():
                continue
            known = self.values.get(name)
            if known is None or share == 1:
                self.values[name] = value.clone()
                continue
            if known.shape != value.shape:
                known = self.values[name] = _completed(known, value)
            mine.append(known)
            theirs.append(value)
        if mine:
            torch._foreach_lerp_(mine, theirs, share)

    def network(self, inputs: Tensor) -> Tensor:
        """Return what the network gives with the average for its weights; rows without one are as they are."""
        values = {
            name: _completed(self.values[name], own)
            for name, own in self._network.state_dict().items()
            if name in self.values
        }
        # Weights that are tied have the same average.
        outputs: Tensor = functional_call(self._network, values, (inputs,), tie_weights=False)
        return outputs

    def part(self, names: Iterable[str]) -> dict[str, Tensor]:
        """Return the average of some of the weights."""
        return {name: self.values[name] for name in names if name in self.values}

    def exchange(self, names: Iterable[str], values: dict[str, Tensor]) -> None:
        """Follow weights in whose place others were put, which come with their own average."""
        for name in names:
            self.values.pop(name, None)
        self.values |= values


def _completed(average: Tensor, own: Tensor) -> Tensor:
    """Return the average of rows to which others were added, which begin as they are."""
    return average if average.shape == own.shape else torch.cat([average, own[len(average) :]])
