"""Interrupt a call at chosen lines: for the checks of all or nothing."""

from __future__ import annotations

import dis
import itertools
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

_PACKAGE = str(Path(__file__).parent)
_HERE = __file__
Line = tuple[str, int]
"""A file and the number of a line in it."""


class Interrupt(BaseException):
    """Raised in the middle of a call. Like KeyboardInterrupt it is no Exception, which code may suppress."""


def lines_run(call: Callable[[], object], *, started: bool = False, files: Sequence[str] = ()) -> list[Line]:
    """Return the lines that a call runs through in this package and in `files`, in order.

    With `started`, those that run in threads which the call starts, instead of those in its own.
    """
    lines: list[Line] = []
    _trace(call, lines.append, started, files)
    return lines


def interrupted_at(
    place: int, call: Callable[[], object], *, started: bool = False, files: Sequence[str] = ()
) -> bool:
    """Run the call and raise `Interrupt` at the line in this place of `lines_run`; return whether it was reached.

    Signal handlers are put back: a line of `HeldSignals` itself may be the one.
    """
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    passed = itertools.count()

    def interrupt(line: Line) -> None:
        if next(passed) == place:
            raise Interrupt

    try:
        _trace(call, interrupt, started, files)
    except Interrupt:
        return True
    finally:
        if threading.current_thread() is threading.main_thread():
            for number, handler in handlers.items():
                signal.signal(number, handler)
    return False


def first_and_last(lines: Sequence[Line]) -> list[int]:
    """Return the places at which each line is run for the first and for the last time."""
    first = {line: place for place, line in reversed([*enumerate(lines)])}
    last = {line: place for place, line in enumerate(lines)}
    return sorted({*first.values(), *last.values()})


def _trace(call: Callable[[], object], reached: Callable[[Line], None], started: bool, files: Sequence[str]) -> None:
    """Run the call, and say which lines it has reached before they are run."""
    traced = (_PACKAGE, *files)

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        file = frame.f_code.co_filename
        if file == _HERE or not file.startswith(traced):
            return None
        if event == "line" and frame.f_lasti not in _with_exits(frame.f_code):
            reached((file, frame.f_lineno))
        return trace

    if started:
        threading.settrace(trace)
        try:
            call()
        finally:
            threading.settrace(None)
        return
    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)


@cache
def _with_exits(code: CodeType) -> frozenset[int]:
    """Return where the code begins to leave a with statement.

    Python delivers no signal there: it checks for them once the lock, say, has been released.
    """
    steps = [step for step in dis.get_instructions(code) if step.opname not in ("CACHE", "PRECALL")]
    exits = set()
    for i, last in enumerate(steps):
        before = steps[max(0, i - 4) : i]
        if (
            last.opname == "CALL"
            and [step.argval for step in before if step.opname == "LOAD_CONST"][-3:] == [None] * 3
        ):
            first = before[0] if before[0].opname == "SWAP" else before[1]  # a value that is returned is put below
            exits.add(first.offset)
    return frozenset(exits)
