"""The temperature against the one that a search finds, and what is kept back for it."""

import numpy as np
import pytest

from coldstream import CSSL
from coldstream.augment import Policy
from coldstream.learners.confidence.temperature import ENOUGH, EVERY, MOST, PRIOR, Calibration, fit_log_temperature
from coldstream.replay import ReplayBuffer

COUNT = 4000
IMAGES = np.random.default_rng(0).integers(0, 256, (60, 8, 8, 3), dtype=np.uint8)


def loss(logits, labels, log):
    scaled = logits / np.exp(log)
    top = scaled.max(axis=1)
    return (top + np.log(np.exp(scaled - top[:, None]).sum(axis=1)) - scaled[np.arange(len(labels)), labels]).sum()


def overconfident(count, factor, seed=0):
    """Return logits whose softmax is right when they are divided by `factor`, and labels drawn from that."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(count, 5)) * 2
    chances = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    labels = (chances.cumsum(axis=1) < rng.random((count, 1))).sum(axis=1)
    return logits * factor, labels


@pytest.mark.parametrize("factor", [0.4, 1.0, 3.0])
@pytest.mark.parametrize("count", [1, 8, 100])
@pytest.mark.parametrize(("prior", "start"), [(0.0, -2.0), (0.0, 0.0), (0.0, 2.0), (0.7, 0.0)])
def test_the_likeliest_temperature(factor, count, prior, start):
    logits, labels = overconfident(count, factor)
    grid = np.linspace(-3, 3, 6001)
    posterior = [loss(logits, labels, log) + PRIOR * (log - prior) ** 2 / 2 for log in grid]
    best = grid[int(np.argmin(posterior))]
    assert fit_log_temperature(logits, labels, prior, start) == pytest.approx(best, abs=2e-3)
    if count == 100:
        assert np.exp(best) == pytest.approx(factor, rel=0.3)


def test_one_example_changes_little():
    mine = Calibration()
    mine.fit(np.array([[9.0, 0, 0]]), np.array([1]))
    assert 1 < mine.temperature < 4


def test_looks_are_a_small_part_of_the_work():
    mine = Calibration()
    mine.held = list(range(25))
    assert [mine.earns(10.0) for _ in range(9)] == [False, False, True] * 3
    mine.held = []
    assert not mine.earns(10.0)


def test_kept_back_are_every_tenth_of_a_class_and_never_replayed():
    learner = CSSL(size=8, replay=6, channels=3, passes=1)
    for i, image in enumerate(np.tile(IMAGES, (2, 1, 1, 1))[:90]):
        learner.learn_one(image, i % 3)
    index = learner.buffer.index
    held = [row for row in range(len(index)) if index.is_held_out(row)]
    numbers = [index.ids[row] // 3 for row in held]  # three classes take turns
    assert len(held) == 8  # when three had come of sixteen, one was given back
    assert {number % EVERY for number in numbers} == {EVERY // 2}
    for step in range(200):
        rows = learner.buffer.sample(20, np.random.default_rng(step))
        assert not set(rows.tolist()) & set(held)


def test_never_too_many_and_balanced():
    buffer, mine = ReplayBuffer((2, 2, 3)), Calibration()
    item = np.zeros((2, 2, 3), np.uint8)
    for id in range(COUNT):
        label = 0 if id < COUNT // 2 else id % 4
        hold = id % 5 == 0  # more than it takes
        buffer.store(buffer.compress(item), label, id, held_out=hold)
        if hold:
            mine.hold(buffer, id)
        assert len(mine.held) <= min(MOST, 1 + (id + 1) // EVERY)
        assert buffer.index.held_out == len(mine.held)
    labels = [buffer.label_of(id) for id in mine.held]
    assert max(map(labels.count, range(4))) - min(map(labels.count, range(4))) <= 1
    given_back = {buffer.index.find(id) for id in range(COUNT) if id not in mine.held}
    assert set(buffer.sample(10**6, np.random.default_rng(0)).tolist()) == given_back


@pytest.mark.parametrize(("capacity", "most"), [(1, 0), (4, 0), (5, 1), (18, 2), (40, 5)])
def test_of_a_small_buffer_few_are_kept_back(capacity, most):
    learner = CSSL(size=8, replay=6, channels=3, passes=1, capacity=capacity)
    held = []
    for i, image in enumerate(np.concatenate([IMAGES] * 2)):
        learner.learn_one(image, i % 2)
        held.append(learner.buffer.index.held_out)
    assert len(learner.buffer) == capacity
    assert max(held) == most


def test_what_is_forgotten_is_not_looked_at():
    learner = CSSL(size=8, replay=6, channels=3, passes=1)
    ids = [learner.learn_one(image, i % 2) for i, image in enumerate(IMAGES)]
    for id in ids:
        learner.forget(id)
    assert learner._calibration.rows(learner.buffer) == {}
    for i, image in enumerate(IMAGES[:20]):
        learner.learn_one(image, i % 2)
    assert len(learner._calibration.held) == 2


def test_of_what_is_left_a_tenth_is_kept_back():
    learner = CSSL(size=8, replay=6, channels=3, passes=1)
    ids = [learner.learn_one(image, i % 2) for i, image in enumerate(np.concatenate([IMAGES] * 2))]
    held = list(learner._calibration.held)
    assert len(held) > 6
    for id in ids:
        if id not in held:
            learner.forget(id)
            assert learner.buffer.index.held_out <= 1 + len(learner.buffer) // EVERY
    assert learner.buffer.index.held_out == len(learner._calibration.held)


def walks(tracks, frames, seed=0):
    """Return tracks of frames that change little from one to the next, and the track of each."""
    rng = np.random.default_rng(seed)
    starts = rng.integers(40, 216, (tracks, 1, 8, 8, 3))
    paths = rng.normal(0, 3, (tracks, frames, 8, 8, 3)).cumsum(axis=1)
    images = (starts + paths).clip(0, 255).astype(np.uint8)
    return images.reshape(-1, 8, 8, 3), np.repeat(np.arange(tracks), frames)


def learn(images, labels, **settings):
    learner = CSSL(**{"size": 8, "replay": 6, "channels": 3, "passes": 1, **settings})
    for image, label in zip(images, labels.tolist(), strict=True):
        learner.learn_one(image, label)
    return learner


def test_neighbours_of_a_shuffled_stream_are_not_alike_and_frames_of_a_track_are():
    images, tracks = walks(6, 20)
    mine = learn(images, tracks % 3)
    assert mine._calibration.duplicates
    assert mine._calibration.held == []
    assert mine.buffer.index.held_out == 0  # what was kept back at first is replayed
    order = np.random.default_rng(1).permutation(20)  # class by class all the same, a track each
    shuffled = learn(images.reshape(6, 20, 8, 8, 3)[:, order].reshape(-1, 8, 8, 3), tracks)
    assert not shuffled._calibration.duplicates
    assert shuffled._calibration.held
    noise = learn(np.concatenate([IMAGES] * 2), np.arange(120) // 40)
    assert not noise._calibration.duplicates


def test_near_duplicates_are_all_augmented_strongly():
    images, tracks = walks(6, 20)
    twins = [learn(images, tracks % 3, prefetch=prefetch) for prefetch in (True, False)]
    assert twins[0]._policy == CSSL().policy.at(1.0)
    assert twins[0].fingerprint() == twins[1].fingerprint()
    assert learn(np.concatenate([IMAGES] * 2), np.arange(120) // 40)._policy == CSSL().policy.at(0.5)
    assert learn(images, tracks % 3, augment="crop|flip", calibrate=True)._policy == Policy.parse("crop|flip")
    alone = learn(images, tracks % 3, calibrate=False)
    assert alone._policy == CSSL().policy.at(1.0)
    assert (alone._calibration.temperature, alone.buffer.index.held_out) == (1, 0)


def test_the_first_frames_of_known_classes_are_tests_and_no_others(monkeypatch):
    images, tracks = walks(6, 20)
    heard = []
    monkeypatch.setattr(Calibration, "hear", lambda self, logits, labels: heard.append((logits.shape, *labels)))
    learn(images, tracks % 3)
    assert heard == [
        ((1, 3), 0),
        ((1, 3), 1),
        ((1, 3), 2),
    ]  # the second tracks; when the first ones came, their classes were new


def test_a_shuffled_stream_is_tested_until_enough_are_kept_back(monkeypatch):
    heard = []
    monkeypatch.setattr(Calibration, "hear", lambda self, logits, labels: heard.extend(labels))
    labels = np.tile([0, 1, 2, 0, 2, 1, 1], 40)
    mine = learn(np.concatenate([IMAGES] * 5)[: len(labels)], labels)
    assert mine._calibration.held
    assert heard[:7] == [0, 2, 1, 0, 1, 2, 0]  # not the first of a class, nor one after its like
    alone = Calibration()
    alone.held = list(range(ENOUGH))
    assert not alone.meet(mine.buffer, IMAGES[0], 1, 10**6, np.random.default_rng(0), True)
    alone.held.pop()
    assert not alone.meet(mine.buffer, IMAGES[0], 1, 10**6, np.random.default_rng(0), True)  # the second of a run
    assert alone.meet(mine.buffer, IMAGES[0], 2, 10**6, np.random.default_rng(0), True)


def test_tests_before_learning_decide_until_something_is_kept_back():
    mine = Calibration()
    for row, label in zip(*overconfident(60, 3.0), strict=True):
        mine.hear(row[None], np.array([label]))
    first = mine.temperature
    assert 2 < first < 4.5
    mine.held = [0]
    mine.fit(np.array([[0.1, 0.0]]), np.array([1]))  # which says next to nothing
    assert mine.temperature == pytest.approx(first, rel=0.02)


@pytest.mark.parametrize(("unheard", "share"), [(0, 1.0), (30, 0.98**30), (1000, 0.0)])
def test_many_tests_outweigh_the_first_that_are_kept_back_until_they_are_old(unheard, share):
    """The mode of a Gaussian prior with the curvatures of the tests, and the likelihood of what is kept back."""
    mine, fresh = Calibration(), ReplayBuffer((2, 2, 3))
    for row, label in zip(*overconfident(60, 3.0), strict=True):
        mine.hear(row[None], np.array([label]))
    centre = np.log(mine.temperature)
    for id in range(unheard):
        mine.meet(fresh, np.zeros((2, 2, 3), np.uint8), 0, id, np.random.default_rng(0), True)
    logits, labels = overconfident(10, 0.5, seed=1)
    mine.held = list(range(10))
    mine.fit(logits, labels)
    precision = max(PRIOR, share * mine._first_curvature)
    grid = np.linspace(-3, 3, 6001)
    posterior = [loss(logits, labels, log) + precision * (log - centre) ** 2 / 2 for log in grid]
    assert np.log(mine.temperature) == pytest.approx(grid[int(np.argmin(posterior))], abs=2e-3)
    assert mine._first_curvature > 4 * PRIOR


@pytest.mark.parametrize("factor", [0.5, 1.0, 3.0])
def test_tests_in_turn_lead_to_about_the_likeliest_temperature(factor):
    logits, labels = overconfident(1000, factor)
    mine, found = Calibration(), []
    for row, label in zip(logits, labels, strict=True):
        mine.hear(row[None], np.array([label]))
        found.append(mine._first_log)
    grid = np.linspace(-3, 3, 6001)
    best = grid[int(np.argmin([loss(logits, labels, log) for log in grid]))]
    assert np.mean(found[200:]) == pytest.approx(best, abs=0.1)


@pytest.mark.parametrize("shuffled", [False, True])
def test_kept_and_taken_up_again(shuffled, tmp_path):
    images, tracks = walks(6, 20)
    if shuffled:
        order = np.random.default_rng(1).permutation(len(images))
        images, tracks = images[order], tracks[order]
    straight, first = (learn(images[:70], tracks[:70] % 3) for _ in range(2))
    assert bool(first._calibration.held) == shuffled
    first.save(tmp_path / "kept")
    second = CSSL.load(tmp_path / "kept")
    for learner in (straight, second):
        for image, track in zip(images[70:], tracks[70:].tolist(), strict=True):
            learner.learn_one(image, track % 3)
    assert straight._calibration.state() == second._calibration.state()
    assert straight._calibration.temperature != 1
    assert straight.fingerprint() == second.fingerprint()


# What people do meanwhile.


def clusters(count, classes, noise=25, seed=0):
    """Return images that are easily told apart, and their classes, in turn."""
    rng = np.random.default_rng(seed)
    centres = rng.integers(0, 256, (classes, 8, 8, 3))
    labels = np.arange(count) % classes
    return (centres[labels] + rng.normal(0, noise, (count, 8, 8, 3))).clip(0, 255).astype(np.uint8), labels


def test_of_merged_classes_either_row_is_right():
    images, labels = clusters(120, 4)
    apart, merged = (learn(images[:100], labels[:100], replay=20) for _ in range(2))
    merged.merge_classes(2, 1)
    before = merged._calibration.temperature
    for learner in (apart, merged):
        for image, label in zip(images[100:], labels[100:].tolist(), strict=True):
            learner.learn_one(image, label)
    # Told apart, they were as good as sure. If predictions of the merged one counted as mistakes, they would not be.
    assert merged._calibration.temperature == pytest.approx(before, rel=0.3)
    assert merged.predict_proba_many(images[:40]).max(axis=1).mean() > 0.9


def test_the_right_answer_is_that_of_predictions():
    images, labels = clusters(60, 4)
    learner = learn(images, labels)
    learner.merge_classes(3, 0)
    learner.learn_one(images[0], "once")
    learner.undo()  # a class that is not predicted
    logits, right = learner._answers(images[:8], [0 if label == 3 else label for label in labels[:8].tolist()])
    assert logits.shape == (8, 4)
    for row, column, label in zip(logits, right, labels[:8].tolist(), strict=True):
        assert column == (max((0, 3), key=lambda one: row[one]) if label in (0, 3) else label)


def test_a_temperature_is_found_without_replay_and_given_up_with_what_it_was_found_on():
    images, labels = clusters(60, 2)
    alone = learn(images, labels, replay=0)
    found = [alone._calibration.temperature]
    for image, label in zip([*images] * 2, [*labels.tolist()] * 2, strict=True):
        alone.learn_one(image, label)
        found.append(alone._calibration.temperature)
    assert len(set(found)) > 1
    learner = learn(images, labels)
    assert learner._calibration.held
    for id in list(learner._calibration.held):
        learner.forget(id)
    assert learner._calibration.held == []
    assert learner._calibration.temperature == np.exp(learner._calibration._first_log)


def test_every_task_is_looked_at():
    images, labels = clusters(120, 3)
    learner = CSSL(size=8, replay=10, channels=3)
    for number, (image, label) in enumerate(zip(images, labels.tolist(), strict=True)):
        learner.learn_one(image, label, task="first" if number < 60 else "second")
        if number == 60:
            before = learner._tasks._all[0].own["_calibration"].temperature
    assert learner._tasks.name == "second"
    first = learner._tasks._all[0].own["_calibration"]
    assert first.held
    assert first.temperature != before
    assert learner._calibration.held


def test_what_is_learned_again_keeps_its_part(monkeypatch):
    images, labels = clusters(90, 2)
    learner = CSSL(size=8, replay=6, channels=3, passes=1)
    heard = []
    for turn in range(2):
        for id, (image, label) in enumerate(zip(images, labels.tolist(), strict=True)):
            learner.learn_one(image, label, id=id)
        if not turn:
            held = sorted(learner._calibration.held)
            monkeypatch.setattr(Calibration, "hear", lambda self, logits, labels: heard.append(labels))
    assert len(held) == 8
    assert sorted(learner._calibration.held) == held
    assert learner.buffer.index.held_out == 8
    assert heard == []  # what was learned before is no test
