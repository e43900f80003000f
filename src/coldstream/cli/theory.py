"""`coldstream run theory`: measurements of section 4 of the paper."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from coldstream.cli.output import complain, complaints, say


def run_theory(text: str, changes: Sequence[str]) -> None:
    """Run all measurements, or the one named `theory/NAME`; what is finished is not measured again."""
    from coldstream.theory.measurements import MEASUREMENTS, VIEWS, get_measurement
    from coldstream.theory.runs import read_options, run

    _, slash, name = text.partition("/")
    measurement = get_measurement(name) if slash else None
    options = read_options(changes)
    if name in VIEWS:
        say(f"{name} is made of the points of {VIEWS[name]}")
    for one in [measurement] if measurement else MEASUREMENTS.values():
        say(f"theory/{one.name}: {one.title.lower()}")
        with _Shown() as shown:
            missing = run(one.name, options, Path("runs"), shown)
        for sentence in missing:
            say(sentence)
    say("the page: coldstream report theory")


class _Shown:
    """Progress: a bar in a terminal, a line every ten seconds in a log."""

    def __init__(self) -> None:
        self._bar = Progress(
            BarColumn(bar_width=14),
            MofNCompleteColumn(),
            TimeRemainingColumn(compact=True, elapsed_when_finished=True),
            TextColumn("{task.description}"),
            console=complaints,
            disable=not complaints.is_terminal,
        )
        self._task = self._bar.add_task("", total=None)
        self._last = time.monotonic()

    def __enter__(self) -> _Shown:
        self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.stop()

    def __call__(self, text: str, done: int, total: int) -> None:
        self._bar.update(self._task, description=text, completed=done, total=total)
        if self._bar.disable and (done == total or time.monotonic() - self._last > 10):
            self._last = time.monotonic()
            complain(f"{done:,} of {total:,} points: {text}")
