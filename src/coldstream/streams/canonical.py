"""The canonical order from which shuffles start: by class and identity, independent of stored order."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from coldstream.data import Dataset

CLIP_FIELDS = ("objects", "sessions", "frames")


def examples_by_class(dataset: Dataset) -> dict[str, NDArray[np.int64]]:
    """Return the examples of each class that has any, classes by name, examples by identity."""
    _check(dataset)
    names, labels, marks = dataset.names, dataset.labels.tolist(), dataset.identities()
    # Equal images of one class are distinguished by their clips.
    clips = [column.tolist() for column in _clip_columns(dataset).values()]
    rows = sorted((names[label], marks[i], *(c[i] for c in clips), i) for i, label in enumerate(labels))
    by_class: dict[str, list[int]] = {}
    for name, *_, index in rows:
        by_class.setdefault(name, []).append(index)
    return {name: np.array(indices, np.int64) for name, indices in by_class.items()}


def sorted_by_content(dataset: Dataset) -> Dataset:
    """Return the same examples, sorted by class and identity, independent of stored order."""
    return dataset.take(np.concatenate(list(examples_by_class(dataset).values())))


def clips_by_class(dataset: Dataset) -> dict[str, list[NDArray[np.int64]]]:
    """Return the clips of each class, by object and session, each with its frames in order.

    Object and session numbers are the data set's own; two classes may use the same numbers for different objects.
    """
    columns = _clip_columns(dataset)
    objects, sessions, frames = (columns[name] for name in CLIP_FIELDS)
    clips: dict[str, list[NDArray[np.int64]]] = {}
    for name, indices in examples_by_class(dataset).items():
        # lexsort is stable: frames of one number stay sorted by identity.
        ordered = indices[np.lexsort((frames[indices], sessions[indices], objects[indices]))]
        changes = (np.diff(objects[ordered]) != 0) | (np.diff(sessions[ordered]) != 0)
        clips[name] = np.split(ordered, np.flatnonzero(changes) + 1)
    return clips


def missing_clip_fields(dataset: Dataset) -> list[str]:
    """Return the clip fields that the data set lacks."""
    return [name for name in CLIP_FIELDS if name not in _clip_columns(dataset)]


def _clip_columns(dataset: Dataset) -> dict[str, NDArray[np.int64]]:
    columns = zip(CLIP_FIELDS, (dataset.objects, dataset.sessions, dataset.frames), strict=True)
    return {name: column for name, column in columns if column is not None}


def _check(dataset: Dataset) -> None:
    if not len(dataset):
        raise ValueError(f"data set {dataset.name!r} has no examples to stream")
    if len(set(dataset.names)) < len(dataset.names):
        twice = sorted({name for name in dataset.names if dataset.names.count(name) > 1})
        raise ValueError(f"data set {dataset.name!r} has several classes of one name: {', '.join(twice)}")
