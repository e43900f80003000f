"""Any image folder: one folder per class, in a directory or a zip."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from coldstream.data.dataset import Dataset
from coldstream.data.files import Files, LazyImages, in_memory_if_small, open_files
from coldstream.data.selection import split_fifth
from coldstream.parsing import plain

TRAIN = "train"
TEST = ("test", "val", "valid", "validation")


def folder(path: str | Path) -> tuple[Dataset, Dataset]:
    r"""Return the training and the test set of an image folder, a directory or a zip.

    It has `train/<class>/...` and one of `test`, `val`, `valid` or `validation` beside it (the first of these that is
    there; letter case does not matter), or only `train/<class>/...`, or only `<class>/...`. Without a test part, of
    each class every fifth image by a hash of its path is for testing. Everything below a class's folder belongs to
    the class. A single folder around everything is skipped. Hidden files and files without the suffix of an image
    are ignored.

    Names of folders are labels; bytes in them that are not UTF-8 and control characters become escapes, ``caf\xe9``.

    Images of one size that take at most `files.EAGER_BYTES` are decoded at once; others on access.
    """
    path = Path(path).expanduser()
    files = open_files(path)
    members = files.images()
    base = _base(members)
    inside = [name.removeprefix(base) for name in members]
    parts = {name.split("/")[0].lower() for name in inside if "/" in name}
    name = plain(path.stem if path.is_file() else path.resolve().name)
    if not inside:
        raise ValueError(f"there are no images in {str(path)!r}; expected train/<class>/... or <class>/...")
    if TRAIN not in parts:
        _check(files, base, inside, "<class>/<image>", 1)
        return _split(_read(files, base, name, inside, 0))
    test_part = next((part for part in TEST if part in parts), None)
    train = [name for name in inside if name.lower().startswith(TRAIN + "/")]
    test = [name for name in inside if test_part and name.lower().startswith(test_part + "/")]
    _check(files, base, train + test, "train/<class>/<image>", 2)
    if not test:
        return _split(_read(files, base, name, train, 1))
    names = tuple(sorted({plain(member.split("/")[1]) for member in train + test}))
    return _read(files, base, name, train, 1, names), _read(files, base, name, test, 1, names)


def _base(members: list[str]) -> str:
    """Return the folder around everything, or ""."""
    base = ""
    while members:
        tops = {name.removeprefix(base).split("/")[0] for name in members}
        deeper = base + next(iter(tops)) + "/"
        # A lone folder with images right in it is a class, and one called train is the training part.
        if len(tops) > 1 or next(iter(tops)).lower() == TRAIN:
            break
        if any("/" not in name.removeprefix(deeper) for name in members if name.startswith(deeper)):
            break
        if not all(name.startswith(deeper) for name in members):
            break
        base = deeper
    return base


def _check(files: Files, base: str, members: list[str], layout: str, depth: int) -> None:
    for name in members:
        if name.count("/") < depth:
            raise ValueError(f"{files.where(base + name)} is not inside the folder of a class; expected {layout}")


def _read(
    files: Files, base: str, name: str, members: list[str], level: int, names: tuple[str, ...] | None = None
) -> Dataset:
    classes = [plain(member.split("/")[level]) for member in members]
    names = names or tuple(sorted(set(classes)))
    number = {label: index for index, label in enumerate(names)}
    labels = np.array([number[label] for label in classes], np.int64)
    images = LazyImages(files, [base + member for member in members])
    return Dataset(name, in_memory_if_small(images), labels, names, keys=tuple(members))


def _split(whole: Dataset) -> tuple[Dataset, Dataset]:
    train, test = split_fifth(whole.labels, whole.identities())
    return whole.take(train), whole.take(test)
