"""Deep SLDA against the published update, written out one example at a time with a pseudo-inverse."""

import numpy as np
import pytest
import torch
from sklearn.covariance import OAS

from coldstream.data import Dataset
from coldstream.learners import DeepSLDA, OfflineRecipe

FEATURES = 12
NO_TRAINING = OfflineRecipe(epochs=0)


class Published:
    """The update and the scores as they were published."""

    def __init__(self, epsilon=1e-4, plastic=True):
        self.sigma, self.n = np.zeros((FEATURES, FEATURES)), 0
        self.mu, self.c = {}, {}
        self.epsilon, self.plastic = epsilon, plastic

    def fit_base(self, x, y):
        for k in np.unique(y):
            self.mu[k], self.c[k] = x[y == k].mean(axis=0), (y == k).sum()
        self.sigma = OAS(assume_centered=True).fit(x - np.stack([self.mu[k] for k in y])).covariance_
        self.n = len(x)

    def fit(self, x, k):
        mu, n = self.mu.get(k, np.zeros(FEATURES)), self.n
        if self.plastic:
            delta = np.outer(x - mu, x - mu) * n / (n + 1)
            self.sigma = (n * self.sigma + delta) / (n + 1)
        self.mu[k] = mu + (x - mu) / (self.c.get(k, 0) + 1)
        self.c[k] = self.c.get(k, 0) + 1
        self.n += 1

    def scores(self, x, classes):
        inverse = np.linalg.pinv((1 - self.epsilon) * self.sigma + self.epsilon * np.eye(FEATURES))
        mu = np.stack([self.mu[k] for k in classes])
        w = inverse @ mu.T
        return x @ w - 0.5 * (mu.T * w).sum(axis=0)


def softmax(scores):
    p = np.exp(scores - scores.max(axis=1, keepdims=True))
    return p / p.sum(axis=1, keepdims=True)


