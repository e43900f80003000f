"""The chance of a class that has not come: by hand, against what does come, and what predictions make of it."""

import json
from itertools import groupby

import numpy as np
import pytest

from coldstream import ColdStart
from coldstream.data import Dataset
from coldstream.learners import OfflineRecipe
from coldstream.learners.confidence.unseen import Unseen

IMAGES = np.random.default_rng(0).integers(0, 256, (200, 8, 8, 3), dtype=np.uint8)


def runs(labels):
    counted = Unseen()
    for label, _ in groupby(labels):
        counted.begin_run(label)
    return counted


def chance(labels):
    return runs(labels).chance(range(10**6))


def test_by_hand():
    # The second 0 is run 5, 4 back: (4 - 2) / 2 = 1 of the way. The second 3 is run 7, 3 back: 1/4. The second 2 is
    # run 8, 5 back: 3/5. A mean of 37/60, within 1/8 of 1/2; one of three counts; 1, 4 of 8 runs came once.
    assert chance([0, 1, 2, 3, 0, 4, 3, 2]) == pytest.approx(1 / 3 * 2 / 8)
    # The second 1 is run 5, 3 back: 1/2. The second 0 is run 6, 5 back: 1. The second 2 is run 8, 5 back: 3/5. A mean
    # of 7/10 is 1/5 off, of which 2 - 8/5 is left.
    assert chance([0, 1, 2, 3, 1, 0, 4, 2]) == pytest.approx(2 / 5 * 1 / 3 * 2 / 8)


@pytest.mark.parametrize("labels", [[], [0], [0, 0, 0], [0, 1, 1, 2, 3], [0, 1, 0, 1, 0], [0, 1, 2, 3, 0, 4, 3]])
def test_before_enough_came_again(labels):
    assert chance(labels) == 0


