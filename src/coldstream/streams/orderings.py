"""Orders in which a data set is streamed: pure functions of (data set, ordering, seed).

Every shuffle starts from lists sorted by class name, identity and clip, so the stored order and the numbers of the
classes make no difference. All class orderings use the same class order for one seed.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from coldstream.data import Dataset
from coldstream.parsing import unknown
from coldstream.randomness import generator
from coldstream.streams.canonical import clips_by_class, examples_by_class, missing_clip_fields
from coldstream.streams.class_order import check_class_order, draw_class_order
from coldstream.streams.registry import ORDERINGS
from coldstream.streams.stream import Event, Stream

Indices = NDArray[np.int64]
BATCHES = 5


def class_incremental(
    dataset: Dataset, seed: int, *, test_every: int = 1, class_order: Sequence[str] | None = None
) -> Stream:
    """One class after another, each shuffled; a batch of `test_every` classes, then a test on the classes seen."""
    examples = examples_by_class(dataset)
    # Drawn per class, not per turn: a class is shuffled alike in every class order.
    shuffled = {
        name: generator(seed, place, "examples of a class").permutation(indices)
        for place, (name, indices) in enumerate(examples.items())
    }
    groups = _groups(dataset, seed, class_order, _at_least_one("test_every", test_every))
    return _by_classes(dataset, groups, [np.concatenate([shuffled[name] for name in group]) for group in groups])


def iid(dataset: Dataset, seed: int, *, batches: int | None = None) -> Stream:
    """All examples shuffled, in `batches` equal batches (5), with a test on all classes after each."""
    order = generator(seed, 0, "iid").permutation(np.concatenate(list(examples_by_class(dataset).values())))
    return _on_all_classes(dataset, order, np.arange(1, len(order) + 1), batches, "examples")


def class_iid(
    dataset: Dataset, seed: int, *, classes_per_batch: int = 2, class_order: Sequence[str] | None = None
) -> Stream:
    """`classes_per_batch` classes shuffled together per batch; after each a test on the classes seen."""
    examples = examples_by_class(dataset)
    groups = _groups(dataset, seed, class_order, _at_least_one("classes_per_batch", classes_per_batch))
    parts = [
        generator(seed, number, "examples of a batch").permutation(
            np.concatenate([examples[name] for name in sorted(group)])
        )
        for number, group in enumerate(groups)
    ]
    return _by_classes(dataset, groups, parts)


def instance(dataset: Dataset, seed: int, *, batches: int | None = None) -> Stream:
    """Clips in random order, frames in order, dealt into `batches` batches (5); tests on all classes after each."""
    clips = _shuffled(
        [clip for of_class in clips_by_class(dataset).values() for clip in of_class], generator(seed, 0, "clips")
    )
    return _on_all_classes(dataset, np.concatenate(clips), np.cumsum([len(clip) for clip in clips]), batches, "clips")


def class_instance(
    dataset: Dataset, seed: int, *, classes_per_batch: int = 2, class_order: Sequence[str] | None = None
) -> Stream:
    """The clips of `classes_per_batch` classes shuffled per batch, frames in order; tests on the classes seen."""
    clips = clips_by_class(dataset)
    groups = _groups(dataset, seed, class_order, _at_least_one("classes_per_batch", classes_per_batch))
    parts = []
    for number, group in enumerate(groups):
        of_batch = [clip for name in sorted(group) for clip in clips[name]]
        parts.append(np.concatenate(_shuffled(of_batch, generator(seed, number, "clips of a batch"))))
    return _by_classes(dataset, groups, parts)


def make_stream(
    dataset: Dataset,
    ordering: str,
    seed: int,
    test_every: int | None = None,
    *,
    batches: int | None = None,
    classes_per_batch: int | None = None,
    class_order: Sequence[str] | None = None,
) -> Stream:
    """Return the stream of a data set in the named order.

    Parameters
    ----------
    dataset
        What to stream.
    ordering
        One of `ORDERINGS`.
    seed
        Which of the permutations.
    test_every
        class-incremental: classes from one test to the next, 1 unless given. The others test after each batch.
    batches
        iid, instance: how many batches; 5 unless given (or one for each example or clip, if there are fewer).
    classes_per_batch
        class-iid, class-instance: 2 unless given; the last batch has what is left.
    class_order
        Class orderings: the names of the classes in the order in which they come; drawn from the seed unless given.

    Examples
    --------
    >>> from coldstream.data import digits
    >>> train, _ = digits()
    >>> [len(event.classes) for event in make_stream(train, "class-iid", 0).events]
    [2, 4, 6, 8, 10]
    >>> make_stream(train, "iid", 0, batches=3).batches
    (480, 961, 1442)
    """
    if ordering not in ORDERINGS:
        raise unknown("ordering", ordering, ORDERINGS)
    chosen = ORDERINGS[ordering]
    given = {
        "test_every": test_every,
        "batches": batches,
        "classes_per_batch": classes_per_batch,
        "class_order": class_order,
    }
    options = {name: value for name, value in given.items() if value is not None}
    if unused := [name for name in options if name not in chosen.options]:
        raise ValueError(
            f"ordering {ordering!r} does not use {' and '.join(unused)}; it takes {' and '.join(chosen.options)}"
        )
    missing = missing_clip_fields(dataset) if chosen.clips else []
    if missing:
        able = [name for name, other in ORDERINGS.items() if not other.clips]
        raise ValueError(
            f"ordering {ordering!r} streams clips, and data set {dataset.name!r} has no {' and no '.join(missing)} "
            f"to make them of; it can be ordered {', '.join(able)}"
        )
    return chosen.order(dataset, seed, **options)


def _groups(dataset: Dataset, seed: int, class_order: Sequence[str] | None, size: int) -> list[list[str]]:
    """Return the classes in their order, in groups of `size`; the last has what is left."""
    names = draw_class_order(dataset, seed) if class_order is None else check_class_order(dataset, class_order)
    return [names[start : start + size] for start in range(0, len(names), size)]


def _by_classes(dataset: Dataset, groups: list[list[str]], parts: list[Indices]) -> Stream:
    """Return the stream of one batch per group of classes, tested on the classes seen."""
    label = {name: number for number, name in enumerate(dataset.names)}
    seen = accumulate(tuple(label[name] for name in group) for group in groups)
    ends = tuple(accumulate(len(part) for part in parts))
    events = tuple(Event(end, classes, "seen") for end, classes in zip(ends, seen, strict=True))
    return Stream(dataset, np.concatenate(parts), events, ends)


def _on_all_classes(dataset: Dataset, order: Indices, pieces: Indices, batches: int | None, what: str) -> Stream:
    """Return the stream of pieces (by their ends), dealt whole into batches of nearly equal numbers of them."""
    if batches is None:
        batches = min(BATCHES, len(pieces))
    if _at_least_one("batches", batches) > len(pieces):
        raise ValueError(f"batches: {len(pieces)} {what} of {dataset.name!r} cannot fill {batches} batches")
    ends = tuple(int(pieces[len(pieces) * number // batches - 1]) for number in range(1, batches + 1))
    classes = tuple(sorted(np.unique(dataset.labels).tolist(), key=lambda label: dataset.names[label]))
    return Stream(dataset, order, tuple(Event(end, classes, "all") for end in ends), ends)


def _shuffled(clips: list[Indices], draws: np.random.Generator) -> list[Indices]:
    return [clips[place] for place in draws.permutation(len(clips))]


def _at_least_one(name: str, value: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise ValueError(f"{name} must be a whole number of at least 1, got {value!r}")
    return int(value)
