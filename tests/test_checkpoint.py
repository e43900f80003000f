"""Saved learners: what is written, what a cut or a foreign file gets, and that nothing in one is executed."""

import copy
import gc
import json
import os
import pickle
import subprocess
import sys
import threading
import time
import warnings

import numpy as np
import pytest
import torch

from coldstream import CSSL, checkpoint
from coldstream.checkpoint import CheckpointError, segments
from coldstream.checkpoint.manifest import checksum


def images(count, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (count, 8, 8, 3), dtype=np.uint8)


def taught(count=12, **settings):
    learner = CSSL(**{"replay": 4, "model": "linear", **settings})
    for i, image in enumerate(images(count)):
        learner.learn_one(image, i % 3)
    return learner


def test_a_learner_that_learned_nothing(tmp_path):
    CSSL(seed=4).save(tmp_path / "empty")
    loaded = CSSL.load(tmp_path / "empty")
    assert loaded.seed == 4
    assert loaded.fingerprint() == CSSL(seed=4).fingerprint()


CONTINUE = """
import sys, numpy as np
from coldstream import CSSL
learner = CSSL.load(sys.argv[1])
for i, image in enumerate(np.load(sys.argv[2])):
    learner.learn_one(image, i % 5)
print(learner.fingerprint())
"""


def test_a_new_process_goes_on_to_the_same_bits(tmp_path):
    learner = taught(
        20, model="resnet8-16", capacity=15, augment="crop|flip|autoaugment(cifar10)|mixup(0.1)/cutmix(0.8)"
    )
    learner.save(tmp_path / "kept")
    more = images(10, seed=3)
    np.save(tmp_path / "more.npy", more)
    command = [sys.executable, "-c", CONTINUE, tmp_path / "kept", tmp_path / "more.npy"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    for i, image in enumerate(more):
        learner.learn_one(image, i % 5)
    assert done.stdout.strip() == learner.fingerprint()


def test_rows_are_appended_not_rewritten(tmp_path, monkeypatch):
    monkeypatch.setattr(segments, "SMALL", 0)
    learner = taught(40, capacity=None)
    learner.save(tmp_path / "kept")
    first = {path.name: path.stat().st_ino for path in (tmp_path / "kept").glob("rows-*")}
    for image in images(5, seed=1):
        learner.learn_one(image, 1)
    learner.save(tmp_path / "kept")
    second = {path.name: path.stat().st_ino for path in (tmp_path / "kept").glob("rows-*")}
    assert first.items() < second.items()
    assert len(second) == 2
    sizes = sorted(path.stat().st_size for path in (tmp_path / "kept").glob("rows-*"))
    assert sizes == [5 * (192 + 8), 40 * (192 + 8)]
    assert CSSL.load(tmp_path / "kept").fingerprint() == learner.fingerprint()


def test_dead_rows_are_dropped_and_files_stay_few(tmp_path):
    learner = taught(10, capacity=10, evict="uniform")
    for i, image in enumerate(images(300, seed=2)):
        learner.learn_one(image, i % 3)
        if i % 10 == 0:
            learner.save(tmp_path / "kept")
    size = sum(path.stat().st_size for path in (tmp_path / "kept").glob("rows-*"))
    assert size <= 3 * 10 * (192 + 8)
    assert len(list((tmp_path / "kept").iterdir())) <= 5
    learner.save(tmp_path / "kept")
    assert CSSL.load(tmp_path / "kept").fingerprint() == learner.fingerprint()


@pytest.mark.parametrize("small", [0, 10**9])
@pytest.mark.parametrize("codec", ["raw", "jpeg(50)"])
def test_many_saves_while_rows_die(tmp_path, monkeypatch, small, codec):
    """Whatever segments are merged or dropped, what is loaded is what was saved."""
    monkeypatch.setattr(segments, "SMALL", small)
    learner = taught(30, capacity=30, evict="uniform", codec=codec)
    for i, image in enumerate(images(90, seed=2)):
        learner.learn_one(image, i % 3, id=i % 50)
        if i % 4 == 0:
            learner.save(tmp_path / "kept")
            assert CSSL.load(tmp_path / "kept").fingerprint() == learner.fingerprint()


def test_two_lines_of_descent_in_one_folder(tmp_path):
    """The last one to save wins as a whole; it never takes the other's rows for its own."""
    taught(10).save(tmp_path / "kept")
    one, other = CSSL.load(tmp_path / "kept"), CSSL.load(tmp_path / "kept")
    one.learn_many(images(5, seed=7), [0] * 5)
    other.learn_many(images(5, seed=8), [1] * 5)
    one.save(tmp_path / "kept")
    other.save(tmp_path / "kept")
    assert CSSL.load(tmp_path / "kept").fingerprint() == other.fingerprint()
    one.save(tmp_path / "kept")
    assert CSSL.load(tmp_path / "kept").fingerprint() == one.fingerprint()


def test_every_file_cut_or_changed_is_noticed(tmp_path):
    learner = taught()
    folder = tmp_path / "kept"
    learner.save(folder)
    for path in sorted(folder.iterdir()):
        whole = path.read_bytes()
        for damaged in (
            whole[:-1],
            whole[: len(whole) // 2],
            b"",
            whole[:-30] + bytes([whole[-30] ^ 1]) + whole[-29:],
        ):
            path.write_bytes(damaged)
            with pytest.raises(CheckpointError, match="cut|damaged|lacks|no checkpoint"):
                CSSL.load(folder)
        path.unlink()
        with pytest.raises(CheckpointError, match="lacks|no checkpoint"):
            CSSL.load(folder)
        path.write_bytes(whole)
    assert CSSL.load(folder).fingerprint() == learner.fingerprint()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 99}, "format version 99; this Coldstream reads 7: load it with the one that wrote it"),
        ({"format": "other"}, "not a Coldstream checkpoint"),
        ({"kind": "Remind"}, "of a 'Remind' learner, not 'CSSL'"),
        ({"step": 999}, "damaged"),
        ({"classes": 3}, "damaged"),
        ({"settings": None}, "damaged"),
    ],
)
def test_foreign_and_newer_formats(tmp_path, change, message):
    taught().save(tmp_path / "kept")
    path = tmp_path / "kept" / "manifest.json"
    changed = json.loads(path.read_text()) | change
    if "kind" in change:
        changed["crc32"] = checksum(changed)
    path.write_text(json.dumps(changed))
    with pytest.raises(ValueError, match=message):
        CSSL.load(tmp_path / "kept")


