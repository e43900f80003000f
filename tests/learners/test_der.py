"""DER++: its loss against NumPy, the logits that it stores, and its updates against a loop written out."""

import numpy as np
import pytest
import torch

from coldstream.augment import Policy
from coldstream.learners import ER, Batch, DERpp
from coldstream.learners.method import Example
from plain_replay import PlainReplay, assert_same, cross_entropy, stream

LINEAR = {
    "model": "linear",
    "augment": "none",
    "precision": "float64",
    "weight_decay": 1e-2,
    "rate": "inverse-sqrt(0.1)",
}


def log_softmax(logits):
    return logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))


def entropies(logits, labels):
    return -log_softmax(logits)[np.arange(len(labels)), labels].mean()


def loss_of(logits, new, first, labels, extras, **settings):
    """Return DER++'s loss of `new` examples, `first` of the first draw, and the rest of the second."""
    examples = [Example(np.zeros((4, 4, 1), np.uint8), "any", place) for place in range(new)]
    replayed = len(logits) - new
    draws = (first, replayed - first)
    targets = torch.from_numpy(np.eye(logits.shape[1])[labels])
    batch = Batch(
        0, examples, labels[:new], np.arange(replayed), draws, np.empty(0), Policy.parse("none"), extras=extras
    )
    return float(DERpp(**settings).loss(torch.from_numpy(logits), batch, targets))


def test_three_terms_and_no_logits_of_classes_that_came_later():
    rng = np.random.default_rng(0)
    logits, labels = rng.normal(size=(9, 4)) * 2, [3, 1, 0, 0, 2, 1, 3, 2, 0]
    kept = [rng.normal(size=length).astype(np.float32) for length in (1, 4, 2)]
    extras = [*kept, *(rng.normal(size=4).astype(np.float32) for _ in range(4))]
    squares = [(logits[2 + i, k] - values[k]) ** 2 for i, values in enumerate(kept) for k in range(len(values))]
    assert len(squares) == 7
    expected = entropies(logits[:2], labels[:2]) + 0.3 * np.mean(squares) + 0.7 * entropies(logits[5:], labels[5:])
    assert loss_of(logits, 2, 3, labels, extras, alpha=0.3, beta=0.7) == pytest.approx(expected, rel=1e-9)
    without = expected - 0.7 * entropies(logits[5:], labels[5:])
    assert loss_of(logits, 2, 3, labels, extras, alpha=0.3, beta=0) == pytest.approx(without, rel=1e-9)


def test_defaults_are_those_of_the_documentation():
    assert (DERpp().settings.alpha, DERpp().settings.beta, DERpp().draws, DERpp(beta=0).draws) == (0.1, 0.5, 2, 1)
    assert DERpp().settings.rate == 0.01
    assert DERpp().settings.evict == "reservoir"


def test_examples_without_logits_are_left_out_of_the_distance():
    logits = np.arange(8, dtype=np.float64).reshape(4, 2)
    extras = [None, np.array([1, 1], np.float32), None]
    expected = entropies(logits[:1], [0]) + 0.5 * ((4 - 1) ** 2 + (5 - 1) ** 2) / 2 + 2 * entropies(logits[3:], [1])
    assert loss_of(logits, 1, 2, [0, 0, 0, 1], extras, alpha=0.5, beta=2) == pytest.approx(expected, rel=1e-9)
    bare = entropies(logits[:1], [0]) + 2 * entropies(logits[3:], [1])
    assert loss_of(logits, 1, 2, [0, 0, 0, 1], [None] * 3, alpha=0.5, beta=2) == pytest.approx(bare, rel=1e-9)


@pytest.mark.parametrize("new", [0, 3])
def test_a_part_that_is_missing_has_no_share(new):
    logits, labels = np.random.default_rng(1).normal(size=(new or 2, 3)), [0, 2, 1][: new or 2]
    extras = [] if new else [np.zeros(3, np.float32)] * 2
    expected = entropies(logits, labels) if new else 0.1 * (logits[:1] ** 2).mean() + 0.5 * entropies(logits[1:], [2])
    assert loss_of(logits, new, 0 if new else 1, labels, extras) == pytest.approx(expected, rel=1e-9)


def dark(alpha, beta):
    """Return the loss of DER++, written out; with beta None that of DER, which draws once."""

    def loss(logits, labels, replayed):
        total = sum(cross_entropy(logits[i], label) for i, label in enumerate(labels)) / len(labels)
        place, squares = len(labels), []
        for _, kept in replayed[0]:
            squares += [(logits[place, column] - kept[column]) ** 2 for column in range(len(kept))]
            place += 1
        if squares:
            total = total + alpha * sum(squares) / len(squares)
        for label, _ in replayed[1] if beta is not None else ():
            total = total + beta * cross_entropy(logits[place], label) / len(replayed[1])
            place += 1
        return total

    return loss