def stream(seed, count, classes=4):
    """Return features as float32 holds them, whose classes come in any order."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, classes, count)
    x = 0.7 * rng.normal(size=(classes, FEATURES))[y] + rng.normal(size=(count, FEATURES)) @ rng.normal(
        size=(FEATURES, FEATURES)
    )
    return x.astype(np.float32), y


def slda(**settings):
    """Return a learner whose features are the items themselves."""
    return DeepSLDA(**{"model": "linear", "items": "vectors", "init": "random", **settings})


def based(x, y, **settings):
    learner = slda(init="base", **settings)
    learner.base_init(Dataset("base", x, y, tuple(range(int(y.max()) + 1))), NO_TRAINING)
    return learner


@pytest.mark.parametrize("covariance", ["plastic", "fixed"])
@pytest.mark.parametrize("epsilon", [1e-4, 0.3])
def test_the_published_update_from_nothing(covariance, epsilon):
    x, y = stream(0, 60)
    tests = stream(1, 40)[0]
    learner, published = slda(covariance=covariance, shrinkage=epsilon), Published(epsilon, covariance == "plastic")
    for t in range(len(x)):
        learner.learn_one(x[t], int(y[t]))
        published.fit(x[t].astype(float), int(y[t]))
        if t % 7 == 0 or t == len(x) - 1:
            expected = softmax(published.scores(tests, learner.classes_))
            assert np.allclose(learner.predict_proba_many(tests), expected, rtol=1e-6, atol=1e-9)
            best = [learner.classes_[i] for i in expected.argmax(axis=1)]
            assert learner.predict_many(tests) == best
    assert np.allclose(learner.tasks[None].covariance, published.sigma, rtol=1e-12, atol=1e-14)
    for k in range(4):
        row = learner.tasks[None].classes.row(k)
        assert np.allclose(
            learner.tasks[None].means[row], x[y == k].astype(float).mean(axis=0), rtol=1e-12, atol=1e-14
        )
        assert learner.tasks[None].seen[row] == (y == k).sum()


@pytest.mark.parametrize("seed", range(5))
def test_scores_are_those_of_the_pseudo_inverse(seed):
    """After few examples too, where the covariance alone has no inverse."""
    x, y = stream(seed, 3 + 5 * seed)
    tests = stream(100 + seed, 50)[0]
    learner, published = slda(), Published()
    for one, k in zip(x, y, strict=True):
        learner.learn_one(one, int(k))
        published.fit(one.astype(float), int(k))
    rows = [learner.tasks[None].classes.row(k) for k in learner.classes_]
    expected = published.scores(tests.astype(float), learner.classes_)
    scores = learner._logits(learner.tasks[None], tests)[:, rows]
    assert np.allclose(scores, expected, rtol=1e-6, atol=1e-6 * np.abs(expected).max())
    assert (scores.argmax(axis=1) == expected.argmax(axis=1)).all()


def test_two_examples_by_hand():
    """With n = 0 the first adds nothing; the second, with n = 1 and μ = 0, adds half of x xᵀ, halved."""
    one, two = np.eye(FEATURES, dtype=np.float32)[:2] * 4
    learner = slda()
    learner.learn_one(one, "a")
    assert not learner.tasks[None].covariance.any()
    learner.learn_one(two, "b")
    expected = np.zeros((FEATURES, FEATURES))
    expected[1, 1] = 16 / 2 / 2
    assert np.array_equal(learner.tasks[None].covariance, expected)
    learner.learn_one(two, "a")
    away = two.astype(float) - one
    assert np.allclose(learner.tasks[None].covariance, (2 * expected + np.outer(away, away) * 2 / 3) / 3)
    assert np.array_equal(learner.tasks[None].means, [(one + two) / 2, two])


@pytest.mark.parametrize("covariance", ["plastic", "fixed"])
def test_base_initialisation_is_oas_around_the_means_and_streams_on(covariance):
    x, y = stream(2, 50, classes=3)
    learner, published = based(x, y, covariance=covariance), Published(plastic=covariance == "plastic")
    published.fit_base(x.astype(float), y)
    rows = [learner.tasks[None].classes.row(k) for k in range(3)]
    assert np.allclose(learner.tasks[None].covariance, published.sigma, rtol=1e-12, atol=1e-14)
    assert np.allclose(learner.tasks[None].means[rows], [published.mu[k] for k in range(3)], rtol=1e-12, atol=1e-14)
    assert learner.tasks[None].updates == 50
    more, classes = stream(3, 30)
    for one, k in zip(more, classes, strict=True):
        learner.learn_one(one, int(k))
        published.fit(one.astype(float), int(k))
    assert np.allclose(learner.tasks[None].covariance, published.sigma, rtol=1e-12, atol=1e-14)
    expected = softmax(published.scores(x, learner.classes_))
    assert np.allclose(learner.predict_proba_many(x), expected, rtol=1e-6, atol=1e-9)


def test_a_class_that_first_comes_after_base_initialisation():
    x, y = stream(4, 40, classes=2)
    learner = based(x, y)
    before = learner.tasks[None].covariance.copy()
    new = np.full(FEATURES, 3, np.float32)
    learner.learn_one(new, "new")
    assert np.allclose(
        learner.tasks[None].covariance, (40 * before + np.full((FEATURES, FEATURES), 9) * 40 / 41) / 41
    )
    assert np.array_equal(learner.tasks[None].means[2], new)
    assert learner.predict_one(new) == "new"


def test_streaming_the_base_batch_again_counts_again():
    x, y = stream(5, 20, classes=2)
    learner = based(x, y)
    means = learner.tasks[None].means.copy()
    for one, k in zip(x, y, strict=True):
        learner.learn_one(one, int(k))
    assert learner.tasks[None].updates == 40
    assert learner.tasks[None].seen.sum() == 40
    assert np.allclose(learner.tasks[None].means, means)


def test_before_anything_was_learned_and_classes_never_seen():
    learner = slda(classes=5)
    zero = np.zeros(FEATURES, np.float32)
    assert learner.predict_one(zero) is None
    learner.learn_one(np.ones(FEATURES, np.float32), "only")
    assert learner.predict_proba_one(zero) == {"only": 1.0}  # a mean of zeros would be nearer
    assert learner.parameters() == 5 * (FEATURES + 1)


def test_editing_changes_no_statistics():
    x, y = stream(6, 30, classes=3)
    learner = slda()
    ids = [learner.learn_one(one, int(k)) for one, k in zip(x, y, strict=True)]
    means = learner.tasks[None].means.copy()
    assert not learner.relabel(ids[0], 2)
    assert not learner.forget(ids[0])
    learner.learn_one(x[0], "slip")
    learner.undo()
    assert "slip" not in learner.classes_
    assert "slip" not in learner.predict_many(x)
    before = learner.predict_proba_many(x)
    names = learner.classes_
    learner.merge_classes(names[2], names[0])
    after = learner.predict_proba_many(x)
    assert np.allclose(after[:, 0], before[:, 0] + before[:, 2])
    assert np.array_equal(learner.tasks[None].means[:3], means)
    learner.learn_one(x[0], names[2])  # goes to the class that the label is now
    assert learner.tasks[None].seen[0] == (y == names[0]).sum() + 1


def test_facts():
    learner = DeepSLDA(model="mlp", init="random")
    assert learner.memory() == (0, 0)
    for label in "ab":
        learner.learn_one(np.zeros((4, 4, 3), np.uint8), label)
    body = sum(p.numel() for p in learner.engine.body.parameters())
    assert learner.parameters() == body + 2 * 65
    assert learner.frozen_share() == body / learner.parameters()
    assert (learner.stores, learner.memory(), DeepSLDA().needs_base_init) == ("", (0, 0), True)


@pytest.mark.parametrize("wrong", [{"covariance": "plastik"}, {"shrinkage": 0}, {"shrinkage": 1.5}, {"replay": 3}])
def test_wrong_settings(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        DeepSLDA(**wrong)


def test_features_that_are_not_finite_are_refused():
    learner = slda()
    learner.learn_one(np.ones(FEATURES, np.float32), "a")
    learner.engine.features_of = lambda items: torch.full((len(items), FEATURES), float("nan"))
    with pytest.raises(FloatingPointError, match="not finite"):
        learner.learn_one(np.ones(FEATURES, np.float32), "b")
    assert (learner.tasks[None].updates, learner.classes_) == (1, ["a"])
    assert np.array_equal(learner.tasks[None].means, np.ones((1, FEATURES)))
