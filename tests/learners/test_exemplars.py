"""iCaRL and end-to-end incremental learning against their formulas, written out by brute force in NumPy."""

import numpy as np
import pytest
import torch

from coldstream.learners import EndToEnd, ICaRL, OfflineRecipe, train_offline
from coldstream.learners.batches import at_shares
from coldstream.learners.end_to_end import cross_distilled_loss
from coldstream.learners.exemplars import herd
from coldstream.learners.training.engine import Engine
from coldstream.models import Body

RNG = np.random.default_rng(1)
LABELS = np.repeat([0, 1, 2], [9, 7, 5])
IMAGES = (50 * LABELS[:, None, None, None] + RNG.integers(0, 90, (21, 4, 4, 3))).astype(np.uint8)


def of(row):
    return np.flatnonzero(np.equal(LABELS, row))


def unit(v):
    return v / np.linalg.norm(v, axis=-1, keepdims=True)


def herded(features, count):
    """Choose as Algorithm 4 of iCaRL does, every average scaled to length 1: try every example, take the best."""
    goal, chosen = unit(features.mean(axis=0)), []
    for _ in range(count):
        distance = {
            i: np.linalg.norm(goal - unit(features[[*chosen, i]].mean(axis=0)))
            for i in range(len(features))
            if i not in chosen
        }
        chosen.append(min(distance, key=distance.get))
    return chosen


def stream(learner, *rows):
    for i in range(len(LABELS)):
        if LABELS[i] in rows:
            learner.learn_one(IMAGES[i], int(LABELS[i]), id=i)
    learner.end_batch()


def features(learner, ids):
    return unit(learner.engine.features_of(IMAGES[ids]).double().numpy())


def stored(learner, row):
    index = learner.tasks[None].buffer.index
    return set(index.ids.view[index.labels.view == row].tolist())


@pytest.mark.parametrize("seed", range(5))
def test_herding_is_brute_force(seed):
    vectors = unit(np.abs(np.random.default_rng(seed).normal(size=(15, 6))))
    assert herd(vectors, 15) == herded(vectors, 15)
    assert herd(vectors, 4) == herd(vectors, 15)[:4]


@pytest.mark.parametrize("kind", [ICaRL, EndToEnd])
def test_exemplars_are_herded_once_and_then_shortened(kind):
    learner = kind(model="mlp", exemplars=11, epochs=2, rate=0.1)
    stream(learner, 0, 1)
    ids = [of(row) for row in range(3)]
    order = [ids[row][herded(features(learner, ids[row]), 5)] for row in (0, 1)]
    assert [stored(learner, row) for row in (0, 1)] == [set(order[0]), set(order[1])]
    assert learner.memory() == (10, 10 * 48)
    stream(learner, 2)
    assert [stored(learner, row) for row in (0, 1)] == [set(order[0][:3]), set(order[1][:3])]
    assert stored(learner, 2) == set(ids[2][herded(features(learner, ids[2]), 3)])
    # A class that more examples came of is herded anew, over what was kept and what came.
    had = sorted(stored(learner, 0) | {7, 8})
    learner.learn_many(IMAGES[[7, 8]], [0, 0], ids=[7, 8])
    learner.end_batch()
    had = np.array(had)
    assert stored(learner, 0) == set(had[herded(features(learner, had), 3)])
    assert stored(learner, 1) == set(order[1][:3])


@pytest.mark.parametrize("exemplars", [6, None])
@pytest.mark.parametrize("augment", ["crop|flip", "crop"])
def test_icarl_answers_with_the_nearest_mean(exemplars, augment):
    learner = ICaRL(model="mlp", exemplars=exemplars, epochs=3, rate=0.5, augment=augment)
    stream(learner, 0, 1)
    stream(learner, 2)
    means = []
    for row in range(3):
        images = learner.tasks[None].buffer.items(np.flatnonzero(learner.tasks[None].buffer.index.labels.view == row))
        views = [images, images[:, :, ::-1].copy()] if "flip" in augment else [images]
        means.append(
            unit(np.concatenate([unit(learner.engine.features_of(v).double().numpy()) for v in views]).mean(0))
        )
    distance = np.linalg.norm(features(learner, np.arange(21))[:, None] - np.array(means), axis=2)
    assert learner.predict_many(IMAGES) == distance.argmin(axis=1).tolist()
    np.testing.assert_allclose(learner._logits(learner.tasks[None], IMAGES), -(distance**2), atol=1e-9)


def pixels(learner):
    """What a linear network takes, in float64, and its weights with the bias as a last column."""
    x = learner.engine.normalise(learner.engine.to_device(IMAGES)).reshape(21, -1).double().numpy()
    head = learner.tasks[None].head
    w = torch.cat([head.weight, head.bias[:, None]], dim=1).detach().double().numpy()
    return np.hstack([x, np.ones((21, 1))]), w


def grown(learner, label):
    """Let a class come without training on it: the weights as they are before its batch ends."""
    for i in of(label):
        learner.learn_one(IMAGES[i], int(label), id=int(i))
    return pixels(learner)


def descend(x, w, gradient, rates, decay, momentum=0.9):
    velocity = np.zeros_like(w)
    for rate in rates:
        velocity = momentum * velocity + gradient(x @ w.T).T @ x + decay * w
        w = w - rate * velocity
    return w


