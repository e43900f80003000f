"""The command line: parses, calls, prints."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, Task, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

app = typer.Typer(
    help="Deep networks that learn from one example at a time, from nothing.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)
console = Console()
complaints = Console(stderr=True)


def _version(wanted: bool) -> None:
    if wanted:
        import coldstream

        console.print(f"coldstream {coldstream.__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Deep networks that learn from one example at a time, from nothing."""


@app.command()
def run(
    config: Annotated[
        Path | None, typer.Argument(help="A YAML file of settings. Without one: digits, class by class.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Of every random choice: order, weights, replay.")] = None,
    out: Annotated[Path | None, typer.Option(help="The folder to write. Default: runs/NAME.")] = None,
    set: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change one setting, such as learner.replay=50. Repeatable."),
    ] = None,
    resume: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Go on with an interrupted run where it was.")
    ] = None,
) -> None:
    """Stream a data set once, one example at a time, from a cold start, and report.

    With no arguments: scikit-learn's digits, class by class, tested after every second class, compared with the
    same network trained offline. Writes config.yaml, metrics.jsonl, summary.json, accuracy.png, reliability.png
    and report.html into the run's folder. Ctrl-C stops it at a checkpoint; `--resume DIR` goes on to the same bits.

    Settings and their defaults are in the config.yaml of any run. Some to try:
    `--set learner.augment="crop|autoaugment(cifar10)|mixup(0.1)/cutmix(0.8)"`, `--set learner.replay=20`,
    `--set learner.capacity=10KB`, `--set stream.ordering=iid`.
    """
    from coldstream.experiments import Run, event_rows, make_config, result_rows, write_report
    from coldstream.experiments.config import read_config

    if resume is not None:
        if config is not None or seed is not None or out is not None or set:
            raise ValueError("--resume takes the run's own settings; leave the other arguments out")
        job = Run.resume(resume)
        console.print(f"going on with [bold]{resume}[/] at example {job.learner.step:,} of {len(job.stream.order):,}")
    else:
        tree = read_config(config).model_dump(mode="json") if config else {}
        changes = [*(set or []), *([f"seed={seed}"] if seed is not None else [])]
        settings = make_config(tree, changes)
        job = Run.new(settings, out or _free_folder(Path("runs"), settings.name))
    with _Bars() as bars, _StopAtStep(job.save) as stop:
        bars.stop = stop
        summary = job.run(bars)
    write_report(job.folder)
    header, *rows = event_rows(summary)
    table = Table(title=f"{summary['name']}, seed {summary['seed']}", title_justify="left")
    for name in header:
        table.add_column(name, justify="right")
    for row in rows:
        table.add_row(*row)
    console.print(table)
    results = Table(show_header=False, box=None)
    for name, value in result_rows(summary, job.folder.read("timing.json")):
        results.add_row(name, Text(value, style="bold"))
    console.print(results)
    console.print(f"report: [bold]{job.folder.path / 'report.html'}[/]")


def _free_folder(parent: Path, name: str) -> Path:
    path, number = parent / name, 2
    while path.exists():
        path, number = parent / f"{name}-{number}", number + 1
    return path


class Stopped(Exception):
    """The user asked the run to stop, and it did at a checkpoint."""


class _StopAtStep:
    """Turn the first Ctrl-C (or SIGTERM) into a stop between two steps; a second one stops at once."""

    def __init__(self, save: Any) -> None:
        self._save = save
        self._wanted = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> _StopAtStep:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._ask)
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if self._wanted:
            raise KeyboardInterrupt
        self._wanted = True

    def check(self) -> None:
        if self._wanted:
            raise Stopped(str(self._save()))


class _Rate(TextColumn):
    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text(f"{speed:,.0f} {task.fields['unit']}/s" if speed else "", style="cyan")


class _Bars:
    """Progress with rate and time left; the accuracy is that on the last thousand images before learning them."""

    stop: _StopAtStep

    def __init__(self) -> None:
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            _Rate(""),
            TimeRemainingColumn(compact=True, elapsed_when_finished=True),
            TextColumn("{task.fields[note]}"),
            console=complaints,
        )
        self._tasks: dict[str, Any] = {}

    def __enter__(self) -> _Bars:
        self._progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._progress.stop()

    def streaming(self, done: int, total: int, accuracy: float | None) -> None:
        note = "" if accuracy is None else f"accuracy {accuracy:.1%}"
        self._show("streaming", "examples", done, total, note)

    def training_offline(self, done: int, total: int) -> None:
        self._show("offline", "epochs", done, total, "")

    def _show(self, name: str, unit: str, done: int, total: int, note: str) -> None:
        if name not in self._tasks:
            self._tasks[name] = self._progress.add_task(name, total=total, completed=done, unit=unit, note=note)
        self._progress.update(self._tasks[name], completed=done, note=note)
        if done < total:
            self.stop.check()


def main() -> None:
    """Run the command line; what a user can mend is said in one line, without a stack trace."""
    try:
        app()
    except Stopped as stopped:
        complaints.print(f"stopped; go on with: coldstream run --resume {stopped}")
        sys.exit(130)
    except KeyboardInterrupt:
        complaints.print("stopped at once; --resume goes on from the last checkpoint")
        sys.exit(130)
    except (ValueError, OSError) as error:
        complaints.print(Text.assemble(("error: ", "bold red"), str(error)))
        sys.exit(2)
