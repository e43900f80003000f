"""The command line: parses, calls, prints."""

from __future__ import annotations

import io
import sys
import textwrap
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, Task, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from coldstream.lab.experiment import Experiment
    from coldstream.lab.jobs import Job
    from coldstream.lab.records import FinishedRun

app = typer.Typer(
    help="Deep networks that learn from one example at a time, from nothing.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)
data_app = typer.Typer(help="Data sets: which there are, where they are looked for, how to get them.")
app.add_typer(data_app, name="data")
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
        str | None,
        typer.Argument(
            metavar="[NAME|FILE|DATA]",
            help="An experiment of ./experiments or of the paper, a YAML file, or a data set. Without: digits.",
        ),
    ] = None,
    seed: Annotated[
        list[int] | None, typer.Option(help="Of every random choice: order, weights, replay. Repeatable.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="The folder to write. Default: runs/NAME.")] = None,
    set: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change one setting, such as learner.replay=50. Repeatable."),
    ] = None,
    learner: Annotated[
        list[str] | None,
        typer.Option(metavar="KIND", help="A learner by name, or MODULE:CLASS of your own. Repeatable."),
    ] = None,
    jobs: Annotated[
        int, typer.Option(min=1, help="How many jobs to run at once, each with its share of the cores.")
    ] = 1,
    resume: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Go on with an interrupted run where it was.")
    ] = None,
    scale: Annotated[
        str | None, typer.Option(help="Of the paper's tables: lab, for two cores, or paper, for a GPU.")
    ] = None,
) -> None:
    """Stream a data set once, one example at a time, from a cold start, and report.

    With no arguments: scikit-learn's digits, class by class, tested after every second class, compared with the
    same network trained offline. NAME is one of `coldstream list`; like FILE it may hold several learners and
    seeds. DATA is a name of `coldstream data list`, or a folder or zip of your own (`<class>/...` or
    `train/<class>/...` and `test/<class>/...`).

    `paper/T:data_aug` is a table of the paper, one of `coldstream list paper`; `paper` is all of them, one after
    another.

    Ctrl-C stops at a checkpoint; the same command, or `--resume DIR`, goes on to the same bits. What is finished is
    not run again, in any experiment that shares it.

    Settings and their defaults are in the config.yaml of any run. Some to try:
    `--set learner.augment="crop|autoaugment(cifar10)|mixup(0.1)/cutmix(0.8)"`, `--set learner.replay=20`,
    `--set learner.capacity=10KB`, `--set stream.ordering=iid --set stream.test_every=null`.
    """
    from coldstream.lab import Experiment, make_config
    from coldstream.lab.config import DIGITS, learner_changes
    from coldstream.lab.names import settings_of

    changes = [*(set or []), *([f"seeds={seed}"] if seed else [])]
    if resume is not None:
        if config is not None or seed or out is not None or set or learner or scale:
            raise ValueError("--resume takes the run's own settings; leave the other arguments out")
        _run(Experiment.resume(resume), jobs)
        return
    if config is not None and config.partition("/")[0] == "paper":
        if out is not None or learner:
            raise ValueError("a table of the paper has its own learners and folders; leave --out and --learner out")
        _run_paper(config, scale or "lab", changes, jobs)
        return
    if scale is not None:
        raise ValueError("--scale is for the paper's tables: coldstream run paper/NAME --scale lab")
    tree = dict(DIGITS) if config is None else settings_of(config)
    settings = make_config(tree, changes + learner_changes(learner or [], default=config is None))
    _run(Experiment.create(settings, out or Path("runs") / settings.name), jobs)


def _run(experiment: Experiment, jobs: int) -> None:
    from coldstream.lab import Stopped, run_jobs
    from coldstream.lab.records import FinishedRun
    from coldstream.report.pages import write_report

    waiting = [job for job in experiment.jobs if not job.finished]
    finished = len(experiment.jobs) - len(waiting)
    begun = [f"{job.title} at {job.progress()[0]:,} of {job.progress()[1]:,}" for job in waiting if job.progress()[0]]
    if finished or begun:
        _say(f"going on in {experiment.folder.path}: {finished} of {len(experiment.jobs)} jobs are finished")
        for line in begun:
            _say(f"  {line}")
    try:
        with _Bars(len(waiting)) if complaints.is_terminal else _Lines(len(waiting)) as show:
            run_jobs(experiment, jobs, show)
    except Stopped:
        _complain(f"stopped; go on with: coldstream run --resume {experiment.folder.path}")
        raise SystemExit(130) from None
    experiment.results()
    _print_results(FinishedRun(experiment.folder.path))
    _say(f"report: {write_report(experiment.folder.path)}")


