"""An interrupt at any line of `save`: the folder has the old or the new checkpoint, and the next save works."""

import os
import random
import signal
import threading

import numpy as np
import pytest

from coldstream import CSSL, ColdStart
from interrupting import Injected, Tracer, within


def images(count, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (count, 8, 8, 3), dtype=np.uint8)


def taught(kind=CSSL, **settings):
    learner = kind(**{"replay": 2, "model": "linear", "augment": "none", "capacity": 12, **settings})
    learner.learn_many(images(10), [0, 1, 2, 3, 4] * 2)
    return learner


TIMES = float(os.environ.get("COLDSTREAM_CAMPAIGN", 1))
KINDS = {
    "CSSL": {"storage": "disk"},
    "packed": {"storage": "disk", "codec": "jpeg(50)"},
    "ColdStart": {"kind": ColdStart},
}


@pytest.fixture(autouse=True)
def _no_waiting_for_disks(monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda file: None)


def interrupted_everywhere(folder, learner, attempt, *, always=False):
    """Interrupt a save at each line, the first and the last time that it is run, or `always`; check what is left."""
    for _ in range(2):
        learner.save(folder)
    tracer = Tracer()
    attempt(tracer)
    moments = range(tracer.count) if always else tracer.moments()
    for at in moments:
        old = learner.fingerprint()
        learner.learn_one(images(1, seed=at)[0], at % 5)
        new, tracer = learner.fingerprint(), Tracer(at)
        try:
            with within(30):
                attempt(tracer)
            error = None
        except Injected as injected:
            error = injected  # kept as a console keeps the last one, with all frames and what they refer to
        with within(30):
            assert learner.fingerprint() == new, error
            loaded = type(learner).load(folder).fingerprint()
            assert loaded in (old, new), error
            learner.save(folder)
            assert type(learner).load(folder).fingerprint() == new, error
        assert error is not None or tracer.count <= at
    return len(moments)


@pytest.mark.parametrize("always", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", KINDS)
def test_an_interrupt_at_any_line_of_save(name, always, tmp_path):
    learner = taught(**KINDS[name])

    def attempt(tracer):
        with tracer.here():
            learner.save(tmp_path / "kept")

    assert interrupted_everywhere(tmp_path / "kept", learner, attempt, always=always) > 50


def test_an_interrupt_at_any_line_of_a_save_that_does_not_wait(tmp_path):
    learner = taught()

    def attempt(tracer):
        with tracer.here():
            saving = learner.save(tmp_path / "kept", wait=False)
        saving.result()

    assert interrupted_everywhere(tmp_path / "kept", learner, attempt) > 50


def test_an_error_at_any_line_of_the_thread_that_writes(tmp_path, monkeypatch):
    learner = taught(codec="jpeg(50)", storage="disk")
    monkeypatch.setattr(threading, "excepthook", lambda *arguments: None)

    def attempt(tracer):
        with tracer.elsewhere():
            saving = learner.save(tmp_path / "kept", wait=False)
            try:
                saving.result()
            except ValueError as error:  # its thread could not even say what went wrong
                raise Injected from error

    assert interrupted_everywhere(tmp_path / "kept", learner, attempt) > 50


def signalled(folder, learner, times, seed=0):
    """Interrupt saves by real signals at random moments; return how many came in time."""
    rng, hits, main = random.Random(seed), 0, threading.main_thread().ident

    def raise_(*arguments):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGUSR1, raise_)
    learner.save(folder)
    try:
        for turn in range(10 * times):
            if turn >= times and hits > times // 4:
                break
            old = learner.fingerprint()
            learner.learn_one(images(1, seed=turn)[0], turn % 5)
            new, wait, error, saved = learner.fingerprint(), bool(turn % 3), None, False
            timer = threading.Timer(rng.uniform(0, 0.006), signal.pthread_kill, [main, signal.SIGUSR1])
            try:
                timer.start()
                learner.save(folder, wait=wait)
                saved = True
                timer.join()
            except KeyboardInterrupt as interrupt:
                error = interrupt
            timer.join()
            hits += error is not None and not saved
            with within(30):
                assert learner.fingerprint() == new
                assert type(learner).load(folder).fingerprint() in (old, new)
                learner.save(folder)
                assert type(learner).load(folder).fingerprint() == new
    finally:
        signal.signal(signal.SIGUSR1, before)
    return hits


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # a file that was just being opened
@pytest.mark.parametrize("times", [40, pytest.param(int(5000 * TIMES), marks=pytest.mark.slow)])
def test_signals_at_random_moments_of_save(times, tmp_path):
    hits = signalled(tmp_path / "kept", taught(), times)
    print(f"{hits} signals came in time")
    assert hits > times // 4  # on a slow machine it takes more turns