def test_nothing_there():
    with pytest.raises(CheckpointError, match="there is no checkpoint"):
        CSSL.load("no/such/folder")


def test_targets_that_must_not_be_overwritten(tmp_path):
    learner = taught()
    (tmp_path / "file").write_text("mine")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "thesis.tex").write_text("mine")
    for name in ("file", "folder"):
        with pytest.raises(CheckpointError, match="cannot save to"):
            learner.save(tmp_path / name)
    assert (tmp_path / "file").read_text() == (tmp_path / "folder" / "thesis.tex").read_text() == "mine"
    assert [path.name for path in (tmp_path / "folder").iterdir()] == ["thesis.tex"]
    with pytest.raises(OSError, match="cannot write the checkpoint"):
        learner.save(tmp_path / "file" / "below")


def test_a_failed_save_leaves_the_old_checkpoint(tmp_path, monkeypatch):
    learner = taught()
    learner.save(tmp_path / "kept")
    old = learner.fingerprint()
    learner.learn_one(images(1)[0], 0)
    calls = []

    def full(*args):
        calls.append(args)
        if len(calls) == 2:
            raise OSError(28, "No space left on device")
        return fsync(*args)

    fsync = os.fsync
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        learner.save(tmp_path / "kept")
    monkeypatch.undo()
    assert CSSL.load(tmp_path / "kept").fingerprint() == old
    learner.save(tmp_path / "kept")
    assert CSSL.load(tmp_path / "kept").fingerprint() == learner.fingerprint()


# In the background.


@pytest.fixture
def gate(monkeypatch):
    """Nothing is written in the background before this is set."""
    event, write = threading.Event(), checkpoint.Plan.write

    def late(self, folder):
        if threading.current_thread() is not threading.main_thread():
            assert event.wait(30)
        return write(self, folder)

    monkeypatch.setattr(checkpoint.Plan, "write", late)
    yield event
    event.set()


