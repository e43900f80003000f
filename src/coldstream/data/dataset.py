"""One small type for every source of examples."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import overload

import numpy as np
from numpy.typing import NDArray

Pixels = NDArray[np.uint8]
Images = Pixels | Sequence[Pixels]


@dataclass(frozen=True, eq=False)
class Dataset:
    """Images, their labels as class indices, and the names of the classes.

    Parameters
    ----------
    name
        The name in reports.
    images
        uint8 (N, H, W, C), or any sequence that gives such images one by one, of any sizes.
    labels
        The class of each image, an index into `names`.
    names
        The label of each class, as a learner gets it.
    objects, sessions, frames
        For sets made of clips: the object, the session and the position in the clip of each image. A clip is all
        images of one object and session.
    keys
        The path or name of each example inside the data set, for sets that decode pixels on access.

    Examples
    --------
    >>> images = np.arange(3, dtype=np.uint8).reshape(3, 1, 1, 1)
    >>> pets = Dataset("pets", images, np.array([0, 1, 0]), ("cat", "dog"))
    >>> len(pets), pets.take(np.array([2, 0])).images.ravel().tolist()
    (3, [2, 0])
    >>> pets.fingerprint() == pets.take(np.array([1, 2, 0])).fingerprint()
    True
    """

    name: str
    images: Images
    labels: NDArray[np.int64]
    names: tuple[str, ...]
    objects: NDArray[np.int64] | None = None
    sessions: NDArray[np.int64] | None = None
    frames: NDArray[np.int64] | None = None
    keys: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        if len(self.images) != len(self.labels):
            raise ValueError(f"dataset {self.name!r}: {len(self.images)} images but {len(self.labels)} labels")
        if len(self.labels) and not 0 <= self.labels.min() <= self.labels.max() < len(self.names):
            raise ValueError(f"dataset {self.name!r}: labels must be indices into its {len(self.names)} names")
        for what in ("objects", "sessions", "frames", "keys"):
            column = getattr(self, what)
            if column is not None and len(column) != len(self.labels):
                raise ValueError(f"dataset {self.name!r}: {len(column)} {what} but {len(self.labels)} labels")

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, indices: NDArray[np.int64]) -> Dataset:
        """Return the examples at `indices`, in that order. Nothing is decoded."""
        indices = np.arange(len(self))[indices]
        return Dataset(
            self.name,
            _pick(self.images, indices),
            self.labels[indices],
            self.names,
            None if self.objects is None else self.objects[indices],
            None if self.sessions is None else self.sessions[indices],
            None if self.frames is None else self.frames[indices],
            None if self.keys is None else tuple([self.keys[i] for i in indices]),
        )

    def identities(self) -> list[str]:
        """Return the identity of each example, independent of where it is stored.

        The identity is its key if there is one, else the SHA-256 of its shape and pixels.
        """
        return list(self.keys) if self.keys is not None else list(self._pixel_marks)

    def fingerprint(self) -> str:
        """Return a hash of all classes and examples, independent of their stored order.

        A key alone would not show that a file was edited in place. Examples with keys are therefore hashed with their
        pixels if these are in memory, else with the sizes of their files.
        """
        return self._fingerprint

    @cached_property
    def _pixel_marks(self) -> tuple[str, ...]:
        return tuple([pixel_identity(image) for image in self.images])

    @cached_property
    def _fingerprint(self) -> str:
        rows = zip((self.names[label] for label in self.labels), self.identities(), self._contents(), strict=True)
        lines = sorted(repr(row).encode("utf-8", "surrogatepass") for row in rows)
        return hashlib.sha256(b"\n".join(lines)).hexdigest()

    def _contents(self) -> Sequence[object]:
        if self.keys is None:
            return [""] * len(self)
        if isinstance(self.images, np.ndarray):
            return self._pixel_marks
        sizes = getattr(self.images, "sizes", None)
        return [""] * len(self) if sizes is None else list(sizes())


def numbered(marks: Iterable[str]) -> list[str]:
    """Make identities unique: append a number to each one that occurred before.

    Examples
    --------
    >>> numbered(["a", "b", "a", "a"])
    ['a', 'b', 'a#2', 'a#3']
    """
    numbers: dict[str, int] = {}
    ids: dict[str, None] = {}
    for mark in marks:
        id = mark
        while id in ids:
            numbers[mark] = numbers.get(mark, 1) + 1
            id = f"{mark}#{numbers[mark]}"
        ids[id] = None
    return list(ids)


def pixel_identity(image: Pixels) -> str:
    """Return the SHA-256 of an image's shape and pixels.

    Examples
    --------
    >>> pixel_identity(np.zeros((2, 1, 1), np.uint8)) == pixel_identity(np.zeros((1, 2, 1), np.uint8))
    False
    """
    return hashlib.sha256(repr(image.shape).encode() + np.ascontiguousarray(image).tobytes()).hexdigest()


class View(Sequence[Pixels]):
    """A subset of a sequence of images, read on access."""

    def __init__(self, base: Sequence[Pixels], indices: NDArray[np.int64]) -> None:
        self._base = base
        self._indices = np.arange(len(base))[indices]

    def __len__(self) -> int:
        return len(self._indices)

    @overload
    def __getitem__(self, index: int) -> Pixels: ...
    @overload
    def __getitem__(self, index: slice) -> View: ...
    def __getitem__(self, index: int | slice) -> Pixels | View:
        if isinstance(index, slice):
            return View(self._base, self._indices[index])
        return self._base[int(self._indices[index])]

    def take(self, indices: NDArray[np.int64]) -> View:
        """Return the images at `indices`, without reading any."""
        return View(self._base, self._indices[indices])


def _pick(images: Images, indices: NDArray[np.int64]) -> Images:
    if isinstance(images, np.ndarray):
        return images[indices]
    take = getattr(images, "take", None)
    picked: Sequence[Pixels] = View(images, indices) if take is None else take(indices)
    return picked
