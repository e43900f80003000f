"""Updates on replayed examples alone: `rehearse`, and the setting of ColdStart."""

import math
import signal

import numpy as np
import pytest
from scipy import stats

from coldstream import CSSL, ColdStart
from coldstream.data import Dataset
from coldstream.learners import LEARNERS, DERpp, OfflineRecipe
from coldstream.learners.changes import UnfinishedChange
from coldstream.randomness import generator, torch_seed

IMAGES = np.random.default_rng(0).integers(0, 256, (60, 8, 8, 3), dtype=np.uint8)


def taught(kind=ColdStart, count=20, classes=4, task=None, **settings):
    learner = kind(**{"size": 8, "replay": 6, "channels": 3, **settings})
    learner.learn_many(IMAGES[:count], [i % classes for i in range(count)], task=task)
    return learner


def loop(images, labels, rehearse, *, seed, replay, momentum=0.9, decay=1e-2):
    """Algorithm 1 with a linear network in NumPy, and `rehearse` updates on replayed examples after each example."""
    x = ((images / 255 - 0.5) / 0.25).reshape(len(images), -1)
    size, seen = x.shape[1], {}
    w, v = np.empty((0, size + 1)), np.empty((0, size + 1))

    def update(rows, rate):
        nonlocal w, v
        inputs = np.hstack([x[rows], np.ones((len(rows), 1))])
        logits = inputs @ w.T
        p = np.exp(logits - logits.max(axis=1, keepdims=True))
        p /= p.sum(axis=1, keepdims=True)
        p[np.arange(len(rows)), [labels[row] for row in rows]] -= 1
        v = momentum * v + p.T @ inputs / len(rows) + decay * w
        w = w - rate * v

    def drawn(stored, rng):
        return [*range(stored)] if stored <= replay else rng.choice(stored, replay, replace=False).tolist()

    number = 0
    for step, label in enumerate(labels):
        if label == len(w):
            bound = 1 / math.sqrt(size)
            w = np.vstack([w, generator(seed, label, "head").uniform(-bound, bound, size + 1)])
            v = np.vstack([v, np.zeros(size + 1)])
        rate = 0.1 / math.sqrt(1 + seen.get(label, 0) / 100)
        update([step, *drawn(step, generator(seed, step, "sample"))], rate)
        seen[label] = seen.get(label, 0) + 1
        for _ in range(rehearse):
            rows = drawn(step + 1, generator(torch_seed(seed, number, "rehearse"), step + 1, "sample"))
            update(rows, np.mean([0.1 / math.sqrt(1 + seen[labels[row]] / 100) for row in rows]))
            number += 1
    return w


@pytest.mark.parametrize("order", ["by class", "mixed"])
def test_equals_a_loop_in_numpy(order):
    images, labels = IMAGES[:50, :4, :4, :1], [i % 3 for i in range(50)]
    labels = sorted(labels) if order == "by class" else labels
    learner = CSSL(
        model="linear", augment="none", replay=7, weight_decay=1e-2, precision="float64", capacity=None, seed=5
    )
    for image, label in zip(images, labels, strict=True):
        learner.learn_one(image, label)
        learner.rehearse(2)
    head = learner.tasks[None].head
    weights = np.hstack([head.weight.detach().numpy(), head.bias.detach().numpy()[:, None]])
    np.testing.assert_allclose(weights, loop(images, labels, 2, seed=5, replay=7), rtol=0, atol=1e-9)


@pytest.mark.parametrize("settings", [{}, {"prefetch": True, "storage": "disk"}, {"sample": "uniform"}])
def test_the_setting_is_the_verb_after_each_update(settings):
    by_setting, by_verb = ColdStart(rehearse=2, replay=6, **settings), ColdStart(replay=6, **settings)
    for i in range(24):
        by_setting.learn_one(IMAGES[i], i % 3)
        by_verb.learn_one(IMAGES[i], i % 3)
        by_verb.rehearse(2)
    np.testing.assert_array_equal(by_setting.predict_proba_many(IMAGES), by_verb.predict_proba_many(IMAGES))
    for name, array in by_verb.engine.state().items():
        np.testing.assert_array_equal(by_setting.engine.state()[name], array)
    by_setting.learn_many(IMAGES[24:32], [0, 1] * 4, per_update=4)
    by_verb.learn_many(IMAGES[24:28], [0, 1] * 2, per_update=4)
    by_verb.rehearse(2)
    by_verb.learn_many(IMAGES[28:32], [0, 1] * 2, per_update=4)
    by_verb.rehearse(2)
    np.testing.assert_array_equal(by_setting.predict_proba_many(IMAGES), by_verb.predict_proba_many(IMAGES))


