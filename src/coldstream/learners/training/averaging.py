"""The average of a network's latest weights: what a falling learning rate would lead to, at any moment.

SGD at a rate that has not fallen walks around a good place, and the mean of where it has been is nearer to that than
where it is. A stream has no end that a rate could fall towards; an average needs to know none.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn
from torch.func import functional_call

SHORTEST = 4
"""After a new class the average goes over about so many updates,"""
PART = 1 / 8
"""then over this part of those since,"""
LONGEST = 300
"""up to so many."""
NEW = 4
"""A new class of K makes it forget this many Kth parts of how many there were."""
BORN = "born"


class Average:
    """The average m of a network's weights w, and of its statistics, over its latest updates.

    After each update m += (w - m) / n, where n = `SHORTEST` + `PART` k, at most `LONGEST`. k counts updates, and a
    new class, the Kth, takes `NEW` / K of it away: a network that has just met its second class is soon another one,
    and an average that lags would not know the class; one that knows a hundred changes little. The new class's own
    row of the head follows closely all the same, with k counted from its beginning. Among the very first updates n is
    their number, which makes m their mean.

    Parameters
    ----------
    network
        Whose weights change.
    head
        The names of those that have a row for each class.
    """

    def __init__(self, network: nn.Module, head: Sequence[str] = ()) -> None:
        self._network, self._head = network, head
        # Asking for a state_dict at every update would take longer than averaging it.
        self._places = [
            (f"{prefix}{'.' * bool(prefix)}{name}", kept, name)
            for prefix, module in network.named_modules(remove_duplicate=False)
            for kept in (module._parameters, module._buffers)
            for name in kept
            if name not in module._non_persistent_buffers_set
        ]
        self.updates, self.since = 0, 0.0
        self.values: dict[str, Tensor] = {}
        """Averages by name, and as `BORN` how many updates there had been when the class of each row came."""

    def hurry(self, row: int, classes: int) -> None:
        """Follow more closely from now on, the more the fewer classes there are: this row's is new."""
        self.since *= max(0.0, 1 - NEW / classes)
        before = self.values.get(BORN, torch.empty(0, dtype=torch.int64))
        born = torch.zeros(max(len(before), row + 1), dtype=torch.int64)
        born[: len(before)] = before
        born[row] = self.updates
        self.values[BORN] = born

    def follow(self) -> None:
        """Take in the weights after an update."""
        self.updates += 1
        self.since += 1
        length = min(self.updates, SHORTEST + PART * self.since, LONGEST)
        share = 1 / length
        current = self._current()
        mine, theirs = [], []
        for name, value in current.items():
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
        if self._head and BORN in self.values:
            self._catch_up(current, length)

    def _current(self) -> dict[str, Tensor]:
        """Return the weights and statistics as they are; all that a state_dict has but counters."""
        found = ((name, kept[key]) for name, kept, key in self._places)
        return {name: value.detach() for name, value in found if value is not None and value.is_floating_point()}

    def _catch_up(self, current: dict[str, Tensor], length: float) -> None:
        """Let rows of young classes follow as closely as their age says."""
        lengths = SHORTEST + PART * (self.updates - self.values[BORN]).double()
        young = torch.nonzero(lengths < length).flatten()
        if not len(young):
            return
        # Of what was between a row and its average 1 - 1/length is left, and 1 - 1/lengths is to be.
        shares = 1 - (1 - 1 / lengths[young]) / (1 - 1 / length)
        for name in self._head:
            mine, theirs = self.values[name], current[name]
            weight = shares.to(mine).reshape(-1, *[1] * (mine.ndim - 1))
            mine[young] = torch.lerp(mine[young], theirs[young], weight)

    def network(self, inputs: Tensor) -> Tensor:
        """Return what the network gives with the average for its weights; rows without one are as they are."""
        values = {
            name: _completed(self.values[name], own) for name, own in self._current().items() if name in self.values
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
