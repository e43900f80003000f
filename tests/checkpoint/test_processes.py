"""Several processes and one folder: one writes at a time, and whoever reads gets one whole checkpoint."""

import json
import os
import signal
import threading
import time

import numpy as np
import pytest

from coldstream import CSSL
from coldstream.checkpoint import CheckpointError
from interrupting import within
from warm import Warm

COMMON = """
import os, sys, time
import numpy as np
from coldstream import CSSL
from coldstream.checkpoint import CheckpointError, segments

segments.SMALL, segments.LARGE = 0, 2000  # many files

def taught(seed):
    learner = CSSL(replay=2, model="linear", augment="none", capacity=40, seed=seed)
    learner.learn_many(np.random.default_rng(seed).integers(0, 256, (40, 8, 8, 3), dtype=np.uint8), [0, 1] * 20)
    return learner

def say(*words):
    print(*words, flush=True)

def wait_for(path):
    while not os.path.exists(path):
        time.sleep(0.001)

fsync = os.fsync
path, go = sys.argv[1], sys.argv[2]

def at_a_gate(file):
    say("writing", os.getpid())
    wait_for(go)
    fsync(file)
"""
HOLDER = f"""{COMMON}
learner = taught(1)
os.fsync = at_a_gate
learner.save(path)
say("saved", learner.fingerprint())
"""
WRITER = f"""{COMMON}
os.fsync = lambda file: None
learner, saves, refused = taught(int(sys.argv[3])), 0, 0
wait_for(go)
while saves < int(sys.argv[4]):
    learner.learn_one(np.full((8, 8, 3), saves, np.uint8), saves % 3)
    say("state", learner.fingerprint())
    try:
        learner.save(path, wait=bool(saves % 2)).result()
        saves += 1
    except CheckpointError as error:
        assert "is writing a checkpoint there" in str(error), error
        refused += 1
        time.sleep(0.002)
say("refused", refused)
"""
FORKING = f"""{COMMON}
learner = taught(1)
learner.save(path)
learner.learn_one(np.zeros((8, 8, 3), np.uint8), 0)
os.fsync = at_a_gate
saving = learner.save(path, wait=False)
while not os.path.exists(go + ".forked"):
    time.sleep(0.001)
if os.fork() == 0:
    os.fsync = fsync
    try:
        saving.result()
    except CheckpointError:
        say("not mine")
    learner.save(path + ".child")
    say("child", os.getpid(), learner.fingerprint())
    time.sleep(600)
time.sleep(600)
"""


@pytest.fixture(scope="module")
def warm():
    with Warm() as warm:
        yield warm


def learner(seed=9):
    learner = CSSL(replay=2, model="linear", augment="none", seed=seed)
    learner.learn_many(np.zeros((4, 8, 8, 3), np.uint8), [0, 1] * 2)
    return learner


