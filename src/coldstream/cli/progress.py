"""How far the jobs of a run are: bars in a terminal, lines in a log."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

from coldstream.cli.output import complain, complaints

if TYPE_CHECKING:
    from coldstream.lab.jobs import Job


class _Rate(TextColumn):
    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text(f"{speed:,.0f} {task.fields['unit']}/s" if speed else "", style="cyan")


class Bars:
    """Progress of every job under way and of the whole, with rate and time left.

    The accuracy is that on the last thousand images, each before it was learned.
    """

    def __init__(self, jobs: int) -> None:
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=14),
            MofNCompleteColumn(),
            _Rate(""),
            TimeRemainingColumn(compact=True, elapsed_when_finished=True),
            TextColumn("{task.fields[note]}"),
            console=complaints,
        )
        self._tasks: dict[str, Any] = {}
        self._whole = self._progress.add_task("all jobs", total=jobs, unit="jobs", note="") if jobs > 1 else None

    def __enter__(self) -> Bars:
        self._progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._progress.stop()

    def update(self, job: Job, done: int, total: int, note: str) -> None:
        if job.key not in self._tasks:
            task = self._progress.add_task(job.title, total=total, completed=done, unit=job.counted, note=note)
            self._tasks[job.key] = task
        self._progress.update(self._tasks[job.key], completed=done, note=note)

    def finished(self, job: Job) -> None:
        if self._whole is not None:
            self._progress.advance(self._whole)
            if len(self._tasks) > 8 and job.key in self._tasks:  # a long list of finished bars helps nobody
                self._progress.update(self._tasks[job.key], visible=False)


class Lines:
    """Progress as plain lines, for a log: of every job under way each few seconds, and when one is finished."""

    seconds = 10.0

    def __init__(self, jobs: int) -> None:
        self._jobs, self._done = jobs, 0
        self._states: dict[str, str] = {}
        self._ended, self._lock = threading.Event(), threading.Lock()
        self._thread = threading.Thread(target=self._report, name="progress", daemon=True)

    def __enter__(self) -> Lines:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self._thread.join()

    def _report(self) -> None:
        while not self._ended.wait(self.seconds):
            with self._lock:
                states = list(self._states.values()) or [f"starting; finished, {self._done} of {self._jobs} jobs"]
            for state in states:
                complain(state)

    def update(self, job: Job, done: int, total: int, note: str) -> None:
        with self._lock:
            self._states[job.key] = f"{job.title}: {done:,} of {total:,} {job.counted}{', ' * bool(note)}{note}"

    def finished(self, job: Job) -> None:
        with self._lock:
            last = self._states.pop(job.key, job.title)
            self._done += 1
        complain(f"{last}; finished, {self._done} of {self._jobs} jobs")
