"""Offline training with a share of the network frozen: what changes, what does not, and what is said about it."""

import numpy as np
import pytest
import torch

from coldstream.learners import Offline

RNG = np.random.default_rng(0)
LABELS = np.arange(12) % 3
IMAGES = (60 * LABELS[:, None, None, None] + RNG.integers(0, 60, (12, 8, 8, 3))).astype(np.uint8)
# Parameters of resnet10-16: stem, then four blocks, without the head of 3 classes and 64 features.
BODY = 432 + 32 + (4608 + 64) + (13824 + 128 + 512 + 64) + (55296 + 256 + 2048 + 128) + (73728 + 256)
HEAD = 3 * 65
EARLY = 432 + 32 + (4608 + 64) + (13824 + 128 + 512 + 64)


def weights(body, head):
    """Return copies of the weights and statistics of a network by name."""
    named = {f"body.{name}": value for name, value in body.state_dict().items()} | head.state_dict()
    return {name: value.clone() for name, value in named.items()}


def trained(stop=12, **settings):
    learner = Offline(model="resnet10-16", epochs=2, batch=6, augment="none", **settings)
    for i in range(stop):
        learner.learn_one(IMAGES[i], int(LABELS[i]))
    before = weights(learner.tasks[None].first, learner.tasks[None].head)
    learner.end_batch()
    return learner, before


def changed(learner, before):
    after = weights(learner.engine.body, learner.tasks[None].head)
    assert after.keys() == before.keys()
    return {name for name in after if not before[name].equal(after[name])}


def test_frozen_layers_keep_their_bits_and_the_others_do_not():
    share = (EARLY + 100) / BODY
    learner, before = trained(freeze=share)
    assert learner.frozen_share() == EARLY / (BODY + HEAD)
    names = set(before) - {"weight", "bias"}
    late = {name for name in names if name.startswith("body.stages.2")}
    assert changed(learner, before) == late | {"weight", "bias"}
    assert any(name.endswith("running_mean") for name in late)


def test_frozen_batchnorm_normalises_by_its_statistics():
    """The body frozen altogether, the head's first step by hand: features in evaluation mode, batch by batch."""
    learner = Offline(model="resnet10-16", epochs=1, batch=12, augment="none", freeze=1.0, weight_decay=0.0, rate=0.1)
    for i in range(12):
        learner.learn_one(IMAGES[i], int(LABELS[i]))
    z = learner.engine.features_of(IMAGES).clone()
    w, b = (p.detach().clone() for p in learner.tasks[None].head.parameters())
    error = torch.softmax(z @ w.T + b, 1) - torch.nn.functional.one_hot(torch.from_numpy(LABELS), 3)
    learner.end_batch()
    got = learner.tasks[None].head
    torch.testing.assert_close(got.weight.detach(), w - 0.1 * error.T @ z / 12, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(got.bias.detach(), b - 0.1 * error.mean(0), rtol=1e-4, atol=1e-5)


def test_all_frozen_trains_the_head_alone():
    learner, before = trained(freeze=1.0)
    assert changed(learner, before) == {"weight", "bias"}
    assert learner.frozen_share() == BODY / (BODY + HEAD)


def test_nothing_frozen_is_as_without():
    one, before = trained()
    two, _ = trained(freeze=0.0)
    assert changed(one, weights(two.engine.body, two.tasks[None].head)) == set()
    assert one.frozen_share() == 0
    assert {"body.conv1.weight", "body.bn1.running_mean", "weight"} <= changed(one, before)
    other, _ = trained(freeze=0.5)
    assert changed(other, weights(one.engine.body, one.tasks[None].head))


def test_saved_loaded_and_trained_on(tmp_path):
    """The next batch begins from the same frozen weights, also after a restart."""
    learner, before = trained(stop=8, freeze=0.3)
    learner.save(tmp_path / "learner")
    again = Offline.load(tmp_path / "learner")
    assert again.frozen_share() == learner.frozen_share() > 0
    for one in (learner, again):
        for i in range(8, 12):
            one.learn_one(IMAGES[i], int(LABELS[i]))
        one.end_batch()
    assert again.fingerprint() == learner.fingerprint()
    assert before["body.conv1.weight"].equal(again.engine.body.conv1.weight)


@pytest.mark.parametrize("freeze", [-0.1, 1.5, True, "all"])
def test_what_is_refused(freeze):
    with pytest.raises(ValueError, match="freeze is a number from 0 to 1"):
        Offline(freeze=freeze)
    assert Offline(freeze=0.5).frozen_share() == 0