def said(process, word, seconds=60):
    """Wait until a process has said a word; return what it said after it."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for line in process._out.read_text().splitlines():
            if line.startswith(word):
                return line.removeprefix(word).strip()
        assert process.poll() in (None, 0), process.wait()
        time.sleep(0.002)
    raise AssertionError(f"it did not say {word!r}: {process._err.read_text()}")


def test_the_second_writer_is_told_who_the_first_one_is(warm, tmp_path):
    (tmp_path / "kept").mkdir()
    holder = warm.start(HOLDER, tmp_path / "kept", tmp_path / "go")
    said(holder, "writing")
    other = learner()
    for wait in (True, False):
        with pytest.raises(CheckpointError, match=rf"process {holder.pid} on {os.uname().nodename} is writing"):
            other.save(tmp_path / "kept", wait=wait)
    other.save(tmp_path / "elsewhere")
    (tmp_path / "go").touch()
    assert CSSL.load(tmp_path / "elsewhere").fingerprint() == other.fingerprint()
    first = said(holder, "saved")
    assert CSSL.load(tmp_path / "kept").fingerprint() == first
    assert sorted(path.name[:5] for path in (tmp_path / "kept").iterdir())[:2] == ["manif", "rows-"]  # and no lock
    other.save(tmp_path / "kept")
    assert CSSL.load(tmp_path / "kept").fingerprint() == other.fingerprint()


def test_a_writer_that_is_killed_leaves_no_lock(warm, tmp_path):
    (tmp_path / "kept").mkdir()
    holder = warm.start(HOLDER, tmp_path / "kept", tmp_path / "go")
    said(holder, "writing")
    holder.kill()
    one = learner()
    with within(30):
        one.save(tmp_path / "kept")
    assert CSSL.load(tmp_path / "kept").fingerprint() == one.fingerprint()
    assert len([*(tmp_path / "kept").iterdir()]) == 3


def test_a_forked_child_keeps_no_lock_and_saves_on_its_own(warm, tmp_path):
    parent = warm.start(FORKING, tmp_path / "kept", tmp_path / "go")
    said(parent, "writing")
    with pytest.raises(CheckpointError, match=f"process {parent.pid} "):
        learner().save(tmp_path / "kept")
    (tmp_path / "go.forked").touch()
    said(parent, "not mine")
    child, fingerprint = said(parent, "child").split()
    assert CSSL.load(tmp_path / "kept.child").fingerprint() == fingerprint
    parent.kill()  # its child goes on
    one = learner()
    try:
        with within(30):
            one.save(tmp_path / "kept")
    finally:
        os.kill(int(child), signal.SIGKILL)
    assert CSSL.load(tmp_path / "kept").fingerprint() == one.fingerprint()


def test_two_processes_save_and_a_third_one_loads(warm, tmp_path):
    """Every load gives a state that one of them saved; in the end the folder has the last one of either."""
    go = tmp_path / "go"
    writers = [warm.start(WRITER, tmp_path / "kept", go, seed, 40) for seed in (1, 2)]
    go.touch()
    while not (tmp_path / "kept" / "manifest.json").exists():
        time.sleep(0.001)
    seen = []
    while any(writer.poll() is None for writer in writers):
        seen.append(CSSL.load(tmp_path / "kept").fingerprint())
    ends = [writer.wait() for writer in writers]
    assert [code for code, _, _ in ends] == [0, 0], ends
    states = [[line.split()[1] for line in out.splitlines() if line.startswith("state")] for _, out, _ in ends]
    assert set(seen) <= {state for each in states for state in each}
    assert len(set(seen)) > 10
    assert CSSL.load(tmp_path / "kept").fingerprint() in (states[0][-1], states[1][-1])


def test_a_thread_saves_and_another_one_loads(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda file: None)
    one, states, seen = learner(), [], []
    one.save(tmp_path / "kept")
    states.append(one.fingerprint())

    def write():
        for turn in range(60):
            one.learn_one(np.full((8, 8, 3), turn, np.uint8), turn % 3)
            states.append(one.fingerprint())
            one.save(tmp_path / "kept", wait=bool(turn % 2))

    thread = threading.Thread(target=write)
    thread.start()
    while thread.is_alive():
        seen.append(CSSL.load(tmp_path / "kept").fingerprint())
    thread.join()
    assert set(seen) <= set(states)
    assert len(set(seen)) > 5
    assert CSSL.load(tmp_path / "kept").fingerprint() == states[-1]


def test_learners_of_several_threads_save_to_one_folder(tmp_path, monkeypatch):
    """They wait for each other; the last one's checkpoint is whole."""
    monkeypatch.setattr(os, "fsync", lambda file: None)
    learners = [learner(seed) for seed in range(4)]

    def write(one):
        for _ in range(10):
            one.save(tmp_path / "kept", wait=False)

    threads = [threading.Thread(target=write, args=(one,)) for one in learners]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert CSSL.load(tmp_path / "kept").fingerprint() in [one.fingerprint() for one in learners]


def test_a_save_within_a_save_of_the_same_thread(tmp_path, monkeypatch):
    """A handler of a signal may save too: its checkpoint stays, and the one that it interrupted says so."""
    one, inner, fsync, calls = learner(1), learner(2), os.fsync, []

    def interrupted(file):
        calls.append(file)
        if len(calls) == 1:
            signal.raise_signal(signal.SIGUSR1)
        fsync(file)

    one.save(tmp_path / "kept")
    before = signal.signal(signal.SIGUSR1, lambda *arguments: inner.save(tmp_path / "kept"))
    monkeypatch.setattr(os, "fsync", interrupted)
    try:
        with within(30), pytest.raises(CheckpointError, match="its lock was removed or taken over"):
            one.save(tmp_path / "kept")
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert CSSL.load(tmp_path / "kept").fingerprint() == inner.fingerprint()
    one.save(tmp_path / "kept")
    assert CSSL.load(tmp_path / "kept").fingerprint() == one.fingerprint()


@pytest.mark.parametrize("content", [b"", b"{", b"[" * 100_000, json.dumps({"pid": 1, "host": "gone"}).encode()])
def test_a_lock_file_that_nobody_holds(tmp_path, content):
    one = learner()
    one.save(tmp_path / "kept")
    (tmp_path / "kept" / "lock").write_bytes(content)
    one.save(tmp_path / "kept")
    assert CSSL.load(tmp_path / "kept").fingerprint() == one.fingerprint()
