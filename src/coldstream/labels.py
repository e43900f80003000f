"""Labels as users give them, and the open set of classes that they make up."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch

Label = str | int | bool | tuple[Any, ...]
"""A str, int or bool, or a tuple of these."""


def as_label(value: object) -> Label:
    """Return a label in its plain Python form, or refuse it with a ValueError.

    Examples
    --------
    >>> as_label(np.int64(3)), as_label(("bird", True))
    (3, ('bird', True))
    """
    if isinstance(value, (np.generic, torch.Tensor, np.ndarray)) and value.ndim == 0:
        value = value.item()
    if isinstance(value, str):
        return str(value)
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, tuple) and value:
        return tuple(as_label(part) for part in value)
    raise ValueError(
        f"a label is a str, int or bool, or a tuple of these; got {type(value).__name__}: {str(value)[:60]!r}"
    )


def spelled(label: Label) -> tuple[Any, ...]:
    """Tell True from 1, which Python takes for equal."""
    if isinstance(label, tuple):
        return tuple(spelled(part) for part in label)
    return (type(label).__name__, label)


class Classes:
    """The classes in first-seen order. A class keeps its row of the head for good.

    `counts` are the examples learned under each label, less those undone, forgotten or relabelled: a class
    whose count is zero is not predicted. A merged class's row stays, and what it predicts counts for the class
    it went into.

    Parameters
    ----------
    limit
        The number of classes where it is known in advance; the set is open where None.
    """

    def __init__(self, limit: int | None = None) -> None:
        self.limit = limit
        self.labels: list[Label] = []
        self.counts: list[int] = []
        self.updates: list[int] = []
        self.into: list[int] = []
        self._rows: dict[Label, int] = {}

    def __len__(self) -> int:
        return len(self.labels)

    def row(self, label: Label) -> int | None:
        """Return the row of a label's class, or None for a label not seen yet."""
        row = self._rows.get(label)
        return None if row is None else self.into[row]

    def seen(self) -> list[int]:
        """Return the rows of the classes that can be predicted."""
        return [row for row, into in enumerate(self.into) if row == into and self.counts[row] > 0]

    def check(self, labels: Iterable[Label]) -> None:
        """Refuse, before anything changes, labels for which there is no room or that cannot be told apart."""
        fresh: dict[Label, Label] = {}
        for label in labels:
            row = self._rows.get(label)
            known = self.labels[row] if row is not None else fresh.setdefault(label, label)
            if spelled(known) != spelled(label):
                raise ValueError(f"label {label!r} cannot be told from the known label {known!r}; use one of them")
        if self.limit is not None and len(self) + len(fresh) > self.limit:
            raise ValueError(
                f"label {[*fresh][self.limit - len(self)]!r} would be class {self.limit + 1} of a learner made for "
                f"classes={self.limit}; known: {self.labels[:8]}"
            )

    def enter(self, label: Label) -> int:
        """Return the row of a label's class, a new one for a new label."""
        row = self.row(label)
        if row is None:
            row = len(self.labels)
            self._rows[label] = row
            self.labels.append(label)
            self.counts.append(0)
            self.updates.append(0)
            self.into.append(row)
        return row

    def rename(self, old: Label, new: Label) -> None:
        """Give a class another label."""
        row = self._known(old)
        if self.labels[row] != old:
            raise ValueError(f"class {old!r} was merged into {self.labels[row]!r}; rename that one")
        taken = self._rows.get(new)
        if taken is None:
            del self._rows[old]
        elif taken != row and self.into[taken] == row:  # a name that was merged into this class: they change places
            self.labels[taken], self._rows[old] = old, taken
        else:
            raise ValueError(f"cannot rename {old!r} to {new!r}: that class exists; use merge_classes to join them")
        self._rows[new] = row
        self.labels[row] = new

    def merge(self, source: Label, into: Label) -> tuple[int, int]:
        """Let one class count as another from now on; return both rows."""
        old, new = self._known(source), self._known(into)
        if old == new:
            raise ValueError(f"cannot merge class {source!r} into itself")
        self.counts[new] += self.counts[old]
        self.counts[old] = 0
        self.into = [new if row == old else row for row in self.into]
        return old, new

    def _known(self, label: Label) -> int:
        row = self.row(label)
        if row is None:
            raise ValueError(f"there is no class {label!r}; known: {[self.labels[row] for row in self.seen()][:8]}")
        return row

    def state(self) -> dict[str, Any]:
        """Return a JSON-ready form; a tuple becomes a list."""
        return {"labels": self.labels, "counts": self.counts, "updates": self.updates, "into": self.into}

    def restore(self, state: dict[str, Any]) -> None:
        """Take over what `state` gave."""
        self.labels = [from_json(label) for label in state["labels"]]
        self.counts = [int(n) for n in state["counts"]]
        self.updates = [int(n) for n in state["updates"]]
        self.into = [int(row) for row in state["into"]]
        self._rows = {label: row for row, label in enumerate(self.labels)}


def from_json(label: Any) -> Label:
    """Return a label that went through JSON."""
    return tuple(from_json(part) for part in label) if isinstance(label, list) else as_label(label)
