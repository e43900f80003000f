"""What is on disk is what was saved: missing files, full disks, durable names, networks that diverged."""

import errno
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch

from coldstream import CSSL, ColdStart, checkpoint
from coldstream.checkpoint import CheckpointError, segments
from warm import Warm


def images(count, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (count, 8, 8, 3), dtype=np.uint8)


def taught(count=30, **settings):
    learner = CSSL(**{"replay": 2, "model": "linear", "augment": "none", "capacity": None, **settings})
    learner.learn_many(images(count), [0, 1, 2] * (count // 3))
    return learner


@pytest.fixture
def many(monkeypatch):
    """Segments are small, so that there are many."""
    monkeypatch.setattr(segments, "SMALL", 0)
    monkeypatch.setattr(segments, "LARGE", 1000)


def remove(path):
    path.unlink()


def shorten(path):
    path.write_bytes(path.read_bytes()[:-1])


def flip(path):
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("codec", ["raw", "jpeg(50)"])
@pytest.mark.parametrize("damage", [remove, shorten, flip])
@pytest.mark.parametrize("which", [0, 1, -1, None])
def test_segments_that_are_not_there_any_more_are_written_anew(tmp_path, many, damage, which, codec):
    folder, learner = tmp_path / "kept", taught(codec=codec)
    learner.save(folder)
    files = [folder / one.file for one in checkpoint.read_manifest(folder).segments]
    assert len(files) > 3
    damaged = files if which is None else [files[which]]
    for path in damaged:
        damage(path)
    with pytest.raises(CheckpointError):
        checkpoint.verify(folder)
    learner.learn_one(images(1, 1)[0], 1)
    learner.save(folder, verify=damage is flip)
    assert checkpoint.verify(folder).step == 31
    assert CSSL.load(folder).fingerprint() == learner.fingerprint()
    there = {path.name for path in folder.iterdir()}
    assert there >= {path.name for path in files if path not in damaged}  # those are not written again
    assert there.isdisjoint(path.name for path in damaged)


def test_what_a_verified_save_does_not_find_damaged_is_kept(tmp_path, many):
    folder, learner = tmp_path / "kept", taught()
    learner.save(folder)
    before = {path.name for path in folder.glob("rows-*")}
    learner.save(folder, verify=True)
    assert {path.name for path in folder.glob("rows-*")} == before


def test_verify_reads_every_file(tmp_path):
    learner = taught()
    learner.save(tmp_path / "kept")
    for path in sorted((tmp_path / "kept").iterdir()):
        whole = path.read_bytes()
        flip(path)
        with pytest.raises(CheckpointError, match="damaged"):
            checkpoint.verify(tmp_path / "kept")
        path.write_bytes(whole)
    manifest = checkpoint.verify(tmp_path / "kept")
    assert (manifest.kind, manifest.step) == ("CSSL", 30)


@pytest.mark.parametrize("kind", [CSSL, ColdStart])
@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_a_network_that_diverged_is_not_saved(tmp_path, kind, number):
    learner = kind(replay=2, model="linear", augment="none")
    learner.learn_many(images(6), [0, 1, 2] * 2)
    learner.save(tmp_path / "kept")
    before = learner.fingerprint()
    learner.learn_one(images(1, 1)[0], 1)
    with torch.no_grad():
        learner.tasks[None].head.weight[0, 0] = number
    for wait in (True, False):
        with pytest.raises(FloatingPointError, match="not finite: it diverged; nothing was saved"):
            learner.save(tmp_path / "kept", wait=wait)
    assert kind.load(tmp_path / "kept").fingerprint() == before


# Full disks.


FULL = """
import os, resource, sys
import numpy as np
from coldstream import CSSL, checkpoint

path, limit = sys.argv[1], int(sys.argv[2])
learner = CSSL(replay=2, model="linear", augment="none", capacity=None)
learner.learn_many(np.zeros((60, 8, 8, 3), np.uint8), [0, 1] * 30)
learner.save(path)
before = learner.fingerprint()
learner.learn_many(np.ones((60, 8, 8, 3), np.uint8), [0, 1] * 30)
most = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, most))
for wait in (True, False):
    try:
        learner.save(path, wait=wait).result()
    except OSError as error:
        assert "cannot write the checkpoint" in str(error) and "File too large" in str(error), error
        learner._saving = None
    else:
        raise AssertionError("it was saved")
    assert CSSL.load(path).fingerprint() == before
resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
learner.save(path)
assert CSSL.load(path).fingerprint() == learner.fingerprint()
assert len(os.listdir(path)) == 3
"""


@pytest.mark.parametrize("limit", [0, 500, 5000])
def test_a_disk_that_is_full(tmp_path, warm, limit):
    """No lock, no manifest, no state can be written; what was there stays, and goes on when there is room."""
    code, _, error = warm.start(FULL, tmp_path / "kept", limit).wait()
    assert code == 0, error


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 200 KB, where one may be mounted."""
    place = tmp_path / "disk"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=200k", "tmpfs", str(place)]
    try:
        if subprocess.run(command, capture_output=True).returncode:
            pytest.skip("no file system may be mounted here")
    except FileNotFoundError:
        pytest.skip("there is no mount")
    yield place
    subprocess.run(["umount", str(place)], check=True)


@pytest.mark.parametrize("wait", [True, False])
def test_a_small_disk_that_fills_up(tmp_path, small_disk, wait):
    folder, learner, errors = small_disk / "kept", taught(), []
    learner.save(folder)
    for turn in range(12):
        saved, rows = learner.fingerprint(), images(60, turn)
        learner.learn_many(rows, [0, 1, 2] * 20)
        try:
            learner.save(folder, wait=wait).result()
        except OSError as error:
            errors.append(error.errno)
            learner = CSSL.load(folder)
            assert learner.fingerprint() == saved
            learner = CSSL(replay=2, model="linear", augment="none")  # a smaller one has room
            learner.save(folder)
    assert set(errors) == {errno.ENOSPC}
    assert CSSL.load(folder).fingerprint() == learner.fingerprint()


@pytest.fixture(scope="module")
def warm():
    with Warm() as warm:
        yield warm


@pytest.mark.parametrize("call", range(16))
def test_any_write_that_fails(tmp_path, monkeypatch, call):
    learner = taught()
    learner.save(tmp_path / "new" / "kept")
    old, calls = learner.fingerprint(), []
    learner.learn_one(images(1, 1)[0], 0)
    new = learner.fingerprint()

    def failing(function):
        def wrapped(*arguments, **named):
            calls.append(function)
            if len(calls) - 1 == call:
                raise OSError(errno.EIO, "Input/output error")
            return function(*arguments, **named)

        return wrapped

    with monkeypatch.context() as patch:
        for name in ("open", "fsync", "replace", "write", "ftruncate"):
            patch.setattr(os, name, failing(getattr(os, name)))
        if call < 11:
            with pytest.raises(OSError, match="cannot write the checkpoint.*Input/output error"):
                learner.save(tmp_path / "new" / "kept")
        else:
            learner.save(tmp_path / "new" / "kept")
    assert CSSL.load(tmp_path / "new" / "kept").fingerprint() in (old, new)
    learner.save(tmp_path / "new" / "kept")
    assert CSSL.load(tmp_path / "new" / "kept").fingerprint() == new


def test_names_are_durable_before_what_refers_to_them(tmp_path, monkeypatch):
    """A new folder in the one above; files before the manifest that names them; it before the old ones go."""
    events = []

    def fsync(file):
        events.append(("sync", Path(os.readlink(f"/proc/self/fd/{file}"))))

    def replace(source, target):
        events.append(("replace", Path(target)))
        rename(source, target)

    def unlink(path, **named):
        events.append(("unlink", Path(path)))
        remove_(path)

    rename, remove_ = os.replace, os.unlink
    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", replace)
    monkeypatch.setattr(Path, "unlink", unlink)
    folder, learner = tmp_path / "a" / "b", taught()
    learner.save(folder)
    assert events.index(("sync", tmp_path)) < events.index(("sync", tmp_path / "a"))
    for _ in range(3):
        manifest = checkpoint.read_manifest(folder)
        renamed = events.index(("replace", folder / "manifest.json"))
        before = [path for what, path in events[:renamed] if what == "sync"]
        assert before[-2] == folder  # and the last one is the manifest, under its temporary name
        assert {folder / manifest.state.file, folder / manifest.segments[-1].file} <= set(before[:-2])
        assert events[renamed + 1] == ("sync", folder)
        assert not [path for what, path in events[: renamed + 2] if what == "unlink"]
        events.clear()
        learner.learn_one(images(1, 1)[0], 0)
        learner.save(folder)
    assert [path.name[:5] for what, path in events if what == "unlink"].count("state") == 1
