"""ExStream: merging against brute force, Adam against torch's, an epoch against the formula."""

from itertools import combinations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from coldstream.data import Dataset
from coldstream.learners import ExStream, OfflineRecipe
from coldstream.learners.exstream import Prototypes
from coldstream.learners.training.adam import Adam
from coldstream.models import Head
from coldstream.randomness import generator

NO_TRAINING = OfflineRecipe(epochs=0)


def brute_force(points, limit):
    """Return (points, counts) after the merging procedure, all pairs looked at every time."""
    kept, counts = [], []
    for point in points:
        if len(kept) == limit:
            wide = [p.astype(np.float64) for p in kept]
            gaps = {(i, j): np.float32(((wide[i] - wide[j]) ** 2).sum()) for i, j in combinations(range(limit), 2)}
            i, j = min(gaps, key=gaps.get)
            total = counts[i] + counts[j]
            kept[i] = ((counts[i] * wide[i] + counts[j] * wide[j]) / total).astype(np.float32)
            counts[i] = total
            kept[j], counts[j] = point, 1
        else:
            kept.append(point)
            counts.append(1)
    return np.array(kept), np.array(counts)


@pytest.mark.parametrize("seed", range(6))
def test_merging_is_that_of_brute_force(seed):
    rng = np.random.default_rng(seed)
    limit, features = [2, 3, 5, 8, 13, 20][seed], [1, 2, 7, 16, 64, 130][seed]
    points = rng.normal(size=(80, features)).astype(np.float32)
    points[rng.integers(0, 80, 10)] = points[0]  # the same point again
    prototypes = Prototypes(limit, features)
    for t, point in enumerate(points):
        prototypes.add(point)
        expected, counts = brute_force(points[: t + 1], limit) if t % 9 == 0 or t == 79 else (None, None)
        if expected is not None:
            assert np.allclose(prototypes.points, expected, rtol=1e-6, atol=1e-7)
            assert np.array_equal(prototypes.counts, counts)
        assert len(prototypes) <= limit
        assert prototypes.counts.sum() == t + 1


@settings(max_examples=60, deadline=None)
@given(
    points=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=30),
    limit=st.integers(2, 6),
)
def test_ties_go_to_the_lowest_places(points, limit):
    """On a coarse grid nearly every pair is as close as another."""
    array = np.array(points, np.float32) * 64
    prototypes = Prototypes(limit, 2)
    for point in array:
        prototypes.add(point)
    expected, counts = brute_force(array, limit)
    assert np.allclose(prototypes.points, expected, rtol=1e-5)
    assert np.array_equal(prototypes.counts, counts)


def test_what_is_remembered_is_a_function_of_the_prototypes():
    """So that a loaded learner, which remembers nothing, goes on alike; also where there are few or many rows."""
    points = np.random.default_rng(0).normal(size=(300, 33)).astype(np.float32)
    prototypes = Prototypes(24, 33)
    for point in points:
        prototypes.add(point)
        if len(prototypes) == 24:
            other = Prototypes(24, 33)
            other.points, other.counts = prototypes.points.copy(), prototypes.counts.copy()
            assert prototypes._closest() == other._closest()
            assert np.array_equal(prototypes._gaps, other._gaps)


def test_three_points_by_hand():
    prototypes = Prototypes(2, 1)
    for value, count in [(0, 1), (4, 3), (10, 1)]:
        prototypes.add(np.array([value], np.float32), count)
    assert prototypes.points.tolist() == [[3], [10]]
    assert prototypes.counts.tolist() == [4, 1]


def test_adam_is_torchs():
    head, reference = (Head(7, 0, rows=4) for _ in range(2))
    theirs = torch.optim.Adam([reference.weight, reference.bias], lr=2e-3)
    adam = Adam(head, 2e-3)
    rng = np.random.default_rng(0)
    for _ in range(30):
        x, y = torch.from_numpy(rng.normal(size=(5, 7)).astype(np.float32)), torch.from_numpy(rng.integers(0, 4, 5))
        theirs.zero_grad()
        F.cross_entropy(reference(x), y).backward()
        theirs.step()
        adam.step(gradients(head, x, y))
    assert torch.allclose(head.weight, reference.weight, atol=1e-7)
    assert torch.allclose(head.bias, reference.bias, atol=1e-7)
    assert not torch.allclose(head.weight, Head(7, 0, rows=4).weight, atol=1e-2)


def gradients(head, x, y):
    loss = F.cross_entropy(head(x), y)
    return dict(zip(("weight", "bias"), torch.autograd.grad(loss, (head.weight, head.bias)), strict=True))


def test_rows_added_to_adam_begin_anew_and_the_others_keep_their_bits():
    head = Head(7, 0, rows=2)
    adam = Adam(head, 2e-3)
    x, y = torch.ones(1, 7), torch.tensor([1])
    for _ in range(3):
        adam.step(gradients(head, x, y))
    before = {name: value.copy() for name, value in adam.state().items()}
    head.grow(3)
    adam.grow()
    after = adam.state()
    for name, value in before.items():
        assert np.array_equal(after[name][:2], value)
        assert not after[name][2:].any()
    start = head.weight.detach().clone()
    adam.step({"weight": torch.full((3, 7), 0.5), "bias": torch.full((3,), -0.5)})
    assert torch.allclose(start[2] - head.weight[2], torch.tensor(2e-3), rtol=1e-4)  # a first step is of the rate
    assert adam.steps.tolist() == [4, 4, 1]


def exstream(**given):
    """Return a learner whose features are the items themselves."""
    return ExStream(**{"model": "linear", "items": "vectors", "init": "random", **given})