def softmax(z):
    e = np.exp(z - z.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def test_icarls_updates_are_its_loss():
    """New classes have targets 0 and 1, old ones the old network's sigmoids; the mean over examples and classes."""
    learner = ICaRL(model="linear", exemplars=None, epochs=3, rate=0.5, weight_decay=0.01, augment="none")
    stream(learner, 0, 1)
    x, w = grown(learner, 2)
    targets = np.eye(3)[LABELS]
    targets[:, :2] = 1 / (1 + np.exp(-(x @ w[:2].T)))

    def gradient(z):
        return (1 / (1 + np.exp(-z)) - targets) / z.size

    expected = descend(x, w, gradient, [0.5, 0.5, 0.5 / 5], 0.01)
    assert at_shares(3, (0.7, 0.9)) == (2, 3)
    learner.end_batch()
    np.testing.assert_allclose(pixels(learner)[1], expected, atol=1e-5)
    assert np.abs(expected - w).max() > 1e-2


def test_icarl_learns_known_classes_that_come_again():
    learner = ICaRL(
        model="linear", exemplars=None, epochs=2, rate=0.5, weight_decay=0.0, augment="none", drops=(0.9,)
    )
    stream(learner, 0, 1)
    learner.learn_one(255 - IMAGES[0], 0, id=0)
    stored_images = np.where((np.arange(21) == 0)[:, None, None, None], 255 - IMAGES, IMAGES)[:16]
    x, w = pixels(learner)
    x = learner.engine.normalise(learner.engine.to_device(stored_images)).reshape(16, -1).double().numpy()
    x = np.hstack([x, np.ones((16, 1))])
    targets = np.eye(2)[LABELS[:16]]
    targets[:, 1] = 1 / (1 + np.exp(-(x @ w[1])))
    expected = descend(x, w, lambda z: (1 / (1 + np.exp(-z)) - targets) / z.size, [0.5, 0.5], 0.0)
    learner.end_batch()
    np.testing.assert_allclose(pixels(learner)[1], expected, atol=1e-5)


def test_the_published_schedules():
    assert at_shares(70, (0.7, 0.9)) == (49, 63)
    assert at_shares(40, (1 / 4, 2 / 4, 3 / 4)) == (10, 20, 30)
    assert at_shares(30, (1 / 3, 2 / 3)) == (10, 20)


def test_the_cross_distilled_loss_is_brute_force():
    rng = np.random.default_rng(0)
    z, old = rng.normal(size=(2, 7, 6)) * 3
    y = np.eye(6)[rng.integers(0, 5, 7)]
    heads, known, t = [[0, 2], [1, 3]], [0, 1, 2, 3, 4], 2.0
    expected = 0.0
    for n in range(7):
        p = np.exp(z[n, known]) / np.exp(z[n, known]).sum()
        expected -= np.log(p[y[n].argmax()])
        for head in heads:
            # As published: probabilities within the head to the power 1/T, made to sum to 1 again.
            given, wanted = (np.exp(v[n, head]) / np.exp(v[n, head]).sum() for v in (z, old))
            given, wanted = (p ** (1 / t) / (p ** (1 / t)).sum() for p in (given, wanted))
            expected -= (wanted * np.log(given)).sum()
    tensors = (torch.from_numpy(array) for array in (z, y, old))
    assert cross_distilled_loss(*tensors, known, heads, t).item() == pytest.approx(expected / 7, rel=1e-12)


def test_end_to_ends_updates_are_its_losses():
    """Training on all with the old head held, then on a balanced part with both heads held to the network between."""
    settings = {"epochs": 2, "rate": 0.1, "fine_epochs": 3, "fine_rate": 0.05, "weight_decay": 0.01}
    learner = EndToEnd(model="linear", exemplars=None, augment="none", temperature=2.0, **settings)
    stream(learner, 0, 1)
    x, w = grown(learner, 2)
    y = np.eye(3)[LABELS]

    def losses(heads, old, y):
        def gradient(z):
            sums = softmax(z) - y
            for head in heads:
                sums[:, head] += (softmax(z[:, head] / 2) - softmax(old[:, head] / 2)) / 2
            return sums / len(z)

        return gradient

    trained = descend(x, w, losses([[0, 1]], x @ w.T, y), [0.1, 0.1 / 100], 0.01)
    part = np.concatenate([ids[herded(unit(x[ids, :-1]), 5)] for ids in map(of, range(3))])
    held = losses([[0, 1], [2]], x[part] @ trained.T, y[part])
    expected = descend(x[part], trained, held, [0.05, 0.005, 0.0005], 0.01)
    learner.end_batch()
    np.testing.assert_allclose(pixels(learner)[1], expected, atol=2e-5)
    assert np.abs(expected - trained).max() > 1e-3
    assert learner.tasks[None].heads == [[0, 1], [2]]


def test_the_balanced_part_has_as_many_of_each_class():
    learner = EndToEnd(model="mlp", exemplars=None, epochs=1, fine_epochs=1)
    stream(learner, 0, 1, 2)
    part = learner.tasks[None].balanced(learner.engine)
    assert len(set(part.tolist())) == 15
    assert np.bincount(LABELS[part]).tolist() == [5, 5, 5]
    ids = of(1)
    assert set(part[LABELS[part] == 1]) == set(ids[herded(features(learner, ids), 5)])


def test_a_second_training_makes_other_draws_than_the_first():
    recipe = OfflineRecipe(epochs=2, batch=4, augment="none")
    weights = []
    for after in (0, 12):
        engine = Engine(Body.build("linear", (3, 4, 4), 0), momentum=0.9, weight_decay=0.0)
        head = engine.new_head(0, 3)
        assert train_offline(engine, head, IMAGES, LABELS, recipe, 0, after=after) == after + 2 * 6
        weights.append(head.weight.detach())
    assert not weights[0].equal(weights[1])
    learner = ICaRL(model="linear", exemplars=None, epochs=1, batch=4, rate=0.1)
    stream(learner, 0, 1)
    stream(learner, 2)
    assert learner.tasks[None].steps == 4 + 6
