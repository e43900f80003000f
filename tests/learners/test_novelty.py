"""The chance of a class that has not come: by hand, against what does come, and what predictions make of it."""

import json

import numpy as np
import pytest

from coldstream import CSSL
from coldstream.learners.novelty import Novelty

IMAGES = np.random.default_rng(0).integers(0, 256, (60, 8, 8, 3), dtype=np.uint8)


def meet(labels):
    novelty = Novelty()
    for label in labels:
        novelty.meet(label)
    return novelty


@pytest.mark.parametrize("labels", [[], [0], [0, 0, 0], [0, 1, 1, 2, 3]])
def test_before_anything_came_again(labels):
    assert meet(labels).chance == 0


def test_by_hand():
    # Runs: 0 1 0. The second 0 is 2 of 2 back: (1 + 0) / 2 is 1/2, which is any order. Of 3 runs, 1 came once.
    assert meet([0, 0, 1, 1, 0, 0]).chance == pytest.approx(1 / 3)
    # Runs: 0 1 2 0 3 1 4. The second 0 is 3 of 3 back, the second 1 4 of 5: (1 + 0.8) / 3 = 0.6, above 1/2.
    assert meet([0, 1, 1, 2, 0, 0, 3, 1, 4]).chance == pytest.approx(3 / 7)
    # Runs: 0 1 2 3 0 3. The second 0 is 4 of 4 back, the second 3 2 of 5: (1 + 0.4) / 3, of which 1/4 counts nothing.
    assert meet([0, 1, 2, 3, 0, 3]).chance == pytest.approx((4 * 1.4 / 3 - 1) * 2 / 6)


@pytest.mark.parametrize("classes", [20, 100])
@pytest.mark.parametrize("length", [1, 5])
def test_in_any_order_it_is_about_the_share_of_classes_to_come(classes, length):
    """Of runs of uniformly drawn classes, in the mean over 200 streams, at several moments."""
    moments = [classes // 2, classes, 2 * classes, 4 * classes]
    found, real = np.zeros((2, 200, len(moments)))
    for stream in range(200):
        runs = np.random.default_rng(stream).integers(classes, size=moments[-1])
        novelty = Novelty()
        for number, label in enumerate(runs.tolist(), 1):
            for _ in range(length):
                novelty.meet(label)
            if number in moments:
                at = moments.index(number)
                found[stream, at] = novelty.chance
                real[stream, at] = 1 - len(set(runs[:number].tolist())) / classes
    assert np.abs(found.mean(axis=0) - real.mean(axis=0))[1:].max() < 0.04
    assert found.mean(axis=0)[0] < real.mean(axis=0)[0]  # until it is clear that the order is any


@pytest.mark.parametrize("at_once", [1, 2, 5])
def test_classes_in_order_say_nothing_of_others(at_once):
    """One after another, or a few at a time that take turns."""
    rng = np.random.default_rng(0)
    labels = [
        label
        for first in range(0, 60, at_once)
        for label in rng.permutation(np.repeat(np.arange(at_once), 8)) + first
    ]
    assert meet(labels).chance == pytest.approx(0, abs=0.01)


def test_a_merged_class_came_as_often_as_both():
    novelty = meet([0, 1, 2, 0, 3])
    before = novelty.chance
    novelty.merge(1, 2)
    assert novelty.runs == {0: 2, 2: 2, 3: 1}
    assert novelty.chance == pytest.approx(before / 3)
    novelty.merge(3, 0)
    novelty.meet(0)  # the run goes on
    assert novelty.runs == {0: 3, 2: 2}
    assert novelty.chance == 0


def test_kept_and_taken_up_again():
    labels = np.random.default_rng(0).integers(12, size=40).tolist()
    other = Novelty()
    other.restore(json.loads(json.dumps(meet(labels[:15]).state())))
    for label in labels[15:]:
        other.meet(label)
    assert other.state() == meet(labels).state()


def shuffled(**settings):
    learner = CSSL(size=8, replay=6, channels=3, passes=1, **settings)
    labels = np.random.default_rng(1).integers(12, size=24).tolist()
    for image, label in zip(IMAGES, labels, strict=False):
        learner.learn_one(image, label)
    return learner


def test_predictions_are_so_much_less_sure():
    learner = shuffled()
    with_it, chance = learner.predict_proba_many(IMAGES[:9]), learner._calibration.novelty.chance
    assert 0.05 < chance < 0.5
    learner._calibration.novelty = Novelty()
    without = learner.predict_proba_many(IMAGES[:9])
    np.testing.assert_allclose(with_it, (1 - chance) * without + chance / without.shape[1])
    np.testing.assert_allclose(with_it.sum(axis=1), 1)


def test_not_where_all_classes_are_known_to_have_come_or_confidence_is_left_alone():
    seen = len(shuffled().classes_)
    assert shuffled()._novelty() > 0
    assert shuffled(classes=seen + 1)._novelty() > 0
    assert shuffled(classes=seen)._novelty() == 0
    assert shuffled(calibrate=False)._novelty() == 0


def test_a_loaded_learner_expects_as_much(tmp_path):
    learner = shuffled()
    learner.save(tmp_path / "kept")
    assert CSSL.load(tmp_path / "kept")._novelty() == learner._novelty() > 0