@pytest.mark.parametrize("prefetch", [False, True])
@pytest.mark.parametrize("order", ["by class", "mixed"])
@pytest.mark.parametrize("per_update", [1, 10])
def test_same_weights_and_logits_as_a_plain_loop(per_update, order, prefetch):
    images, labels = stream(60 if per_update == 1 else 240, 4, 5, order)
    learner = DERpp(**LINEAR, replay=8, capacity=20, seed=7, alpha=0.05, beta=0.4, prefetch=prefetch)
    oracle = PlainReplay(dark(0.05, 0.4), seed=7, replay=8, capacity=20, draws=2)
    learner.learn_many(images, labels, per_update=per_update)
    for start in range(0, len(images), per_update):
        oracle.learn(images[start : start + per_update], labels[start : start + per_update])
    assert_same(learner, oracle, 1e-7)
    kept = learner.tasks[None].buffer.extra_of(np.arange(20))
    for values, (_, _, expected) in zip(kept, oracle.stored, strict=True):
        np.testing.assert_allclose(values, expected.numpy(), rtol=0, atol=1e-6)
    if order == "by class":
        assert {len(values) for values in kept} == {1, 2, 3, 4}


def test_without_beta_it_is_der():
    images, labels = stream(60, 4, 6)
    learner = DERpp(**LINEAR, replay=8, capacity=20, seed=7, alpha=0.05, beta=0)
    oracle = PlainReplay(dark(0.05, None), seed=7, replay=8, capacity=20, draws=1)
    for image, label in zip(images, labels, strict=True):
        learner.learn_one(image, label)
        oracle.learn([image], [label])
    assert_same(learner, oracle, 1e-7)


class Watched(DERpp):
    """Notes what a linear network says of each new image, and compares what is stored beside replayed ones."""

    def _set_up(self):
        super()._set_up()
        self.said, self.compared, self.current = {}, 0, None

    def loss(self, logits, batch, targets):
        if batch.new:
            head = self.tasks[self.current].head
            weight, bias = head.weight.detach().numpy(), head.bias.detach().numpy()
            for example in batch.new:
                x = (example.item.ravel() / 255 - 0.5) / 0.25
                self.said[example.item.tobytes()] = weight @ x + bias
        for item, kept in zip(batch.items[len(batch.new) :], batch.extras, strict=True):
            np.testing.assert_allclose(kept, self.said[item.tobytes()], rtol=0, atol=1e-5)
            self.compared += 1
        return super().loss(logits, batch, targets)

    def check(self):
        """Compare the logits of everything that is stored with what the network said of that image."""
        for task in self.tasks.values():
            slots = np.arange(len(task.buffer))
            for item, kept in zip(task.buffer.items(slots), task.buffer.extra_of(slots), strict=True):
                np.testing.assert_allclose(kept, self.said[item.tobytes()], rtol=0, atol=1e-5)
            assert len(task.buffer.extras) == len(task.buffer)


@pytest.mark.parametrize("prefetch", [False, True])
@pytest.mark.parametrize("evict", ["reservoir", "largest-class", "uniform"])
def test_logits_stay_with_their_example_when_slots_move(evict, prefetch):
    images, labels = stream(120, 4, 8, "by class")
    learner = Watched(**LINEAR, replay=5, capacity=15, evict=evict, prefetch=prefetch)
    edited = 0
    for step, (image, label) in enumerate(zip(images, labels, strict=True)):
        learner.learn_one(image, label)
        ids = learner.tasks[None].buffer.index.ids.view
        if step % 5 == 4:
            edited += learner.forget(int(ids[step % len(ids)]))
        if step % 7 == 6:
            edited += learner.relabel(int(ids[step % len(ids)]), (label + 1) % 4)
        if step == 90:
            learner.merge_classes(0, 1)
            learner.rename_class(1, "one")
            labels[91:] = ["one" if other in (0, 1) else other for other in labels[91:]]
        if step == 100:
            learner.undo()
        if step == 110:  # an example that is learned again has the logits of then
            learner.learn_one(images[0], 2, id=int(ids[0]))
        learner.check()
    assert edited > 30
    assert learner.compared > 1000


