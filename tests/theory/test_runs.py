"""Runs resume and refuse bad input, verdicts come from intervals, and the page is that of the results."""

import fcntl
import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from coldstream.cli import app
from coldstream.metrics import mean_interval
from coldstream.report.kept import KeptPart, KeptResults, KeptRun, keep
from coldstream.theory import page, runs
from coldstream.theory.fits import Curves, above, falls_at_least, grows_at_most, never_above, verdict_of
from coldstream.theory.measurements import MEASUREMENTS
from coldstream.theory.points import Point

DOCS = Path(__file__).parents[2] / "docs"
FILE = Path("theory", "activations", runs.FILE)


def silent(*_):
    return None


@pytest.fixture(autouse=True)
def few_points(monkeypatch):
    """Measure activations at the points of small networks alone."""
    whole = MEASUREMENTS["activations"]

    def points(widths):
        return [point for point in whole.points(widths) if point.sweep == "m"]

    monkeypatch.setitem(MEASUREMENTS, "activations", replace(whole, points=points))


def measured(folder):
    """Return the finished lines without what differs from run to run."""
    lines = [json.loads(line) for line in (folder / FILE).read_text().splitlines()]
    return {(json.dumps(line["point"]), line["run"]["seed"]): line["run"]["numbers"] for line in lines}


def test_a_stopped_run_goes_on_to_the_same_numbers(tmp_path):
    options = runs.read_options(["widths=[32]", "seeds=[0]"])
    runs.run("activations", options, tmp_path / "whole", silent)

    def stop(text, done, total):
        if done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        runs.run("activations", options, tmp_path / "stopped", stop)
    assert len(measured(tmp_path / "stopped")) == 3
    with open(tmp_path / "stopped" / FILE, "ab") as file:
        file.write(b'{"point": {"sweep": "m", "wid')  # as a crash while writing leaves it
    again = []
    runs.run("activations", options, tmp_path / "stopped", lambda text, done, total: again.append(done))
    assert again[0] == 3
    assert measured(tmp_path / "stopped") == measured(tmp_path / "whole")
    before = (tmp_path / "whole" / FILE).read_bytes()
    runs.run("activations", options, tmp_path / "whole", silent)
    assert (tmp_path / "whole" / FILE).read_bytes() == before


def test_results_of_other_code_are_measured_again(tmp_path, monkeypatch):
    options = runs.read_options(["widths=[32]", "seeds=[0]"])
    runs.run("activations", options, tmp_path, silent)
    count = len((tmp_path / FILE).read_text().splitlines())
    monkeypatch.setattr(runs, "code_version", lambda measurement: "other")
    runs.run("activations", options, tmp_path, silent)
    assert len((tmp_path / FILE).read_text().splitlines()) == 2 * count


def test_two_processes_do_not_write_to_one_file(tmp_path):
    folder = tmp_path / "theory" / "activations"
    folder.mkdir(parents=True)
    with open(folder / "lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(ValueError, match="another process"):
            runs.run("activations", runs.read_options([]), tmp_path, silent)


def test_points_without_their_data_are_left_out_and_named(tmp_path):
    points = [Point(sweep="data", data=data) for data in ("digits", "cifar100", "clusters")]
    there, missing = runs._with_data(points, tmp_path)
    assert [point.data for point in there] == ["digits", "clusters"]
    assert len(missing) == 1
    assert missing[0].startswith("cifar100 is left out")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("widths=[4]", "m = 4 is too small for depth L = 3"),
        ("widths=[]", "widths"),
        ("seeds=[x]", "seeds"),
        ("width=[64]", "valid: widths, seeds, data.root"),
        ("widths", "has no value"),
    ],
)
def test_wrong_options_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        runs.read_options([change])


def test_options_are_read():
    options = runs.read_options(["widths=8192", "seeds=[3, 4]", "data.root=sets"])
    assert options == runs.Options(widths=(8192,), seeds=(3, 4), root=Path("sets"))


def results_of(numbers, name="activations"):
    """Return results of one sweep: {point: [numbers of seed 0, 1, ...]}."""
    learners = {
        point.label: [KeptRun(seed=seed, numbers=one, events=[], code="x") for seed, one in enumerate(by_seed)]
        for point, by_seed in numbers.items()
    }
    part = KeptPart(examples=0, learners=learners)
    return KeptResults(experiment=f"theory-{name}", environment=None, parts={"m": part})


