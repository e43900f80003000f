"""Subsets of a data set, chosen by the identity of examples, independent of stored order."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from coldstream.data.dataset import Dataset
from coldstream.parsing import unknown

Indices = NDArray[np.int64]


def select(
    train: Dataset,
    test: Dataset,
    *,
    classes: int | Sequence[str] | None = None,
    per_class: int | None = None,
    test_per_class: int | None = None,
) -> tuple[Dataset, Dataset]:
    """Restrict both sets to the same classes, and to a number of examples per class.

    Examples are chosen in the order of a hash of their identity: the same ones however the set is stored, and a
    larger selection contains a smaller one. They keep their stored order, so frames of a clip stay in sequence.
    Classes without examples are dropped.

    Parameters
    ----------
    train, test
        The sets; they are not changed.
    classes
        A number, for the first classes by name, or a list of names; None for all.
    per_class, test_per_class
        The maximum number of examples per class; None for all.

    Examples
    --------
    >>> from coldstream.data import digits
    >>> train, test = select(*digits(), classes=3, per_class=20, test_per_class=5)
    >>> len(train), len(test), train.names
    (60, 15, ('0', '1', '2'))
    """
    for what, number in (("per_class", per_class), ("test_per_class", test_per_class)):
        if number is not None and number < 1:
            raise ValueError(f"{what} must be at least 1 or None, got {number}")
    used = {name for part in (train, test) for name in np.array(part.names, object)[np.unique(part.labels)]}
    names = [name for name in dict.fromkeys((*train.names, *test.names)) if name in used]
    wanted = _wanted(train.name, names, classes)
    keep = tuple(name for name in names if name in wanted)
    return _restrict(train, keep, per_class), _restrict(test, keep, test_per_class)


def split_fifth(labels: Indices, identities: Sequence[str]) -> tuple[Indices, Indices]:
    """Return the indices for training and for testing, for a set without a test part.

    Every fifth example of each class, in the order of a hash of their identities, is for testing; a class of fewer
    than five has none.
    """
    marks = _hashes(identities)
    tested = np.zeros(len(labels), bool)
    for label in np.unique(labels):
        members = sorted(np.flatnonzero(labels == label).tolist(), key=marks.__getitem__)
        tested[members[4::5]] = True
    return np.flatnonzero(~tested), np.flatnonzero(tested)


def _wanted(name: str, names: list[str], classes: int | Sequence[str] | None) -> set[str]:
    if classes is None:
        return set(names)
    if isinstance(classes, int):
        if not 1 <= classes <= len(names):
            raise ValueError(f"classes must be between 1 and the {len(names)} of {name!r}, got {classes}")
        return set(sorted(names)[:classes])
    if isinstance(classes, str) or not classes:
        raise ValueError(f"classes must be a number or a list of at least one name, got {classes!r}")
    for wanted in classes:
        if wanted not in names:
            raise unknown(f"class of {name!r}", wanted, names)
    return set(classes)


def _restrict(dataset: Dataset, keep: tuple[str, ...], per_class: int | None) -> Dataset:
    place = {name: number for number, name in enumerate(keep)}
    moved = np.array([place.get(name, -1) for name in dataset.names], np.int64)[dataset.labels]
    kept = np.flatnonzero(moved >= 0)
    part = replace(dataset.take(kept), labels=moved[kept], names=keep)
    return part if per_class is None else part.take(_first_of_each(part, per_class))


def _first_of_each(dataset: Dataset, per_class: int) -> Indices:
    marks: list[tuple[object, ...]] = [(mark,) for mark in _hashes(dataset.identities())]
    for column in (dataset.objects, dataset.sessions, dataset.frames):
        if column is not None:  # equal images of different clips are told apart by the clip
            marks = [(*mark, value) for mark, value in zip(marks, column.tolist(), strict=True)]
    chosen: list[int] = []
    for label in np.unique(dataset.labels):
        chosen += sorted(np.flatnonzero(dataset.labels == label).tolist(), key=marks.__getitem__)[:per_class]
    return np.array(sorted(chosen), np.int64)


def _hashes(identities: Sequence[str]) -> list[bytes]:
    # File names that are not UTF-8 reach Python as lone surrogates.
    return [hashlib.sha256(identity.encode("utf-8", "surrogatepass")).digest() for identity in identities]
