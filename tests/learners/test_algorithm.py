"""Algorithm 1 against a hand-written NumPy loop in float64, with its own sampling and eviction."""

import math

import numpy as np
import pytest

from coldstream import CSSL, ColdStart
from coldstream.randomness import generator

SEED, REPLAY, CAPACITY, STEPS = 5, 12, 30, 200
MOMENTUM, DECAY = 0.9, 1e-2


class Oracle:
    """Spec section 1 in plain Python: lists of stored images, and class members as lists of row numbers."""

    def __init__(self, bits):
        self.cut = 2 ** (8 - bits)
        self.images, self.labels = [], []
        self.members = {}
        self.w, self.b, self.vw, self.vb = np.empty((0, 16)), np.empty(0), np.empty((0, 16)), np.empty(0)
        self.seen = {}
        self.step = 0

    def learn(self, image, label):
        if label not in self.members:
            row = generator(SEED, len(self.b), "head").uniform(-0.25, 0.25, 17)
            self.w, self.b = np.vstack([self.w, row[:16]]), np.append(self.b, row[16])
            self.vw, self.vb = np.vstack([self.vw, np.zeros(16)]), np.append(self.vb, 0)
            self.members[label] = []
        k = self.seen.get(label, 0)
        self.seen[label] = k + 1
        rate = 0.1 / math.sqrt(1 + k / 100)

        stored = len(self.images)
        rows = range(stored)
        if stored > REPLAY:
            rows = generator(SEED, self.step, "sample").choice(stored, REPLAY, replace=False)
        batch = [image] + [self.images[row] // self.cut * self.cut for row in rows]
        labels = [label] + [self.labels[row] for row in rows]
        x = (np.array(batch).reshape(len(batch), 16) / 255 - 0.5) / 0.25
        logits = x @ self.w.T + self.b
        p = np.exp(logits - logits.max(axis=1, keepdims=True))
        p /= p.sum(axis=1, keepdims=True)
        p[np.arange(len(batch)), labels] -= 1
        gw, gb = p.T @ x / len(batch), p.mean(axis=0)
        self.vw = MOMENTUM * self.vw + gw + DECAY * self.w
        self.vb = MOMENTUM * self.vb + gb + DECAY * self.b
        self.w, self.b = self.w - rate * self.vw, self.b - rate * self.vb

        self.images.append(image)
        self.labels.append(label)
        self.members[label].append(len(self.images) - 1)
        if len(self.images) > CAPACITY:
            self.evict(generator(SEED, self.step, "evict"))
        self.step += 1

    def evict(self, rng):
        most = max(len(rows) for rows in self.members.values())
        largest = [label for label in sorted(self.members) if len(self.members[label]) == most]
        rows = self.members[largest[rng.integers(len(largest))]]
        victim = rows[rng.integers(len(rows))]
        place = rows.index(victim)
        rows[place] = rows[-1]
        rows.pop()
        last = len(self.images) - 1
        if victim != last:
            self.images[victim], self.labels[victim] = self.images[last], self.labels[last]
            members = self.members[self.labels[last]]
            members[members.index(last)] = victim
        self.images.pop()
        self.labels.pop()


@pytest.mark.parametrize("bits", [8, 6])
@pytest.mark.parametrize("order", ["by class", "mixed"])
def test_same_weights_as_a_numpy_loop(bits, order):
    rng = np.random.default_rng(1)
    labels = np.arange(STEPS) * 4 // STEPS if order == "by class" else rng.integers(4, size=STEPS)
    _, labels = np.unique(labels, return_inverse=True)
    first = {label: i for i, label in enumerate(dict.fromkeys(labels.tolist()))}
    images = rng.integers(0, 256, (STEPS, 4, 4, 1), dtype=np.uint8)
    learner = CSSL(
        model="linear",
        augment="none",
        codec=f"quantize({bits})",
        capacity=CAPACITY,
        replay=REPLAY,
        weight_decay=DECAY,
        momentum=MOMENTUM,
        precision="float64",
        seed=SEED,
    )
    oracle = Oracle(bits)
    for image, label in zip(images, labels.tolist(), strict=True):
        learner.learn_one(image, label)
        oracle.learn(image, first[label])
    task = learner.tasks[None]
    assert len(task.buffer) == len(oracle.images) == CAPACITY
    weight, bias = task.head.weight, task.head.bias
    np.testing.assert_allclose(weight.detach().numpy(), oracle.w, rtol=0, atol=1e-6)
    np.testing.assert_allclose(bias.detach().numpy(), oracle.b, rtol=0, atol=1e-6)
    kept = task.buffer.items(np.arange(CAPACITY))
    np.testing.assert_array_equal(kept, np.array(oracle.images) // oracle.cut * oracle.cut)


def batches_of(learner, monkeypatch):
    """Record the batch of every update."""
    seen = []
    update = type(learner.engine).update

    def spy(self, head, images, targets, *rest, **named):
        seen.append((images.clone(), targets.clone()))
        return update(self, head, images, targets, *rest, **named)

    monkeypatch.setattr(type(learner.engine), "update", spy)
    return seen


def test_the_batch_is_the_new_example_uncompressed_and_b_distinct_replayed(monkeypatch):
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (30, 4, 4, 3), dtype=np.uint8)
    learner = CSSL(model="linear", replay=8, codec="quantize(1)", augment="none", normalize="none")
    learner.learn_one(images[0], 0)
    seen = batches_of(learner, monkeypatch)
    for i in range(1, 30):
        learner.learn_one(images[i], i % 3)
        batch = np.rint(seen[-1][0].numpy() * 255).astype(int).transpose(0, 2, 3, 1)
        assert len(batch) == 1 + min(8, i)
        np.testing.assert_array_equal(batch[0], images[i])
        coarse = images[:i] // 128 * 128
        replayed = [int(np.flatnonzero((coarse == row).all(axis=(1, 2, 3)))[0]) for row in batch[1:]]
        assert len(set(replayed)) == min(8, i)  # never the new one, never one twice
        np.testing.assert_array_equal(seen[-1][1].argmax(1)[1:], [row % 3 for row in replayed])


def test_per_update_takes_k_new_examples(monkeypatch):
    images = np.random.default_rng(0).integers(0, 256, (10, 4, 4, 3), dtype=np.uint8)
    learner = CSSL(model="linear", replay=3, augment="none")
    learner.learn_one(images[0], 0)
    seen = batches_of(learner, monkeypatch)
    learner.learn_many(images[1:], [1] * 9, per_update=4)
    assert [len(batch) for batch, _ in seen] == [4 + 1, 4 + 3, 1 + 3]
    assert learner.step == 10
    assert len(learner.tasks[None].buffer) == 10


@pytest.mark.parametrize("kind", [CSSL, ColdStart])
def test_no_replay_at_all(kind):
    images = np.random.default_rng(0).integers(0, 256, (6, 8, 8, 3), dtype=np.uint8)
    learner = kind(replay=0)
    for i, image in enumerate(images):
        learner.learn_one(image, i % 2)
    assert len(learner.predict_proba_one(images[0])) == 2


def test_single_values_use_running_statistics():
    """A batch of one with 1x1 maps has no variance: BatchNorm must not be asked for one."""
    learner = CSSL(replay=0, size=1, augment="none", model="resnet8-16")
    learner.learn_one(np.full((1, 1, 3), 9, np.uint8), "a")
    norms = [m for m in learner.engine.body.modules() if hasattr(m, "running_mean")]
    assert all((norm.running_mean == 0).all() and norm.training for norm in norms)
    learner.learn_many(np.full((2, 1, 1, 3), 9, np.uint8), ["a", "b"], per_update=2)
    assert any((norm.running_mean != 0).any() for norm in norms)


def test_soft_labels_of_consolidated_examples_reach_the_loss(monkeypatch):
    images = np.random.default_rng(0).integers(0, 256, (12, 4, 4, 3), dtype=np.uint8)
    learner = CSSL(model="linear", replay=50, capacity=4, evict="consolidate-samplepairing", augment="none")
    learner.learn_one(images[0], 0)
    seen = batches_of(learner, monkeypatch)
    for i in range(1, 12):
        learner.learn_one(images[i], i % 3)
    targets = seen[-1][1].numpy()
    np.testing.assert_allclose(targets.sum(axis=1), 1, atol=1e-6)
    assert ((targets > 0) & (targets < 1)).any()
