"""Strong augmentation of a share of the images: what it leaves alone, and what `augment="auto"` makes of it."""

import numpy as np
import pytest
import torch

from coldstream import CSSL, native
from coldstream.augment import Policy
from coldstream.augment.crops import spared
from coldstream.data import Dataset
from coldstream.learners import OfflineRecipe

IMAGES = np.random.default_rng(0).integers(0, 256, (64, 8, 8, 3), dtype=np.uint8)
POLICIES = ("crop|flip|autoaugment(cifar10)|mixup(0.1)/cutmix(0.8)", "crop|randaugment(2, 9)|cutmix(0.8)")


def test_spared_rows_are_a_share_of_all():
    counts = [int(spared(100, 0.3, 5, step).sum()) for step in range(400)]
    assert np.mean(counts) == pytest.approx(70, abs=4 * np.sqrt(21 / 400))
    assert spared(100, 0.0, 5, 1).all()
    assert not spared(100, 1.0, 5, 1).any()


@pytest.mark.parametrize("text", POLICIES)
@pytest.mark.parametrize("kernels", [True, False])
def test_a_share_changes_only_whom_it_is_done_to(text, kernels, monkeypatch):
    if not kernels:
        monkeypatch.setattr(native, "available", lambda: False)
    whole, light = Policy.parse(text), Policy.parse("|".join(p for p in text.split("|") if p in ("crop", "flip")))
    alone = spared(64, 0.4, 3, 9)
    assert 10 < alone.sum() < 54
    mine = whole.at(0.4).augment(IMAGES, 3, 9)
    np.testing.assert_array_equal(mine[alone], light.augment(IMAGES, 3, 9)[alone])
    np.testing.assert_array_equal(mine[~alone], whole.augment(IMAGES, 3, 9)[~alone])
    x, y = torch.randn(64, 3, 8, 8), torch.eye(64)
    (mixed, targets), (all_mixed, all_targets) = whole.at(0.4).mix(x, y, 3, 9), whole.mix(x, y, 3, 9)
    for mine, left, done in ((mixed, x, all_mixed), (targets, y, all_targets)):
        assert torch.equal(mine[alone], left[alone])
        assert torch.equal(mine[~alone], done[~alone])


def test_all_and_nothing():
    whole, light = Policy.parse(POLICIES[0]), Policy.parse("crop|flip")
    np.testing.assert_array_equal(whole.at(1.0).augment(IMAGES, 0, 1), whole.augment(IMAGES, 0, 1))
    np.testing.assert_array_equal(whole.at(0.0).augment(IMAGES, 0, 1), light.augment(IMAGES, 0, 1))


