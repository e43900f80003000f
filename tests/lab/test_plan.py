"""The plan of a run: written once, read by status and workers, checked against data and code by the jobs."""

import json
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace

import pytest

from coldstream.lab import Experiment, Stopped, inputs, make_config, run_jobs
from coldstream.lab.plan import Plan
from coldstream.learners import ER

TREE = {
    "name": "one",
    "data": {"classes": 4, "per_class": 6, "test_per_class": 4},
    "stream": {"test_every": 2},
    "learner": {"model": "linear", "replay": 3},
    "offline": {"epochs": 1},
    "seeds": [0, 1],
}


def create(tmp_path, **changes):
    return Experiment.create(make_config({**TREE, **changes}), tmp_path / "runs" / "one")


def test_opening_reads_the_plan_and_nothing_else(tmp_path, monkeypatch):
    made = create(tmp_path)
    monkeypatch.setattr(inputs, "load_dataset", lambda *_: pytest.fail("data were opened"))
    (made.folder.path / "config.yaml").write_text("neither: is this read")
    opened = Experiment.open(made.folder.path)
    assert opened.plan == made.plan == made.folder.read("plan.json", Plan)
    assert [(job.key, job.progress()) for job in opened.jobs] == [(job.key, job.progress()) for job in made.jobs]
    assert not opened.finished


def test_results_need_no_data(tmp_path, monkeypatch):
    made = create(tmp_path)
    run_jobs(made)
    before = made.results()
    monkeypatch.setattr(inputs, "load_dataset", lambda *_: pytest.fail("data were opened"))
    assert Experiment.open(made.folder.path).results() == before


@pytest.mark.parametrize("kind", ["units", "offline"])
def test_a_job_whose_data_have_changed_is_refused(tmp_path, monkeypatch, kind):
    made = create(tmp_path)
    load = inputs.load_dataset

    def other(*place):
        train, test = load(*place)
        return replace(train, images=255 - train.images), replace(test, images=255 - test.images)

    monkeypatch.setattr(inputs, "load_dataset", other)
    opened = Experiment.open(made.folder.path)
    job = next(job for job in opened.jobs if job.planned.kind == kind)
    with pytest.raises(ValueError, match="the data or the code has changed since this run was planned"):
        job.run(lambda *_: False)
    assert not job.finished
    again = Experiment.resume(made.folder.path)  # plans anew
    assert {job.key for job in again.jobs}.isdisjoint(job.key for job in made.jobs)
    run_jobs(again)
    assert again.finished


def test_a_run_without_a_plan_can_be_resumed(tmp_path):
    made = create(tmp_path)
    (made.folder.path / "plan.json").unlink()
    with pytest.raises(ValueError, match=r"has no plan.json; make it with: coldstream run --resume"):
        Experiment.open(made.folder.path)
    assert Experiment.resume(made.folder.path).plan == made.plan


def test_a_damaged_plan_is_refused(tmp_path):
    made = create(tmp_path)
    path = made.folder.path / "plan.json"
    path.write_text(path.read_text().replace('"units"', '"unites"', 1))
    with pytest.raises(ValueError, match=r"plan.json is damaged: its checksum is wrong"):
        Experiment.open(made.folder.path)


WITHOUT_TORCH = """
import sys
sys.argv = ["coldstream", *sys.argv[1:]]
from coldstream.cli import main
try:
    main()
except SystemExit as stopped:
    assert not stopped.code, stopped.code
heavy = {"torch", "torchvision", "sklearn", "matplotlib", "scipy", "PIL"} & sys.modules.keys()
assert not heavy, heavy
if sys.argv[1:] in (["--help"], ["list"], ["data", "list"]):
    assert not {"numpy", "coldstream.lab.config"} & sys.modules.keys()
"""


@pytest.mark.parametrize("command", [["--help"], ["list"], ["list", "paper"], ["data", "list"], ["status", "RUN"]])
def test_commands_that_do_not_compute_do_not_load_torch(tmp_path, command):
    path = create(tmp_path).folder.path
    arguments = [str(path) if word == "RUN" else word for word in command]
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH, *arguments], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