def test_prefetched_or_not_the_bits_are_the_same():
    twins = [taught(prefetch=prefetch) for prefetch in (True, False)]
    for learner in twins:
        learner.rehearse(3)
        learner.learn_many(IMAGES[20:40], [0, 1] * 10)
        learner.rehearse()
        learner.relabel(3, 1)
        learner.rehearse()
    assert twins[0].fingerprint() == twins[1].fingerprint()


def test_every_stored_example_is_drawn_as_often_and_none_of_the_held_out():
    learner = taught(model="linear", count=40, sample="uniform", augment="none")
    index = learner.tasks[None].buffer.index
    held_out = np.array([index.is_held_out(slot) for slot in range(40)])
    assert held_out.any()
    before = index.times.view.copy()
    learner.rehearse(600)
    times = (index.times.view - before).astype(float)
    assert (times[held_out] == 0).all()
    assert times.sum() == 6 * 600
    free = int((~held_out).sum())
    share = 6 / free  # of one draw without replacement: variance share (1 - share), correlated by -1 / (free - 1)
    scaled = ((times[~held_out] - 600 * share) ** 2).sum() / (600 * share * (1 - share)) * (free - 1) / free
    assert 0.001 < stats.chi2.sf(scaled, free - 1) < 0.999


def test_draws_follow_from_seed_task_and_number_and_differ_from_those_of_learning():
    def drawn(seed, number):
        return tuple(generator(torch_seed(seed, number, "rehearse"), 3, "sample").integers(1 << 30, size=4))

    rehearsed = {drawn(seed, number) for seed in range(20) for number in range(50)}
    learned = {
        tuple(generator(seed, step, "sample").integers(1 << 30, size=4)) for seed in range(20) for step in range(50)
    }
    assert len(rehearsed) == 1000
    assert not rehearsed & learned


def test_least_replayed_examples_come_first():
    spread = {}
    for sample in ("least-replayed", "uniform"):
        learner = taught(count=40, classes=2, calibrate=False, model="linear", sample=sample)
        learner.rehearse(200)
        spread[sample] = learner.tasks[None].buffer.index.times.view.std()
    assert spread["least-replayed"] < 0.75 * spread["uniform"]


def recorded_rates(learner, monkeypatch):
    """Record the learning rate of every update."""
    rates, descend = [], type(learner.engine).descend
    monkeypatch.setattr(
        type(learner.engine), "descend", lambda self, head, rate: (rates.append(rate), descend(self, head, rate))
    )
    return rates


def test_the_rate_is_the_mean_of_the_replayed_classes(monkeypatch):
    learner = ColdStart(replay=100, passes=1, calibrate=False)
    learner.learn_many(IMAGES[:30], ["a"] * 25 + ["b"] * 5)
    rates = recorded_rates(learner, monkeypatch)
    learner.rehearse()
    mean = (25 * 0.1 / math.sqrt(1.25) + 5 * 0.1 / math.sqrt(1.05)) / 30
    assert rates == [pytest.approx(mean * 30 / 100)]  # warm-up: 30 of 100
    plain = ColdStart(replay=100, passes=1, calibrate=False, warm_up=False)
    plain.learn_many(IMAGES[:30], ["a"] * 25 + ["b"] * 5)
    plain.rehearse()
    assert rates[-1] == pytest.approx(mean)


def test_classes_of_base_initialisation_have_no_rate(monkeypatch):
    learner = CSSL(replay=8, init="base", rate="linear(0.1, 0.001)", counts={"new": 4}, augment="none", model="mlp")
    data = Dataset("base", IMAGES[:12], np.array([0, 1] * 6), ("x", "y"))
    learner.base_init(data, OfflineRecipe(epochs=1))
    before = learner.fingerprint()
    learner.rehearse()
    assert learner.fingerprint() == before
    learner.learn_one(IMAGES[20], "new")
    learner.learn_one(IMAGES[21], "new")
    rates = recorded_rates(learner, monkeypatch)
    learner.rehearse(20)
    assert rates
    assert rates == pytest.approx([0.1 - 0.099 * 2 / 3] * len(rates))


@pytest.mark.parametrize("strategy", ["full+separate", "full+sum", "split+separate", "split+sum"])
def test_all_tasks_are_rehearsed(strategy):
    learners = [ColdStart(replay=6, strategy=strategy, calibrate=False, seed=2) for _ in range(2)]
    for learner in learners:
        for i in range(30):
            learner.learn_one(IMAGES[i], i % 2, task=("a", "b", "c")[i % 3])
        before = [int(task.buffer.index.times.view.sum()) for task in learner.tasks.values()]
        learner.rehearse(3)
        after = [int(task.buffer.index.times.view.sum()) for task in learner.tasks.values()]
        each = 6 if strategy.startswith("full") else 2
        assert [b - a for a, b in zip(before, after, strict=True)] == [3 * each] * 3
    assert learners[0].fingerprint() == learners[1].fingerprint()