@pytest.mark.parametrize("strategy", ["full+separate", "split+sum"])
def test_each_task_has_its_logits(strategy):
    images, labels = stream(60, 3, 9)
    learner = Watched(**LINEAR, replay=6, capacity=8, strategy=strategy)
    for step, (image, label) in enumerate(zip(images, labels, strict=True)):
        learner.current = ("left", "right")[step * 7 % 3 % 2]
        learner.learn_one(image, label, task=learner.current)
        learner.check()
    assert [len(task.buffer) for task in learner.tasks.values()] == [8, 8]
    assert learner.compared > 300


def test_logits_are_of_the_augmented_image_in_training_mode():
    images, labels = stream(12, 2, 1)
    learner, seen = DERpp(model="resnet8-16", replay=4, size=8), []
    forward = type(learner).loss

    def spy(logits, batch, targets):
        seen.append(logits[0].detach().clone())
        return forward(learner, logits, batch, targets)

    learner.loss = spy
    for step, (image, label) in enumerate(zip(images, labels, strict=True)):
        learner.learn_one(image, label)
        np.testing.assert_array_equal(learner.tasks[None].buffer.extras[step], seen[step].numpy())
    assert len(seen) == 12


@pytest.mark.parametrize("wait", [True, False])
def test_a_checkpoint_keeps_the_logits(tmp_path, wait):
    images, labels = stream(60, 4, 2, "by class")
    settings = dict(model="mlp", augment="crop|flip", replay=5, capacity=11, alpha=0.7, beta=0.2)
    straight, stopped = DERpp(**settings), DERpp(**settings)
    for step, (image, label) in enumerate(zip(images, labels, strict=True)):
        straight.learn_one(image, label)
        stopped.learn_one(image, label)
        if step in (0, 25, 47):
            kept = {id: values.copy() for id, values in stopped.tasks[None].buffer.extras.items()}
            saving = stopped.save(tmp_path / "kept", wait=wait)
            if not wait:
                stopped.learn_one(images[0], 0)  # goes on while the checkpoint is written
            saving.result()
            stopped = DERpp.load(tmp_path / "kept")
            loaded = stopped.tasks[None].buffer.extras
            assert loaded.keys() == kept.keys()
            for id, values in kept.items():
                np.testing.assert_array_equal(loaded[id], values)
                assert loaded[id].dtype == np.float32
            if step == 47:
                assert len({len(values) for values in kept.values()}) > 2
    assert straight.fingerprint() == stopped.fingerprint()


def test_a_fingerprint_covers_the_logits():
    images, labels = stream(10, 2, 3)
    learner = DERpp(**LINEAR, replay=4)
    learner.learn_many(images, labels)
    before = learner.fingerprint()
    learner.tasks[None].buffer.extras[3][0] += 1e-3
    assert learner.fingerprint() != before


def test_a_snapshot_answers_alike_and_has_none_of_the_buffer():
    images, labels = stream(30, 3, 4)
    learner = DERpp(**LINEAR, replay=4, alpha=0.9, beta=0.8)
    learner.learn_many(images, labels)
    before = learner.predict_proba_many(images)
    snapshot = learner.snapshot()
    learner.learn_many(images, labels[::-1])
    np.testing.assert_array_equal(snapshot.predict_proba_many(images), before)
    assert (snapshot.settings.alpha, snapshot.settings.beta) == (0.9, 0.8)
    assert snapshot.memory() == (0, 0)
    assert snapshot.tasks[None].buffer.extras == {}
    assert len(learner.tasks[None].buffer.extras) == 60


def test_logits_are_counted_as_overhead():
    images, labels = stream(12, 3, 4, "by class")
    learner, plain = DERpp(**LINEAR, replay=4), ER(**LINEAR, replay=4)
    for one in (learner, plain):
        one.learn_many(images, labels)
    assert learner.memory() == plain.memory() == (12, 12 * 16)
    assert learner.overhead() - plain.overhead() == 4 * (4 * 1 + 4 * 2 + 4 * 3)


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ({"augment": "crop|mixup(0.1)"}, "mixes images"),
        ({"augment": "crop|flip|mixup(0.1)/cutmix(0.8)"}, "mixes images"),
        ({"evict": "consolidate-mixup(1.0, limit=2)"}, "mixes stored images"),
        ({"evict": "consolidate-samplepairing"}, "mixes stored images"),
        ({"alpha": -0.1}, "alpha"),
        ({"beta": "much"}, "beta"),
    ],
)
def test_refusals(setting, words):
    with pytest.raises(ValueError, match=words) as refusal:
        DERpp(**setting)
    assert repr(next(iter(setting.values()))) in str(refusal.value)
