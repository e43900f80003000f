"""`coldstream run`: experiments, the paper's tables, data sets and learners of the user's own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from coldstream.cli.bench import find_benchmarks
from coldstream.cli.output import complain, complaints, say, show
from coldstream.cli.progress import Bars, Lines
from coldstream.cli.results import print_results
from coldstream.cli.theory import run_theory

if TYPE_CHECKING:
    from coldstream.lab.experiment import Experiment


def run(
    config: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME|FILE|DATA]",
            help="An experiment of ./experiments or of the paper, a YAML file, or a data set. Without: digits.",
        ),
    ] = None,
    seed: Annotated[
        list[int] | None, typer.Option(help="Seed of every random choice: order, weights, replay. Repeatable.")
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
    resume: Annotated[Path | None, typer.Option(metavar="DIR", help="Resume an interrupted run.")] = None,
    scale: Annotated[
        str | None,
        typer.Option(help="Scale of the paper's tables: lab (minutes, the default), desk (hours) or paper (GPU)."),
    ] = None,
) -> None:
    """Stream a data set once, one example at a time, from a cold start, and report.

    With no arguments: scikit-learn's digits, class by class, tested after every second class, compared with the
    same network trained offline. NAME is one of `coldstream list`; like FILE it may hold several learners and
    seeds. DATA is a name of `coldstream data list`, or a folder or zip of your own (`<class>/...` or
    `train/<class>/...` and `test/<class>/...`).

    `paper/T:data_aug` is a table of the paper, one of `coldstream list paper`; `paper` is all of them, one after
    another. `theory` is all measurements of the paper's section 4, `theory/iterates` one of them; they take
    `--set widths=[256,8192]`, `--set data.root=FOLDER` and `--seed`.

    Ctrl-C stops at a checkpoint; the same command, or `--resume DIR`, resumes bit for bit. A finished job is never
    run again, by this or any other experiment.

    Settings and their defaults are in the config.yaml of any run. Some to try:
    `--set learner.augment="crop|autoaugment(cifar10)|mixup(0.1)/cutmix(0.8)"`, `--set learner.replay=20`,
    `--set learner.capacity=10KB`, `--set stream.ordering=iid --set stream.test_every=null`.
    """
    from coldstream.lab import Experiment, make_config
    from coldstream.lab.config import DIGITS
    from coldstream.lab.names import settings_of
    from coldstream.lab.reading import learner_changes

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
    if config is not None and config.partition("/")[0] == "theory":
        if out is not None or learner or scale or jobs > 1:
            raise ValueError("measurements of the theory take --set and --seed; leave the other options out")
        run_theory(config, changes)
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
        say(f"resuming {experiment.folder.path}: {finished} of {len(experiment.jobs)} jobs are finished")
        for line in begun:
            say(f"  {line}")
    try:
        with Bars(len(waiting)) if complaints.is_terminal else Lines(len(waiting)) as show:
            run_jobs(experiment, jobs, show)
    except Stopped:
        complain(f"stopped; resume with: coldstream run --resume {experiment.folder.path}")
        raise SystemExit(130) from None
    experiment.results()
    print_results(FinishedRun(experiment.folder.path))
    say(f"report: {write_report(experiment.folder.path)}")


def _run_paper(text: str, scale: str, changes: list[str], jobs: int) -> None:
    """Run parts of the paper's experiments, by name; then print each table beside the paper's."""
    from coldstream.lab import Experiment, make_config
    from coldstream.paper import get_experiment, results, runs_named
    from coldstream.paper.pages import tables

    runs, experiments = Path("runs"), runs_named(text, scale)
    for name, wanted in experiments.items():
        experiment = get_experiment(name)
        if experiment.measured is not None:
            if changes and len(experiments) == 1:  # among others they are meant for those
                raise ValueError(f"{name} is timed, not streamed; leave --set and --seed out ({changes[0]})")
            find_benchmarks()
            from benchmarks.run import time_pieces
            from coldstream.paper.timing import PART

            pieces = time_pieces(complaints, **experiment.measured[scale])
            results.write_measured(experiment, scale, PART, pieces, runs)
        for one in wanted:
            settings = results.with_earlier_seeds(make_config(one.tree, changes), runs)
            learners = one.learners[0] if len(one.learners) == 1 else f"{len(one.learners)} learners"
            say(f"{name}, {one.part}: {learners}, seeds {settings.seeds}")
            _run(Experiment.create(settings, runs / settings.name), jobs)
        finished = results.from_runs(experiment, scale, runs, other_settings=True)
        for table in tables(experiment, finished) if finished else ():
            show(table, f"{name}, {scale} scale")
    say("the page of all results: coldstream report paper")
