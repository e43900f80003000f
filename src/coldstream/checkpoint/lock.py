"""The right to write into a checkpoint's folder: of one thread of one process at a time.

Between processes it is an flock on a file in the folder, which ends with the process however that ends. The file says
which process it is, and is removed with the lock. Within a process threads wait for each other. A lock that an
interrupt left behind is taken over: a thread is in one save at a time, so that a lock of the thread that asks, or of
one that has ended, is of a save that is no more.
"""

from __future__ import annotations

import fcntl
import json
import os
import platform
import threading
import time
import weakref
from contextlib import suppress
from pathlib import Path

from coldstream.checkpoint.files import CheckpointError

LOCK = "lock"
_NAMELESS = 1.0
"""Seconds within which the holder of a lock has written its name."""
_POLL = 0.002

_guard = threading.Lock()
_locks: weakref.WeakValueDictionary[str, FolderLock] = weakref.WeakValueDictionary()
"""The locks of this process, by resolved folder."""


class FolderLock:
    """The lock of one folder; `thread` is the one that writes or is about to."""

    def __init__(self, folder: Path) -> None:
        self.thread = threading.current_thread()
        self._path = folder / LOCK
        self._close: weakref.finalize | None = None  # type: ignore[type-arg]

    @property
    def held(self) -> bool:
        """Whether this is still the lock of the folder."""
        if self._close is None or (alive := self._close.peek()) is None:
            return False
        try:
            return os.path.samestat(os.fstat(alive[2][0]), os.stat(self._path, follow_symlinks=False))
        except OSError:
            return False

    @property
    def _left(self) -> bool:
        """Whether the save that took the lock has ended without giving it back."""
        started = self.thread.ident is not None
        return self.thread is threading.current_thread() or (started and not self.thread.is_alive())

    def take(self) -> bool:
        """Take the lock from all processes; False while another one has it."""
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        while True:
            descriptor = os.open(self._path, flags, 0o666)
            self._close = weakref.finalize(self, os.close, descriptor)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self._close()
                return False
            if self.held:  # not a file that the process before removed meanwhile
                os.ftruncate(descriptor, 0)
                os.write(descriptor, json.dumps(_name()).encode())
                return True
            self._close()

    def release(self) -> None:
        """Release the lock. A second call does nothing, nor does one in a forked child."""
        if self.held:
            with suppress(OSError):
                self._path.unlink()
        self.forget()
        with _guard:
            if _locks.get(str(self._path.parent)) is self:
                del _locks[str(self._path.parent)]

    def forget(self) -> None:
        """Let go of the file without removing it."""
        if self._close is not None:
            self._close()


def acquire(folder: Path) -> FolderLock:
    """Wait for the other threads of this process and lock a folder; refuse while another process has it."""
    folder = folder.resolve()
    lock, place, begin = FolderLock(folder), str(folder), 0.0
    while True:
        with _guard:
            other = _locks.get(place)
            free = other is None or other._left
            if free:
                _locks[place] = lock
        if not free:
            del other  # it may end with the last that refers to it
            time.sleep(_POLL)
            continue
        if other is not None:
            other.release()
        if lock.take():
            return lock
        lock.release()
        holder, begin = _holder(folder / LOCK), begin or time.monotonic()
        if (holder and holder != _name()) or time.monotonic() - begin > _NAMELESS:
            who = f"process {holder['pid']} on {holder['host']}" if holder else "another process"
            raise CheckpointError(
                f"cannot save to {str(folder)!r}: {who} is writing a checkpoint there; wait for it, or save to "
                "another folder"
            )
        time.sleep(_POLL)


def hold(folder: Path) -> FolderLock:
    """Lock a folder until `release`, or the end of this process; refuse where it is locked already."""
    lock, begin = FolderLock(folder.resolve()), time.monotonic()
    while not lock.take():
        holder = _holder(folder / LOCK)
        if holder or time.monotonic() - begin > _NAMELESS:
            who = f"process {holder['pid']} on {holder['host']}" if holder else "another process"
            raise CheckpointError(f"{str(folder)!r} is in use by {who}; stop that one first")
        time.sleep(_POLL)
    return lock


def wait_for_threads(folder: Path) -> None:
    """Wait until no other thread of this process is writing to a folder."""
    place = str(folder.resolve())
    while (lock := _locks.get(place)) is not None and not lock._left:
        del lock  # it may end with the last that refers to it
        time.sleep(_POLL)


def _name() -> dict[str, int | str]:
    return {"pid": os.getpid(), "host": platform.node()}


def _holder(path: Path) -> dict[str, int | str] | None:
    """Return which process holds the lock, or None if the file does not say."""
    try:
        with open(path, "rb") as file:
            name = json.loads(file.read(1000))
        return {"pid": int(name["pid"]), "host": str(name["host"])}
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def _after_fork() -> None:
    """Let go of the parent's locks, which the child would keep when the parent has ended."""
    global _guard
    _guard = threading.Lock()
    for lock in list(_locks.values()):
        lock.forget()
    _locks.clear()


os.register_at_fork(after_in_child=_after_fork)
