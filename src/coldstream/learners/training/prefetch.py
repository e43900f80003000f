"""The next step's data, made ready while the network learns from this one's."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

import torch

Found = TypeVar("Found")


class Ahead(Generic[Found]):
    """One piece of work at a time, in another thread, under the name of the step that it is for.

    It is exact because such work is a function of the replay buffer alone: whoever changes the buffer calls `drop`
    before, and the step does the work itself.
    """

    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = None
        self._waiting: tuple[object, Future[Found]] | None = None

    def begin(self, name: object, work: Callable[[], Found]) -> None:
        """Start the work for the step called `name`."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(1, "coldstream-ahead")
        self._waiting = name, self._pool.submit(work)

    def take(self, name: object) -> Found | None:
        """Return what was found for a step; None where no work was done for it."""
        if self._waiting is None:
            return None
        (wanted, future), self._waiting = self._waiting, None
        found = future.result()
        return found if wanted == name else None

    def drop(self) -> None:
        """Wait for work that is under way, and forget what it finds."""
        if self._waiting is not None:
            self._waiting[1].exception()
            self._waiting = None


def check_prefetch(setting: object) -> None:
    """Refuse a setting that is neither ``"auto"`` nor a bool."""
    if setting != "auto" and not isinstance(setting, bool):
        raise ValueError(f"prefetch is 'auto', True or False, not {setting!r}")


def prefetches(setting: str | bool, device: torch.device, storage: str) -> bool:
    """Return whether to work ahead: where that does not take time from the update itself (docs/performance.md)."""
    if isinstance(setting, bool):
        return setting
    return device.type != "cpu" or storage != "memory" or torch.get_num_threads() < _cores()


def _cores() -> int:
    """Return how many cores are this process's: a job among others has a share of them (`coldstream.lab`)."""
    if "COLDSTREAM_CORES" in os.environ:
        return int(os.environ["COLDSTREAM_CORES"])
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
