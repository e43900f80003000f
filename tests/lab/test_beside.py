"""Tests beside the stream: the bits of tests between two steps, also when stopped or killed at any moment."""

import json
import os
import signal
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from coldstream import ColdStart
from coldstream.lab import Experiment, Stopped, evaluation, make_config, run_jobs

SMALL = [
    "learner.model=linear",
    "learner.replay=4",
    "offline.enabled=false",
    "data.classes=4",
    "data.per_class=10",
    "data.test_per_class=10",
    "checkpoint_every=5",
    "threads=1",
]
TESTS = (10, 20, 30, 40)


def begin(folder, mode, *changes):
    return Experiment.create(make_config({}, [*SMALL, f"evaluate={mode}", *changes]), folder / mode / "run")


def end(experiment):
    run_jobs(experiment)
    experiment.results()
    return {name: (experiment.folder.path / name).read_bytes() for name in ("summary.json", "metrics.jsonl")}


@pytest.fixture(scope="module")
def straight(tmp_path_factory):
    return end(begin(tmp_path_factory.mktemp("straight"), "between"))


@pytest.fixture
def saves(monkeypatch):
    """The step of every checkpoint, each checked for the lines of the tests before it."""
    steps, save = [], ColdStart.save

    def watched(self, path, **more):
        lines = [json.loads(line)["step"] for line in (path.parent / "metrics.jsonl").read_text().splitlines()]
        assert lines == [step for step in TESTS if step <= self.step]
        steps.append(self.step)
        return save(self, path, **more)

    monkeypatch.setattr(ColdStart, "save", watched)
    return steps


def slow(monkeypatch, before):
    """Call `before(event)` in the background before each test."""
    evaluate = evaluation.evaluate

    def late(learner, test, event):
        assert threading.current_thread() is not threading.main_thread()
        before(event)
        return evaluate(learner, test, event)

    monkeypatch.setattr(evaluation, "evaluate", late)


def test_the_same_bits_as_between(tmp_path):
    network = ["learner.model=resnet8-16", "offline.enabled=true", "offline.epochs=1"]
    one, two = (begin(tmp_path, mode, *network) for mode in ("between", "beside"))
    assert [job.key for job in one.jobs] == [job.key for job in two.jobs]
    assert end(one) == end(two)


def test_a_checkpoint_waits_for_the_tests_before_it(tmp_path, monkeypatch, saves, straight):
    slow(monkeypatch, lambda event: time.sleep(0.4))  # ten steps take a hundredth of that
    assert end(begin(tmp_path, "beside")) == straight
    # The one of step 10 is put off while test 10 is under way, until test 20 comes: then the stream waits.
    assert saves == [5, 20, 25, 40]


def test_crashes_and_stops_while_a_test_is_under_way(tmp_path, monkeypatch, saves, straight):
    gates = {step: threading.Event() for step in TESTS}
    slow(monkeypatch, lambda event: gates[event.step].wait(5))
    experiment = begin(tmp_path, "beside")
    (job,) = experiment.jobs

    def until(step, stop=False):
        def watch(done, total, note):
            for test, gate in gates.items():
                if done == test + 7 or (stop and done == step):
                    gate.set()
            if done == step and not stop:
                for gate in gates.values():  # the thread is joined
                    gate.set()
                raise RuntimeError("the process dies")
            return done == step

        return watch

    with pytest.raises(RuntimeError, match="dies"):
        job.run(until(14))
    assert saves == [5]
    for gate in gates.values():
        gate.clear()
    with pytest.raises(Stopped):
        job.run(until(22, stop=True))
    assert saves[-1] == 22  # with the line of test 20, which was under way
    assert end(experiment) == straight


def test_what_goes_wrong_in_the_background_is_told(tmp_path, monkeypatch, saves):
    def break_down(event):
        if event.step == 20:
            raise OSError("the disk of the test images is gone")

    slow(monkeypatch, break_down)
    with pytest.raises(OSError, match="is gone"):
        run_jobs(begin(tmp_path, "beside"))
    assert max(saves) < 20


def test_the_threads_are_those_of_the_job(tmp_path, monkeypatch):
    import torch

    seen = []
    slow(monkeypatch, lambda event: seen.append(torch.get_num_threads()))
    before = torch.get_num_threads()
    try:
        end(begin(tmp_path, "beside", "threads=2"))
    finally:
        torch.set_num_threads(before)
    assert seen == [2] * len(TESTS)


DRIVER = """
import os, struct, sys, time
from pathlib import Path
from coldstream.lab import Experiment, evaluation, make_config, run_jobs

evaluate = evaluation.evaluate
def late(*arguments):
    time.sleep(0.5)
    return evaluate(*arguments)
evaluation.evaluate = late
file = os.open(sys.argv[2], os.O_RDWR | os.O_CREAT)

class Show:
    def update(self, job, done, total, note):
        os.pwrite(file, struct.pack("q", done), 0)
        time.sleep(0.01)
    def finished(self, job):
        pass

run_jobs(Experiment.create(make_config({}, sys.argv[3:]), Path(sys.argv[1])), 1, Show())
"""


def test_sigkill_while_a_test_is_under_way_changes_nothing(tmp_path, straight):
    experiment = begin(tmp_path, "beside")
    (job,) = experiment.jobs
    progress = Path(tmp_path, "progress")
    command = [sys.executable, "-c", DRIVER, experiment.folder.path, progress, *SMALL, "evaluate=beside"]
    process = subprocess.Popen(command, env={**os.environ, "OMP_NUM_THREADS": "1"})
    deadline = time.monotonic() + 120
    while not progress.exists() or not progress.stat().st_size or struct.unpack("q", progress.read_bytes())[0] < 33:
        assert process.poll() is None, "it ended before it was killed"
        assert time.monotonic() < deadline, "nothing happened"
        time.sleep(0.001)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert job.progress() in ((20, 40), (25, 40))  # the checkpoint of step 25 is written while the stream goes on
    assert end(experiment) == straight
