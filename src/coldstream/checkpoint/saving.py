"""The writing of a checkpoint in a thread of its own."""

from __future__ import annotations

import sys
import threading
import time
import weakref
from collections.abc import Callable

from coldstream.checkpoint.files import CheckpointError
from coldstream.checkpoint.lock import FolderLock

_POLL = 0.05


class Saving:
    """The writing of a checkpoint; `result` waits for it and raises its error.

    The interpreter waits for it before it exits. An error that nobody asked `result` for is raised by the learner's
    next `save`, or else printed.
    """

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._begun = threading.Lock()  # taken by who writes, or by who calls it off
        self._ended = threading.Event()
        self._error: BaseException | None = None
        self._untold: list[str] = []  # not the error itself, whose traceback holds this object
        weakref.finalize(self, _complain, self._untold)

    def run(self, work: Callable[[], None]) -> None:
        """Write in this thread; an error is the caller's."""
        self._begun.acquire(blocking=False)
        try:
            work()
        finally:
            self._ended.set()

    def start(self, work: Callable[[], None], lock: FolderLock) -> None:
        """Write in a new thread, to which the lock goes. It is not a daemon: the interpreter waits for it."""
        thread = self._thread = lock.thread = threading.Thread(target=self._run, args=(work,), name="checkpoint")
        try:
            thread.start()
        except RuntimeError:  # no thread can be started, for example at interpreter exit
            lock.thread = threading.current_thread()
            self._run(work)

    def call_off(self) -> bool:
        """Cancel a save that has not begun, after an interrupt; return whether it was cancelled."""
        if self._begun.acquire(blocking=False):
            self._ended.set()
            return True
        return False

    def _run(self, work: Callable[[], None]) -> None:
        if not self._begun.acquire(blocking=False):
            return
        try:
            work()
        except BaseException as error:
            self._error = error
            self._untold.append(str(error))
        finally:
            self._ended.set()

    def done(self) -> bool:
        """Return whether writing has ended, with or without an error."""
        thread = self._thread
        return self._ended.is_set() or thread is None or (thread.ident is not None and not thread.is_alive())

    def result(self, timeout: float | None = None) -> None:
        """Wait until the checkpoint is on disk; raise its error."""
        self._wait(timeout)
        if self._error is not None:
            self._untold.clear()
            raise self._error
        if not self._ended.is_set():
            raise CheckpointError(
                "the checkpoint was not written: its thread has ended, or is that of a parent process"
            )

    def settle(self) -> None:
        """Wait until writing has ended; raise its error unless `result` did."""
        self._wait(None)
        if self._untold:
            self.result()

    def _wait(self, timeout: float | None) -> None:
        """Wait for the thread, which may also end without saying so, or have been left behind in a parent process."""
        end = None if timeout is None else time.monotonic() + timeout
        while not self.done():
            left = _POLL if end is None else min(_POLL, end - time.monotonic())
            if left <= 0:
                raise TimeoutError(f"the checkpoint was not on disk after {timeout} seconds")
            self._ended.wait(left)


def _complain(errors: list[str]) -> None:
    for error in errors:
        print(f"coldstream: a checkpoint was not written: {error}", file=sys.stderr)
