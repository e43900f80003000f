"""What a result was computed with."""

import importlib.util
import shutil
import subprocess

import pytest
import torch

from coldstream.lab import Experiment, environment, make_config
from coldstream.lab.config import DIGITS
from coldstream.lab.learners import ran_with
from coldstream.lab.reading import learner_changes
from coldstream.lab.records import Environment
from coldstream.lab.run import run_jobs
from coldstream.report.pages import write_report
from finished_runs import ENVIRONMENT


def test_processor_and_instruction_set(monkeypatch):
    for name in ("ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA"):
        monkeypatch.delenv(name, raising=False)
    now = environment.describe_environment()
    assert now.processor == environment.processor()
    assert now.instructions == torch.backends.cpu.get_cpu_capability()
    assert now.threads == torch.get_num_threads()
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX2")
    limited = environment.describe_environment()
    assert limited.instructions == f"{now.instructions}, ONEDNN_MAX_CPU_ISA=AVX2"
    assert limited.hardware.startswith(f"{now.processor}, {limited.instructions}, {now.threads} thread")


def test_environments_from_before_are_read():
    old = ENVIRONMENT.model_dump(exclude={"processor", "instructions", "dirty"})
    assert Environment.model_validate(old).hardware is None


def test_code_that_differs_from_its_commit(tmp_path):
    clone = tmp_path / "clone"
    (clone / "package" / "lab").mkdir(parents=True)
    file = shutil.copy(environment.__file__, clone / "package" / "lab")

    def code():
        spec = importlib.util.spec_from_file_location("environment_of_a_clone", file)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module._code()

    def git(*arguments):
        names = ["-c", "user.name=x", "-c", "user.email=x@x"]
        subprocess.run(["git", "-C", clone, *names, *arguments], check=True, capture_output=True)

    assert code() == {}
    git("init")
    git("add", ".")
    git("commit", "-m", "x")
    before = code()
    assert len(before["commit"]) == 40
    assert not before["dirty"]
    (clone / "notes.txt").write_text("not of the package")
    assert not code()["dirty"]
    (clone / "package" / "new.py").write_text("x = 1")
    assert code() == {**before, "dirty": True}


def test_a_learner_of_its_own_kind_has_its_own_settings():
    config = make_config(dict(DIGITS), learner_changes(["er", "cssl"], default=True))
    for kind in ("er", "cssl"):
        assert ran_with(config, kind).kind == kind
        assert ran_with(config, kind).changed == {}


def test_the_report_says_what_a_learner_ran_with(tmp_path):
    tree = {
        "data": {"classes": 2, "per_class": 4, "test_per_class": 4},
        "learner": {"model": "linear", "codec": "quantize(4)", "passes": 2},
        "learners": {"plain": {"kind": "er", "replay": 3}, "default": {"per_update": 2}},
        "offline": {"enabled": False},
    }
    made = Experiment.create(make_config(tree), tmp_path / "runs" / "one")
    run_jobs(made)
    learners = made.results().learners
    assert learners["plain"].ran_with.model_dump() == {
        "kind": "er",
        "changed": {"model": "linear", "codec": "quantize(4)", "replay": "3"},
    }
    assert learners["default"].ran_with.changed == {
        "model": "linear",
        "codec": "quantize(4)",
        "passes": "2",
        "per_update": "2",
    }
    page = write_report(made.folder.path).read_text()
    row = r"<tr><td>plain</td><td>er</td><td>{}</td></tr>"
    changed = learners["plain"].ran_with.changed
    assert row.format(", ".join(f"{key} {value}" for key, value in changed.items())) in page
    assert f"processor {environment.processor()}" in page


@pytest.mark.parametrize("name", ["processor", "instructions", "threads", "commit", "dirty"])
def test_a_run_records_it(tmp_path, name):
    tree = {"data": {"classes": 2, "per_class": 4}, "learner": {"model": "linear"}, "offline": {"enabled": False}}
    made = Experiment.create(make_config(tree), tmp_path / "runs" / "one")
    assert getattr(made.folder.read("environment.json", Environment), name) is not None
