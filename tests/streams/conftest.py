"""Small data sets written out as rows, and streams read back as rows."""

from typing import NamedTuple

import numpy as np
import pytest

from coldstream.data import Dataset


class Row(NamedTuple):
    """An example: its class, its place in a clip, and what the image shows."""

    name: str
    object: int
    session: int
    frame: int
    shows: int


def _build(rows, names=None, clips=True):
    names = tuple(names if names is not None else sorted({row[0] for row in rows}))
    images = np.zeros((len(rows), 1, 2, 3), np.uint8)
    shows = np.array([row[4] for row in rows], np.uint32)
    images.reshape(len(rows), 6)[:, :4] = shows.view(np.uint8).reshape(len(rows), 4)
    labels = np.array([names.index(row[0]) for row in rows], np.int64)
    columns = [np.array([row[place] for row in rows], np.int64) if clips else None for place in (1, 2, 3)]
    return Dataset("rows", images, labels, names, *columns)


def _grid(classes, objects, sessions, frames):
    """Rows of classes x objects of each x sessions x frames, objects numbered through, all images different."""
    rows = []
    for c in range(classes):
        for o in range(objects):
            for s in range(sessions):
                for f in range(frames):
                    rows.append(Row(f"class {c:02d}", c * objects + o, s, f, len(rows)))
    return rows


@pytest.fixture(scope="session")
def build():
    return _build


@pytest.fixture(scope="session")
def grid():
    return _grid
