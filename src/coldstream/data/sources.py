"""Where data sets are looked for, and what is said when one is not there."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from coldstream.data.dataset import Dataset

Pair = tuple[Dataset, Dataset]
VARIABLE = "COLDSTREAM_DATA"


class MissingData(ValueError):
    """A data set is not where it was looked for; the message says how to get it."""


def data_root(root: str | Path | None = None) -> Path:
    """Return the folder of data sets: `root`, else COLDSTREAM_DATA, else one in the user's cache.

    Examples
    --------
    >>> data_root("sets").as_posix()
    'sets'
    """
    if root is not None:
        return Path(root).expanduser()
    if os.environ.get(VARIABLE):
        return Path(os.environ[VARIABLE]).expanduser()
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "coldstream" / "data"


@dataclass(frozen=True)
class Place:
    """A path below the data root, which may have a `*`, and what reads it."""

    pattern: str
    read: Callable[[Path], Pair]

    def find(self, root: Path) -> Path | None:
        """Return what matches, or None; two matches are an error, because neither is the right one."""
        found = sorted(root.glob(self.pattern))
        if len(found) > 1:
            which = ", ".join(path.name for path in found)
            raise ValueError(f"several of {self.pattern} in {str(root)!r}: {which}; keep one, or give its path")
        return found[0] if found else None


@dataclass(frozen=True)
class Source:
    """One line of the registry: what a set is, where it is looked for and how one gets it.

    Parameters
    ----------
    title, classes, train, test
        What the official set is, and the numbers of its classes and images.
    how
        How to get it, for messages.
    places
        Where it may be, the first that is there is read.
    fetch
        What downloads it below the data root, where that is possible.
    built_in
        What returns it, for a set that needs no files.
    """

    title: str
    classes: int
    train: int
    test: int
    how: str = ""
    places: tuple[Place, ...] = ()
    fetch: Callable[[Path], None] | None = None
    built_in: Callable[[], Pair] | None = None

    def find(self, root: Path) -> tuple[Place, Path] | None:
        """Return the place that is there, and its path."""
        for place in self.places:
            if (path := place.find(root)) is not None:
                return place, path
        return None

    def where(self) -> str:
        """Return the places, for messages."""
        return " or ".join(place.pattern for place in self.places)


@dataclass(frozen=True)
class Entry:
    """A data set as a list shows it: the official numbers, and whether and where it is here."""

    name: str
    title: str
    classes: int
    train: int
    test: int
    present: bool
    where: str
    how: str
