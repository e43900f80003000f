"""Addresses of results: a hash of everything that matters, so that equal work is shared and other work never."""

from __future__ import annotations

import hashlib
import inspect
import json
from functools import lru_cache
from pathlib import Path
from typing import Any

import coldstream

_FILES = ("randomness.py", "images.py", "labels.py", "checkpoint.py")
_ROOMS = ("data", "streams", "replay", "augment", "models", "learners", "metrics")


@lru_cache(maxsize=1)
def code_version() -> str:
    """Return a hash of the source of every part of the package that results depend on."""
    root = Path(coldstream.__file__).parent
    files = [root / name for name in _FILES] + [file for room in _ROOMS for file in sorted(root.glob(f"{room}/*.py"))]
    digest = hashlib.sha256()
    for file in files:
        digest.update(str(file.relative_to(root)).encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def source_version(kind: type) -> str | None:
    """Return a hash of the file that a learner of the user's is written in; None for our own."""
    if kind.__module__.startswith("coldstream."):
        return None
    return hashlib.sha256(Path(inspect.getfile(kind)).read_bytes()).hexdigest()[:16]


def key_of(facts: dict[str, Any]) -> str:
    """Return the address of a result that depends on these facts and on the code."""
    text = json.dumps({**facts, "code": code_version()}, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:20]
