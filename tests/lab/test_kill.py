"""SIGKILL at random moments: a resumed run ends bit for bit the same; one run often, and a grid of several."""

import json
import random
import struct
import time
from pathlib import Path

import pytest

from warm import Warm

EVERY = 25
SMALL = [
    "stream.test_every=2",
    "learner.model=linear",
    "learner.replay=10",
    "learner.capacity=200",
    "offline.epochs=1",
    f"checkpoint_every={EVERY}",
]
ONE = [*SMALL, "data.per_class=60", "learner.augment=crop|autoaugment(cifar10)|mixup(0.1)/cutmix(0.8)"]
GRID = [
    *SMALL,
    "data.per_class=25",
    "data.test_per_class=10",
    "learners={crop: {augment: crop}, none: {augment: none}}",
    "seeds=[0, 1, 2]",
]

# A run that says in a file which step it has done, so that the parent can count what is done again.
DRIVER = """
import os, struct, sys, threading, time
from pathlib import Path
from coldstream.lab import Experiment, make_config, run_jobs

fsync = os.fsync
def slow(file):
    if threading.current_thread().name == "checkpoint":
        time.sleep(float(os.environ.get("SLOW_DISK", 0)))
    fsync(file)
os.fsync = slow

folder, progress, changes = Path(sys.argv[1]), sys.argv[2], sys.argv[3:]
file = os.open(progress, os.O_RDWR | os.O_CREAT)

class Show:
    def update(self, job, done, total, note):
        os.pwrite(file, struct.pack("q", done if job.counted == "examples" else -1), 0)
    def finished(self, job):
        pass

experiment = Experiment.create(make_config({}, changes), folder)
run_jobs(experiment, 1, Show())
experiment.results()
"""


@pytest.fixture(scope="module")
def warm():
    with Warm() as warm:
        yield warm


def start(warm, folder, progress, changes, **more):
    return warm.start(DRIVER, folder, progress, *changes, env=more)


def finish(warm, folder, changes):
    code, _, error = start(warm, folder, folder.parent / "progress", changes).wait()
    assert code == 0, error
    return {name: (folder / name).read_bytes() for name in ("summary.json", "metrics.jsonl", "config.yaml")}


def step(progress: Path):
    data = progress.read_bytes() if progress.exists() else b""
    return struct.unpack("q", data)[0] if len(data) == 8 else 0


def checkpoints(folder):
    return list(folder.parent.glob("store/units/*/checkpoint"))


def checkpoint_step(folder):
    saved = [
        json.loads((c / "manifest.json").read_text())["step"]
        for c in checkpoints(folder)
        if (c / "manifest.json").exists()
    ]
    return max(saved) if saved else None


def half_written(folder):
    """Return the step of a checkpoint with files that its folder's manifest does not know of, or None."""
    for there in checkpoints(folder):
        try:
            names = {path.name for path in there.iterdir()}
            manifest = json.loads((there / "manifest.json").read_text())
        except FileNotFoundError:
            continue
        new = names - {"manifest.json", manifest["state"]["file"], *(s["file"] for s in manifest["segments"])}
        if new:
            return max([int(name.split("-")[1]) for name in new if "-" in name], default=manifest["step"])
    return None


def wait_for(condition, process, seconds=120):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "nothing happened"
        if process.poll() is not None:
            return False
        time.sleep(0.002)
    return True


@pytest.mark.parametrize("often", [5, pytest.param(10, marks=pytest.mark.slow)])
def test_kills_change_nothing(often, warm, tmp_path):
    (tmp_path / "straight").mkdir()
    (tmp_path / "killed").mkdir()
    straight = finish(warm, tmp_path / "straight" / "run", ONE)
    folder, progress = tmp_path / "killed" / "run", tmp_path / "killed" / "progress"
    rng = random.Random(7)
    plans = [("step", rng.randrange(1, 560)) for _ in range(often // 2 + 1)] + [("writing", None)] * (
        often - often // 2 - 1
    )
    rng.shuffle(plans)
    plans.insert(0, ("step", 10))  # one before there is any checkpoint
    kills = after_checkpoint = while_writing = 0
    for kind, moment in sorted(plans, key=lambda plan: plan[1] or rng.randrange(50, 500)):
        progress.unlink(missing_ok=True)
        process = start(warm, folder, progress, ONE)
        if kind == "step":
            goal = max(moment, (checkpoint_step(folder) or 0) + rng.randrange(1, 2 * EVERY))
            alive = wait_for(lambda goal=goal: step(progress) >= goal or step(progress) == -1, process)
        else:
            alive = wait_for(lambda: half_written(folder) is not None or step(progress) == -1, process)
        if not alive:
            break
        process.kill()
        kills += 1
        while_writing += half_written(folder) is not None
        saved = checkpoint_step(folder)
        after_checkpoint += saved is not None
        if step(progress) >= 0:
            # The last checkpoint may still be being written; the next one waits for it.
            assert step(progress) - (saved or 0) <= 2 * EVERY, "more than two intervals would be done again"
    assert kills >= often
    assert after_checkpoint >= often // 2
    assert while_writing >= 1
    assert finish(warm, folder, ONE) == straight


def test_a_grid_killed_five_times(warm, tmp_path):
    (tmp_path / "straight").mkdir()
    (tmp_path / "killed").mkdir()
    straight = finish(warm, tmp_path / "straight" / "run", GRID)
    folder, progress = tmp_path / "killed" / "run", tmp_path / "killed" / "progress"
    rng = random.Random(3)
    for _ in range(5):
        progress.unlink(missing_ok=True)
        process = start(warm, folder, progress, GRID)
        begun = len(checkpoints(folder))
        more = rng.randrange(0, 2)
        goal = rng.randrange(100, 1300)
        if not wait_for(
            lambda b=begun, m=more, g=goal: len(checkpoints(folder)) >= b + m and step(progress) >= g, process
        ):
            break
        process.kill()
    assert len(checkpoints(folder)) >= 2
    assert finish(warm, folder, GRID) == straight
    assert len(json.loads(straight["summary.json"])["learners"]["crop"]["units"]) == 3


def test_kills_while_a_checkpoint_is_written_and_the_stream_is_ahead_of_it(warm, tmp_path):
    (tmp_path / "straight").mkdir()
    (tmp_path / "killed").mkdir()
    straight = finish(warm, tmp_path / "straight" / "run", ONE)
    folder, progress = tmp_path / "killed" / "run", tmp_path / "killed" / "progress"
    for _ in range(2):
        progress.unlink(missing_ok=True)
        process = start(warm, folder, progress, ONE, SLOW_DISK="0.1")

        def is_under_way():
            writing = half_written(folder)
            return writing is not None and step(progress) > writing > checkpoint_step(folder)

        assert wait_for(is_under_way, process), "it ended before it was killed"
        process.kill()
    assert finish(warm, folder, ONE) == straight
