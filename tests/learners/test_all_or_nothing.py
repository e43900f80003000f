"""A change that is cut off anywhere leaves the learner as before or as after, or it refuses to go on."""

import os
import random
import signal
import subprocess
import sys
import textwrap
import threading

import numpy as np
import pytest
import torch

from coldstream import CSSL, ColdStart
from coldstream.checks import check_interrupts_leave_it_whole
from coldstream.data import Dataset
from coldstream.learners import DeepSLDA, ICaRL, OfflineRecipe
from coldstream.learners.changes import Changes, HeldSignals, UnfinishedChange
from coldstream.learners.training.engine import Engine
from test_checks import CONFIGURATIONS, with_settings

IMAGES = np.random.default_rng(0).integers(0, 256, (24, 8, 8, 3), dtype=np.uint8)


@pytest.fixture(autouse=True)
def ctrl_c():
    """Let Ctrl-C be KeyboardInterrupt: a process started in the background of a shell ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def taught(**settings):
    learner = ColdStart(size=8, replay=4, channels=3, **settings)
    learner.learn_many(IMAGES[:8], [0, 1] * 4)
    return learner


# Interrupts at chosen lines. A few lines of each verb are tried by `check_learner` in tests/test_checks.py.


@pytest.mark.slow
@pytest.mark.parametrize("stage", ["new", "taught", "tasks"])
@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_an_interrupt_at_every_line(name, stage):
    check_interrupts_leave_it_whole(CONFIGURATIONS[name], places=None, stages=[stage])


@pytest.mark.slow
@pytest.mark.parametrize("threads", [False, True])
@pytest.mark.parametrize("name", ["default", "full policy, packed, evicting", "er-ace", "der++"])
def test_an_interrupt_at_every_line_while_another_thread_works(name, threads):
    """In the thread that updates the network, and in the one that stores and prefetches meanwhile."""
    learning = ["learn_one", "learn_one, a new class", "learn_one, again", "learn_many, one update"]
    factory = with_settings(CONFIGURATIONS[name], prefetch=True)
    check_interrupts_leave_it_whole(factory, places=None, stages=["new", "taught"], verbs=learning, threads=threads)


def test_an_error_in_the_thread_that_updates():
    factory = with_settings(CONFIGURATIONS["er"], prefetch=True)
    check_interrupts_leave_it_whole(factory, places=5, stages=["taught"], verbs=["learn_one"], threads=True)


@pytest.mark.parametrize(
    ("kind", "message"), [("forgets", "neither as before nor as after"), ("stops learning", "goes on otherwise")]
)
def test_the_check_finds_a_change_without_protection(monkeypatch, kind, message):
    """Also one that no fingerprint shows: weights that an interrupted prediction leaves without gradient."""
    if kind == "forgets":
        monkeypatch.setattr(Changes, "change", lambda self, verb: HeldSignals())
        verb = "learn_one"
    else:
        verb = "predict_one"
        monkeypatch.setattr(Engine, "logits", without_gradients(Engine.logits))
    with pytest.raises(AssertionError, match=message):
        check_interrupts_leave_it_whole(CONFIGURATIONS["er-ace"], places=None, stages=["taught"], verbs=[verb])


def without_gradients(logits):
    def changed(engine, head, items):
        for parameter in engine.body.parameters():
            parameter.requires_grad_(False)
        result = logits(engine, head, items)
        for parameter in engine.body.parameters():
            parameter.requires_grad_(True)
        return result

    return changed


# Errors.


@pytest.mark.parametrize("what", ["store", "evict", "sample", "items"])
def test_a_failure_while_learning_is_never_passed_on(what, monkeypatch, tmp_path):
    learner, straight = (taught(prefetch=False) for _ in range(2))
    learner.save(tmp_path / "kept")
    buffer = learner.tasks[None].buffer
    monkeypatch.setattr(buffer, what, lambda *_, **__: (_ for _ in ()).throw(OSError("the disk is full")))
    with pytest.raises(OSError, match="full"):
        learner.learn_one(IMAGES[8], 0)
    for refused in (
        lambda: learner.learn_one(IMAGES[8], 0),
        lambda: learner.predict_one(IMAGES[8]),
        lambda: learner.save(tmp_path / "kept"),
        lambda: learner.snapshot(),
        lambda: learner.undo(),
    ):
        with pytest.raises(UnfinishedChange, match="load its last checkpoint"):
            refused()
    again = ColdStart.load(tmp_path / "kept")
    for one in (again, straight):
        one.learn_one(IMAGES[8], 0)
    assert again.fingerprint() == straight.fingerprint()


def test_a_failure_inside_the_network(tmp_path):
    class Fails(torch.nn.Module):
        fails = False

        def forward(self, x):
            if self.fails and self.training:
                raise RuntimeError("out of memory")
            return x.mean((2, 3))

    learner = ColdStart(model=lambda: Fails(), replay=3, size=8)
    learner.learn_one(IMAGES[0], "a")
    learner.engine.body.fails = True
    with pytest.raises(RuntimeError, match="out of memory"):
        learner.learn_one(IMAGES[1], "b")
    with pytest.raises(UnfinishedChange):
        learner.predict_one(IMAGES[1])


@pytest.mark.parametrize("prefetch", [False, True])
@pytest.mark.parametrize("kind", [CSSL, ColdStart])
def test_divergence_is_an_error_in_the_step_that_diverges(kind, prefetch, tmp_path):
    learner = kind(size=8, replay=3, rate=1e9, prefetch=prefetch)
    learner.save(tmp_path / "kept")
    before = learner.fingerprint()
    with pytest.raises(FloatingPointError, match="diverged.*lower rate"):
        learner.learn_many(IMAGES[:8], [0, 1] * 4)
    with pytest.raises(UnfinishedChange):
        learner.save(tmp_path / "kept")
    assert kind.load(tmp_path / "kept").fingerprint() == before


def test_divergence_in_base_initialisation_changes_nothing():
    learner = CSSL(size=8, init="base")
    before = learner.fingerprint()
    base = Dataset("base", IMAGES[:8], np.arange(8) % 2, ("a", "b"))
    with pytest.raises(FloatingPointError, match="lower rate"):
        learner.base_init(base, OfflineRecipe(epochs=20, rate=1e9))
    assert learner.fingerprint() == before


def test_an_example_with_features_that_are_not_finite_is_refused_and_nothing_else():
    learner = DeepSLDA(init="random", model="mlp", size=8)
    before = learner.fingerprint()
    learner._build = broken_build(learner)
    with pytest.raises(FloatingPointError, match="not finite"):
        learner.learn_one(IMAGES[0], "a")
    assert learner.fingerprint() == before
    del learner._build
    learner.learn_one(IMAGES[0], "a")
    assert learner.classes_ == ["a"]


def broken_build(learner):
    build = type(learner)._build

    def broken(shape):
        engine = build(learner, shape)
        engine.features_of = lambda items: torch.full((len(items), engine.features), float("nan"))
        return engine

    return broken


class Replaces(torch.nn.Module):
    """Has a buffer that is another tensor after each update."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(3, 4)
        self.register_buffer("mean", torch.zeros(3))
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x):
        x = x.mean((2, 3))
        if self.training:
            self.mean = 0.9 * self.mean + 0.1 * x.mean(0).detach()
            self.calls = self.calls + 1
        return self.layer(x - self.mean) * (1 + 0 * self.calls)