def _run_paper(text: str, scale: str, changes: list[str], jobs: int) -> None:
    """Run parts of the paper's experiments, by name; then print each table beside the paper's."""
    from coldstream.lab import Experiment, make_config
    from coldstream.paper import get_experiment, parts_named, results
    from coldstream.paper.pages import tables

    runs, experiments = Path("runs"), parts_named(text, scale)
    for name, parts in experiments.items():
        experiment = get_experiment(name)
        if experiment.measured is not None:
            if changes and len(experiments) == 1:  # among others they are meant for those
                raise ValueError(f"{name} is timed, not streamed; leave --set and --seed out ({changes[0]})")
            _find_benchmarks()
            from benchmarks.run import time_pieces
            from coldstream.paper.timing import PART

            pieces = time_pieces(complaints, **experiment.measured[scale])
            results.write_measured(experiment, scale, PART, pieces, runs)
        trees = experiment.configs(scale)
        for part in parts:
            settings = results.with_earlier_seeds(make_config(trees[part], changes), runs)
            _say(f"{name}, {part}: {len(settings.learners)} learners, seeds {settings.seeds}")
            _run(Experiment.create(settings, runs / settings.name), jobs)
        finished = results.from_runs(experiment, scale, runs, other_settings=True)
        for table in tables(experiment, finished) if finished else ():
            _show(table, f"{name}, {scale} scale")
    _say("the page of all results: coldstream report paper")


def _say(text: str) -> None:
    console.print(Text(text), soft_wrap=True)


def _print_results(run: FinishedRun) -> None:
    from coldstream.report.run_tables import event_table, learner_table, unit_table

    results = run.results
    if len(results.units) > 1:
        _show(learner_table(run, short=True), results.name)
        return
    ((name, unit),) = results.units
    _show(event_table(results, unit), f"{results.name}, {name}, seed {unit.seed}")
    lines = Table(show_header=False, box=None)
    for label, value in unit_table(results, unit, run.timing.units[name][unit.seed]):
        lines.add_row(label, Text(value, style="bold"))
    console.print(lines)


def _show(table: list[list[str]], title: str) -> None:
    from coldstream.report import tables

    wide = max(console.width, tables.least_width(table))  # a terminal that is too narrow breaks lines by itself
    Console(width=wide).print(tables.console(table, title))


@app.command()
def status(folder: Annotated[Path, typer.Argument(help="The folder of a run.")]) -> None:
    """Show which jobs of a run are finished and how far the others are."""
    from coldstream.lab.experiment import Experiment

    experiment = Experiment.open(folder)
    rows = [["job", "done", "of", "state"]]
    for job in experiment.jobs:
        done, total = job.progress()
        state = "finished" if job.finished else "begun" if done else "waiting"
        rows.append([job.title, f"{done:,}", f"{total:,} {job.counted}", state])
    _show(rows, experiment.plan.name)


@app.command()
def report(
    folders: Annotated[list[Path], typer.Argument(help="Folders of finished runs; or paper; or first-labels.")],
    out: Annotated[Path, typer.Option(help="For paper: the folder of the page, and of earlier results.")] = Path(
        "docs"
    ),
) -> None:
    """Write tables, pictures and the page of finished runs again, from their files.

    `coldstream report paper` writes one page of all the paper's tables, from the runs in ./runs and, for those that
    are not there, from the results that are kept beside the page: a seed today and another one tomorrow add up.
    `coldstream report first-labels` writes the runs of the experiments first-labels-... into docs/first-labels.md.
    """
    from coldstream.lab.records import FinishedRun
    from coldstream.report.pages import write_report

    if folders == [Path("paper")]:
        from coldstream.paper import EXPERIMENTS, pages, results

        runs, kept = Path("runs"), out / "results"
        left_out = [text for one in EXPERIMENTS.values() for text in results.left_out(one, "lab", runs, kept)]
        for line in [*map(str, pages.write(runs, out)), *left_out]:
            _say(line)
        return
    if folders == [Path("first-labels")]:
        from coldstream.report import first_labels

        _say(str(first_labels.write(Path("runs"), out / "first-labels.md")))
        return
    for folder in folders:
        run = FinishedRun(folder)
        if not run.finished:
            from coldstream.lab import Experiment

            experiment = Experiment.open(folder)
            if not experiment.finished:
                raise ValueError(f"run {str(folder)!r} is not finished; go on with: coldstream run --resume {folder}")
            experiment.results()
        _print_results(run)
        _say(f"report: {write_report(folder)}")


