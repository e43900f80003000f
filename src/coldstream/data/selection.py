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
    validation: int | None = None,
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
    validation
        Number of training examples per class that are held out and tested on, instead of the test set. They are the
        last ones in the order of the hash, so that a small selection of the first ones stays as it was. Of clips, all
        frames are held out, so that there may be more.

    Examples
    --------
    >>> from coldstream.data import digits
    >>> train, test = select(*digits(), classes=3, per_class=20, test_per_class=5)
    >>> len(train), len(test), train.names
    (60, 15, ('0', '1', '2'))
    """
    limits = {"per_class": per_class, "test_per_class": test_per_class, "validation": validation}
    for what, number in limits.items():
        if number is not None and number < 1:
            raise ValueError(f"{what} must be at least 1 or None, got {number}")
    used = {name for part in (train, test) for name in np.array(part.names, object)[np.unique(part.labels)]}
    names = [name for name in dict.fromkeys((*train.names, *test.names)) if name in used]
    wanted = _wanted(train.name, names, classes)
    keep = tuple(name for name in names if name in wanted)
    train, test = _restrict(train, keep), _restrict(test, keep)
    if validation is not None:
        train, test = _hold_out(train, validation)
    return _limit(train, per_class), _limit(test, test_per_class)


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


def _restrict(dataset: Dataset, keep: tuple[str, ...]) -> Dataset:
    place = {name: number for number, name in enumerate(keep)}
    moved = np.array([place.get(name, -1) for name in dataset.names], np.int64)[dataset.labels]
    kept = np.flatnonzero(moved >= 0)
    return replace(dataset.take(kept), labels=moved[kept], names=keep)


def _limit(dataset: Dataset, per_class: int | None) -> Dataset:
    if per_class is None:
        return dataset
    chosen = [place for members in _by_class(dataset).values() for place in members[:per_class]]
    return dataset.take(np.array(sorted(chosen), np.int64))


def _hold_out(dataset: Dataset, validation: int) -> tuple[Dataset, Dataset]:
    """Return what is left for training, and the last examples of each class; clips are held out whole."""
    held = np.zeros(len(dataset), bool)
    for label, members in _by_class(dataset).items():
        for place in reversed(members):
            if held[members].sum() >= validation:
                break
            held[_clip(dataset, members, place)] = True
        if held[members].all():
            raise ValueError(
                f"validation={validation}: class {dataset.names[label]!r} of {dataset.name!r} has {len(members)} "
                "training examples, and some must be left to train on"
            )
    return dataset.take(np.flatnonzero(~held)), dataset.take(np.flatnonzero(held))


def _clip(dataset: Dataset, members: list[int], place: int) -> list[int]:
    """Return which examples of a class are of the same object as one; without objects, that one."""
    if dataset.objects is None:
        return [place]
    return [one for one in members if dataset.objects[one] == dataset.objects[place]]


def _by_class(dataset: Dataset) -> dict[int, list[int]]:
    """Return the places of the examples of each class, in the order of a hash of their identity."""
    marks: list[tuple[object, ...]] = [(mark,) for mark in _hashes(dataset.identities())]
    for column in (dataset.objects, dataset.sessions, dataset.frames):
        if column is not None:  # equal images of different clips are told apart by the clip
            marks = [(*mark, value) for mark, value in zip(marks, column.tolist(), strict=True)]
    return {
        label: sorted(np.flatnonzero(dataset.labels == label).tolist(), key=marks.__getitem__)
        for label in np.unique(dataset.labels).tolist()
    }


def _hashes(identities: Sequence[str]) -> list[bytes]:
    # File names that are not UTF-8 reach Python as lone surrogates.
    return [hashlib.sha256(identity.encode("utf-8", "surrogatepass")).digest() for identity in identities]