@pytest.mark.parametrize("kind", [CSSL, ColdStart])
def test_predictions_follow_a_buffer_that_is_replaced(kind, tmp_path):
    learner = kind(
        model=lambda: Replaces(), size=8, replay=4, channels=3, **({"average": False} if kind is ColdStart else {})
    )
    learner.learn_many(IMAGES[:8], [0, 1] * 4)
    body, head = learner.engine.body, learner.tasks[None].head
    body.eval()
    with torch.no_grad():
        expected = head(body(learner.engine.normalise(learner.engine.to_device(IMAGES[8:12]))))
    body.train()
    np.testing.assert_allclose(learner.engine.logits(head, IMAGES[8:12]), expected.double().numpy(), atol=1e-6)
    assert int(learner.engine.answering.calls) == int(body.calls) > 0
    learner.save(tmp_path / "kept")
    loaded = kind.load(tmp_path / "kept", model=lambda: Replaces())
    assert np.array_equal(loaded.predict_proba_many(IMAGES[8:12]), learner.predict_proba_many(IMAGES[8:12]))


# Signals.


def test_ctrl_c_takes_effect_when_the_change_is_complete(monkeypatch):
    """Pressed in the middle of an update, it is raised after it, and the learner goes on from there."""
    learner, straight = taught(), taught()
    update = learner.engine.update

    def pressed(*arguments, **named):
        signal.raise_signal(signal.SIGINT)
        update(*arguments, **named)

    with monkeypatch.context() as patch:
        patch.setattr(learner.engine, "update", pressed)
        with pytest.raises(KeyboardInterrupt):
            learner.learn_many(IMAGES[8:12], [0, 1, 0, 1])
    straight.learn_one(IMAGES[8], 0)
    assert learner.fingerprint() == straight.fingerprint()
    for one in (learner, straight):
        one.learn_many(IMAGES[9:12], [1, 0, 1])
    assert learner.fingerprint() == straight.fingerprint()