def test_new_points_are_added_to_kept_ones(tmp_path):
    point = Point(sweep="m", width=32, depth=5)
    keep(results_of({point: [{"inside": 0.5}, {"inside": 0.25}]}), tmp_path)
    runs.run("activations", runs.read_options(["widths=[32]", "seeds=[0]"]), tmp_path / "runs", silent)
    curves = Curves(runs.read_results("activations", tmp_path / "runs", tmp_path))
    assert curves.where("m").values(point, "inside") == [0.0, 0.25]  # seed 0 is the new one
    assert len(curves.points) > 1


def test_exponents_and_their_intervals():
    rng = np.random.default_rng(0)
    widths = (64, 128, 256, 512)
    noise = {width: rng.normal(0, 0.05, 4) for width in widths}
    points = {Point(sweep="m", width=m): [{"a": m**0.7 * np.exp(e)} for e in noise[m]] for m in widths}
    curves = Curves(results_of(points)).where("m")
    slopes = [
        np.polyfit(np.log(widths), [np.log(m**0.7) + noise[m][seed] for m in widths], 1)[0] for seed in range(4)
    ]
    exponent = curves.exponent("a", lambda point: point.width)
    assert exponent.mean == pytest.approx(np.mean(slopes))
    assert exponent.half == pytest.approx(mean_interval(slopes).half)
    assert curves.exponent("b", lambda point: point.width) is None
    assert grows_at_most("", exponent, 0.7).word == "supports"
    assert grows_at_most("", exponent, 0.3).word == "contradicts"
    assert falls_at_least("", exponent, 0.7).word == "supports"
    assert falls_at_least("", exponent, 1.3).word == "contradicts"
    assert grows_at_most("", mean_interval([0.0, 1.0]), 0.5).word == "cannot tell"
    assert grows_at_most("", mean_interval([0.5]), 0.5).word == "cannot tell"
    assert grows_at_most("", None, 0.5).word == "not run"
    assert never_above("", [0.1, 1.0], 1).word == "supports"
    assert never_above("", [0.1, 1.1], 1).word == "contradicts"
    assert never_above("", [], 1).word == "not run"


def test_one_contradiction_decides_a_statement():
    good, bad = above("", mean_interval([1.0, 1.1]), 0), above("", mean_interval([-1.0, -1.1]), 0)
    open_ = above("", mean_interval([-1.0, 1.0]), 0)
    assert verdict_of([good, good]) == "supports"
    assert verdict_of([good, open_]) == "cannot tell"
    assert verdict_of([good, open_, bad]) == "contradicts"
    assert verdict_of([]) == "not run"


def test_the_command_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    runner = CliRunner()
    arguments = ["run", "theory/activations", "--set", "widths=[32]", "--seed", "0", "--seed", "1"]
    assert runner.invoke(app, arguments).exit_code == 0
    assert {seed for _, seed in measured(tmp_path / "runs")} == {0, 1}
    assert runner.invoke(app, ["report", "theory"]).exit_code == 0
    text = (tmp_path / "docs" / "theory.md").read_text()
    assert "images/theory/activations.png" in text
    assert "| not run |" in text
    for wrong, message in (
        (["run", "theory/activation"], "activations"),
        (["run", "theory", "--jobs", "2"], "take --set and --seed"),
        (["run", "theory/iterates", "--set", "widths=[2]"], "too small"),
    ):
        result = runner.invoke(app, wrong)
        assert isinstance(result.exception, ValueError)
        assert message in str(result.exception)
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    assert "no measurement" in str(runner.invoke(app, ["report", "theory"]).exception)


def test_the_page_is_that_of_the_kept_results(tmp_path):
    """docs/theory.md is written from docs/results; `coldstream report theory` brings it up to date."""
    kept = tmp_path / "docs" / "results"
    kept.mkdir(parents=True)
    for file in (DOCS / "results").glob("theory-*.json"):
        (kept / file.name).write_bytes(file.read_bytes())
    written = page.write(tmp_path / "runs", tmp_path / "docs")
    assert (tmp_path / "docs" / "theory.md").read_text() == (DOCS / "theory.md").read_text()
    pictures = {path.name for path in written if path.suffix == ".png"}
    shown = set(re.findall(r"images/theory/([\w-]+\.png)", (DOCS / "theory.md").read_text()))
    assert shown == pictures == {path.name for path in (DOCS / "images" / "theory").glob("*.png")}
