"""The order of the classes: drawn from a seed, given by name, or kept in a file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import yaml

from coldstream.data import Dataset
from coldstream.parsing import unknown
from coldstream.randomness import generator


def draw_class_order(dataset: Dataset, seed: int) -> list[str]:
    """Return the names of the classes that have examples, in the order that all class orderings use for this seed.

    Examples
    --------
    >>> from coldstream.data import digits
    >>> train, _ = digits()
    >>> sorted(draw_class_order(train, 0)) == sorted(train.names)
    True
    """
    present = sorted(dataset.names[label] for label in np.unique(dataset.labels))
    return [present[place] for place in generator(seed, 0, "class order").permutation(len(present))]


def check_class_order(dataset: Dataset, names: Sequence[str]) -> list[str]:
    """Return the names that have examples, in the order given; refuse unknown, missing and repeated ones.

    A class that the data set knows but has no examples of may be named or not: one file serves a whole data set
    and its subsets.
    """
    if isinstance(names, str):
        raise ValueError(f"class_order is a list of class names, not {names!r}; read_class_order reads a file")
    present = {dataset.names[label] for label in np.unique(dataset.labels)}
    wrong = [name for name in names if not isinstance(name, str) or name not in dataset.names]
    if wrong:
        also = f" (also unknown: {_list(wrong[1:])})" if len(wrong) > 1 else ""
        raise ValueError(f"class_order: {unknown('class', wrong[0], dataset.names)}{also}")
    if twice := sorted({name for name in names if list(names).count(name) > 1}):
        raise ValueError(f"class_order names {_list(twice)} more than once")
    if missing := sorted(present - set(names)):
        raise ValueError(f"class_order lacks {_list(missing)}, of which {dataset.name!r} has examples")
    return [name for name in names if name in present]


def read_class_order(path: str | Path) -> list[str]:
    """Read a class order from YAML (``.yaml``, ``.yml``: a list of names) or text (one name per line).

    In text, empty lines and lines that start with ``#`` are skipped; a ``#`` within a line belongs to the name.
    """
    path = Path(path)
    if not path.is_file():
        raise ValueError(f"there is no class order file {str(path)!r}")
    try:
        text = path.read_text(encoding="utf-8-sig")
        # BaseLoader leaves every scalar a string: classes called 007, no or 1e3 keep their names.
        names = yaml.load(text, yaml.BaseLoader) if _is_yaml(path) else _lines(text)
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 text: {error}") from error
    except yaml.YAMLError as error:
        raise ValueError(f"{path} is not YAML: {error}") from error
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError(f"{path}: a class order is a list of class names, one '- name' per line")
    if not names:
        raise ValueError(f"{path} names no classes")
    return names


def _is_yaml(path: Path) -> bool:
    return path.suffix.lower() in (".yaml", ".yml")


def _lines(text: str) -> list[str]:
    stripped = [line.strip() for line in text.split("\n")]
    return [line for line in stripped if line and not line.startswith("#")]


def _list(names: Sequence[object]) -> str:
    return ", ".join(map(repr, names))