@pytest.mark.parametrize("settings", [{}, {"storage": "disk"}, {"sample": "uniform", "capacity": 9}])
def test_made_ready_ahead_or_in_turn_the_bits_are_the_same(settings):
    twins = [CSSL(size=8, replay=12, channels=3, prefetch=prefetch, **settings) for prefetch in (True, False)]
    for learner in twins:
        for i, image in enumerate(IMAGES):
            learner.learn_one(image // 4 + 60 * (i % 3), i % 3)
    assert twins[0].fingerprint() == twins[1].fingerprint()


@pytest.mark.parametrize("prefetch", [True, False])
def test_what_is_replayed_is_counted(prefetch):
    learner = CSSL(size=8, replay=5, channels=3, prefetch=prefetch, calibrate=False)
    for i in range(20):
        learner.learn_one(IMAGES[i], i % 3)
        assert learner.buffer.index.times.view.sum() == sum(min(5, stored) for stored in range(i + 1))
    before = learner.buffer.index.times.view.copy()
    learner.predict_many(IMAGES[:3])
    learner.relabel(4, 2)  # what was made ready ahead is dropped, and does not count
    np.testing.assert_array_equal(learner.buffer.index.times.view, before)
    learner.learn_one(IMAGES[0], 0, id=7)  # learned anew
    assert learner.buffer.index.times[learner.buffer.index.find(7)] == 0


def test_with_tasks_each_counts_its_own():
    learner = CSSL(size=8, replay=4, channels=3, calibrate=False)
    for i in range(12):
        learner.learn_one(IMAGES[i], i % 2, task="ab"[i % 2])
    counted = [int(learner.buffer.index.times.view.sum()) for _ in learner._tasks.each(learner)]
    mine, others = [min(3, n) for n in range(6)], [min(4, n) for n in (*range(1, 6), 6)]
    assert counted == [sum(mine) + sum(others), sum(mine) + sum(others[:-1])]


def test_what_comes_with_auto_and_with_a_fixed_policy():
    names = ("sample", "weight_decay", "average", "calibrate", "passes", "warm_up")
    auto, fixed, mixed = (
        [CSSL(**settings).settings[name] for name in names]
        for settings in ({}, {"augment": "crop|flip"}, {"augment": "auto(crop)", "passes": 2, "average": False})
    )
    assert auto == ["least-replayed", 1e-3, True, True, 8, True]
    assert fixed == ["uniform", 1e-5, False, False, 1, False]
    assert mixed == ["least-replayed", 1e-3, False, True, 2, True]
    for wrong in ({"average": 1}, {"calibrate": "yes"}, {"passes": 0}, {"passes": 1.5}, {"warm_up": 1}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            CSSL(**wrong)


def test_own_policy_in_brackets_and_mistakes():
    assert CSSL(augment="auto(crop|mixup(0.1))").policy == Policy.parse("crop|mixup(0.1)").at(0.5)
    assert CSSL().policy == Policy.parse("crop|flip|autoaugment(cifar10)").at(0.5)
    with pytest.raises(ValueError, match="sharpen"):
        CSSL(augment="auto(sharpen)")
    with pytest.raises(ValueError, match="auto"):
        CSSL(augment="auto|flip")


def rates(learner, images, labels, **named):
    """Return the rate of each update that each of these labels takes."""
    made, update = [], learner.engine.update

    def counted(inputs, targets, rate, *others, **more):
        made[-1].append(rate)
        update(inputs, targets, rate, *others, **more)

    vars(learner.engine)["update"] = counted
    for image, label in zip(images, labels, strict=True):
        made.append([])
        learner.learn_one(image, label, **named)
    del vars(learner.engine)["update"]
    return made


def updates(learner, images, labels, **named):
    """Return how many updates each of these labels takes."""
    return [len(each) for each in rates(learner, images, labels, **named)]


@pytest.mark.parametrize(
    ("settings", "named", "shares"),
    [
        ({}, {}, [2 / 5, 3 / 5, 4 / 5, 1, 1]),
        ({"capacity": 2}, {}, [2 / 5, 3 / 5, 3 / 5, 3 / 5, 3 / 5]),
        ({"warm_up": False}, {}, [1] * 5),
        ({"augment": "crop|flip"}, {}, [1] * 5),
        ({}, {"task": "birds"}, [2 / 4, 3 / 4, 1, 1, 1]),
    ],
)
def test_a_batch_that_is_not_full_has_so_much_less_of_the_rate(settings, named, shares):
    learner = CSSL(size=8, replay=4, channels=3, calibrate=False, passes=1, rate=0.1, **settings)
    learner.learn_one(IMAGES[0], 0, **named)
    found = rates(learner, IMAGES[1:6], [0, 1, 0, 1, 0], **named)
    np.testing.assert_allclose(found, 0.1 * np.array(shares)[:, None], rtol=1e-12)


def test_every_pass_has_the_rate_of_its_label():
    learner = CSSL(size=8, replay=12, channels=3, calibrate=False, rate=0.1)
    learner.learn_one(IMAGES[0], 0)
    found = rates(learner, IMAGES[1:4], [0, 1, 0])
    assert [[round(13 * rate / 0.1) for rate in each] for each in found] == [[2], [3] * 4, [4] * 3]


def test_several_passes_while_a_batch_has_room_for_all_that_is_known():
    learner = CSSL(size=8, replay=12, channels=3, calibrate=False)
    learner.learn_one(IMAGES[0], 0)
    assert updates(learner, IMAGES[1:8], [0, 1, 0, 1, 0, 1, 0]) == [1, 4, 3, 2, 2, 1, 1]


def test_no_passes_over_less_than_what_is_known():
    labels = np.arange(20) % 4
    based = CSSL(size=8, replay=12, channels=3, init="base", calibrate=False)
    based.base_init(Dataset("base", IMAGES[:20], labels, tuple("abcd")), OfflineRecipe(epochs=1))
    assert updates(based, IMAGES[20:26], "abacad") == [1, 1, 1, 1, 1, 2]  # of each class one is stored then
    tasks = CSSL(size=8, replay=12, channels=3, calibrate=False)
    tasks.learn_many(IMAGES[:4], [0, 1, 0, 1], task="first")
    assert updates(tasks, IMAGES[4:6], [0, 1], task="second") == [2, 2]  # one for each task