OWN = """
import numpy as np
from coldstream.data import Dataset

def squares():
    rng = np.random.default_rng(0)
    def some(count):
        labels = np.arange(count) % 3
        images = (rng.integers(0, 60, (count, 8, 8, 1)) + 80 * labels[:, None, None, None]).astype(np.uint8)
        return Dataset("squares", images, labels, ("dark", "grey", "light"))
    return some(30), some(12)

def one():
    return squares()[0]

def breaks():
    raise RuntimeError("no disk")

number = 3
"""


def test_data_of_the_users_own_function(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own_data.py").write_text(OWN)
    made = create(tmp_path, data="own_data:squares", learner={"model": "linear", "replay": 3}, seeds=[0])
    run_jobs(made)
    results = made.results()
    assert (results.data_name, results.examples, results.test_images) == ("squares", 30, 12)
    assert results.learners["cold-start"].units[0].numbers.prequential > 0.5
    tasks = {"first": "own_data:squares", "then": {"name": "own_data:squares", "classes": ["dark", "light"]}}
    made = Experiment.create(make_config({**TREE, "data": {}, "tasks": tasks}), tmp_path / "runs" / "two")
    assert [(task.task, task.train) for task in made.plan.tasks] == [("first", 30), ("then", 20)]
    for name, message in (
        ("one", "must return two coldstream.data.Dataset"),
        ("breaks", "'own_data:breaks' failed: RuntimeError: no disk"),
        ("number", "is not a function"),
        ("nothing", "cannot be imported: AttributeError"),
    ):
        with pytest.raises(ValueError, match=message):
            Experiment.create(make_config({**TREE, "data": f"own_data:{name}"}), tmp_path / "runs" / f"own-{name}")


def test_several_new_examples_in_one_update(tmp_path, monkeypatch):
    """No update crosses a test or the end of a batch; stopped anywhere, it resumes to the same bits."""
    learned, learn = [], ER.learn_many

    def watched(self, images, labels, **more):
        learned.append((self.step, len(images), more["per_update"]))
        return learn(self, images, labels, **more)

    monkeypatch.setattr(ER, "learn_many", watched)
    learners = {
        "one": {"kind": "er"},
        "four": {"kind": "er", "per_update": 4},
        "five": {"kind": "er-ace", "per_update": 5},
    }
    made = create(tmp_path, learners=learners, offline={"enabled": False}, seeds=[0], checkpoint_every=7)
    run_jobs(made)
    fours = [(0, 4, 4), (4, 4, 4), (8, 4, 4), (12, 4, 4), (16, 4, 4), (20, 4, 4)]
    fives = [(0, 5, 5), (5, 5, 5), (10, 2, 2), (12, 5, 5), (17, 5, 5), (22, 2, 2)]
    assert learned == fours + fives
    results = made.results()
    assert [event.step for event in results.learners["five"].units[0].events] == [12, 24]
    prints = {name: result.units[0].learner.fingerprint for name, result in results.learners.items()}
    assert len(set(prints.values())) == 3
    again = create(tmp_path / "again", learners=learners, offline={"enabled": False}, seeds=[0], checkpoint_every=7)
    for job in again.jobs:
        for moment in (5, 17):
            with suppress(Stopped):
                job.run(lambda done, total, note, moment=moment: done >= moment)
    run_jobs(again)
    assert again.results() == results
    plain = create(tmp_path / "plain", learner={**TREE["learner"], "per_update": 4}, seeds=[0])
    assert "per_update: 4" in (plain.folder.path / "config.yaml").read_text()
    assert plain.plan.units["cold-start"][0] != create(tmp_path / "other", seeds=[0]).plan.units["cold-start"][0]
    for wrong in (0, "four", True):
        with pytest.raises(ValueError, match=r"'learners.cold-start.per_update': a whole number from 1"):
            make_config({**TREE, "learner": {"per_update": wrong}})


def test_workers_are_given_keys(tmp_path):
    """A worker finds its job by key: the plan that it reads may list the jobs in another order."""
    made = create(tmp_path, offline={"enabled": False})
    path = made.folder.path / "plan.json"
    plan = json.loads(path.read_text())
    del plan["checksum"]
    path.write_text(json.dumps({**plan, "jobs": plan["jobs"][::-1]}))
    run_jobs(made, workers=2)
    assert made.finished
