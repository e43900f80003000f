"""A process that was forked from one that has learned learns on, and does not hang."""

import os
import subprocess
import sys
import textwrap

import pytest

CHILD = textwrap.dedent(
    """
    import os, sys, time, warnings
    import numpy as np, torch
    from coldstream import CSSL

    warnings.simplefilter("ignore")
    threads, prefetch = int(sys.argv[1]), sys.argv[2] == "True"
    torch.set_num_threads(threads)
    learner = CSSL(model="resnet8-16", replay=20, prefetch=prefetch)
    images = np.random.default_rng(0).integers(0, 256, (24, 32, 32, 3), dtype=np.uint8)
    learner.learn_many(images[:20], [0, 1] * 10)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        learner.learn_many(images[20:], [0, 1] * 2)
        os.write(write, learner.fingerprint().encode())
        os._exit(0)
    deadline = time.time() + 100
    while os.waitpid(child, os.WNOHANG) == (0, 0):
        if time.time() > deadline:
            os.kill(child, 9)
            sys.exit("the forked process hangs")
        time.sleep(0.01)
    learner.learn_many(images[20:], [0, 1] * 2)
    print(os.read(read, 64).decode() == learner.fingerprint())
    """
)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.parametrize("prefetch", [False, True])
@pytest.mark.parametrize("threads", [1, 2])
def test_a_forked_process_learns_on(threads, prefetch):
    environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    command = [sys.executable, "-c", CHILD, str(threads), str(prefetch)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    if threads == 1:  # with more, the bits are those of one thread
        assert done.stdout.strip() == "True"
