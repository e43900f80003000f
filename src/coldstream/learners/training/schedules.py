"""The learning rate of a new example, as a formula of its class's own counter k = 0, 1, 2, ...

Set from a formula at every step. One torch scheduler per class on one optimiser does not work: newer PyTorch's
schedulers are chainable, and each multiplies what another has set.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from coldstream.parsing import Call, parse_call, unknown

Schedule = Callable[[int, int | None], float]
"""(k, n) -> rate, for the k-th example of a class of which n are known to come (None: not known)."""


def constant(rate: float = 0.01) -> Schedule:
    """The same rate always."""
    return lambda k, n: rate


def linear(start: float = 0.1, end: float = 0.001) -> Schedule:
    """From a class's first to its last example, by known counts: start + (end - start) k / (n - 1)."""

    def rate(k: int, n: int | None) -> float:
        if n is None:
            raise ValueError("rate 'linear' needs the class counts: pass counts={label: number, ...}")
        return start + (end - start) * min(1.0, k / (n - 1)) if n > 1 else start

    return rate


def remind(start: float = 0.1, end: float = 0.001, every: float = 100, over: float = 1300) -> Schedule:
    """REMIND's steps: start * g**floor(k / every), where g brings it to `end` after `over` examples."""
    factor = (end / start) ** (every / over)
    return lambda k, n: start * factor ** math.floor(k / every)


def inverse_sqrt(start: float = 0.1, scale: float = 100) -> Schedule:
    """No counts needed: start / sqrt(1 + k / scale), so a class that goes on coming slows down by itself."""
    return lambda k, n: start / math.sqrt(1 + k / scale)


SCHEDULES: dict[str, Callable[..., Schedule]] = {
    "constant": constant,
    "linear": linear,
    "remind": remind,
    "inverse-sqrt": inverse_sqrt,
}


def get_schedule(text: str | float) -> Schedule:
    """Return the schedule that `text` names, such as ``linear(0.1, 0.001)``; a number is a constant rate."""
    if isinstance(text, bool) or not isinstance(text, (str, int, float)):
        raise ValueError(f"rate is a schedule such as 'inverse-sqrt(0.1)', or a number, not {text!r}")
    call = Call("constant", (float(text),)) if isinstance(text, (int, float)) else parse_call(text, "rate")
    if call.name not in SCHEDULES:
        raise unknown("rate", call.name, SCHEDULES)
    values = [*call.args, *(value for _, value in call.kwargs)]
    if any(isinstance(value, str) or not 0 < value < math.inf for value in values):
        raise ValueError(f"rate {text!r}: every argument is a number above 0")
    try:
        return SCHEDULES[call.name](*call.args, **dict(call.kwargs))
    except TypeError as error:
        raise ValueError(f"rate {text!r}: {error}") from None