@app.command()
def compare(
    one: Annotated[Path, typer.Argument(help="The folder of a finished run.")],
    other: Annotated[Path, typer.Argument(help="Another one.")],
) -> None:
    """Show what differs between two runs: settings, and results side by side."""
    from coldstream.report.compare import compare_table, setting_changes

    for line in setting_changes(one, other):
        _say(line)
    _show(compare_table(one, other), f"{one} → {other}")


@app.command(name="list")
def list_(
    what: Annotated[str | None, typer.Argument(metavar="[paper]", help="The paper's tables and figures.")] = None,
) -> None:
    """Show the learners and orderings there are, and the experiments in ./experiments; or the paper's tables."""
    if what == "paper":
        _list_paper()
        return
    if what is not None:
        raise ValueError(f"coldstream list takes nothing, or paper; not {what!r}")
    from coldstream.lab.names import experiments_here
    from coldstream.lab.yaml_files import read_config
    from coldstream.learners import LEARNERS
    from coldstream.streams import ORDERINGS

    _say(f"learners: {', '.join(LEARNERS)}")
    _say(f"orderings: {', '.join(ORDERINGS)}")
    experiments = {name: read_config(file) for name, file in experiments_here().items()}
    if not experiments:
        _say("no experiments in ./experiments")
        return
    _say("experiments, each with its data, seeds and learners; run one with: coldstream run NAME")
    for name, tree in experiments.items():
        tasks = tree.get("tasks")
        sets = list(tasks.values()) if isinstance(tasks, dict) and tasks else [tree.get("data") or {}]
        data = dict.fromkeys(str(one.get("name", "digits")) if isinstance(one, dict) else str(one) for one in sets)
        _say(f"  {name}: {', '.join(data)}; seeds {tree.get('seeds', [0])}")
        _say(_in_lines(map(str, tree.get("learners") or {"cold-start": {}}), " " * 6))


def _in_lines(names: Iterable[str], indent: str) -> str:
    """Return names in lines as wide as the terminal, none of them broken."""
    whole = ", ".join(name.replace(" ", "\u00a0") for name in names)
    layout: dict[str, Any] = {"initial_indent": indent, "subsequent_indent": indent, "break_on_hyphens": False}
    return textwrap.fill(whole, console.width, break_long_words=False, **layout).replace("\u00a0", " ")


def _list_paper() -> None:
    from coldstream.paper import EXPERIMENTS, results

    table = Table(title="run one with: coldstream run paper/NAME --scale lab|paper --set data.root=FOLDER")
    table.title_justify = "left"
    table.add_column("name", no_wrap=True)
    table.add_column("title")
    for column in ("runs", "minutes", "result"):
        table.add_column(column, justify="right", no_wrap=True)
    for experiment in EXPERIMENTS.values():
        trees = experiment.configs("lab").values()
        runs = sum(len(tree["learners"]) * len(tree["seeds"]) for tree in trees)
        kept = results.read_results(experiment, "lab", Path("runs"), Path("docs/results"))
        minutes = f"{results.minutes(experiment, kept):,.0f}" if kept else "?"
        date = kept.date if kept else "not run"
        table.add_row(experiment.name, experiment.title, str(runs or "–"), minutes, date)
    console.print(table)
    _say(
        "runs, minutes: all seeds at lab scale; minutes are estimated for --jobs 2 on two cores, each table by itself"
    )


@app.command()
def learners() -> None:
    """Show what each learner needs, freezes and replays, for ResNet18, beside the paper's figures."""
    from coldstream.learners.properties import properties_table

    _show(properties_table(), "learners")
    _say("base: whether it needs base initialisation")
    _say("ImageNet, CIFAR-100: the share of that ResNet18's parameters (their number) that streaming never changes")
    _say("paper: the share that the paper's table gives")
    _say("learns: from each example as it comes, or when a batch ends")


@app.command()
def bench(
    parts: Annotated[
        list[str] | None,
        typer.Argument(metavar="[PART...]", help="What to measure. Without: all but the last seven."),
    ] = None,
    peers: Annotated[
        bool, typer.Option("--peers", help="Also others' replay beside ours; needs the extra of that name.")
    ] = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="A few rounds at small sizes, to see that it works.")
    ] = False,
    out: Annotated[Path, typer.Option(help="The folder to write.")] = Path("runs/bench"),
    threads: Annotated[int | None, typer.Option(min=1, help="How many threads torch uses. Default: its own.")] = None,
) -> None:
    """Measure how long a step takes, beside the bare arithmetic of the network, and judge it by its targets.

    PART is step, networks, parts, sizes, batch, storage, disk, checkpoint, memory, cold, shared, peers, buffer,
    slda, remind or timing.
    Writes bench.json, bench.md and bench.png. Run it on a machine that does nothing else.
    """
    _find_benchmarks()
    from benchmarks import run_bench
    from benchmarks.report import tables

    results = run_bench(parts or [], out, with_peers=peers, quick=quick, thread_count=threads, console=complaints)
    for title, rows in tables(results).items():
        _show(rows, title)
    for note in results.notes:
        _say(note)
    _say(f"report: {out / 'bench.md'}")


