"""A learner of whatever kind a checkpoint holds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from coldstream.checkpoint import read_manifest
from coldstream.learners import LEARNERS
from coldstream.learners.base import Learner


def load_learner(path: str | Path, kind: Callable[[str], type[Learner[Any]]] | None = None) -> Learner[Any]:
    """Return the learner of a checkpoint; those of the package are known by the name of their class.

    A checkpoint runs no code, so that it cannot say where a class of your own is: `kind` gives it by name.
    """
    name = read_manifest(Path(path)).kind
    known = {learner.__name__: learner for learner in LEARNERS.values()}
    if kind is not None:
        return kind(name).load(path)
    if name not in known:
        raise ValueError(
            f"checkpoint {str(path)!r} is of a {name!r}, which is no learner of this package: say which class it is"
        )
    return known[name].load(path)
