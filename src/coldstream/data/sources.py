"""Where data sets are looked for, and how to get those that are missing."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from coldstream.data.dataset import Dataset

    Pair = tuple[Dataset, Dataset]
VARIABLE = "COLDSTREAM_DATA"


class MissingData(ValueError):
    """A data set was not at any of its places; the message says how to get it."""


def how_to_download(name: str) -> str:
    """Return the command that downloads a set, for messages.

    Examples
    --------
    >>> print(how_to_download("cifar10"))
    coldstream data get cifar10 (in Python: download=True)
    """
    return f"coldstream data get {name} (in Python: download=True)"


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
    """A path below the data root, possibly with a `*`, and its reader."""

    pattern: str
    read: Callable[[Path], Pair]

    def find(self, root: Path) -> Path | None:
        """Return the path that matches, or None; several matches are an error."""
        matches = sorted(root.glob(self.pattern))
        if len(matches) > 1:
            which = ", ".join(path.name for path in matches)
            raise ValueError(f"several of {self.pattern} in {str(root)!r}: {which}; keep one, or give its path")
        return matches[0] if matches else None


@dataclass(frozen=True)
class Source:
    """An entry of the registry: what a set is, where it is looked for and how to get it.

    Parameters
    ----------
    title, classes, train, test
        The official set and its numbers of classes and images.
    how
        How to get it by hand, for messages.
    places
        Where it may be; the first that exists is read.
    fetch
        Downloads it below the data root, if that is possible.
    built_in
        Returns it, for a set that needs no files.
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
        """Return the first place that exists, and its path."""
        for place in self.places:
            if (path := place.find(root)) is not None:
                return place, path
        return None

    def instructions(self, name: str) -> str:
        """Return how to get it under its name, for messages."""
        return f"{how_to_download(name)}; or {self.how}" if self.fetch is not None else self.how

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
