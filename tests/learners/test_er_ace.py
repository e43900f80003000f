"""ER-ACE: its loss against NumPy, and its updates against a loop written out."""

import numpy as np
import pytest
import torch

from coldstream.augment import Policy
from coldstream.learners import ER, ERACE, Batch
from coldstream.learners.method import Example
from plain_replay import PlainReplay, assert_same, cross_entropy, stream

LINEAR = {"model": "linear", "augment": "none", "precision": "float64", "weight_decay": 1e-2}


def batch_of(rows, replayed):
    new = [Example(np.zeros((4, 4, 1), np.uint8), str(row), place) for place, row in enumerate(rows)]
    return Batch(0, new, rows, np.arange(replayed), (replayed,), np.empty(0), Policy.parse("none"))


def one_hot(labels, classes):
    return np.eye(classes)[labels]


def log_softmax(logits):
    return logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))


def value(learner, logits, batch, targets):
    return float(learner.loss(torch.from_numpy(logits), batch, torch.from_numpy(targets)))


def test_new_examples_compete_with_the_classes_among_them_and_replayed_ones_with_all():
    logits = np.random.default_rng(0).normal(size=(8, 5)) * 3
    rows, labels = [3, 1, 3], [0, 4, 2, 2, 1]
    new = log_softmax(logits[:3][:, [1, 3]])
    replayed = log_softmax(logits[3:])
    expected = -(new[0, 1] + new[1, 0] + new[2, 1]) / 3 - sum(replayed[i, k] for i, k in enumerate(labels)) / 5
    targets = one_hot(rows + labels, 5)
    assert value(ERACE(), logits, batch_of(rows, 5), targets) == pytest.approx(expected, rel=1e-12)
    plain = -log_softmax(logits)[np.arange(8), rows + labels].mean()
    assert value(ER(), logits, batch_of(rows, 5), targets) == pytest.approx(plain, rel=1e-12)


def test_soft_targets_of_consolidated_entries_count_by_their_shares():
    logits = np.random.default_rng(1).normal(size=(3, 3))
    targets = np.array([[0, 1, 0], [0.25, 0, 0.75], [1, 0, 0]])
    replayed = log_softmax(logits[1:])
    expected = -(0.25 * replayed[0, 0] + 0.75 * replayed[0, 2] + replayed[1, 0]) / 2
    assert value(ERACE(), logits, batch_of([1], 2), targets) == pytest.approx(expected, rel=1e-12)


def test_new_examples_do_not_push_absent_classes():
    logits = torch.randn((5, 6), generator=torch.Generator().manual_seed(0), dtype=torch.float64, requires_grad=True)
    rows = [2, 5, 2]
    loss = ERACE().loss(logits, batch_of(rows, 2), torch.from_numpy(one_hot([*rows, 0, 1], 6)))
    (slope,) = torch.autograd.grad(loss, logits)
    assert (slope[:3, [0, 1, 3, 4]] == 0).all()
    assert (slope[:3, [2, 5]] != 0).all()
    assert (slope[3:] != 0).all()


@pytest.mark.parametrize(("rows", "replayed"), [([2, 0], 0), ([], 3)])
def test_a_part_that_is_missing_has_no_share(rows, replayed):
    logits, labels = np.random.default_rng(2).normal(size=(len(rows) + replayed, 3)), rows or [1, 1, 2]
    columns = [0, 2] if rows else [0, 1, 2]
    expected = -np.mean([log_softmax(logits[:, columns])[i, columns.index(k)] for i, k in enumerate(labels)])
    assert value(ERACE(), logits, batch_of(rows, replayed), one_hot(labels, 3)) == pytest.approx(expected, rel=1e-12)


def asymmetric(logits, labels, replayed):
    """Return the loss of ER-ACE, written out."""
    present = sorted(set(labels))
    total = sum(cross_entropy(logits[i], label, present) for i, label in enumerate(labels)) / len(labels)
    (draw,) = replayed
    for i, (label, _) in enumerate(draw, start=len(labels)):
        total = total + cross_entropy(logits[i], label) / len(draw)
    return total


@pytest.mark.parametrize("prefetch", [False, True])
@pytest.mark.parametrize("order", ["by class", "mixed"])
@pytest.mark.parametrize("per_update", [1, 10])
def test_same_weights_as_a_plain_loop(per_update, order, prefetch):
    images, labels = stream(60 * per_update if per_update == 1 else 240, 4, 3, order)
    learner = ERACE(**LINEAR, replay=8, capacity=20, seed=7, prefetch=prefetch)
    oracle = PlainReplay(asymmetric, seed=7, replay=8, capacity=20)
    learner.learn_many(images, labels, per_update=per_update)
    for start in range(0, len(images), per_update):
        oracle.learn(images[start : start + per_update], labels[start : start + per_update])
    assert_same(learner, oracle, 1e-9)
    er = ER(**LINEAR, replay=8, capacity=20, seed=7)
    er.learn_many(images, labels, per_update=per_update)
    apart = er.tasks[None].head.weight - learner.tasks[None].head.weight
    assert apart.abs().max() > 1e-2  # the loss matters to this stream


def test_the_first_example_of_a_stream_changes_nothing_but_by_decay():
    images, _ = stream(1, 1, 0)
    learner = ERACE(**{**LINEAR, "weight_decay": 0.0})
    learner.learn_one(images[0], "first")
    oracle = PlainReplay(lambda logits, *_: logits.sum() * 0, seed=0, replay=1, capacity=1, decay=0)
    oracle.learn(images, [0])
    np.testing.assert_array_equal(learner.tasks[None].head.weight.detach().numpy(), oracle.weight.numpy())


@pytest.mark.parametrize("policy", ["crop|mixup(0.1)", "crop|flip|cutmix(0.8)"])
def test_mixing_is_refused(policy):
    with pytest.raises(ValueError, match="mixes images") as refusal:
        ERACE(augment=policy)
    assert policy in str(refusal.value)
