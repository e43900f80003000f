"""Streams with tasks: four ways to share an update against a plain loop, and what each task has of its own."""

from collections import OrderedDict

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from coldstream import CSSL, ColdStart, checkpoint
from coldstream.data import Dataset
from coldstream.learners import ER, LEARNERS, REMIND, DeepSLDA, ExStream, LinearProbe, OfflineRecipe
from coldstream.learners.changes import UnfinishedChange
from coldstream.learners.tasks import STRATEGIES, shares
from coldstream.randomness import generator

SEED, MOMENTUM, DECAY = 3, 0.9, 1e-2
SIDE, FEATURES = 2, 5


def images(count, seed=0, side=SIDE):
    return np.random.default_rng(seed).integers(0, 256, (count, side, side, 3), dtype=np.uint8)


def seed_of(number):
    return SEED if number == 0 else int(generator(SEED, number, "task").integers(1 << 63))


def network():
    """A hidden layer with BatchNorm before it, so that it matters which rows are one batch."""
    rng = np.random.default_rng(9)
    net = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(12), nn.Linear(12, FEATURES), nn.Tanh())
    for parameter in net.parameters():
        parameter.data = torch.from_numpy(rng.normal(0.2, 0.5, parameter.shape)).float()
    return net


def two_parts():
    frozen = nn.Sequential(nn.Conv2d(3, 4, 3, 3), nn.BatchNorm2d(4), nn.ReLU())
    plastic = nn.Sequential(nn.Conv2d(4, 4, 3), nn.BatchNorm2d(4), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    return nn.Sequential(OrderedDict(frozen=frozen, plastic=plastic))


def cssl(**settings):
    fixed = {"model": network, "augment": "none", "precision": "float64", "seed": SEED}
    return CSSL(**{**fixed, "momentum": MOMENTUM, "weight_decay": DECAY, "replay": 4, **settings})


def state_of(learner, task):
    return learner.engine.state() | learner.tasks[task].head.state()


def stream(count, seed=0):
    """Three tasks, with labels in common: one after another at first, then in turn."""
    rng = np.random.default_rng(seed)
    for i, image in enumerate(images(count, seed)):
        task = "ab"[i >= 8] if i < 16 else "abc"[rng.integers(3)]
        yield image, "xyz"[rng.integers(3)], task


class Oracle:
    """Spec section 9 in plain torch and lists, in float64."""

    def __init__(self, strategy, replay, rate):
        self.strategy, self.replay, self.rate = strategy, replay, rate
        net = network().double()
        norm, linear = net[1], net[2]
        self.body = [p.detach().clone() for p in (norm.weight, norm.bias, linear.weight, linear.bias)]
        self.velocity = [torch.zeros_like(p) for p in self.body]
        self.mean, self.var = torch.zeros(12, dtype=torch.float64), torch.ones(12, dtype=torch.float64)
        self.tasks, self.labels, self.heads, self.moving, self.stored, self.seen = [], [], [], [], [], {}
        self.step = 0

    def learn(self, image, label, task):
        if task not in self.tasks:
            self.tasks.append(task)
            self.labels.append([])
            self.heads.append([torch.empty((0, FEATURES)).double(), torch.empty(0).double()])
            self.moving.append([torch.empty((0, FEATURES)).double(), torch.empty(0).double()])
            self.stored.append([])
        here = self.tasks.index(task)
        if label not in self.labels[here]:
            bound = FEATURES**-0.5
            row = generator(seed_of(here), len(self.labels[here]), "head").uniform(-bound, bound, FEATURES + 1)
            row = torch.from_numpy(row)
            weight, bias = self.heads[here]
            self.heads[here] = [torch.cat([weight, row[None, :-1]]), torch.cat([bias, row[-1:]])]
            self.moving[here] = [torch.cat([v, v.new_zeros(1, *v.shape[1:])]) for v in self.moving[here]]
            self.labels[here].append(label)
        k = self.seen.get((task, label), 0)
        self.seen[task, label] = k + 1
        rate = self.rate(task, label, k)

        order = [here] + [t for t in range(len(self.tasks)) if t != here]
        rows = dict.fromkeys(order, self.replay)
        if self.strategy.startswith("split"):  # dealt out like cards
            rows = dict.fromkeys(order, 0)
            for i in range(self.replay):
                rows[order[i % len(order)]] += 1
        batches = [(here, [(image, self.labels[here].index(label)), *self.drawn(here, max(0, rows[here] - 1))])]
        batches += [(t, self.drawn(t, rows[t])) for t in order[1:]]
        batches = [(t, batch) for t, batch in batches if batch]

        if self.strategy.endswith("separate"):
            for t, batch in batches:
                body, head = self.gradients(t, batch)
                self.descend(self.body, self.velocity, body, rate)
                self.descend(self.heads[t], self.moving[t], head, rate)
        else:
            total, heads = [torch.zeros_like(p) for p in self.body], []
            for t, batch in batches:
                body, head = self.gradients(t, batch)
                total = [a + b for a, b in zip(total, body, strict=True)]
                heads.append((t, head))
            self.descend(self.body, self.velocity, total, rate)
            for t, head in heads:
                self.descend(self.heads[t], self.moving[t], head, rate)
        self.stored[here].append((image, self.labels[here].index(label)))
        self.step += 1

    def drawn(self, t, count):
        stored = self.stored[t]
        rows = range(len(stored))
        if len(stored) > count:
            rows = generator(seed_of(t), self.step, "sample").choice(len(stored), count, replace=False)
        return [stored[row] for row in rows]

    def gradients(self, t, batch):
        x = torch.tensor(np.array([image for image, _ in batch]) / 255).permute(0, 3, 1, 2).flatten(1)
        x, y = (x - 0.5) / 0.25, torch.tensor([row for _, row in batch])
        parts = [p.clone().requires_grad_() for p in (*self.body, *self.heads[t])]
        mean, var = self.mean, self.var
        if len(x) > 1:
            mean, var = x.mean(0), x.var(0, correction=0)
            self.mean = 0.9 * self.mean + 0.1 * mean
            self.var = 0.9 * self.var + 0.1 * x.var(0, correction=1)
        x = (x - mean) / (var + 1e-5).sqrt() * parts[0] + parts[1]
        logits = torch.tanh(x @ parts[2].T + parts[3]) @ parts[4].T + parts[5]
        gradients = torch.autograd.grad(F.nll_loss(logits.log_softmax(1), y), parts)
        return gradients[:4], gradients[4:]

    @staticmethod
    def descend(parameters, velocities, gradients, rate):
        for p, v, g in zip(parameters, velocities, gradients, strict=True):
            v.mul_(MOMENTUM).add_(g + DECAY * p)
            p.sub_(rate * v)


@pytest.mark.parametrize("replay", [4, 7])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_same_weights_as_a_plain_loop(strategy, replay):
    counts = {(task, label): 4 + 3 * i + j for i, task in enumerate("abc") for j, label in enumerate("xyz")}
    learner = cssl(strategy=strategy, replay=replay, rate="linear(0.1, 0.01)", counts=counts)

    def rate(task, label, k):
        return 0.1 + (0.01 - 0.1) * min(1, k / (counts[task, label] - 1))

    oracle = Oracle(strategy, replay, rate)
    for image, label, task in stream(45):
        learner.learn_one(image, label, task=task)
        oracle.learn(image, label, task)
    assert learner.tasks_ == oracle.tasks == ["a", "b", "c"]
    body = ["1.weight", "1.bias", "2.weight", "2.bias"]
    for t, task in enumerate(oracle.tasks):
        assert learner.classes_of(task) == oracle.labels[t]
        state = state_of(learner, task)
        expected = {f"model.body.{name}": p for name, p in zip(body, oracle.body, strict=True)}
        expected |= {f"momentum.body.{name}": v for name, v in zip(body, oracle.velocity, strict=True)}
        expected |= {"model.body.1.running_mean": oracle.mean, "model.body.1.running_var": oracle.var}
        expected |= dict(zip(("model.weight", "model.bias"), oracle.heads[t], strict=True))
        expected |= dict(zip(("momentum.weight", "momentum.bias"), oracle.moving[t], strict=True))
        assert expected.keys() == state.keys() - {"model.body.1.num_batches_tracked"}
        for name, value in expected.items():
            np.testing.assert_allclose(state[name], value, rtol=0, atol=1e-6, err_msg=f"{task} {name}")


def test_shares_by_hand():
    for kind in ("separate", "sum"):
        assert list(shares(f"full+{kind}", 5, 3, 1).items()) == [(1, 5), (0, 5), (2, 5)]
        assert list(shares(f"split+{kind}", 9, 3, 2).items()) == [(2, 3), (0, 3), (1, 3)]
        assert list(shares(f"split+{kind}", 8, 3, 2).items()) == [(2, 3), (0, 3), (1, 2)]
        assert list(shares(f"split+{kind}", 7, 3, 1).items()) == [(1, 3), (0, 2), (2, 2)]
        assert list(shares(f"split+{kind}", 2, 4, 3).items()) == [(3, 1), (0, 1), (1, 0), (2, 0)]
        assert list(shares(f"split+{kind}", 0, 2, 0).items()) == [(0, 0), (1, 0)]


def task_of(learner, head):
    return next(name for name, task in learner.tasks.items() if task.head is head)


def watched(learner, monkeypatch):
    """Record, for every batch, the task that it is of and how many rows it has; and every step's rate."""
    seen, rates = [], []
    gather, descend = learner.engine.gather, learner.engine.descend

    def on_gather(head, inputs, *rest, **named):
        seen.append((task_of(learner, head), len(inputs)))
        gather(head, inputs, *rest, **named)

    def on_descend(head, rate):
        rates.append(rate)
        descend(head, rate)

    monkeypatch.setattr(learner.engine, "gather", on_gather)
    monkeypatch.setattr(learner.engine, "descend", on_descend)
    return seen, rates


@pytest.mark.parametrize(
    ("strategy", "per_update", "expected"),
    [
        ("full+separate", 1, [("b", 5), ("a", 5), ("c", 3)]),
        ("full+sum", 2, [("b", 5), ("a", 5), ("c", 3)]),
        ("full+separate", 7, [("b", 7), ("a", 5), ("c", 3)]),
        ("split+sum", 1, [("b", 2), ("a", 2), ("c", 1)]),
        ("split+separate", 4, [("b", 4), ("a", 2), ("c", 1)]),
    ],
)
def test_rows_of_every_batch(strategy, per_update, expected, monkeypatch):
    learner = cssl(strategy=strategy, replay=5)
    for task, count in (("a", 9), ("b", 9), ("c", 3)):
        learner.learn_many(images(count), ["x", "y", "z"] * (count // 3), task=task)
    seen, rates = watched(learner, monkeypatch)
    learner.learn_many(images(per_update, 5), ["x"] * per_update, task="b", per_update=per_update)
    assert seen == expected
    assert len(rates) == 3
    assert len(set(rates)) == 1


def test_few_rows_and_none(monkeypatch):
    """Tasks without a row are left out, the new example never is."""
    learner = cssl(strategy="split+separate", replay=2)
    for i, task in enumerate("abcd"):
        learner.learn_one(images(4)[i], "x", task=task)
    seen, _ = watched(learner, monkeypatch)
    learner.learn_one(images(1, 3)[0], "x", task="d")
    assert seen == [("d", 1), ("a", 1)]
    learner = cssl(replay=0)
    learner.learn_one(images(1)[0], "x", task="a")
    seen, _ = watched(learner, monkeypatch)
    learner.learn_one(images(1)[0], "x", task="b")
    learner.learn_one(images(1)[0], "x", task="a")
    assert seen == [("b", 1), ("a", 1)]


def test_a_single_task_has_the_new_example_among_its_rows(monkeypatch):
    learner, other = cssl(replay=4), cssl(replay=3)
    learner.learn_one(images(1)[0], "x", task="a")
    seen, _ = watched(learner, monkeypatch)
    for image in images(7, 1):
        learner.learn_one(image, "x", task="a")
    assert [rows for _, rows in seen] == [2, 3, 4, 4, 4, 4, 4]
    for image in [images(1)[0], *images(7, 1)]:  # B - 1 beside the new one, without tasks
        other.learn_one(image, "x")
    with_task, without = state_of(learner, "a"), state_of(other, None)
    assert with_task.keys() == without.keys()
    assert all(np.array_equal(with_task[name], without[name]) for name in without)


def heads(learner):
    """The bits of every head and its momentum."""
    names = ("model.weight", "model.bias", "momentum.weight", "momentum.bias")
    return {task: [state_of(learner, task)[name].tobytes() for name in names] for task in learner.tasks_}


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_step_changes_one_head_and_a_sum_the_body_once(strategy, monkeypatch):
    learner = cssl(strategy=strategy, replay=6)
    for image, label, task in stream(24):
        learner.learn_one(image, label, task=task)
    descend, changed, bodies = learner.engine.descend, [], []

    def body():
        state = learner.engine.state()
        return [state[name].tobytes() for name in sorted(state) if "running" not in name and "num_" not in name]

    def on_descend(head, rate):
        before, was = heads(learner), body()
        descend(head, rate)
        after = heads(learner)
        changed.append([task for task in before if before[task] != after[task]])
        bodies.append(body() != was)

    monkeypatch.setattr(learner.engine, "descend", on_descend)
    learner.learn_one(images(1, 8)[0], "x", task="b")
    assert changed == [["b"], ["a"], ["c"]]
    assert bodies == ([True, True, True] if strategy.endswith("separate") else [True, False, False])


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_task_with_nothing_stored_keeps_its_head(strategy):
    learner = cssl(strategy=strategy)
    ids = learner.learn_many(images(5), "xyxyx", task="a")
    learner.learn_many(images(5, 1), "xyxyx", task="b")
    before = heads(learner)["a"]
    assert all(learner.forget(id) for id in ids)
    learner.learn_many(images(5, 2), "xyxyx", task="b")
    assert heads(learner)["a"] == before
    assert learner.classes_of("a") == []


def test_rates_follow_the_counts_of_task_and_label(monkeypatch):
    learner = cssl(rate="linear(0.1, 0.001)", counts={("a", "x"): 3, ("b", "x"): 2})
    learner.learn_one(images(1)[0], "x", task="a")
    _, rates = watched(learner, monkeypatch)
    for task in "baba":
        learner.learn_one(images(1)[0], "x", task=task)
    assert rates[::2] == rates[1::2]  # the other task at the rate of the new example
    assert rates[::2] == pytest.approx([0.1, 0.0505, 0.001, 0.001])
    before = learner.fingerprint()
    with pytest.raises(ValueError, match=r"\(task, label\) \('b', 'y'\) is not among the counts"):
        learner.learn_one(images(1)[0], "y", task="b")
    with pytest.raises(ValueError, match=r"\('c', 'x'\) is not among the counts"):
        learner.learn_one(images(1)[0], "x", task="c")
    assert learner.fingerprint() == before
    learner.rename_class("x", "y", task="b")
    learner.learn_one(images(1)[0], "y", task="b")
    with pytest.raises(ValueError, match=r"\('b', 'x'\) is not among"):
        learner.learn_one(images(1)[0], "x", task="b")


def test_the_same_label_in_two_tasks():
    learner = cssl()
    for i, image in enumerate(images(12)):
        learner.learn_one(image, "xy"[i % 4 // 2], task="ab"[i % 2])
    learner.learn_one(images(1, 2)[0], "z", task="b")
    learner.rename_class("x", "w", task="a")
    learner.merge_classes("y", "x", task="b")
    assert learner.classes_of("a") == ["w", "y"]
    assert learner.classes_of("b") == ["x", "z"]
    assert list(learner.predict_proba_one(images(1)[0], task="b")) == ["x", "z"]
    tables = [learner.predict_proba_many(images(3, 4), task=task) for task in "ab"]
    assert np.abs(tables[0] - tables[1]).max() > 1e-3
    with pytest.raises(ValueError, match="no task 'c'"):
        learner.rename_class("x", "q", task="c")
    with pytest.raises(ValueError, match="has tasks"):
        learner.merge_classes("x", "z")


def test_ids_are_unique_over_tasks():
    learner = cssl(replay=3)
    learner.learn_many(images(4), "xxxy", task="a", ids=[0, 1, 2, "three"])
    learner.learn_many(images(2, 1), "xx", task="b", ids=[10, 11])
    assert learner.memory()[0] == 6
    learner.learn_one(images(1, 2)[0], "x", task="b", id="three")
    assert learner.memory()[0] == 6
    assert learner.classes_of("a") == ["x"]
    assert learner.memory()[1] == 6 * 12
    assert learner.overhead() > 0
    assert learner.relabel(0, "y")
    assert learner.relabel(11, "q")
    assert not learner.relabel(99, "q")
    assert learner.classes_of("a") == ["x", "y"]
    assert learner.classes_of("b") == ["x", "q"]
    learner.predict_one(images(1)[0], task="a")
    assert learner.undo() == "three"
    assert learner.memory()[0] == 5
    assert learner.classes_of("b") == ["x", "q"]
    assert learner.forget(11)
    assert learner.classes_of("b") == ["x"]
    assert learner.classes_of("a") == ["x", "y"]
    assert learner.learn_one(images(1)[0], "x", task="a") == 12
    learner = cssl(capacity=1)
    learner.learn_many(images(3), "xyz", task="a")
    learner.learn_many(images(3), "xyz", task="b")
    assert learner.memory()[0] == 2
    learner.learn_one(images(1)[0], "x", task="a")
    assert learner.memory()[0] == 2


def test_counts_where_the_last_example_was_evicted_at_once():
    learner = cssl(capacity=2, evict="uniform", seed=1)
    for i, image in enumerate(images(30)):
        learner.learn_one(image, "x", task="ab"[i % 2])
    learner.learn_one(images(1)[0], "new", task="a")
    learner.predict_one(images(1)[0], task="b")
    learner.undo()
    assert learner.classes_of("a") == ["x"]
    assert learner.classes_of("b") == ["x"]


def test_wrong_uses():
    learner, image = cssl(), images(1)[0]
    assert learner.tasks_ == []
    assert learner.classes_ == []
    assert learner.classes_of("a") == []
    assert learner.predict_one(image, task="a") is None
    assert learner.predict_one(image) is None
    learner.learn_one(image, "x", task=1)
    before = learner.fingerprint()
    for action in (
        lambda: learner.learn_one(image, "x"),
        lambda: learner.learn_many([image], ["x"]),
        lambda: learner.predict_proba_many([image]),
        lambda: learner.predict_one(image),
    ):
        with pytest.raises(ValueError, match=r"has tasks; say which one with task= \(known: \[1\]\)"):
            action()
    with pytest.raises(ValueError, match=r"classes_of\(task\)"):
        _ = learner.classes_
    with pytest.raises(ValueError, match="task True cannot be told from the known task 1"):
        learner.learn_one(image, "x", task=True)
    with pytest.raises(ValueError, match="a task is named as a label is"):
        learner.learn_one(image, "x", task=1.5)
    with pytest.raises(ValueError, match="cannot be told from the known label"):
        learner.learn_many([image, image], [1, True], task="new")
    assert learner.predict_proba_many([image, image], task=2).shape == (2, 0)
    assert learner.predict_many([image], task=2) == [None]
    assert learner.predict_proba_one(image, task=2) == {}
    assert learner.fingerprint() == before
    assert learner.tasks_ == [1]

    learner = cssl()
    learner.learn_one(image, "x")
    for action in (learner.classes_of, lambda task: learner.learn_one(image, "x", task=task)):
        with pytest.raises(ValueError, match="began without tasks"):
            action("a")
    with pytest.raises(ValueError, match="did you mean 'full\\+sum'"):
        cssl(strategy="fullsum")
    with pytest.raises(ValueError, match="would be class 3"):
        cssl(classes=2).learn_many(images(3), "xyz", task="a")


@pytest.mark.parametrize("name", ["icarl", "e2eil", "gdumb", "offline"])
def test_batch_learners_have_no_tasks(name):
    learner = LEARNERS[name](model="linear")
    assert not learner.multi_task
    with pytest.raises(ValueError, match=f"{type(learner).__name__} has no tasks; leave task=None"):
        learner.learn_one(images(1)[0], "x", task="a")
    with pytest.raises(ValueError, match="has no tasks"):
        learner.predict_one(images(1)[0], task="a")
    learner.learn_one(images(1)[0], "x")
    assert learner.tasks_ == []


def test_classes_known_in_advance_are_those_of_each_task():
    learner = cssl(classes=3)
    learner.learn_many(images(3), "xyz", task="a")
    learner.learn_many(images(2), "qr", task="b")
    assert learner.predict_proba_many(images(2), task="b").shape == (2, 2)
    assert learner.parameters() == 24 + 12 * 5 + 5 + 2 * 3 * (FEATURES + 1)


@pytest.mark.parametrize("strategy", ["full+separate", "full+sum"])
@pytest.mark.parametrize("when", [0, 1, 2])
def test_an_update_that_fails_is_not_passed_on(strategy, when, monkeypatch):
    learner = cssl(strategy=strategy)
    for image, label, task in stream(20):
        learner.learn_one(image, label, task=task)
    gather, calls = learner.engine.gather, []

    def failing(*rest, **named):
        calls.append(1)
        if len(calls) > when:
            raise MemoryError
        gather(*rest, **named)

    monkeypatch.setattr(learner.engine, "gather", failing)
    with pytest.raises(MemoryError):
        learner.learn_one(images(1, 7)[0], "new", task="b", id="it")
    monkeypatch.undo()
    for task in "abc":
        with pytest.raises(UnfinishedChange):
            learner.predict_one(images(1, 7)[0], task=task)


# The other learners.

BASE = Dataset("base", images(12, 3, side=12), np.arange(12) % 2, ("x", "y"))
SHORT = OfflineRecipe(epochs=2, batch=6, rate=0.01, augment="none")
FROZEN = {
    DeepSLDA: {},
    ExStream: {"per_class": 3, "batch": 4},
    LinearProbe: {"replay": 4, "precision": "float64", "strategy": "split+sum"},
}


@pytest.mark.parametrize("kind", FROZEN, ids=lambda kind: kind.__name__)
def test_frozen_learners_equal_one_without_tasks_for_each(kind):
    settings = {"model": network, "init": "random", **FROZEN[kind]}
    learner = kind(seed=SEED, **settings)
    if kind is LinearProbe:  # whose rows are B with the new example
        settings["replay"] = 3
    alone = {task: kind(**{**settings, "seed": seed_of(t)}) for t, task in enumerate("abc")}
    for i, (image, label, task) in enumerate(stream(36)):
        learner.learn_one(image, label, task=task)
        alone[task].step = i  # draws are a function of it
        alone[task].learn_one(image, label)
    probe = images(6, 5)
    for task, other in alone.items():
        assert learner.classes_of(task) == other.classes_
        np.testing.assert_array_equal(learner.predict_proba_many(probe, task=task), other.predict_proba_many(probe))
    assert learner.memory() == tuple(np.sum([other.memory() for other in alone.values()], axis=0))
    if kind is DeepSLDA:
        np.testing.assert_array_equal(learner.tasks["b"].covariance, alone["b"].tasks[None].covariance)


def remind(**settings):
    learner = REMIND(**{"model": two_parts, "replay": 3, "centroids": 8, "seed": SEED, **settings})
    learner.base_init(BASE, SHORT, task="a")
    return learner


def test_remind_replays_codes_of_every_task(monkeypatch):
    learner = remind(crop=False, mixup=None)
    assert learner.tasks_ == ["a"]
    assert learner.classes_of("a") == ["x", "y"]
    assert learner.memory()[0] == 12
    learner.learn_many(images(5, 4, side=12), "uvuvu", task="b")
    batches, update = [], learner.engine.update
    monkeypatch.setattr(learner.engine, "update", lambda *a, **k: (batches.append(a[1:3]), update(*a, **k)))
    frozen = {name: value.clone() for name, value in learner._frozen().state_dict().items()}
    rows = {"a": 12, "b": 5}
    stored = {}
    for task, count in rows.items():
        buffer = learner.tasks[task].buffer
        codes, labels = buffer.items(np.arange(count)), buffer.index.labels.view.copy()
        stored[task] = learner._maps(learner._decode(codes)), labels
    learner.learn_one(images(1, 6, side=12)[0], "u", task="b")

    def drawn(number, count, wanted):
        seed = seed_of(number)
        order = generator(seed, 5, "order")
        return order.permutation(generator(seed, 5, "sample").choice(count, wanted, replace=False))

    (new, soft), (old, others) = batches
    current, other = drawn(1, 5, 2), drawn(0, 12, 3)
    assert len(new) == 3
    assert torch.equal(new[1:], stored["b"][0][current])
    assert torch.equal(soft, torch.eye(2)[[0, *stored["b"][1][current]]])
    assert torch.equal(old, stored["a"][0][other])
    assert torch.equal(others, torch.eye(2)[stored["a"][1][other]])
    after = learner._frozen().state_dict()
    assert all(frozen[name].equal(after[name]) for name in frozen)
    assert learner.overhead() > learner.quantiser.table.nbytes


def test_remind_has_b_mixtures_for_every_other_task(monkeypatch):
    learner = remind()
    learner.learn_many(images(8, 4, side=12), "uvuvuvuv", task="b")
    seen, _ = watched(learner, monkeypatch)
    learner.learn_one(images(1, 6, side=12)[0], "u", task="a")
    assert seen == [("a", 3), ("b", 3)]


def test_base_initialisation_is_of_one_task():
    learner = cssl(init="base")
    with pytest.raises(ValueError, match="needs base initialisation"):
        learner.predict_one(images(1)[0], task="a")
    fingerprint = learner.fingerprint()

    def interrupt(epoch):
        raise InterruptedError

    base = Dataset("base", images(6), np.arange(6) % 2, ("x", "y"))
    with pytest.raises(InterruptedError):
        learner.base_init(base, SHORT, interrupt, "a")
    assert learner.tasks_ == []
    assert learner.fingerprint() == fingerprint
    learner.base_init(base, SHORT, task="a")
    assert learner.tasks_ == ["a"]
    assert learner.classes_of("a") == ["x", "y"]
    with pytest.raises(ValueError, match="has tasks"):
        learner.learn_one(images(1)[0], "x")
    learner.learn_one(images(1)[0], "x", task="b")
    assert learner.tasks_ == ["a", "b"]
    plain = cssl(init="base")
    plain.base_init(base, SHORT)
    with pytest.raises(ValueError, match="began without tasks"):
        plain.learn_one(images(1)[0], "x", task="a")


# Checkpoints.

STOPPED = {
    **{
        f"{kind.__name__} {strategy}": (kind, {"strategy": strategy, "replay": 5, "model": "mlp", "capacity": 9})
        for kind in (ColdStart, ER)
        for strategy in STRATEGIES
    },
    **{
        f"REMIND {strategy}": (REMIND, {"strategy": strategy, "replay": 3, "centroids": 8, "model": two_parts})
        for strategy in STRATEGIES
    },
    **{kind.__name__: (kind, {"init": "random", "model": "mlp", **FROZEN[kind]}) for kind in FROZEN},
    "packed, on disk": (ColdStart, {"storage": "disk", "codec": "jpeg(80)", "model": "linear", "replay": 5}),
    "consolidating": (ColdStart, {"evict": "consolidate-mixup(0.4)", "capacity": 4, "model": "linear", "replay": 5}),
    "full policy": (CSSL, {"augment": "crop|flip|mixup(0.1)/cutmix(0.8)", "model": "mlp", "replay": 3}),
}


@pytest.mark.parametrize("wait", [True, False], ids=["waiting", "in the background"])
@pytest.mark.parametrize("name", STOPPED)
def test_stopped_and_resumed_equals_never_stopped(name, wait, tmp_path):
    kind, settings = STOPPED[name]
    model = {"model": settings["model"]} if not isinstance(settings["model"], str) else {}
    learners = [kind(**settings) for _ in range(2)]
    for learner in learners:
        if learner.needs_base_init:
            learner.base_init(BASE, SHORT, task="a")
    straight, stopped = learners
    pictures = images(24, 1, side=12)
    for i, image in enumerate(pictures):
        task, label = ("a", "b", ("c", 1))[0 if i < 5 else (i - 4) % 3], "xyz"[i * 7 % 5 % 3]
        straight.learn_one(image, label, task=task)
        stopped.learn_one(image, label, task=task)
        if i in (2, 9, 17):
            before = stopped.fingerprint()
            saving = stopped.save(tmp_path / "kept", wait=wait)
            stopped.learn_one(pictures[0], "lost", task="b")  # learned after the save, and so not in it
            stopped.predict_one(image, task="a")
            saving.result()
            stopped = kind.load(tmp_path / "kept", **model)
            assert stopped.fingerprint() == before
    assert stopped.tasks_ == straight.tasks_ == ["a", "b", ("c", 1)]
    assert stopped.fingerprint() == straight.fingerprint()
    assert stopped.undo() == straight.undo()
    assert stopped.fingerprint() == straight.fingerprint()
    for task in straight.tasks_:
        ours, theirs = (one.predict_proba_many(pictures[:4], task=task) for one in (straight, stopped.snapshot()))
        np.testing.assert_array_equal(ours, theirs)


def test_rows_of_every_task_are_appended(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint.segments, "SMALL", 0)
    learner, kept = cssl(capacity=None), tmp_path / "kept"

    def files():
        return {path.name: path.stat().st_size for path in kept.glob("rows-*")}

    learner.learn_many(images(6), "xyxyxy", task="a")
    learner.learn_many(images(4, 1), "xyxy", task="b")
    learner.save(kept)
    first = files()
    assert sorted(first.values()) == [4 * (12 + 8), 6 * (12 + 8)]
    learner.learn_many(images(3, 2), "xyx", task="b")
    learner.learn_many(images(2, 3), "xy", task="c")
    learner.save(kept)
    second = files()
    assert first.items() < second.items()
    assert sorted(second[name] for name in second.keys() - first.keys()) == [2 * (12 + 8), 3 * (12 + 8)]
    loaded = CSSL.load(kept, model=network)
    assert loaded.fingerprint() == learner.fingerprint()
    loaded.learn_one(images(1, 4)[0], "x", task="a")
    loaded.save(kept)
    third = files()
    assert second.items() < third.items()
    assert len(third) == len(second) + 1
    next(path for path in kept.glob("rows-*") if path.name in first).unlink()
    with pytest.raises(checkpoint.CheckpointError, match="lacks its file"):
        CSSL.load(kept, model=network)