def _find_benchmarks() -> None:
    """Make `benchmarks` importable from the clone that this package runs from."""
    root = Path(__file__).parents[2]
    if not (root / "benchmarks" / "run.py").is_file():
        raise ValueError(
            "benchmarks come with the repository, not with the installed package; "
            "clone it and run there: uv run coldstream bench"
        )
    if str(root) not in sys.path:
        sys.path.insert(0, str(root))


@data_app.command(name="list")
def data_list(
    root: Annotated[
        Path | None, typer.Option(help="Where data sets are; default COLDSTREAM_DATA or a cache.")
    ] = None,
) -> None:
    """Show each data set, whether it is here, where it is looked for and how to get it."""
    from coldstream.data import catalog

    entries = catalog(root)
    rows = [["name", "what", "images (train + test)", "classes", "here"]]
    for entry in entries:
        sizes = f"{entry.train:,} + {entry.test:,}"
        rows.append([entry.name, entry.title, sizes, f"{entry.classes:,}", "yes" if entry.present else "no"])
    _show(rows, "data sets")
    for entry in entries:
        if entry.present:
            _say(f"{entry.name}: {entry.where}" if entry.where else f"{entry.name}: embedded")
        else:
            _say(f"{entry.name}: not at {entry.where}; to get it: {entry.how}")


@data_app.command(name="get")
def data_get(
    name: Annotated[str, typer.Argument(help="A name of `coldstream data list`, or hf:NAME for Hugging Face.")],
    root: Annotated[
        Path | None, typer.Option(help="Where data sets are; default COLDSTREAM_DATA or a cache.")
    ] = None,
) -> None:
    """Download a data set where that is possible; say what is there already, and how to get what is not."""
    from coldstream.data import DATASETS, catalog, load_dataset
    from coldstream.parsing import unknown

    if name not in DATASETS and not name.startswith("hf:"):
        raise unknown("data set", name, [*DATASETS, "hf:NAME"])
    here = {entry.name: entry for entry in catalog(root)}
    if name in here and here[name].present:
        _say(f"{name} is here already: {here[name].where or 'it comes with this program'}")
        return
    train, test = load_dataset(name, root, download=True)
    where = next((f" in {entry.where}" for entry in catalog(root) if entry.name == name), "")
    _say(f"{name}: {len(train):,} + {len(test):,} images, {len(train.names):,} classes{where}")


class _Rate(TextColumn):
    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text(f"{speed:,.0f} {task.fields['unit']}/s" if speed else "", style="cyan")


class _Bars:
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

    def __enter__(self) -> _Bars:
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


class _Lines:
    """Progress as plain lines, for a log: of every job under way each few seconds, and when one is finished."""

    seconds = 10.0

    def __init__(self, jobs: int) -> None:
        self._jobs, self._done = jobs, 0
        self._states: dict[str, str] = {}
        self._ended, self._lock = threading.Event(), threading.Lock()
        self._thread = threading.Thread(target=self._report, name="progress", daemon=True)

    def __enter__(self) -> _Lines:
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
                _complain(state)

    def update(self, job: Job, done: int, total: int, note: str) -> None:
        with self._lock:
            self._states[job.key] = f"{job.title}: {done:,} of {total:,} {job.counted}{', ' * bool(note)}{note}"

    def finished(self, job: Job) -> None:
        with self._lock:
            last = self._states.pop(job.key, job.title)
            self._done += 1
        _complain(f"{last}; finished, {self._done} of {self._jobs} jobs")


def _complain(text: str) -> None:
    complaints.print(Text(text), soft_wrap=True)


def main() -> None:
    """Run the command line; what a user can mend is said in one line, without a stack trace."""
    for stream in (sys.stdout, sys.stderr):  # names may be of characters, or bytes, that the terminal cannot show
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        app()
    except KeyboardInterrupt:
        complaints.print("stopped at once; the same command goes on from the last checkpoint")
        sys.exit(130)
    except (ValueError, OSError, FloatingPointError) as error:
        complaints.print(Text.assemble(("error: ", "bold red"), str(error)), soft_wrap=True)
        sys.exit(2)
