"""Files of a run that were damaged or edited: what is wrong is said with the file's name, and never reported."""

import re
import sys
import time
from contextlib import suppress

import pytest

from coldstream.checkpoint import read_manifest
from coldstream.cli import main
from coldstream.lab import Experiment, Stopped, make_config, run_jobs
from coldstream.lab.yaml_files import MAX_BYTES, read_config
from coldstream.report.pages import write_report

TREE = {
    "name": "one",
    "data": {"classes": 6, "per_class": 6, "test_per_class": 4},
    "stream": {"test_every": 2},
    "learner": {"model": "linear", "replay": 3},
    "offline": {"enabled": False},
    "checkpoint_every": 5,
}


def create(tmp_path, **changes):
    return Experiment.create(make_config({**TREE, **changes}), tmp_path / "runs" / "one")


@pytest.fixture
def finished(tmp_path):
    made = create(tmp_path)
    run_jobs(made)
    made.results()
    return made


def call(monkeypatch, capsys, *arguments):
    monkeypatch.setattr(sys, "argv", ["coldstream", *map(str, arguments)])
    with pytest.raises(SystemExit) as stopped:
        main()
    said = capsys.readouterr()
    return stopped.value.code, " ".join(said.err.split())


def drop_last_line(path):
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))


def change_a_digit(path):
    path.write_bytes(path.read_bytes().replace(b'"step": 12', b'"step": 13', 1))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (drop_last_line, "metrics.jsonl is damaged: it has 2 of 3 lines"),
        (lambda path: path.write_bytes(b""), "it has 0 of 3 lines"),
        (lambda path: path.unlink(), "it has 0 of 3 lines"),
        (change_a_digit, "metrics.jsonl is damaged: its checksum is wrong"),
    ],
)
def test_metrics_of_a_unit_that_lack_lines(finished, monkeypatch, capsys, damage, message):
    job = finished.jobs[0]
    damage(job.folder.path / "metrics.jsonl")
    with pytest.raises(ValueError, match=message):
        Experiment.open(finished.folder.path).results()
    code, said = call(monkeypatch, capsys, "run", "--resume", finished.folder.path)
    assert code == 2
    assert f"{job.folder.path}/metrics.jsonl is damaged" in said
    assert f"delete the folder {job.folder.path} and run the experiment again" in said


@pytest.mark.parametrize("damage", [drop_last_line, change_a_digit])
def test_metrics_of_an_experiment_that_lack_lines(finished, monkeypatch, capsys, damage):
    before = (finished.folder.path / "metrics.jsonl").read_bytes()
    damage(finished.folder.path / "metrics.jsonl")
    code, said = call(monkeypatch, capsys, "report", finished.folder.path)
    assert code == 2
    assert "one/metrics.jsonl is damaged" in said
    assert call(monkeypatch, capsys, "run", "--resume", finished.folder.path)[0] == 0  # as the error says
    assert (finished.folder.path / "metrics.jsonl").read_bytes() == before


def test_metrics_that_lose_a_line_while_the_run_is_stopped(tmp_path, finished):
    made = create(tmp_path / "again")
    job = made.jobs[0]
    with suppress(Stopped):
        job.run(lambda done, total, note: done >= 25)
    drop_last_line(job.folder.path / "metrics.jsonl")
    with pytest.raises(ValueError, match=r"metrics.jsonl is damaged: it has 1 of 2 lines; restore it, or delete"):
        run_jobs(made)
    assert not job.finished


def test_lines_after_the_checkpoint_are_made_again(tmp_path, finished):
    made = create(tmp_path / "again")
    job = made.jobs[0]
    with suppress(Stopped):
        job.run(lambda done, total, note: done >= 25)
    with open(job.folder.path / "metrics.jsonl", "ab") as file:
        file.write(b'{"step": 36, "what a crash')
    run_jobs(made)
    assert made.results() == finished.results()


@pytest.mark.parametrize("text", ["", "# nothing\n", "{}\n", "name: one\n"])
def test_a_config_that_is_not_the_planned_one(finished, monkeypatch, capsys, text):
    path = finished.folder.path / "config.yaml"
    before = path.read_bytes()
    path.write_text(text)
    for command in (["run", "--resume"], ["report"]):
        code, said = call(monkeypatch, capsys, *command, finished.folder.path)
        assert code == 2
        assert "one/config.yaml is not the one that this run was planned with" in said
    with pytest.raises(ValueError, match="config.yaml is not the one"):
        _ = Experiment.open(finished.folder.path).config
    # The same command writes it anew, as the error says; another config is refused.
    with pytest.raises(ValueError, match="config.yaml is not the one"):
        create(finished.folder.path.parents[1], seeds=[1])
    assert create(finished.folder.path.parents[1]).finished
    assert path.read_bytes() == before


