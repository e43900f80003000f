"""Sets that say in text files which images are for training: CUB-200-2011 and MIT Indoor Scenes.

Both are also read as plain image folders, as which they are often passed on.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from coldstream.data.dataset import Dataset
from coldstream.data.files import Files, LazyImages, in_memory_if_small, open_files
from coldstream.data.folders import folder

_CUB_LISTS = ("classes.txt", "image_class_labels.txt", "train_test_split.txt", "images.txt")
_SCENE_LISTS = ("TrainImages.txt", "TestImages.txt")


def cub200(path: str | Path) -> tuple[Dataset, Dataset]:
    """Return CUB-200-2011 in its official layout: `images/` and the four lists beside it; or an image folder."""
    files = open_files(Path(path))
    base = files.base(*_CUB_LISTS)
    if base is None:
        return folder(path)
    classes, labels, split, images = (_table(files, base + name) for name in _CUB_LISTS)
    numbers = sorted(classes, key=int)
    names = tuple(classes[number] for number in numbers)
    place = {number: index for index, number in enumerate(numbers)}
    sets = []
    for wanted in ("1", "0"):
        numbers_of_part = [number for number in sorted(images, key=int) if split.get(number) == wanted]
        lost = next((number for number in numbers_of_part if labels.get(number) not in place), None)
        if lost is not None:
            raise ValueError(f"{files.where(base + _CUB_LISTS[1])} gives image {lost} no class of classes.txt")
        chosen = [(f"images/{images[number]}", place[labels[number]]) for number in numbers_of_part]
        sets.append(_make(files, base, "cub200", chosen, names))
    return sets[0], sets[1]


def mit_scenes(path: str | Path) -> tuple[Dataset, Dataset]:
    """Return MIT Indoor Scenes: `Images/<class>/*.jpg`, `TrainImages.txt`, `TestImages.txt`; or an image folder."""
    files = open_files(Path(path))
    base = files.base(*_SCENE_LISTS)
    if base is None:
        return folder(path)
    lists = [files.text(base + name) for name in _SCENE_LISTS]
    names = tuple(sorted({line.split("/")[0] for lines in lists for line in lines}))
    place = {name: index for index, name in enumerate(names)}
    sets = []
    for lines in lists:
        chosen = [(f"Images/{line}", place[line.split("/")[0]]) for line in sorted(lines)]
        sets.append(_make(files, base, "mit-scenes", chosen, names))
    return sets[0], sets[1]


def _table(files: Files, name: str) -> dict[str, str]:
    """Return a list of lines `number value` as a dictionary."""
    rows = [line.split(maxsplit=1) for line in files.text(name)]
    wrong = next((row for row in rows if len(row) != 2 or not row[0].isdigit()), None)
    if wrong is not None:
        raise ValueError(f"{files.where(name)}: expected lines `number value`, got {' '.join(wrong)!r}")
    return {row[0]: row[1] for row in rows}


def _make(files: Files, base: str, name: str, chosen: list[tuple[str, int]], names: tuple[str, ...]) -> Dataset:
    present = set(files.names)
    missing = [key for key, _ in chosen if base + key not in present]
    if missing:
        raise ValueError(f"{len(missing)} listed images are not in {str(files.path)!r}, the first is {missing[0]!r}")
    images = LazyImages(files, [base + key for key, _ in chosen])
    labels = np.array([label for _, label in chosen], np.int64)
    return Dataset(name, in_memory_if_small(images), labels, names, keys=tuple(key for key, _ in chosen))
