"""Interrupts at chosen lines of a call: what the checks of all or nothing are made with."""

from __future__ import annotations

import dis
import signal
import sys
import threading
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

_PACKAGE = str(Path(__file__).parent)
_HERE = __file__


class Interrupt(BaseException):
    """Raised in the middle of a call. Like KeyboardInterrupt it is no Exception, which code may suppress."""


def count_lines(call: Callable[[], object]) -> int:
    """Return how many lines of this package, and of methods derived from it, the call runs through."""
    return _run(call, None)


def interrupted_at(line: int, call: Callable[[], object]) -> bool:
    """Run the call and raise `Interrupt` at its line with this number, from 0; return whether it came to that.

    Signal handlers are put back: a line of `HeldSignals` itself may be the one.
    """
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        _run(call, line)
    except Interrupt:
        return True
    finally:
        if threading.current_thread() is threading.main_thread():
            for number, handler in handlers.items():
                signal.signal(number, handler)
    return False


def _run(call: Callable[[], object], at: int | None) -> int:
    passed = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal passed
        if frame.f_code.co_filename == _HERE or not _is_traced(frame):
            return None
        if event == "line" and frame.f_lasti not in _with_exits(frame.f_code):
            passed += 1
            if at is not None and passed == at + 1:
                raise Interrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return passed


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


def _is_traced(frame: FrameType) -> bool:
    return frame.f_code.co_filename.startswith(_PACKAGE)
