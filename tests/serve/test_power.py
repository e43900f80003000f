"""Power losses: what was acknowledged is on disk, and what is on disk is whole."""

import os
import random
import subprocess
import sys

import pytest

from coldstream.serve.journal import FILE, read
from live_project import opened, replayed, wait
from power_loss import Disk, compile_recorder, read_log
from serving import write_pictures

LOSSES = int(os.environ.get("COLDSTREAM_POWER_LOSSES", "300"))
SETTINGS = {"learner": {"model": "linear", "replay": 4}, "rehearse": 1}
SESSION = """
import os, sys
from pathlib import Path
from coldstream.serve import live
from coldstream.serve.project import Project
live.CHECKPOINT_UPDATES = 5
folder, photos, count = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
answers = os.open(folder / "acknowledged", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
for part in range(2):
    project = Project(folder, "photos", photos, learner={"model": "linear", "replay": 4}, rehearse=1)
    project.scan()
    project.start()
    for number, id in enumerate(list(project.records.images)[part::2][:count]):
        event = project.label(id, "odd" if number % 3 else "even", key=f"{part} {number}")
        os.write(answers, f"{event.seq} {event.key}\\n".encode())
        if number % 10 == 0:
            data = (photos / f"{number:05d}.png").read_bytes() + bytes(part + 1)
            (stored,) = project.add_images([("upload.png", data)])["added"]
            event = project.label(stored["image"], "stored", key=f"{part} {number} upload")
            os.write(answers, f"{event.seq} {event.key}\\n".encode())
    project.close()
"""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """Return the steps of a recorded session, and the folder of its images."""
    place = tmp_path_factory.mktemp("power")
    library = compile_recorder(place)
    if library is None or not sys.platform.startswith("linux"):
        pytest.skip("the recorder needs Linux and a C compiler")
    photos, folder = write_pictures(place / "photos", 60), place / "project"
    folder.mkdir()
    environment = {
        **os.environ,
        "LD_PRELOAD": str(library),
        "POWER_ROOT": str(folder),
        "POWER_LOG": str(place / "log"),
    }
    subprocess.run([sys.executable, "-c", SESSION, folder, photos, "25"], check=True, env=environment)
    steps = [*read_log(place / "log")]
    assert {"open", "write", "sync", "rename", "unlink", "mkdir"} <= {step.verb for step in steps}
    return steps, folder, photos


def test_the_recorder_misses_nothing(recorded, tmp_path):
    steps, folder, _ = recorded
    disk = Disk(str(folder))
    for step in steps:
        disk.do(step)
    for inode in filter(None, disk.names.values()):
        inode.sync()
    there = {str(path) for path in folder.rglob("*") if path.is_file()}
    assert {path for path, inode in disk.names.items() if inode is not None} == there
    for path, inode in disk.names.items():
        if inode is not None:
            with open(path, "rb") as file:
                assert file.read() == bytes(inode.durable), path


def lose_power(steps, folder, photos, place, seed):
    """Play a part of the session, lose the power, and check what is left; return the labels acknowledged."""
    draws = random.Random(seed)
    disk = Disk(str(folder))
    for step in steps[: draws.randint(1, len(steps))]:
        disk.do(step)
    answers = disk.names.get(str(folder / "acknowledged"))
    if answers is not None:
        answers.sync()
    acknowledged = b"" if answers is None else bytes(answers.durable)
    place.mkdir()
    disk.lose_power(draws, place)
    known = {}
    if (place / FILE).exists() and acknowledged:
        known = {event.key: event for event in read(place / FILE)}
    for line in acknowledged.decode().splitlines():
        seq, _, key = line.partition(" ")
        assert known[key].seq == int(seq), (seed, key)
    with opened(place, photos, **SETTINGS) as project:
        wait(project)
        assert project.live.state.failures == 0
        assert not project.live.state.missing
        assert not any(record.unreadable for record in project.records.images.values())
        if project.live.learner is not None:
            assert project.live.learner.fingerprint() == replayed(project), seed
    return len(acknowledged.splitlines())


def test_power_losses(recorded, tmp_path):
    labels = [lose_power(*recorded, tmp_path / str(seed), seed) for seed in range(6)]
    assert max(labels) > 5


@pytest.mark.slow
def test_many_power_losses(recorded, tmp_path):
    for seed in range(LOSSES):
        lose_power(*recorded, tmp_path / str(seed), seed)
