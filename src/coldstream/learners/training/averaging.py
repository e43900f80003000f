"""A moving average of the network's weights, which takes the place of a decaying learning rate.

At a constant rate, SGD moves around a minimum, and the mean of its latest weights is nearer to it than the last ones.
A decaying rate has the same effect but needs to know when the stream ends.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn

_Buffers = dict[str, Tensor | None]

SHORTEST = 4
"""The averaging window, in updates, right after a new class."""
PART = 1 / 8
"""Growth of the window with each further update."""
LONGEST = 300
"""The longest window, in updates."""
NEW = 4
"""The Kth class shrinks k by the fraction NEW / K (see `Average`)."""
BORN = "born"
"""Key in a head's average: the number of updates before the class of each row appeared."""


class Average:
    """The moving average m of a network's weights w and of its BatchNorm statistics.

    After each update, m += (w - m) / n. The window is n = min(`SHORTEST` + `PART` k, `LONGEST`), where k counts
    updates. In the first updates n is at most their number, so that m is their mean.

    The Kth class multiplies k by 1 - `NEW` / K, at least 0. The second class changes the network much, and an average
    over a long window would not know the class; the hundredth changes it little. The head row of a new class has a
    shorter window, with k counted from the update at which the class appeared.

    `body` is a copy of the network's body with the averages, always in evaluation mode. The average of a head is in
    the state of the head.
    """

    def __init__(self, body: nn.Module) -> None:
        places = [kept[name] for _, kept, name in _places(body)]
        averaged = {id(value) for value in places if value is not None and value.is_floating_point()}
        # What has no average, such as a counter, is that of the network itself.
        shared: dict[int, Any] = {id(value): value for value in body.buffers() if id(value) not in averaged}
        self.body = copy.deepcopy(body, shared).eval()
        for parameter in self.body.parameters():
            parameter.requires_grad_(False)
        # A few places: walking through all modules at every prediction would take longer.
        self._shared = _without_average(body, self.body)
        self._buffers = [
            (kept, name, value)
            for kept in (module._buffers for module in self.body.modules())
            for name, value in kept.items()
            if value is not None and value.is_floating_point()
        ]
        # Asking for a state_dict at every update would take longer than averaging it.
        means = _once([kept[name] for _, kept, name in _places(self.body)])
        self._followed = [
            (mean.data, kept, name)
            for mean, (_, kept, name) in zip(means, _places(body), strict=True)
            if mean is not None and mean.is_floating_point()
        ]
        self.updates, self.since = 0, 0.0

    def share_buffers(self) -> None:
        """Share the network's buffers that have no average, and put back averages: either may have been replaced."""
        for kept, name, mean in self._buffers:
            kept[name] = mean
        for live, twin, name in self._shared:
            twin[name] = live[name]

    def shorten(self, average: dict[str, Tensor], row: int, classes: int) -> None:
        """Shorten the averaging window: the class of head row `row` is new, one of `classes`."""
        self.since *= max(0.0, 1 - NEW / classes)
        before = average.get(BORN, torch.empty(0, dtype=torch.int64))
        born = torch.zeros(max(len(before), row + 1), dtype=torch.int64)
        born[: len(before)] = before
        born[row] = self.updates
        average[BORN] = born

    def follow(self, head: dict[str, Tensor], average: dict[str, Tensor]) -> None:
        """Add the weights after an update, of the body and of one head, to their averages."""
        self.updates += 1
        self.since += 1
        length = min(self.updates, SHORTEST + PART * self.since, LONGEST)
        share = 1 / length
        pairs = [(mean, value.data) for mean, kept, name in self._followed if (value := kept[name]) is not None]
        if share == 1:
            average |= {name: value.detach().clone() for name, value in head.items()}
        else:
            for name, value in head.items():
                known = average.get(name)
                if known is None:
                    average[name] = value.detach().clone()
                    continue
                average[name] = completed(known, value.detach())
                pairs.append((average[name], value.detach()))
        if pairs:  # a body without weights, such as that of a linear model, has none
            torch._foreach_lerp_([mean for mean, _ in pairs], [value for _, value in pairs], share)
        if BORN in average:
            self._catch_up(head, average, length)

    def _catch_up(self, head: dict[str, Tensor], average: dict[str, Tensor], length: float) -> None:
        """Average the head rows of recent classes over shorter windows, counted from the update they appeared at."""
        if SHORTEST + PART * (self.updates - int(average[BORN].max())) >= length:
            return  # not even the latest class is young
        lengths = SHORTEST + PART * (self.updates - average[BORN]).double()
        young = torch.nonzero(lengths < length).flatten()
        if not len(young):
            return
        # Of the distance between a row and its average 1 - 1/length is left, and 1 - 1/lengths is to be left.
        shares = 1 - (1 - 1 / lengths[young]) / (1 - 1 / length)
        for name, value in head.items():
            mean = average[name]
            weight = shares.to(mean).reshape(-1, *[1] * (mean.ndim - 1))
            mean[young] = torch.lerp(mean[young], value.detach()[young], weight)

    def state(self) -> dict[str, Tensor]:
        """Return the averages of the body by name; none before the first update."""
        if not self.updates:
            return {}
        self.share_buffers()
        values = ((name, kept[key]) for name, kept, key in _places(self.body))
        return {name: value for name, value in values if value is not None and value.is_floating_point()}


def _once(tensors: list[Tensor | None]) -> list[Tensor | None]:
    """Return the tensors with None in the place of those that came before: tied weights have one average."""
    seen: set[int] = set()
    return [None if id(one) in seen or seen.add(id(one)) else one for one in tensors]  # type: ignore[func-returns-value]


def _places(body: nn.Module) -> list[tuple[str, dict[str, Tensor | None], str]]:
    """Return where a module keeps its parameters and persistent buffers: the name of each, a dict and a key."""
    return [
        (f"{prefix}{'.' * bool(prefix)}{name}", kept, name)
        for prefix, module in body.named_modules()
        for kept in (module._parameters, module._buffers)
        for name in kept
        if name not in module._non_persistent_buffers_set
    ]


def _without_average(live: nn.Module, twin: nn.Module) -> list[tuple[_Buffers, _Buffers, str]]:
    """Return where two copies of a module keep the buffers that have no average: both dicts, and the key."""
    return [
        (one._buffers, other._buffers, name)
        for one, other in zip(live.modules(), twin.modules(), strict=True)
        for name, value in one._buffers.items()
        if value is None or not value.is_floating_point() or name in one._non_persistent_buffers_set
    ]


def completed(average: Tensor, value: Tensor) -> Tensor:
    """Return an average of head rows extended to new rows, whose average begins at their value."""
    return average if average.shape == value.shape else torch.cat([average, value[len(average) :]])