def test_the_second_ctrl_c_takes_effect_at_once(monkeypatch):
    learner = taught()

    def pressed_twice(*arguments, **named):
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        raise AssertionError("not reached")

    monkeypatch.setattr(learner.engine, "update", pressed_twice)
    with pytest.raises(KeyboardInterrupt):
        learner.learn_one(IMAGES[8], 0)
    with pytest.raises(UnfinishedChange, match="learning was cut off"):
        learner.learn_one(IMAGES[8], 0)


def test_handlers_are_put_back():
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with HeldSignals(), HeldSignals():
        pass
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before
    with pytest.raises(ZeroDivisionError), HeldSignals():
        1 / 0  # noqa: B018
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before
    with pytest.raises(KeyboardInterrupt), HeldSignals():
        signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) == before[0]


def test_a_handler_that_raises_hides_no_other_signal():
    arrived = []
    before = signal.signal(signal.SIGTERM, lambda *_: arrived.append("term"))
    try:
        for both in ((signal.SIGINT, signal.SIGTERM), (signal.SIGTERM, signal.SIGINT)):
            with pytest.raises(KeyboardInterrupt), HeldSignals():
                list(map(signal.raise_signal, both))
    finally:
        signal.signal(signal.SIGTERM, before)
    assert arrived == ["term", "term"]


def test_nothing_is_held_in_other_threads():
    before, seen = signal.getsignal(signal.SIGINT), []

    def enter():
        with HeldSignals():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert seen == [before]


def test_end_batch_can_be_stopped_and_changes_nothing():
    learner = ICaRL(model="mlp", epochs=2, batch=8)
    learner.learn_many(IMAGES[:8], [0, 1] * 4)
    before = learner.fingerprint()
    with pytest.raises(KeyboardInterrupt):
        learner.end_batch(progress=lambda *_: signal.raise_signal(signal.SIGINT))
    assert learner.fingerprint() == before


CHILD = textwrap.dedent(
    """
    import random, signal, sys
    import numpy as np
    from coldstream import ColdStart
    from coldstream.learners.changes import UnfinishedChange

    images = np.random.default_rng(0).integers(0, 256, (64, 6, 6, 1), dtype=np.uint8)
    count, seed = int(sys.argv[1]), int(sys.argv[2])
    rng = random.Random(seed)

    def new():
        return ColdStart(model="linear", replay=3, size=6, capacity=9, calibrate=False, passes=1)

    def change(learner, number):
        kind = number % 8
        image = images[number % 64]
        if kind == 5 and learner.step:
            learner.relabel(f"{number - 1}", number % 2)
        elif kind == 6:
            learner.merge_classes(*learner.classes_[:2]) if len(learner.classes_) > 3 else None
        elif kind == 7:
            try:
                learner.undo()
            except ValueError:
                pass
        else:
            learner.predict_one(image)
            learner.learn_one(image, number % 5, id=f"{number}")

    # The states that a learner goes through without signals.
    states, straight = [], new()
    for number in range(16):
        states.append(straight.fingerprint())
        change(straight, number)
    states.append(straight.fingerprint())

    delivered, refused, inside = 0, 0, False

    def interrupt(*_):
        if inside:
            raise KeyboardInterrupt

    signal.signal(signal.SIGINT, interrupt)
    signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(signal.SIGINT))
    while delivered < count:
        learner, number = new(), 0
        while number < 16:
            before = number
            try:
                inside = True
                signal.setitimer(signal.ITIMER_REAL, rng.uniform(1e-5, 0.004))
                change(learner, number)
                number = before + 1
                inside = False
            except KeyboardInterrupt:
                inside = False
                delivered += 1
                try:
                    state = learner.fingerprint()
                except UnfinishedChange:
                    refused += 1
                    break
                assert state in states[before : before + 2], f"neither before nor after {before}"
                number = before + (state != states[before])
        signal.setitimer(signal.ITIMER_REAL, 0)
        if number == 16:
            assert learner.fingerprint() == states[16]
    print(delivered, refused)
    """
)


def signals(count, seed):
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(count), str(seed)], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr[-3000:]
    delivered, refused = map(int, done.stdout.split())
    assert delivered >= count
    print(f"{delivered} signals, {refused} learners refused to go on")
    assert refused <= delivered / 100  # held back, so that next to no learner is lost


def test_signals_at_random_times():
    signals(100, random.randrange(1 << 30))


@pytest.mark.slow
def test_thousands_of_signals_at_random_times():
    count = 10_000 * int(os.environ.get("COLDSTREAM_CAMPAIGN", "1"))
    signals(count, random.randrange(1 << 30))
