"""All or nothing: a change of a learner is completed, or the learner refuses to go on."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any

_HELD: tuple[int, ...] = (signal.SIGINT, signal.SIGTERM)


class UnfinishedChange(RuntimeError):
    """The learner was left in the middle of a change."""


class UnusableExample(FloatingPointError):
    """A new example that a method cannot learn, raised before the method has changed anything."""


class HeldSignals:
    """Holds Ctrl-C and SIGTERM back while a change is made; they take effect when it is complete.

    The second signal of a kind takes effect at once, so that a change that never ends can be stopped. Python
    delivers signals to the main thread only: elsewhere there is nothing to hold.
    """

    def __init__(self) -> None:
        self._handlers: dict[int, Callable[[int, FrameType | None], Any]] = {}
        self._arrived: list[int] = []
        self._holding = False

    def __enter__(self) -> HeldSignals:
        if threading.current_thread() is not threading.main_thread():
            return self
        for number in _HELD:
            handler = signal.getsignal(number)
            if callable(handler):
                self._handlers[number] = handler
        self._holding = True
        try:
            for number in self._handlers:
                signal.signal(number, self._hold)
        except BaseException:
            self._release()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._handlers:
            self._release()
            self._deliver()

    def _deliver(self) -> None:
        """Call the handlers of the signals that arrived: all of them, also where one raises."""
        if self._arrived:
            number = self._arrived.pop()
            try:
                self._handlers[number](number, None)
            finally:
                self._deliver()

    def _release(self) -> None:
        self._holding = False  # from here on `_hold` does what the handler that it replaced does
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    def _hold(self, number: int, frame: FrameType | None) -> None:
        if self._holding and number not in self._arrived:
            self._arrived.append(number)
        else:
            self._handlers[number](number, frame)


class Changes:
    """Knows whether the last change of a learner was completed.

    Examples
    --------
    >>> changes = Changes()
    >>> try:
    ...     with changes.change("learn_one"):
    ...         raise MemoryError
    ... except MemoryError:
    ...     pass
    >>> changes.check()
    Traceback (most recent call last):
    ...
    coldstream.learners.changes.UnfinishedChange: learn_one was cut off in the middle of a change...
    """

    def __init__(self) -> None:
        self._unfinished: str | None = None

    @contextmanager
    def change(self, verb: str) -> Iterator[None]:
        """Mark the learner as unfinished until the body has ended without an error."""
        with HeldSignals():
            self._unfinished = verb
            yield
            self._unfinished = None

    def undone(self) -> None:
        """Mark the change as rolled back."""
        self._unfinished = None

    def check(self) -> None:
        """Refuse a learner that was left in the middle of a change."""
        if self._unfinished is not None:
            raise UnfinishedChange(
                f"{self._unfinished} was cut off in the middle of a change, so this learner is neither as before nor "
                "as after: load its last checkpoint, or begin a new one"
            )