@pytest.mark.parametrize("small", [0, 10**9])
@pytest.mark.parametrize("storage", ["memory", "disk"])
@pytest.mark.parametrize("codec", ["raw", "jpeg(50)"])
def test_what_is_written_in_the_background_is_the_moment_of_the_call(
    tmp_path, monkeypatch, gate, small, storage, codec
):
    monkeypatch.setattr(segments, "SMALL", small)
    learner = taught(30, capacity=30, evict="uniform", codec=codec, storage=storage)
    more = images(200, seed=2)
    for turn in range(8):
        gate.clear()
        before, extra = learner.fingerprint(), {"turn": [turn]}
        saving = learner.save(tmp_path / "kept", extra=extra, wait=False)
        extra["turn"].append("changed")
        for i in range(5 * turn):
            learner.learn_one(more[20 * turn + i], i % 7, id=i % 50)
        learner.relabel(0, "other")
        learner.rename_class("other", f"name {turn}")
        learner.forget(learner.learn_one(more[20 * turn], 1))
        assert not saving.done()
        gate.set()
        saving.result()
        assert saving.done()
        assert learner.fingerprint() != before
        assert CSSL.load(tmp_path / "kept").fingerprint() == before
        assert checkpoint.read_manifest(tmp_path / "kept").extra == {"turn": [turn]}
    learner.save(tmp_path / "kept")
    assert CSSL.load(tmp_path / "kept").fingerprint() == learner.fingerprint()


def test_saves_follow_each_other(tmp_path, gate):
    """One that is under way is waited for: by the next one, by another learner's to the same place, by loading."""
    learner, other = taught(20), taught(10, seed=1)
    timer = threading.Timer(0.2, gate.set)
    first = learner.save(tmp_path / "kept", wait=False)
    before = learner.fingerprint()
    timer.start()
    loaded = CSSL.load(tmp_path / "kept")
    assert first.done()
    assert loaded.fingerprint() == before
    gate.clear()
    second = learner.save(tmp_path / "kept", wait=False)
    threading.Timer(0.2, gate.set).start()
    other.save(tmp_path / "kept")
    assert second.done()
    assert CSSL.load(tmp_path / "kept").fingerprint() == other.fingerprint()
    gate.clear()
    third = learner.save(tmp_path / "elsewhere", wait=False)
    threading.Timer(0.2, gate.set).start()
    learner.save(tmp_path / "kept", wait=False).result()
    assert third.done()
    for name in ("kept", "elsewhere"):
        assert CSSL.load(tmp_path / name).fingerprint() == before


def test_what_goes_wrong_in_the_background_is_told_once(tmp_path, monkeypatch, capsys):
    learner = taught()
    learner.save(tmp_path / "kept")
    old, fsync = learner.fingerprint(), os.fsync

    def full(*args):
        raise OSError(28, "No space left on device")

    def fail(learner):
        learner.learn_one(images(1)[0], 0)
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", full)
            saving = learner.save(tmp_path / "kept", wait=False)
            while not saving.done():
                time.sleep(0.001)
        assert os.fsync is fsync
        return saving

    fail(learner)
    with pytest.raises(OSError, match="cannot write the checkpoint.*No space left"):
        learner.save(tmp_path / "kept")
    assert CSSL.load(tmp_path / "kept").fingerprint() == old
    saving = fail(learner)
    for _ in range(2):
        with pytest.raises(OSError, match="No space left"):
            saving.result()
    del saving
    learner.save(tmp_path / "kept")
    assert CSSL.load(tmp_path / "kept").fingerprint() == learner.fingerprint()
    assert capsys.readouterr().err == ""
    fail(learner)
    del learner
    gc.collect()
    assert "a checkpoint was not written: " in capsys.readouterr().err


def test_a_result_that_does_not_come_in_time(tmp_path, gate):
    saving = taught().save(tmp_path / "kept", wait=False)
    with pytest.raises(TimeoutError, match="after 0.01 seconds"):
        saving.result(0.01)
    gate.set()
    saving.result(30)


