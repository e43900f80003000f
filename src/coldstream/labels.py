"""Labels as users give them, and the growing set of classes."""

from __future__ import annotations

import difflib
import reprlib
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import numpy as np

from coldstream._lazy import is_tensor

Label = str | int | bool | tuple[Any, ...]
"""A str, int or bool, or a tuple of these."""


MAX_TEXT = 1000
"""Characters of a str that is a label or an id, or a part of a label."""
MAX_PARTS = 100
"""Values in a tuple, those in the tuples inside it included."""
MAX_DEPTH = 10
"""Tuples inside tuples."""


def as_label(value: object) -> Label:
    """Return a label in its plain Python form, or refuse it with a ValueError.

    A str has at most `MAX_TEXT` characters, an int 64 bits, a tuple `MAX_PARTS` values in `MAX_DEPTH` levels.

    Examples
    --------
    >>> as_label(np.int64(3)), as_label(("bird", True))
    (3, ('bird', True))
    """
    parts: list[object] = []
    label = _as_label(value, parts, MAX_DEPTH)
    if len(parts) > MAX_PARTS:
        raise ValueError(f"a label has at most {MAX_PARTS} values in its tuples, not {len(parts):,}")
    return label


def _as_label(value: object, parts: list[object], depth: int) -> Label:
    parts.append(value)
    if (isinstance(value, np.generic | np.ndarray) or is_tensor(value)) and value.ndim == 0:
        with suppress(RuntimeError):  # a tensor without a value
            value = value.item()
    if isinstance(value, str):
        if len(value) > MAX_TEXT:
            raise ValueError(f"a label has at most {MAX_TEXT:,} characters, not {len(value):,}: {shown(value)}")
        return str(value)
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        if not -(1 << 63) <= value < 1 << 64:
            raise ValueError(f"a label that is an int has at most 64 bits, not {value.bit_length():,}")
        return int(value)
    if isinstance(value, tuple) and value:
        if depth == 0:
            raise ValueError(f"a label has at most {MAX_DEPTH} levels of tuples in tuples: {shown(value)}")
        if len(value) > MAX_PARTS:
            raise ValueError(f"a label has at most {MAX_PARTS} values in its tuples, not {len(value):,}")
        return tuple(_as_label(part, parts, depth - 1) for part in value)
    raise ValueError(
        f"a label is a str, int or bool, or a tuple of these; got {type(value).__name__}: {shown(value)}"
    )


def shown(value: object) -> str:
    """Return a short form of any value for a message.

    Examples
    --------
    >>> shown("rose"), shown(10**5000)
    ("'rose'", '<int>')
    """
    try:
        return _SHORT.repr(value)
    except Exception:  # ints of thousands of digits, deep nesting, a repr that fails
        return f"<{type(value).__name__}>"


_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = 60


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
        """Refuse labels beyond the limit of classes or equal to a known label of another type; change nothing."""
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

    def check_rename(self, old: Label, new: Label) -> None:
        """Refuse to give a class a label that another class has."""
        row, taken = self._known(old), self._rows.get(new)
        if self.labels[row] != old:
            raise ValueError(f"class {old!r} was merged into {self.labels[row]!r}; rename that one")
        if taken is not None and (taken == row or self.into[taken] != row):
            raise ValueError(f"cannot rename {old!r} to {new!r}: that class exists; use merge_classes to join them")

    def rename(self, old: Label, new: Label) -> None:
        """Give a class another label, which `check_rename` accepts."""
        row, taken = self._known(old), self._rows.get(new)
        if taken is None:
            del self._rows[old]
        else:  # a name that was merged into this class: swap them
            self.labels[taken], self._rows[old] = old, taken
        self._rows[new] = row
        self.labels[row] = new

    def rows_to_merge(self, source: Label, into: Label) -> tuple[int, int]:
        """Return the rows of two classes; refuse to merge one into itself."""
        old, new = self._known(source), self._known(into)
        if old == new:
            raise ValueError(f"cannot merge class {source!r} into itself")
        return old, new

    def merge(self, old: int, new: int) -> None:
        """Count the class of one row as that of another from now on."""
        self.counts[new] += self.counts[old]
        self.counts[old] = 0
        self.into = [new if row == old else row for row in self.into]

    def _known(self, label: Label) -> int:
        row = self.row(label)
        if row is None:
            known = {str(self.labels[row]): self.labels[row] for row in self.seen()}
            near = difflib.get_close_matches(str(label), known, n=1, cutoff=0.5)
            hint = f" did you mean {known[near[0]]!r}?" if near else ""
            raise ValueError(f"there is no class {label!r};{hint} known: {[*known.values()][:8]}")
        return row

    def state(self) -> dict[str, Any]:
        """Return a JSON-ready form; a tuple becomes a list."""
        return {"labels": self.labels, "counts": self.counts, "updates": self.updates, "into": self.into}

    def restore(self, state: dict[str, Any]) -> None:
        """Restore what `state` returned."""
        self.labels = [from_json(label) for label in state["labels"]]
        self.counts = [int(n) for n in state["counts"]]
        self.updates = [int(n) for n in state["updates"]]
        self.into = [int(row) for row in state["into"]]
        self._rows = {label: row for row, label in enumerate(self.labels)}


def from_json(label: Any) -> Label:
    """Return a label that went through JSON."""
    return tuple(from_json(part) for part in label) if isinstance(label, list) else as_label(label)
