"""The contract of a learner as functions that can fail, a file per subject; `check_learner` runs them on your own.

>>> from coldstream import ColdStart
>>> from coldstream.checks import check_learner
>>> check_learner(lambda **settings: ColdStart(**{"replay": 4, "capacity": 12, **settings}))
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from coldstream.checks import (
    all_or_nothing,
    answers,
    bad_input,
    base_init,
    checkpoints,
    determinism,
    learning,
    rehearsing,
    settings,
    tasks,
)
from coldstream.checks.fixtures import Factory

SUBJECTS = (
    all_or_nothing,
    answers,
    bad_input,
    base_init,
    checkpoints,
    determinism,
    learning,
    rehearsing,
    settings,
    tasks,
)
"""Every function `check_...` of these modules is a check."""
_CHECKS: dict[str, Callable[[Factory], None]] = {
    name: check for subject in SUBJECTS for name, check in vars(subject).items() if name.startswith("check_")
}


def __getattr__(name: str) -> Any:
    """Return a check by its name."""
    if name not in _CHECKS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _CHECKS[name]


def learner_checks() -> Iterator[Callable[[Factory], None]]:
    """Yield every check in alphabetical order, for tests that cross learners with checks."""
    for name in sorted(_CHECKS):
        yield _CHECKS[name]


def check_learner(factory: Factory) -> None:
    """Run every check on the learners that `factory` makes; an AssertionError says which one failed and why.

    Parameters
    ----------
    factory
        Returns a new learner that has learned nothing. It should be small and fast, with an open class set, and
        accept 12x12 colour images. If it takes settings by name, as
        ``lambda **settings: Mine(**{"replay": 4, **settings})`` does, the learner is also checked with settings
        changed from their defaults.
    """
    for check in learner_checks():
        try:
            check(factory)
        except AssertionError as error:
            raise AssertionError(f"{check.__name__}: {error}") from error