def test_of_a_share_that_does_not_divide_the_tasks_take_turns():
    learner = CSSL(replay=7, strategy="split+separate", augment="none", model="mlp")
    for i in range(40):
        learner.learn_one(IMAGES[i], i % 2, task=("a", "b", "c")[i % 3])
    tasks = [*learner.tasks.values()]
    for lead in (0, 1, 2, 0):
        before = [int(task.buffer.index.times.view.sum()) for task in tasks]
        learner.rehearse()
        grown = [int(task.buffer.index.times.view.sum()) - n for task, n in zip(tasks, before, strict=True)]
        assert grown == [3 if task.number == lead else 2 for task in tasks]


def test_the_temperature_follows():
    learner = taught(count=60, replay=20)
    assert learner.tasks[None].confidence.held
    before = learner.tasks[None].confidence.temperature
    learner.rehearse(60)
    assert learner.tasks[None].confidence.temperature > before  # noise that is learned by heart


def test_logits_that_were_stored_count():
    learners = [taught(DERpp, count=30, alpha=alpha, model="mlp") for alpha in (0.1, 0.1, 5.0)]
    for learner in learners:
        learner.rehearse(2)
    answers = [learner.predict_proba_many(IMAGES) for learner in learners]
    np.testing.assert_array_equal(answers[0], answers[1])
    assert not np.allclose(answers[0], answers[2])


def test_nothing_to_replay_is_nothing_to_do():
    for learner in (ColdStart(), taught(replay=0), CSSL()):
        before = learner.fingerprint()
        learner.rehearse(5)
        assert learner.fingerprint() == before
    learner = taught(count=3, classes=3)
    for id in range(3):
        learner.forget(id)
    before = learner.fingerprint()
    learner.rehearse()
    assert learner.fingerprint() == before


def test_edits_and_rehearsals_in_any_order_resume(tmp_path):
    learner = taught(count=24)
    for number, act in enumerate(
        (
            lambda one: one.relabel(3, "new"),
            lambda one: one.merge_classes(0, 1),
            lambda one: one.rename_class(2, "two"),
            lambda one: one.forget(5),
            lambda one: one.undo(),
            lambda one: one.learn_one(IMAGES[30], "last"),
        )
    ):
        learner.save(tmp_path / str(number))
        again = ColdStart.load(tmp_path / str(number))
        for one in (learner, again):
            act(one)
            one.rehearse(2)
        assert learner.fingerprint() == again.fingerprint()
        learner = again


@pytest.mark.parametrize("name", [name for name, kind in LEARNERS.items() if not kind.rehearses])
def test_learners_without_such_updates_refuse(name):
    with pytest.raises(ValueError, match=f"{LEARNERS[name].__name__} has no updates on replayed images alone"):
        LEARNERS[name]().rehearse()


def test_the_paper_has_none():
    assert "rehearse" not in CSSL.Settings.model_fields
    assert ColdStart().settings.rehearse == 0
    with pytest.raises(ValueError, match="rehearse"):
        ColdStart(rehearse=-1)
    with pytest.raises(ValueError, match="updates"):
        taught().rehearse(0)


def test_a_failure_is_never_passed_on(monkeypatch):
    learner = taught()
    monkeypatch.setattr(learner.tasks[None].buffer, "items", lambda *_: (_ for _ in ()).throw(OSError("gone")))
    with pytest.raises(OSError, match="gone"):
        learner.rehearse()
    for refused in (learner.rehearse, learner.snapshot, lambda: learner.predict_one(IMAGES[0])):
        with pytest.raises(UnfinishedChange, match="rehearsing was cut off"):
            refused()


def test_ctrl_c_takes_effect_between_two_updates(monkeypatch):
    learner, straight = taught(), taught()
    update, made = type(learner.engine).update, []

    def update_then_interrupt(self, *rest, **named):
        made.append(update(self, *rest, **named))
        if len(made) == 2:
            signal.raise_signal(signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        monkeypatch.setattr(type(learner.engine), "update", update_then_interrupt)
        with pytest.raises(KeyboardInterrupt):
            learner.rehearse(10)
    finally:
        signal.signal(signal.SIGINT, before)
    monkeypatch.undo()
    straight.rehearse(2)
    assert learner.fingerprint() == straight.fingerprint()
