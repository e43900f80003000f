"""Running jobs: one after another in this process, or several at once in worker processes."""

from __future__ import annotations

import multiprocessing
import os
import queue
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

from coldstream.lab.experiment import Experiment
from coldstream.lab.jobs import Job, Stopped


class Show(Protocol):
    """Shows the progress of jobs."""

    def update(self, job: Job, done: int, total: int, note: str) -> None: ...
    def finished(self, job: Job) -> None: ...


class Silent:
    """Shows nothing."""

    def update(self, job: Job, done: int, total: int, note: str) -> None: ...
    def finished(self, job: Job) -> None: ...


def run_jobs(experiment: Experiment, workers: int = 1, show: Show | None = None) -> None:
    """Run what is not finished. Ctrl-C or SIGTERM stops every job at a checkpoint and raises `Stopped`."""
    show = show or Silent()
    pending = [job for job in experiment.jobs if not job.finished]
    with _stop_request() as wanted:
        if workers > 1 and len(pending) > 1:
            _run_in_processes(experiment, pending, min(workers, len(pending)), show, wanted)
            return
        for job in pending:

            def watch(done: int, total: int, note: str, job: Job = job) -> bool:
                show.update(job, done, total, note)
                return bool(wanted)

            job.run(watch)
            show.finished(job)


@contextmanager
def _stop_request() -> Iterator[list[int]]:
    """Turn the first Ctrl-C (or SIGTERM) into a request, which is in the list; a second one stops at once."""
    wanted: list[int] = []

    def ask(number: int, frame: FrameType | None) -> None:
        if wanted:
            raise KeyboardInterrupt
        wanted.append(number)

    before = {}
    try:
        for number in (signal.SIGINT, signal.SIGTERM):
            before[number] = signal.signal(number, ask)
    except ValueError:  # not the main thread: whoever runs us there stops us in another way
        pass
    try:
        yield wanted
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _run_in_processes(
    experiment: Experiment, pending: list[Job], workers: int, show: Show, wanted: list[int]
) -> None:
    context = multiprocessing.get_context("spawn")
    todo: Any = context.Queue()
    messages: Any = context.Queue()
    stop = context.Event()
    for job in pending:
        todo.put(job.key)
    for _ in range(workers):
        todo.put(None)
    threads = experiment.config.threads or max(1, (os.cpu_count() or 1) // workers)
    arguments = (experiment.folder.path, threads, todo, messages, stop)
    processes = [context.Process(target=_work, args=arguments) for _ in range(workers)]
    # A child reads the thread count when it loads torch, and waiting threads must not spin on cores of others.
    kept = {name: os.environ.get(name) for name in ("OMP_NUM_THREADS", "COLDSTREAM_CORES")}
    os.environ["OMP_NUM_THREADS"] = str(threads)
    os.environ["COLDSTREAM_CORES"] = str(max(1, (os.cpu_count() or 1) // workers))
    try:
        for process in processes:
            process.start()
    finally:
        for name, value in kept.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})
    jobs = {job.key: job for job in pending}
    failures = []
    try:
        while any(process.is_alive() for process in processes) or not messages.empty():
            if wanted:
                stop.set()
            try:
                kind, key, *rest = messages.get(timeout=0.2)
            except queue.Empty:
                continue
            if kind == "update":
                show.update(jobs[key], *rest)
            elif kind == "finished":
                show.finished(jobs[key])
            else:
                failures.append(rest[0])
                stop.set()
    finally:
        for process in processes:
            process.join(timeout=1)
            if process.is_alive():
                process.kill()
                process.join()
    if failures:
        raise ValueError(failures[0])
    if wanted:
        raise Stopped
    if any(process.exitcode for process in processes):
        raise ValueError(f"a worker died with exit code {[p.exitcode for p in processes]}; run again to resume")


def _work(path: Path, threads: int, todo: Any, messages: Any, stop: Any) -> None:
    """Do jobs until there is none, in a process of its own."""
    import torch

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
    torch.set_num_threads(threads)
    parent = multiprocessing.parent_process()
    assert parent is not None

    def stopped() -> bool:
        """Return whether to stop: on request, or because the parent process has ended."""
        return bool(stop.is_set()) or not parent.is_alive()

    experiment = Experiment.open(path)
    while not stopped():
        try:
            key = todo.get(timeout=1)
        except queue.Empty:
            continue
        if key is None:
            return

        def watch(done: int, total: int, note: str, key: str = key) -> bool:
            messages.put(("update", key, done, total, note))
            return stopped()

        job = experiment.job(key)
        try:
            job.run(watch)
            messages.put(("finished", key))
        except Stopped:
            return
        except (ValueError, OSError, FloatingPointError) as error:
            messages.put(("failed", key, f"{job.title}: {error}"))
            return
