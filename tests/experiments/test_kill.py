"""SIGKILL at random moments, resume, and the end is the same to the bit."""

import json
import os
import random
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest

EVERY = 40
CHANGES = [
    "learner.model=linear",
    "learner.replay=10",
    "learner.capacity=300",
    "learner.augment=crop|autoaugment(cifar10)|mixup(0.1)/cutmix(0.8)",
    "offline.epochs=1",
    f"checkpoint_every={EVERY}",
]

# A run that says in a file which step it has done, so that the parent can count what is done again.
DRIVER = """
import os, struct, sys
from pathlib import Path
from coldstream.experiments import Run, make_config

folder, progress, changes = Path(sys.argv[1]), sys.argv[2], sys.argv[3:]
file = os.open(progress, os.O_RDWR | os.O_CREAT)

class Watcher:
    def streaming(self, done, total, accuracy):
        os.pwrite(file, struct.pack("q", done), 0)
    def training_offline(self, done, total):
        os.pwrite(file, struct.pack("q", -1), 0)

run = Run.resume(folder) if (folder / "config.yaml").exists() else Run.new(make_config({}, changes), folder)
os.pwrite(file, struct.pack("q", run.learner.step), 8)
run.run(Watcher())
"""


def start(folder, progress):
    command = [sys.executable, "-c", DRIVER, str(folder), str(progress), *CHANGES]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def steps(progress: Path):
    data = progress.read_bytes() if progress.exists() else b""
    return struct.unpack("qq", data) if len(data) == 16 else (0, 0)


def checkpoint_step(folder):
    path = folder / "checkpoint" / "manifest.json"
    return json.loads(path.read_text())["step"] if path.exists() else None


def half_written(folder):
    """Whether the checkpoint folder holds files that its manifest does not know of."""
    there = folder / "checkpoint"
    try:
        names = {path.name for path in there.iterdir()}
        manifest = json.loads((there / "manifest.json").read_text())
    except FileNotFoundError:
        return False
    return bool(names - {"manifest.json", manifest["state"]["file"], *(s["file"] for s in manifest["segments"])})


def wait_for(condition, process, seconds=120):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "nothing happened"
        if process.poll() is not None:
            return False
    return True


def results(folder):
    names = ("summary.json", "metrics.jsonl", "offline.jsonl", "config.yaml")
    return {name: (folder / name).read_bytes() for name in names}


@pytest.fixture(scope="module")
def straight(tmp_path_factory):
    folder = tmp_path_factory.mktemp("straight") / "run"
    process = start(folder, folder.parent / "progress")
    _, error = process.communicate(timeout=300)
    assert process.returncode == 0, error.decode()
    return results(folder)


def test_ten_kills_change_nothing(tmp_path, straight):
    folder, progress = tmp_path / "run", tmp_path / "progress"
    rng = random.Random(7)
    moments = sorted(rng.randrange(1, 1400) for _ in range(6))
    plans = [("step", 10)] + [("step", moment) for moment in moments] + [("writing", None)] * 4
    rng.shuffle(plans)
    plans.sort(key=lambda plan: 0 if plan == ("step", 10) else 1)  # one before there is any checkpoint
    kills = after_checkpoint = while_writing = 0
    for kind, moment in plans:
        process = start(folder, progress)
        try:
            if kind == "step":
                before = checkpoint_step(folder) or 0
                goal = max(moment, before + rng.randrange(1, 2 * EVERY))
                alive = wait_for(lambda goal=goal: steps(progress)[0] >= goal or steps(progress)[0] == -1, process)
            else:
                alive = wait_for(lambda: half_written(folder) or steps(progress)[0] == -1, process)
            if not alive:
                break
            process.send_signal(signal.SIGKILL)
        finally:
            process.kill()
            process.wait()
            process.stderr.close()
        kills += 1
        while_writing += half_written(folder)
        done, _ = steps(progress)
        saved = checkpoint_step(folder)
        after_checkpoint += saved is not None
        if done >= 0:
            assert done - (saved or 0) <= EVERY, "more than an interval would be done again"
    assert kills >= 10
    assert after_checkpoint >= 5
    assert while_writing >= 1
    process = start(folder, progress)
    _, error = process.communicate(timeout=300)
    assert process.returncode == 0, error.decode()
    assert results(folder) == straight
