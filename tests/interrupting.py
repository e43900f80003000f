"""Exceptions at chosen lines of Coldstream, also in threads that it starts (`coldstream.interrupts`: in one call)."""

import signal
import sys
import threading
from contextlib import contextmanager
from pathlib import Path

import coldstream
from coldstream.interrupts import _with_exits, first_and_last

ROOT = str(Path(coldstream.__file__).parent)


class Injected(KeyboardInterrupt):
    """As Ctrl-C: no `except Exception` catches it."""


class Tracer:
    """Counts the lines that are run in Coldstream, and raises before the one with number `at`."""

    def __init__(self, at=None):
        self.at, self.count = at, 0
        self.lines = []

    def __call__(self, frame, event, argument):
        if not frame.f_code.co_filename.startswith(ROOT) or frame.f_code.co_name == "_complain":
            return None  # a finaliser, whose errors Python ignores, is run between any two lines
        if event == "line" and frame.f_lasti not in _with_exits(frame.f_code):
            self.count += 1
            if self.at is None:
                self.lines.append((frame.f_code.co_filename, frame.f_lineno))
            if self.count - 1 == self.at:
                raise Injected(f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}")
        return self

    @contextmanager
    def here(self):
        """Trace this thread."""
        before = sys.gettrace()
        sys.settrace(self)
        try:
            yield self
        finally:
            sys.settrace(before)

    @contextmanager
    def elsewhere(self):
        """Trace the threads that are started meanwhile."""
        threading.settrace(self)
        try:
            yield self
        finally:
            threading.settrace(None)

    def moments(self):
        """Return the first and the last time that each line was run, of those that were counted."""
        return first_and_last(self.lines)


@contextmanager
def within(seconds):
    """Raise a TimeoutError in the main thread where something takes longer."""

    def late(*arguments):
        raise TimeoutError(f"not done in {seconds} seconds")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
