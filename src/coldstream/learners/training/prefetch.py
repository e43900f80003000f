"""Prefetching: the next step's batch is decoded and augmented while the network learns from this one's."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import torch


class Background:
    """One thread that the network learns in, while the caller stores this step's examples and prepares the next."""

    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = None
        self._process = 0

    def start(self, work: Callable[[], None]) -> Future[None]:
        """Begin work in the thread, with as many threads for torch as the caller has: bits depend on their number."""
        if self._pool is None or self._process != os.getpid():  # a forked process has none of the threads
            self._pool, self._process = ThreadPoolExecutor(1, "coldstream-update"), os.getpid()
        return self._pool.submit(_with_threads, torch.get_num_threads(), work)


def _with_threads(number: int, work: Callable[[], None]) -> None:
    if torch.get_num_threads() != number:
        torch.set_num_threads(number)
    work()


def check_prefetch(setting: object) -> None:
    """Refuse a setting that is neither ``"auto"`` nor a bool."""
    if setting != "auto" and not isinstance(setting, bool):
        raise ValueError(f"prefetch is 'auto', True or False, not {setting!r}")


def prefetches(setting: str | bool, device: torch.device, storage: str) -> bool:
    """Return whether to prefetch: where that does not take time from the update itself (docs/performance.md)."""
    if isinstance(setting, bool):
        return setting
    return device.type != "cpu" or storage != "memory" or torch.get_num_threads() < _cores()


def _cores() -> int:
    """Return how many cores this process may use: a job among others has a share of them (`coldstream.lab`)."""
    if "COLDSTREAM_CORES" in os.environ:
        return int(os.environ["COLDSTREAM_CORES"])
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
