"""Workers whose parent was killed stop by themselves, at a checkpoint."""

import os
import subprocess
import sys
import time

import psutil


def wait_for(condition, seconds=60):
    begin = time.monotonic()
    while not condition():
        assert time.monotonic() - begin < seconds, "it did not come to that"
        time.sleep(0.1)


def test_workers_end_with_their_parent(tmp_path):
    settings = ["learner.model=linear", "learners.one.replay=2", "learners.two.replay=3"]
    settings += ["offline.enabled=false", "checkpoint_every=5"]
    command = [sys.executable, "-c", "from coldstream.cli import main; main()", "run", "--jobs", "2"]
    command += [part for one in settings for part in ("--set", one)]
    parent = subprocess.Popen(command, cwd=tmp_path, env=os.environ, stderr=subprocess.DEVNULL)
    try:
        wait_for(lambda: list(tmp_path.glob("runs/store/units/*/checkpoint/manifest.json")))
        workers = psutil.Process(parent.pid).children(recursive=True)
        assert len(workers) >= 2
    finally:
        parent.kill()
        parent.wait()
    _, alive = psutil.wait_procs(workers, timeout=30)
    assert not alive