def test_an_emptied_config_without_a_plan(finished):
    (finished.folder.path / "plan.json").unlink()
    (finished.folder.path / "config.yaml").write_text("")
    with pytest.raises(ValueError, match=r"config.yaml is empty"):
        Experiment.resume(finished.folder.path)
    with pytest.raises(ValueError, match=r"config.yaml is empty"):
        write_report(finished.folder.path)


def test_a_damaged_checkpoint_is_named(tmp_path, monkeypatch, capsys):
    made = create(tmp_path)
    with suppress(Stopped):
        made.jobs[0].run(lambda done, total, note: done >= 7)
    manifest = made.jobs[0].folder.path / "checkpoint" / "manifest.json"
    manifest.write_text("{")
    code, said = call(monkeypatch, capsys, "status", made.folder.path)
    assert code == 2
    assert f"{manifest} is damaged" in said


def change_digits(path):
    """Change each number of a JSON file in turn; yield while it is changed."""
    text = path.read_text()
    for number in re.finditer(r"(?<=: )\d", text):
        path.write_text(text[: number.start()] + str(int(number[0]) % 9 + 1) + text[number.end() :])
        yield
    path.write_text(text)


@pytest.mark.parametrize("name", ["units/summary.json", "units/timing.json", "offline/summary.json", "plan.json"])
def test_no_number_of_a_record_changes_unnoticed(with_references, name):
    kind, _, file = name.rpartition("/")
    folders = [job.folder for job in with_references.jobs if job.planned.kind == kind]
    path = (folders[0] if kind else with_references.folder).path / file
    changed = 0
    for _ in change_digits(path):
        changed += 1
        with pytest.raises(ValueError, match=f"{path} is damaged: its checksum is wrong; restore it"):
            Experiment.open(with_references.folder.path).results()
    assert changed > 3
    assert Experiment.open(with_references.folder.path).results().learners


@pytest.fixture(scope="module")
def with_references(tmp_path_factory):
    offline = {"epochs": 1, "augment": "none"}
    made = create(tmp_path_factory.mktemp("references"), offline=offline)
    run_jobs(made)
    return made


def test_results_are_read_where_the_learner_cannot_be(finished):
    """As where an earlier format of checkpoints was written."""
    before, manifest = finished.results(), finished.jobs[0].folder.path / "checkpoint" / "manifest.json"
    text = manifest.read_text()
    manifest.write_text(text.replace('"version": ', '"version": 1'))
    with pytest.raises(ValueError, match="format version"):
        read_manifest(manifest.parent)
    assert Experiment.open(finished.folder.path).results() == before


BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{one}: &{one} [{','.join([f'*{before}'] * 9)}]\n" for before, one in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (BOMB + "name: [*i]\n", "stands for more than 100,000 values"),
        (BOMB.replace("[x,x,x,x,x,x,x,x,x]", "{x: 1}") + "learner: {<<: *i}\n", "more than 100,000 values"),
        ("learner: &a {again: *a}\n", "more than 100,000 values"),
        ("learner: " + "[" * 100_000, "not YAML of a config"),
        ("name: x" + " " * MAX_BYTES, "has more than 200,000 bytes"),
        ("name: caf\udce9", "not YAML of a config"),
        ("seeds: [" + "9" * 5000 + "]", "not YAML of a config"),
        ("", "is empty"),
        ("[1, 2]", "a config is a tree of settings, not list"),
    ],
)
def test_a_config_that_would_cost_too_much_is_refused(tmp_path, text, message):
    path = tmp_path / "x.yaml"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    begin = time.perf_counter()
    with pytest.raises(ValueError, match=message) as caught:
        read_config(path)
    assert str(path) in str(caught.value)
    assert time.perf_counter() - begin < 5
    if "*i" in text:  # so it is on the command line
        with pytest.raises(ValueError, match="the value is not YAML"):
            make_config({}, [f"learner={{{BOMB.replace(chr(10), ',')} x: *i}}"])


def test_aliases_are_allowed(tmp_path):
    (tmp_path / "x.yaml").write_text("learners:\n  a: &a {replay: 3}\n  b: {<<: *a, model: mlp}\n")
    assert read_config(tmp_path / "x.yaml")["learners"]["b"] == {"replay": 3, "model": "mlp"}