@pytest.mark.parametrize("classes", [20, 100])
def test_in_any_order_it_is_about_the_share_of_classes_to_come(classes):
    """Of uniformly drawn classes, in the mean over 400 streams, at several moments."""
    moments = [classes // 2, classes, 2 * classes, 4 * classes]
    chances, real = np.zeros((2, 400, len(moments)))
    for stream in range(400):
        labels = np.random.default_rng(stream).integers(classes, size=moments[-1]).tolist()
        chances[stream] = [chance(labels[:moment]) for moment in moments]
        real[stream] = [1 - len(set(labels[:moment])) / classes for moment in moments]
    chances, real = chances.mean(axis=0), real.mean(axis=0)
    assert np.abs(chances - real)[2:].max() < 0.04
    assert np.all(chances[:2] < real[:2])  # until it is clear that the order is any
    assert chances[1] > 0.5 * real[1]


@pytest.mark.parametrize("at_once", [1, 2, 5])
def test_classes_in_turn_say_nothing_of_others(at_once):
    """One after another, or a few at a time."""
    rng = np.random.default_rng(0)
    labels = [
        label
        for first in range(0, 60, at_once)
        for label in rng.permutation(np.repeat(np.arange(at_once), 8)) + first
    ]
    chances = [chance(labels[:end]) for end in range(len(labels))]
    assert np.mean(chances) < 0.005
    assert max(chances) < 0.1  # when the first few were shuffled and the next begin


@pytest.mark.parametrize("again", [[0], [7], [3, 8]])
def test_nor_do_a_few_that_come_again(again):
    assert chance([*range(20), *again]) == 0


def test_nor_does_a_second_turn():
    labels = [*range(20), *range(20)]
    assert max(chance(labels[:end]) for end in range(41)) < 0.05


def test_tracks_of_two_classes_at_a_time():
    """Two tracks of each, in any order among the four; the mean over 200 streams."""
    chances = np.zeros((200, 43))
    for stream in range(200):
        rng = np.random.default_rng(stream)
        labels = [label for first in range(0, 86, 2) for label in rng.permutation([0, 0, 1, 1]) + first]
        chances[stream] = [chance(labels[:end]) for end in range(4, 173, 4)]
    assert chances.mean(axis=0).max() < 0.03


def test_merged_classes():
    counted = runs([0, 1, 2, 0, 3])
    counted.merge(1, 2)  # came in two runs
    assert counted.once == {3: 5}
    counted.merge(3, 7)  # which had not come
    assert counted.once == {7: 5}
    counted.merge(8, 7)  # nor had 8
    assert counted.once == {7: 5}
    counted.merge(7, 0)
    assert counted.once == {}
    counted.begin_run(2)
    assert counted.once == {}


def test_kept_and_taken_up_again():
    labels = np.random.default_rng(0).permutation(np.repeat(np.arange(15), 3)).tolist()
    labels = [label for label, _ in groupby(labels)]
    other = Unseen()
    other.restore(json.loads(json.dumps(runs(labels[:20]).state())))
    for label in labels[20:]:
        other.begin_run(label)
    assert other.state() == runs(labels).state()


def unseen(learner):
    return learner._unseen(learner.tasks[None])


def shuffled(**settings):
    learner = ColdStart(size=8, replay=6, channels=3, passes=1, **settings)
    labels = np.random.default_rng(4).integers(30, size=40).tolist()
    for image, label in zip(IMAGES, labels, strict=False):
        learner.learn_one(image, label)
    return learner


def test_predictions_are_so_much_less_sure():
    learner = shuffled()
    with_it, missing = learner.predict_proba_many(IMAGES[:9]), unseen(learner)
    assert 0.05 < missing < 0.5
    learner.tasks[None].confidence.unseen = Unseen()
    without = learner.predict_proba_many(IMAGES[:9])
    np.testing.assert_allclose(with_it, (1 - missing) * without + missing / without.shape[1])
    np.testing.assert_allclose(with_it.sum(axis=1), 1)


def test_not_where_all_classes_are_known_to_have_come_or_it_is_switched_off():
    seen = len(shuffled().classes_)
    assert unseen(shuffled(classes=seen + 1)) > 0
    full = shuffled(classes=seen)
    assert unseen(full) == 0
    full.merge_classes(full.classes_[0], full.classes_[1])
    assert unseen(full) == 0
    assert unseen(shuffled(unseen=False)) == 0
    assert unseen(shuffled(calibrate=False)) == unseen(shuffled()) > 0


def test_what_was_taken_back_has_not_come():
    learner = shuffled()
    before = unseen(learner)
    for k in range(5):
        learner.learn_one(IMAGES[k], f"typo {k}")
        learner.undo()
    assert unseen(learner) == pytest.approx(before)


def test_a_class_that_was_relabelled_to_may_be_merged_into():
    learner = shuffled()
    learner.relabel(learner.learn_one(IMAGES[50], "slip"), "right")
    learner.merge_classes("slip", "right")
    learner.learn_one(IMAGES[51], learner.classes_[0])
    learner.learn_one(IMAGES[52], "right")
    assert "right" in learner.classes_


def test_a_merged_class_goes_on_in_its_run():
    learner = shuffled()
    learner.learn_one(IMAGES[50], "slip")
    learner.merge_classes("slip", learner.classes_[0])
    before = learner.tasks[None].confidence.unseen.state()
    learner.learn_one(IMAGES[51], learner.classes_[0])
    assert learner.tasks[None].confidence.unseen.state() == before


def test_classes_of_base_initialisation_have_come():
    learner = ColdStart(size=8, replay=6, channels=3, passes=1)
    names = tuple(map(str, range(30)))
    learner.base_init(Dataset("base", IMAGES[:60], np.arange(60) % 30, names), OfflineRecipe(epochs=1))
    for image, label in zip(IMAGES, np.random.default_rng(4).integers(30, size=40).tolist(), strict=False):
        learner.learn_one(image, str(label))
        assert unseen(learner) == 0


def test_a_loaded_learner_expects_as_much(tmp_path):
    learner = shuffled()
    learner.save(tmp_path / "kept")
    assert unseen(ColdStart.load(tmp_path / "kept")) == unseen(learner) > 0
