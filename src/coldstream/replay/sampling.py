"""Sample: which slots are replayed. A sampler is a function (index, count, generator) -> distinct slots."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from coldstream.parsing import unknown
from coldstream.replay.index import Index

Sampler = Callable[[Index, int, np.random.Generator], NDArray[np.int64]]


def uniform(index: Index, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Draw `count` training slots uniformly without replacement; all of them if there are fewer."""
    stored = len(index)
    if count >= stored - index.held_out:
        return np.flatnonzero(index.places.view >= 0)
    if index.held_out == 0:
        return rng.choice(stored, count, replace=False)
    # Held-out slots lie among the others. A uniform draw without replacement stays one when they are left out.
    wanted = count
    while True:
        wanted = min(stored, wanted + 8 + wanted * 2 * index.held_out // stored)
        slots = rng.choice(stored, wanted, replace=False)
        slots = slots[index.places.view[slots] >= 0]
        if len(slots) >= count:
            return slots[:count]


def class_balanced(index: Index, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Draw each slot from a class chosen uniformly among those with a member not drawn yet."""
    stored = len(index) - index.held_out
    if count >= stored:
        return np.flatnonzero(index.places.view >= 0)
    classes = [label for label, slots in enumerate(index.members) if len(slots)]
    left = {label: len(index.members[label]) for label in classes}
    swapped: dict[tuple[int, int], int] = {}
    drawn = np.empty(count, np.int64)
    for i, (which, member) in enumerate(rng.random((count, 2))):
        number = int(which * len(classes))
        label = classes[number]
        left[label] -= 1
        # A Fisher-Yates shuffle of each class, of which only the moved places are written down.
        last, place = left[label], int(member * (left[label] + 1))
        drawn[i] = index.members[label][swapped.get((label, place), place)]
        swapped[label, place] = swapped.get((label, last), last)
        if last == 0:
            classes[number] = classes[-1]
            classes.pop()
    return drawn


_SEEN = 16
"""How many members of a class are compared for each one that is drawn; a smaller class is compared as a whole."""


def least_replayed(index: Index, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Draw classes as `class_balanced` does, and of a class's slots each in proportion to 1 / (1 + times replayed).

    Of a large class only a random part is compared (`_SEEN`). A uniform draw replays early examples many times as
    often as late ones; this one evens that out.
    """
    stored = len(index) - index.held_out
    if count >= stored:
        return np.flatnonzero(index.places.view >= 0)
    turns = _turns(index.sizes.view, count, rng)
    seen, any_of = [], rng.random((count, _SEEN))
    ends = np.cumsum(turns)
    for label in np.flatnonzero(turns).tolist():
        members, wanted = index.members[label].view, int(turns[label])
        if len(members) > _SEEN * wanted:
            places = any_of[ends[label] - wanted : ends[label]] * len(members)
            members = members[places.astype(np.int64).ravel()]
        seen.append(members)
    slots: NDArray[np.int64] = np.sort(np.concatenate([np.empty(0, np.int64), *seen]))
    slots = slots[np.diff(slots, prepend=-1) > 0]
    # Of independent waiting times, the shortest is of a slot with a chance in proportion to its rate.
    waits = rng.standard_exponential(len(slots)) * (1 + index.times.view[slots])
    slots = slots[np.lexsort((waits, index.labels.view[slots]))]
    labels = index.labels.view[slots]
    rank = np.arange(len(slots)) - np.searchsorted(labels, labels)
    shortest: NDArray[np.int64] = slots[rank < turns[labels]]
    return shortest


def _turns(sizes: NDArray[np.signedinteger], count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Draw `count` times a class among those with a member left; return how often each was drawn."""
    turns = np.zeros(len(sizes), np.int64)
    while missing := count - int(turns.sum()):
        left = np.flatnonzero(turns < sizes)
        turns += np.bincount(left[rng.integers(len(left), size=missing)], minlength=len(sizes))
        np.minimum(turns, sizes, out=turns)
    return turns


SAMPLERS: dict[str, Sampler] = {
    "uniform": uniform,
    "class-balanced": class_balanced,
    "least-replayed": least_replayed,
}


def get_sampler(name: str) -> Sampler:
    """Return the sampler of that name."""
    if name not in SAMPLERS:
        raise unknown("sampling policy", name, SAMPLERS)
    return SAMPLERS[name]