LAST_WORDS = """
import os, sys, time, numpy as np
from coldstream import CSSL
learner = CSSL(model="linear", replay=4)
learner.learn_many(np.zeros((9, 8, 8, 3), np.uint8), [0, 1, 2] * 3)
fsync = os.fsync
def slow(file):
    time.sleep(0.2)
    if len(sys.argv) > 2:
        raise OSError(28, "No space left on device")
    fsync(file)
os.fsync = slow
print(learner.fingerprint(), flush=True)
learner.save(sys.argv[1], wait=False)
"""


def test_an_interpreter_that_ends_finishes_the_checkpoint(tmp_path):
    command = [sys.executable, "-c", LAST_WORDS, tmp_path / "kept"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert CSSL.load(tmp_path / "kept").fingerprint() == done.stdout.strip()
    assert done.stderr == ""
    done = subprocess.run([*command, "full"], capture_output=True, text=True, check=True)
    assert "a checkpoint was not written: " in done.stderr
    assert CSSL.load(tmp_path / "kept").fingerprint() == done.stdout.strip()


def test_segments_are_never_large_and_little_is_written_anew(tmp_path, monkeypatch):
    row = 8 * 8 * 3
    monkeypatch.setattr(segments, "SMALL", 0)
    monkeypatch.setattr(segments, "LARGE", 10 * row)
    learner = taught(64, capacity=60, evict="uniform")

    def files():
        return {path.name: path.stat().st_size for path in (tmp_path / "kept").glob("rows-*")}

    learner.save(tmp_path / "kept")
    assert sorted(files().values()) == [10 * (row + 8)] * 6
    for i, image in enumerate(images(200, seed=5)):
        learner.learn_one(image, i % 3)
        if i % 5 == 4:
            before = files()
            learner.save(tmp_path / "kept")
            # Five new rows, and at most one segment that is half dead over what the limit still allowed.
            assert sum(size for name, size in files().items() if name not in before) <= (5 + 10 + 5) * (row + 8)
            assert CSSL.load(tmp_path / "kept").fingerprint() == learner.fingerprint()
    assert sum(files().values()) <= 2.5 * 60 * (row + 8)


def test_another_environment_warns(tmp_path):
    taught().save(tmp_path / "kept")
    path = tmp_path / "kept" / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["environment"]["threads"] += 1
    manifest["crc32"] = checksum(manifest)
    path.write_text(json.dumps(manifest))
    with pytest.warns(UserWarning, match="results may differ in the last bits: threads"):
        CSSL.load(tmp_path / "kept")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        taught().save(tmp_path / "kept")
        CSSL.load(tmp_path / "kept")


def test_storage_may_change_on_loading(tmp_path):
    learner = taught(codec="quantize(6)")
    learner.save(tmp_path / "kept")
    loaded = CSSL.load(tmp_path / "kept", storage="disk")
    for one in (learner, loaded):
        one.learn_many(images(6, seed=4), [0, 1, 2] * 2)
    probe = images(3, seed=5)
    np.testing.assert_array_equal(learner.predict_proba_many(probe), loaded.predict_proba_many(probe))


@pytest.mark.parametrize("change", [{"codec": "quantize(4)"}, {"size": 16}, {"classes": 9}, {"seed": 1}])
def test_other_settings_may_not_change_on_loading(tmp_path, change):
    taught().save(tmp_path / "kept")
    with pytest.raises(ValueError, match="cannot be changed on loading"):
        CSSL.load(tmp_path / "kept", **change)


def test_settings_given_as_numpy_values_can_be_saved(tmp_path):
    learner = taught(
        seed=np.int64(3),
        replay=np.int32(4),
        size=np.int64(8),
        classes=np.int64(5),
        device=torch.device("cpu"),
        normalize=(np.array([0.5]), np.array([0.2])),
    )
    learner.save(tmp_path / "kept")
    assert CSSL.load(tmp_path / "kept").fingerprint() == learner.fingerprint()


def test_saving_over_a_damaged_manifest_says_what_to_do(tmp_path):
    learner = taught()
    learner.save(tmp_path / "kept")
    (tmp_path / "kept" / "manifest.json").write_text("{")
    with pytest.raises(CheckpointError, match="delete that folder or save to another"):
        learner.save(tmp_path / "kept")


def test_learners_are_not_copied_or_pickled():
    for action in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="use save"):
            action(taught())
