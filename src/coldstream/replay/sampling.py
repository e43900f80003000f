"""Sample: which rows are replayed. A sampler is a function (index, count, generator) -> distinct rows."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from coldstream.phrases import unknown
from coldstream.replay.index import Index

Sampler = Callable[[Index, int, np.random.Generator], NDArray[np.int64]]


def uniform(index: Index, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Draw `count` training rows uniformly without replacement; all of them where there are not as many."""
    stored = len(index)
    if count >= stored - index.held_out:
        return np.flatnonzero(index.places.view >= 0)
    if index.held_out == 0:
        return rng.choice(stored, count, replace=False)
    # Held-out rows lie among the others. A uniform draw without replacement stays one when they are left out.
    wanted = count
    while True:
        wanted = min(stored, wanted + 8 + wanted * 2 * index.held_out // stored)
        rows = rng.choice(stored, wanted, replace=False)
        rows = rows[index.places.view[rows] >= 0]
        if len(rows) >= count:
            return rows[:count]


def class_balanced(index: Index, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Draw each row from a class chosen uniformly among those with a member not drawn yet."""
    stored = len(index) - index.held_out
    if count >= stored:
        return np.flatnonzero(index.places.view >= 0)
    classes = [label for label, rows in enumerate(index.members) if len(rows)]
    left = {label: len(index.members[label]) for label in classes}
    swapped: dict[tuple[int, int], int] = {}
    drawn = np.empty(count, np.int64)
    for i, (which, member) in enumerate(rng.random((count, 2))):
        slot = int(which * len(classes))
        label = classes[slot]
        left[label] -= 1
        # A Fisher-Yates shuffle of each class, of which only the moved places are written down.
        last, place = left[label], int(member * (left[label] + 1))
        drawn[i] = index.members[label][swapped.get((label, place), place)]
        swapped[label, place] = swapped.get((label, last), last)
        if last == 0:
            classes[slot] = classes[-1]
            classes.pop()
    return drawn


SAMPLERS: dict[str, Sampler] = {"uniform": uniform, "class-balanced": class_balanced}


def get_sampler(name: str) -> Sampler:
    """Return the sampler of that name."""
    if name not in SAMPLERS:
        raise unknown("sampling policy", name, SAMPLERS)
    return SAMPLERS[name]
