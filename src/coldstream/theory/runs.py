"""Runs of measurements: point by point, each finished one on disk at once, so that a stopped run goes on.

`runs/theory/NAME/points.jsonl` has one line per point and seed, in the order in which they were finished.
"""

from __future__ import annotations

import fcntl
import hashlib
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import yaml
from pydantic import Field, ValidationError

from coldstream.data import MissingData, load_dataset
from coldstream.lab.environment import describe_environment
from coldstream.lab.files import Folder, Record
from coldstream.lab.keys import code_of, sources
from coldstream.report.kept import KeptPart, KeptResults, KeptRun, read_kept
from coldstream.theory.examples import PAIRS
from coldstream.theory.measurements import MEASUREMENTS, get_measurement
from coldstream.theory.network import check_size
from coldstream.theory.points import WIDTHS, Measurement, Point

FILE = "points.jsonl"
Progress = Callable[[str, int, int], None]
"""(what comes next, finished, all)."""


class Options(Record):
    """What a run of measurements can be told: `--set widths=[256,8192]`, `--set seeds=[0,1]`, `--set root=FOLDER`.

    `widths` replaces the widths of the sweeps of m. Points that were measured before are kept beside new ones.
    """

    widths: tuple[int, ...] = Field(default=WIDTHS, min_length=1)
    seeds: tuple[int, ...] | None = Field(default=None, min_length=1)
    root: Path | None = None


class Line(Record):
    """One point and seed, finished."""

    point: Point
    run: KeptRun


def read_options(changes: Sequence[str]) -> Options:
    """Return the options that ``key=value`` texts give; values are YAML, data.root is another name of root."""
    given = {}
    for change in changes:
        key, equals, value = change.partition("=")
        if not equals:
            raise ValueError(f"--set {change!r} has no value; write for example --set widths=[256,8192]")
        content = yaml.safe_load(value)
        name = "root" if key == "data.root" else key
        given[name] = [content] if name in ("widths", "seeds") and not isinstance(content, list) else content
    try:
        options = Options.model_validate(given)
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(map(str, first["loc"]))
        if first["type"] == "extra_forbidden":
            raise ValueError(f"unknown setting {name!r} of the theory; valid: widths, seeds, data.root") from None
        raise ValueError(f"setting {name!r}: {first['msg'].lower()}, got {first['input']!r}") from None
    for width in options.widths:
        check_size(width, 3)
    return options


def run(name: str, options: Options, runs: Path, show: Progress) -> list[str]:
    """Measure what is not finished yet; return what was left out because its data set is missing."""
    measurement = get_measurement(name)
    folder = Folder(runs / "theory" / measurement.name)
    folder.make()
    points, missing = _with_data(measurement.points(options.widths), options.root)
    for point in points:
        point.check()
    code = code_version(measurement)
    with _locked(folder.path):
        lines = folder.lines(FILE, Line)
        seal = folder.rewrite(FILE, lines)  # without a last line that was cut off
        finished = {(line.point, line.run.seed) for line in lines if line.run.code == code}
        seeds = options.seeds or measurement.seeds
        waiting = [(point, seed) for seed in seeds for point in points if (point, seed) not in finished]
        done = len(points) * len(seeds) - len(waiting)
        for point, seed in waiting:
            show(f"{point.label}, seed {seed}", done, len(points) * len(seeds))
            seal = folder.append(FILE, _measure(measurement, point, seed, options, code), seal)
            done += 1
        show("finished", done, done)
    return missing


def _measure(measurement: Measurement, point: Point, seed: int, options: Options, code: str) -> Line:
    begin = time.perf_counter()
    numbers = measurement.measure(point, seed, options.root)
    environment = describe_environment()
    finite = {name: value for name, value in numbers.items() if math.isfinite(value)}
    kept = KeptRun(
        seed=seed,
        numbers={name: float(f"{value:.6g}") for name, value in finite.items()},
        events=[],
        commit=str(environment.commit)[:7] + "+" * bool(environment.dirty),
        seconds=round(time.perf_counter() - begin),
        machine=environment.hardware,
        code=code,
    )
    return Line(point=point, run=kept)


def _with_data(points: Sequence[Point], root: Path | None) -> tuple[list[Point], list[str]]:
    """Return the points whose data set is there, and a sentence for each set that is missing."""
    missing = {}
    for name in dict.fromkeys(point.data for point in points if point.data in PAIRS):
        try:
            load_dataset(PAIRS[name][0], root)
        except MissingData as error:
            missing[name] = f"{name} is left out: {error}"
    return [point for point in points if point.data not in missing], [*missing.values()]


@cache
def code_version(measurement: Measurement) -> str:
    """Return a hash of the room's code that a measurement runs; comments and docstrings do not count."""
    room = Path(__file__).parent
    digest = hashlib.sha256()
    for file in sorted(file for file in sources(measurement.module) if file.is_relative_to(room)):
        digest.update(file.name.encode() + b"\0" + code_of(file) + b"\0")
    return digest.hexdigest()[:16]


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    with open(folder / "lock", "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ValueError(f"another process is measuring into {str(folder)!r}; wait for it") from None
        yield


def read_results(name: str, runs: Path, kept: Path) -> KeptResults | None:
    """Return the results of finished points, and of those kept before the ones that these lack."""
    measurement = MEASUREMENTS[name]
    experiment = f"theory-{name}"
    before = read_kept(experiment, None, kept)
    folder = Folder(runs / "theory" / name)
    merged: dict[tuple[str, str, int], KeptRun] = {}
    for sweep, part in before.parts.items() if before else ():
        merged |= {(sweep, label, run.seed): run for label, all_ in part.learners.items() for run in all_}
    code = code_version(measurement)
    lines = folder.lines(FILE, Line) if folder.has(FILE) else []
    for line in sorted(lines, key=lambda line: line.run.code == code):  # what today's code measured comes last
        merged[line.point.sweep, line.point.label, line.run.seed] = line.run
    if not merged:
        return None
    parts: dict[str, KeptPart] = {}
    for (sweep, label, _), run in sorted(merged.items(), key=lambda item: _order(measurement, item[0])):
        parts.setdefault(sweep, KeptPart(examples=0, learners={})).learners.setdefault(label, []).append(run)
    environment = (
        describe_environment().model_dump(mode="json") if lines else (before.environment if before else None)
    )
    return KeptResults(experiment=experiment, environment=environment, parts=parts)


def _order(measurement: Measurement, key: tuple[str, str, int]) -> tuple[int, float, str, int]:
    """Return the place of a line: as the measurement lists its points, then by label and seed."""
    listed = _places(measurement)
    sweep, label, seed = key
    return listed.get(sweep, len(listed)), listed.get(label, math.inf), label, seed


@cache
def _places(measurement: Measurement) -> dict[str, int]:
    points = measurement.points((64, 128, 256, 512, 1024, 2048, 4096, 8192))
    names = [name for point in points for name in (point.sweep, point.label)]
    return {name: place for place, name in enumerate(dict.fromkeys(names))}


def other_code(results: KeptResults) -> int:
    """Return how many lines were measured with other code of the room than today's."""
    code = code_version(MEASUREMENTS[results.experiment.removeprefix("theory-")])
    return sum(run.code != code for run in results.runs)
