"""Data sets stored as strips, lossless files of square images stacked vertically: CIFAR-100, GTSRB tracks."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from coldstream.data.dataset import Dataset, Pixels
from coldstream.data.files import Files, decode, open_files

_TRACK = re.compile(r"(?:^|/)(\d+)/track(\d+)\.\w+$")
_CLASS_STRIP = re.compile(r"(?:^|/)(train|test)/(\d+)_([^/]+)\.\w+$")
TEST_TRACK = 2


def gtsrb(path: str | Path) -> tuple[Dataset, Dataset]:
    """Return tracks of traffic signs as clips: the third track of each class is the test set.

    The layout is `<class>/track<number>.webp` (or another lossless image), in a directory or a zip: the frames of a
    track stacked vertically in the order in which an approaching car filmed them. An object is one track; there is
    one session.
    """
    files = open_files(Path(path))
    tracks = sorted((m[1], int(m[2]), name) for name in files.images() if (m := _TRACK.search(name)))
    if not tracks:
        raise ValueError(f"there are no tracks in {str(path)!r}; expected <class>/track<number>.webp")
    names = tuple(sorted({label for label, _, _ in tracks}))
    rank: dict[str, int] = dict.fromkeys(names, 0)
    parts: dict[bool, list[tuple[int, int, Pixels]]] = {False: [], True: []}
    for number, (label, _, member) in enumerate(tracks):
        parts[rank[label] == TEST_TRACK].append((names.index(label), number, strip(files, member)))
        rank[label] += 1
    return _join_tracks(parts[False], names), _join_tracks(parts[True], names)


def cifar100_strips(path: str | Path) -> tuple[Dataset, Dataset]:
    """Return CIFAR-100 from `train/00_apple.webp`, ..., `test/99_worm.webp`: a strip per class.

    They are the official images and classes in another order, so the fingerprint is that of the official files.
    """
    files = open_files(Path(path))
    members = sorted((m[1], int(m[2]), m[3], name) for name in files.images() if (m := _CLASS_STRIP.search(name)))
    names = tuple(label for part, _, label, _ in members if part == "train")
    if not names or names != tuple(label for part, _, label, _ in members if part == "test"):
        raise ValueError(f"expected train/<number>_<class>.webp and test/... of the same classes in {str(path)!r}")
    sets = []
    for wanted in ("train", "test"):
        strips = [strip(files, member) for part, _, _, member in members if part == wanted]
        labels = np.repeat(np.arange(len(names)), [len(images) for images in strips])
        sets.append(Dataset("cifar100", np.concatenate(strips), labels.astype(np.int64), names))
    return sets[0], sets[1]


def strip(files: Files, member: str) -> Pixels:
    """Return the square images of one strip as (N, W, W, 3)."""
    pixels = decode(files, member)
    height, width, channels = pixels.shape
    if height % width:
        raise ValueError(f"{files.where(member)} is {height} high, which is no multiple of its width {width}")
    return pixels.reshape(-1, width, width, channels)


def _join_tracks(tracks: list[tuple[int, int, Pixels]], names: tuple[str, ...]) -> Dataset:
    lengths = [len(frames) for _, _, frames in tracks]
    objects = np.repeat(np.array([number for _, number, _ in tracks], np.int64), lengths)
    return Dataset(
        "gtsrb",
        np.concatenate([frames for _, _, frames in tracks]) if tracks else np.zeros((0, 1, 1, 3), np.uint8),
        np.repeat(np.array([label for label, _, _ in tracks], np.int64), lengths),
        names,
        objects=objects,
        sessions=np.zeros(len(objects), np.int64),
        frames=np.concatenate([np.arange(length, dtype=np.int64) for length in [0, *lengths]]),
    )
