"""The walk of one labelled image, as docs/architecture.md has it: classes and files that `learn_one` goes through."""

import inspect
import re
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import coldstream
from coldstream import CSSL, ColdStart
from coldstream.learners import Batch, Example
from coldstream.learners.method import Method

PACKAGE = Path(coldstream.__file__).parent
PAGE = PACKAGE.parents[1] / "docs" / "architecture.md"


def has_image(value):
    """Whether an argument is an image of the walk, a batch of them, or a new example or a list of them."""
    if isinstance(value, (list, tuple)):
        return any(map(has_image, value))
    if isinstance(value, (Example, Batch)):
        return True
    return isinstance(value, (np.ndarray, torch.Tensor)) and value.shape[-3:] in [(12, 12, 3), (3, 12, 12)]


def walk(kind):
    """Return the changes of class level, the files given the image and the files that run, while one is learned.

    A file is given the image where one of its functions has it as an argument, `self` apart.
    """
    images = np.random.default_rng(0).integers(0, 256, (121, 12, 12, 3), dtype=np.uint8)
    learner = kind(model="resnet8-16", replay=20, prefetch=False)
    learner.learn_many(images[:120], [i % 5 for i in range(120)])
    owners = {
        inspect.unwrap(method).__code__: owner
        for owner in kind.__mro__
        if issubclass(owner, Method)
        for method in vars(owner).values()
        if hasattr(method, "__code__")
    }
    changes, given, files, levels = [], set(), set(), {}

    def trace(frame, event, argument):
        path = Path(frame.f_code.co_filename)
        if PACKAGE not in path.parents:
            return
        files.add(str(path.relative_to(PACKAGE)))
        code = frame.f_code
        names = code.co_varnames[
            : code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & inspect.CO_VARARGS)
        ]
        if any(has_image(frame.f_locals.get(name)) for name in names if name != "self"):
            given.add(str(path.relative_to(PACKAGE)))
        above = frame.f_back
        while above is not None and above not in levels:
            above = above.f_back
        caller = levels.get(above)
        owner = owners.get(frame.f_code)
        if owner is not None:
            levels[frame] = owner
            if caller is not None and owner is not caller:
                changes.append(f"{caller.__name__} -> {owner.__name__}.{frame.f_code.co_name}")

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        learner.learn_one(images[120], 0)
    finally:
        sys.settrace(before)
    return changes, given, files


@pytest.mark.parametrize("kind", [CSSL, ColdStart])
def test_as_the_page_says(kind):
    changes, given, files = walk(kind)
    row = re.search(rf"^\| `{kind.__name__}` \| (\d+) \| (\d+) \| (\d+) \|$", PAGE.read_text(), re.MULTILINE)
    assert row is not None
    counted = len(changes), len(given), len(files)
    assert counted == tuple(map(int, row.groups())), (changes, sorted(given), sorted(files))
