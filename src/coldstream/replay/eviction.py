"""Evict: which stored example makes room, or which two become one.

A policy is a function (buffer, generator) that leaves the buffer with one example less. It is called after
the new example was stored in the last slot, while the buffer is over its capacity.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from coldstream.parsing import Call, parse_call, unknown

if TYPE_CHECKING:
    from coldstream.replay.buffer import ReplayBuffer

Evictor = Callable[["ReplayBuffer", np.random.Generator], None]


def _random_of_largest_class(buffer: ReplayBuffer, rng: np.random.Generator) -> int:
    sizes = buffer.index.sizes.view
    if not sizes.any():
        return int(rng.integers(len(buffer)))
    largest = np.flatnonzero(sizes == sizes.max())
    members = buffer.index.members[int(largest[rng.integers(len(largest))])]
    return members[int(rng.integers(len(members)))]


def _or_training_slot(buffer: ReplayBuffer, slot: int, rng: np.random.Generator) -> int:
    """Return `slot`, or where it is held out a random one that is not, if there is any."""
    index = buffer.index
    while index.is_held_out(slot) and index.held_out < len(index):
        slot = int(rng.integers(len(index)))
    return slot


def largest_class(buffer: ReplayBuffer, rng: np.random.Generator) -> None:
    """Drop a random member of the class with the most examples; ties between classes are drawn."""
    buffer.drop(_random_of_largest_class(buffer, rng))


def uniform(buffer: ReplayBuffer, rng: np.random.Generator) -> None:
    """Drop any example, the new one included, with equal probability."""
    buffer.drop(_or_training_slot(buffer, int(rng.integers(len(buffer))), rng))


def reservoir(buffer: ReplayBuffer, rng: np.random.Generator) -> None:
    """Replace slot i by the k-th example if i < C, for i uniform in [0, k); drop the example otherwise.

    C is what the buffer holds without the new example. (The paper's text tests i < k, which is always true.)
    The new example lies in the last slot, and moves into the slot that is emptied: that is replacement.
    """
    held = len(buffer) - 1
    slot = int(rng.integers(max(buffer.offered, len(buffer))))
    buffer.drop(_or_training_slot(buffer, min(slot, held), rng))


@dataclass(frozen=True)
class Consolidate:
    """Merge a random member of the largest class with any other example, keeping a soft label.

    An example that was merged `limit` times already is dropped instead (no limit where None).
    """

    how: str
    alpha: float
    limit: int | None

    def __call__(self, buffer: ReplayBuffer, rng: np.random.Generator) -> None:
        first = _random_of_largest_class(buffer, rng)
        second = self._partner(buffer, first, rng)
        for slot in (first, second):
            if first == second or (self.limit is not None and buffer.merges(slot) >= self.limit):
                buffer.drop(slot)
                return
        one, other = buffer.items(np.array([first, second]))
        merged, share = self._blend(one, other, rng)
        buffer.merge(first, second, merged, share)

    @staticmethod
    def _partner(buffer: ReplayBuffer, first: int, rng: np.random.Generator) -> int:
        """Draw another training slot, or return `first` where there is none: validation data is never mixed in."""
        index = buffer.index
        if len(index) - index.held_out < 2:
            return first
        while True:
            second = int(rng.integers(len(index) - 1))
            second += second >= first
            if not index.is_held_out(second):
                return second

    def _blend(
        self, one: NDArray[np.generic], other: NDArray[np.generic], rng: np.random.Generator
    ) -> tuple[NDArray[np.generic], float]:
        """Return the merged item and the share of `one` in it."""
        if self.how == "cutmix":
            return _cutmix(one, other, float(rng.beta(self.alpha, self.alpha)), rng)
        share = 0.5 if self.how == "samplepairing" else float(rng.beta(self.alpha, self.alpha))
        mixed = share * one.astype(np.float64) + (1 - share) * other.astype(np.float64)
        whole = np.issubdtype(one.dtype, np.integer)
        return (np.rint(mixed) if whole else mixed).astype(one.dtype), share


def _cutmix(
    one: NDArray[np.generic], other: NDArray[np.generic], share: float, rng: np.random.Generator
) -> tuple[NDArray[np.generic], float]:
    height, width = one.shape[:2]
    cut = np.sqrt(1 - share)
    y, x = int(rng.integers(height)), int(rng.integers(width))
    half_h, half_w = int(height * cut) // 2, int(width * cut) // 2
    top, bottom = max(0, y - half_h), min(height, y + half_h)
    left, right = max(0, x - half_w), min(width, x + half_w)
    mixed = one.copy()
    mixed[top:bottom, left:right] = other[top:bottom, left:right]
    return mixed, 1 - (bottom - top) * (right - left) / (height * width)


def _consolidate(call: Call) -> Consolidate:
    how = call.name.removeprefix("consolidate-")
    names = ("limit",) if how == "samplepairing" else ("alpha", "limit")
    given = dict(zip(names, call.args, strict=False))
    for extra in (*call.args[len(names) :], *(name for name, _ in call.kwargs if name not in names)):
        raise ValueError(f"eviction {call.name!r} does not take {extra!r}; it takes {' and '.join(names)}")
    for name, value in call.kwargs:
        if name in given:
            raise ValueError(f"eviction {call.name!r} is given {name} twice")
        given[name] = value
    alpha, limit = given.get("alpha", 1.0), given.get("limit")
    if isinstance(alpha, str) or not 0 < alpha < float("inf"):
        raise ValueError(f"eviction {call.name!r}: alpha is a number above 0, not {alpha!r}")
    if limit is not None and (isinstance(limit, str) or not float(limit).is_integer() or limit < 1):
        raise ValueError(f"eviction {call.name!r}: limit is a whole number from 1, not {limit!r}")
    return Consolidate(how, float(alpha), None if limit is None else int(limit))


def _plain(policy: Evictor) -> Callable[[Call], Evictor]:
    def make(call: Call) -> Evictor:
        if call.args or call.kwargs:
            raise ValueError(f"eviction policy {call.name!r} takes no arguments")
        return policy

    return make


EVICTORS: dict[str, Callable[[Call], Evictor]] = {
    "largest-class": _plain(largest_class),
    "uniform": _plain(uniform),
    "reservoir": _plain(reservoir),
    "consolidate-mixup": _consolidate,
    "consolidate-cutmix": _consolidate,
    "consolidate-samplepairing": _consolidate,
}


def get_evictor(text: str, images: bool = True) -> Evictor:
    """Return the policy that `text` names, such as ``largest-class`` or ``consolidate-mixup(0.4, limit=2)``."""
    call = parse_call(text, "eviction policy")
    if call.name not in EVICTORS:
        raise unknown("eviction policy", call.name, EVICTORS)
    if call.name == "consolidate-cutmix" and not images:
        raise ValueError(f"eviction {call.name!r} needs images; vectors have no box to cut")
    return EVICTORS[call.name](call)