def stream(seed, count, classes=3, features=6):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, classes, count)
    return (rng.normal(size=(classes, features))[y] + rng.normal(size=(count, features))).astype(np.float32), y


def test_after_each_example_an_epoch_over_all_prototypes():
    """The head is that of torch's Adam run over the shuffled prototypes, each of them once, in batches."""
    x, y = stream(0, 40)
    learner = exstream(per_class=4, batch=5, classes=3, seed=3)
    reference = Head(6, 3, rows=3)
    adam = torch.optim.Adam([reference.weight, reference.bias], lr=2e-3, weight_decay=0)
    for t in range(len(x)):
        learner.learn_one(x[t], int(y[t]))
        stored = [brute_force(x[: t + 1][y[: t + 1] == k], 4)[0] for k in learner.classes_]
        points, labels = np.concatenate(stored), np.repeat(range(len(stored)), [len(each) for each in stored])
        order = generator(3, t, "epoch").permutation(len(points))
        assert sorted(order) == list(range(learner.memory()[0]))
        for start in range(0, len(order), 5):
            batch = order[start : start + 5]
            adam.zero_grad()
            F.cross_entropy(reference(torch.from_numpy(points[batch])), torch.from_numpy(labels[batch])).backward()
            adam.step()
    assert learner.step == 40
    assert torch.allclose(learner.tasks[None].head.weight, reference.weight, atol=1e-5)
    assert torch.allclose(learner.tasks[None].head.bias, reference.bias, atol=1e-5)
    assert learner.memory() == (12, 12 * (6 * 4 + 8))


def test_it_learns_and_a_new_class_comes_late():
    x, y = stream(1, 60, classes=3)
    x = x + 6 * np.eye(6, dtype=np.float32)[y]
    order = np.argsort(y, kind="stable")
    learner = exstream(per_class=5, rate=0.02)
    for one, k in zip(x[order], y[order], strict=True):
        learner.learn_one(one, int(k))
    assert np.mean(np.array(learner.predict_many(x)) == y) > 0.9


def test_base_initialisation_merges_and_keeps_the_trained_head():
    x, y = stream(2, 40, classes=2)
    learner = exstream(init="base", per_class=3)
    learner.base_init(Dataset("base", x, y, (0, 1)), OfflineRecipe(epochs=2, augment="none"))
    for k in learner.classes_:
        expected, counts = brute_force(x[y == k], 3)
        each = learner.tasks[None].prototypes[learner.tasks[None].classes.row(k)]
        assert np.allclose(each.points, expected, rtol=1e-6, atol=1e-7)
        assert np.array_equal(each.counts, counts)
    assert learner.tasks[None].adam.steps.tolist() == [0, 0]
    untrained = exstream(init="base", per_class=3)
    untrained.base_init(Dataset("base", x, y, (0, 1)), NO_TRAINING)
    assert not torch.equal(learner.tasks[None].head.weight, untrained.tasks[None].head.weight)
    learner.learn_one(x[0], int(y[0]))
    assert sum(each.counts.sum() for each in learner.tasks[None].prototypes) == 41


def test_merged_classes_merge_their_prototypes():
    x, y = stream(3, 50)
    learner = exstream(per_class=4)
    ids = [learner.learn_one(one, int(k)) for one, k in zip(x, y, strict=True)]
    assert not learner.relabel(ids[0], 1)
    assert not learner.forget(ids[0])
    first, second, third = learner.classes_
    sizes = {k: int((y == k).sum()) for k in learner.classes_}
    source = learner.tasks[None].prototypes[learner.tasks[None].classes.row(third)]
    before = learner.predict_proba_many(x)
    learner.merge_classes(third, first)
    assert np.allclose(learner.predict_proba_many(x)[:, 0], before[:, 0] + before[:, 2])
    kept = [each.counts.sum() for each in learner.tasks[None].prototypes]
    assert kept == [sizes[first] + sizes[third], sizes[second], 0]
    assert [len(each) for each in learner.tasks[None].prototypes] == [4, 4, 0]
    assert (
        (learner.tasks[None].prototypes[0].points == source.points[-1]).all(axis=1).any()
    )  # the last one moved is whole
    learner.learn_one(x[0], third)
    assert learner.tasks[None].prototypes[0].counts.sum() == kept[0] + 1
    assert learner.classes_ == [first, second]


def test_undo_hides_a_class_that_was_opened_by_mistake(tmp_path):
    x, y = stream(4, 12, classes=2)
    learner = exstream(per_class=3)
    for one, k in zip(x, y, strict=True):
        learner.learn_one(one, int(k))
    learner.learn_one(x[0], "slip")
    learner.undo()
    assert "slip" not in learner.classes_
    learner.merge_classes(0, 1)  # a class without prototypes goes through a checkpoint
    learner.save(tmp_path / "kept")
    other = ExStream.load(tmp_path / "kept")
    for each in (learner, other):
        each.learn_one(x[1], 1)
    assert learner.fingerprint() == other.fingerprint()


def test_learning_inside_inference_mode():
    one, two = exstream(), exstream()
    x, y = stream(5, 8)
    with torch.inference_mode():
        one.learn_one(x[0], int(y[0]))
    two.learn_one(x[0], int(y[0]))
    for each in (one, two):
        each.learn_many(x, y.tolist())
    assert one.fingerprint() == two.fingerprint()


@pytest.mark.parametrize("wrong", [{"per_class": 1}, {"rate": 0}, {"batch": 0}, {"capacity": 20}])
def test_wrong_settings(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        ExStream(**wrong)
