"""Orders in which a data set is streamed: pure functions of (data set, ordering, seed)."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from coldstream.data import Dataset
from coldstream.phrases import unknown
from coldstream.randomness import generator


@dataclass(frozen=True)
class Event:
    """A test: after `step` examples, on the test images of `classes`."""

    step: int
    classes: tuple[int, ...]


@dataclass(frozen=True)
class Stream:
    """Indices into the training set in streaming order, each once, and the tests on the way."""

    order: NDArray[np.int64]
    events: tuple[Event, ...]


def canonical_order(dataset: Dataset) -> NDArray[np.int64]:
    """Return the examples sorted by class name and content, however the data set happens to be stored."""
    keys = []
    for index, (image, label) in enumerate(zip(dataset.images, dataset.labels, strict=True)):
        content = hashlib.sha256(repr(image.shape).encode() + np.ascontiguousarray(image).tobytes()).digest()
        keys.append((dataset.names[label], content, index))
    return np.array([index for _, _, index in sorted(keys)], np.int64)


def class_incremental(dataset: Dataset, seed: int, test_every: int) -> Stream:
    """One class after another in a seeded order, shuffled within; a test on the classes seen after every few."""
    names = np.array(dataset.names)[dataset.labels]
    canonical = canonical_order(dataset)
    present = sorted(set(names.tolist()))
    parts, events, seen = [], [], []
    step = 0
    for number, place in enumerate(generator(seed, 0, "class order").permutation(len(present)), start=1):
        mine = canonical[names[canonical] == present[place]]
        parts.append(generator(seed, int(place), "examples of a class").permutation(mine))
        seen.append(dataset.names.index(present[place]))
        step += len(mine)
        if number % test_every == 0 or number == len(present):
            events.append(Event(step, tuple(seen)))
    return Stream(np.concatenate(parts), tuple(events))


def iid(dataset: Dataset, seed: int, test_every: int) -> Stream:
    """All examples shuffled; tests on all classes, as many as class-incremental would have."""
    order = generator(seed, 0, "iid").permutation(canonical_order(dataset))
    classes = tuple(sorted(set(dataset.labels.tolist())))
    tests = -(-len(classes) // test_every)
    return Stream(order, tuple(Event(len(order) * t // tests, classes) for t in range(1, tests + 1)))


ORDERINGS: dict[str, Callable[[Dataset, int, int], Stream]] = {"class-incremental": class_incremental, "iid": iid}


def make_stream(dataset: Dataset, ordering: str, seed: int, test_every: int) -> Stream:
    """Return the stream of a data set in the named order."""
    if ordering not in ORDERINGS:
        raise unknown("ordering", ordering, ORDERINGS)
    return ORDERINGS[ordering](dataset, seed, test_every)
