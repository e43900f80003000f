"""The temperature against the one that a search finds, and the held-out examples it is fitted on."""

import numpy as np
import pytest

from coldstream import ColdStart
from coldstream.augment import Policy
from coldstream.learners.confidence import temperature
from coldstream.learners.confidence.temperature import ENOUGH, EVERY, MOST, PRIOR, Confidence, fit_log_temperature
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
    confidence = Confidence()
    confidence.fit(np.array([[9.0, 0, 0]]), np.array([1]))
    assert 1 < confidence.temperature < 4


@pytest.fixture
def each_step(monkeypatch):
    """Let every step look at what is due, without waiting for others."""
    monkeypatch.setattr(temperature, "TOGETHER", 1)


def held_out(count, labels=3):
    """Return a buffer in which all examples are held out, and the confidence that knows them."""
    buffer, confidence = ReplayBuffer((2, 2, 3)), Confidence()
    for id in range(count):
        buffer.store(buffer.compress(np.zeros((2, 2, 3), np.uint8)), id % labels, id, held_out=True)
    confidence.held = list(range(count))
    return buffer, confidence


def step(buffer, confidence, budget, rows=3, logits=None):
    """Look at what is due; return how many that are, and of how many a finished round is."""
    due = confidence.due(buffer, budget)
    if due:
        confidence.collect(due, np.ones((len(due), rows)) if logits is None else logits[[*due.values()]])
    finished = confidence.finish_round(buffer, rows)
    return len(due), finished and len(finished[1])


@pytest.mark.usefixtures("each_step")
def test_looks_are_spread_over_the_steps_of_a_round():
    buffer, confidence = held_out(25)
    assert [step(buffer, confidence, 10.0) for _ in range(6)] == [(10, None), (10, None), (5, 25)] * 2
    assert [step(buffer, confidence, 7.5)[0] for _ in range(5)] == [7, 8, 7, 3, 7]
    few, confidence = held_out(4)
    assert [step(few, confidence, 10.0) for _ in range(3)] == [(4, 4)] * 3
    confidence.held = []
    assert step(few, confidence, 10.0) == (0, None)


def test_looks_of_some_steps_come_together():
    """And as many as if each step had looked: 3 and 4 in turn, 14 in four steps."""
    buffer, confidence = held_out(100)
    looked = []
    for _ in range(16):
        due = confidence.due(buffer, 3.5)
        looked.append(due and len(due))
        if due is not None:
            confidence.collect(due, np.zeros((len(due), 3)))
    assert looked == [None, None, None, 14] * 4
    assert temperature.TOGETHER == 4


@pytest.mark.usefixtures("each_step")
def test_a_round_has_the_logits_of_each_example():
    buffer, confidence = held_out(7)
    given = np.random.default_rng(0).normal(size=(7, 3))
    assert step(buffer, confidence, 4.0, logits=given) == (4, None)
    due = confidence.due(buffer, 4.0)
    confidence.collect(due, given[[*due.values()]])
    logits, slots = confidence.finish_round(buffer, 3)
    np.testing.assert_array_equal(logits, given[slots])
    assert sorted(slots.tolist()) == list(range(7))


@pytest.mark.usefixtures("each_step")
def test_a_class_that_came_after_a_look_had_no_chance():
    buffer, confidence = held_out(6)
    step(buffer, confidence, 3.0, rows=2, logits=np.array([[2.0, -1.0]] * 6))
    due = confidence.due(buffer, 3.0)
    confidence.collect(due, np.array([[2.0, -1.0, 0.5]] * 3))
    logits, _ = confidence.finish_round(buffer, 3)
    assert (logits[:3, :2] == [2.0, -1.0]).all()
    assert (logits[:3, 2] < -1e5).all()
    labels = np.array([0, 1, 0, 1, 2, 0])
    parts = [(logits[:3, :2], labels[:3]), (logits[3:], labels[3:])]
    grid = np.linspace(-3, 3, 6001)
    best = grid[int(np.argmin([sum(loss(z, y, log) for z, y in parts) + PRIOR * log**2 / 2 for log in grid]))]
    assert fit_log_temperature(logits, labels) == pytest.approx(best, abs=2e-3)


@pytest.mark.usefixtures("each_step")
def test_edits_within_a_round():
    buffer, confidence = held_out(10)
    step(buffer, confidence, 6.0)
    buffer.forget(0)
    confidence.drop(buffer, 0)  # a smaller buffer: all but one go back to replay
    assert len(confidence.held) == 1
    assert step(buffer, confidence, 1.0)[1] == 1
    buffer, confidence = held_out(10)
    step(buffer, confidence, 6.0)
    buffer.drop(buffer.index.find(2))  # evicted
    confidence.discard_logits(3)  # relabelled
    assert step(buffer, confidence, 4.0) == (4, None)
    assert step(buffer, confidence, 4.0) == (1, 9)
    step(buffer, confidence, 6.0)
    confidence.release(buffer)
    assert confidence.collected() == {}
    assert step(buffer, confidence, 6.0) == (0, None)


def test_kept_back_are_every_tenth_of_a_class_and_never_replayed():
    learner = ColdStart(size=8, replay=6, channels=3, passes=1)
    for i, image in enumerate(np.tile(IMAGES, (2, 1, 1, 1))[:90]):
        learner.learn_one(image, i % 3)
    index = learner.tasks[None].buffer.index
    held = [row for row in range(len(index)) if index.is_held_out(row)]
    numbers = [index.ids[row] // 3 for row in held]  # three classes take turns
    assert len(held) == 8  # when three had come of sixteen, one was given back
    assert {number % EVERY for number in numbers} == {EVERY // 2}
    for step in range(200):
        rows = learner.tasks[None].buffer.sample(20, np.random.default_rng(step))
        assert not set(rows.tolist()) & set(held)


def test_never_too_many_and_balanced():
    buffer, confidence = ReplayBuffer((2, 2, 3)), Confidence()
    item = np.zeros((2, 2, 3), np.uint8)
    for id in range(COUNT):
        label = 0 if id < COUNT // 2 else id % 4
        hold = id % 5 == 0  # more than it takes
        buffer.store(buffer.compress(item), label, id, held_out=hold)
        if hold:
            confidence.hold(buffer, id)
        assert len(confidence.held) <= min(MOST, 1 + (id + 1) // EVERY)
        assert buffer.index.held_out == len(confidence.held)
    labels = [buffer.label_of(id) for id in confidence.held]
    assert max(map(labels.count, range(4))) - min(map(labels.count, range(4))) <= 1
    given_back = {buffer.index.find(id) for id in range(COUNT) if id not in confidence.held}
    assert set(buffer.sample(10**6, np.random.default_rng(0)).tolist()) == given_back


@pytest.mark.parametrize(("capacity", "most"), [(1, 0), (4, 0), (5, 1), (18, 2), (40, 5)])
def test_of_a_small_buffer_few_are_kept_back(capacity, most):
    learner = ColdStart(size=8, replay=6, channels=3, passes=1, capacity=capacity)
    held = []
    for i, image in enumerate(np.concatenate([IMAGES] * 2)):
        learner.learn_one(image, i % 2)
        held.append(learner.tasks[None].buffer.index.held_out)
    assert len(learner.tasks[None].buffer) == capacity
    assert max(held) == most


def test_what_is_forgotten_is_not_looked_at():
    learner = ColdStart(size=8, replay=6, channels=3, passes=1)
    ids = [learner.learn_one(image, i % 2) for i, image in enumerate(IMAGES)]
    for id in ids:
        learner.forget(id)
    for _ in range(temperature.TOGETHER):
        assert not learner.tasks[None].confidence.due(learner.tasks[None].buffer, 10.0)
    for i, image in enumerate(IMAGES[:20]):
        learner.learn_one(image, i % 2)
    assert len(learner.tasks[None].confidence.held) == 2


def test_of_what_is_left_a_tenth_is_kept_back():
    learner = ColdStart(size=8, replay=6, channels=3, passes=1)
    ids = [learner.learn_one(image, i % 2) for i, image in enumerate(np.concatenate([IMAGES] * 2))]
    held = list(learner.tasks[None].confidence.held)
    assert len(held) > 6
    for id in ids:
        if id not in held:
            learner.forget(id)
            assert learner.tasks[None].buffer.index.held_out <= 1 + len(learner.tasks[None].buffer) // EVERY
    assert learner.tasks[None].buffer.index.held_out == len(learner.tasks[None].confidence.held)


def walks(tracks, frames, seed=0):
    """Return tracks of frames that change little from one to the next, and the track of each."""
    rng = np.random.default_rng(seed)
    starts = rng.integers(40, 216, (tracks, 1, 8, 8, 3))
    paths = rng.normal(0, 3, (tracks, frames, 8, 8, 3)).cumsum(axis=1)
    images = (starts + paths).clip(0, 255).astype(np.uint8)
    return images.reshape(-1, 8, 8, 3), np.repeat(np.arange(tracks), frames)


def learn(images, labels, **settings):
    learner = ColdStart(**{"size": 8, "replay": 6, "channels": 3, "passes": 1, **settings})
    for image, label in zip(images, labels.tolist(), strict=True):
        learner.learn_one(image, label)
    return learner


def policy_of(learner):
    return learner.policy_of(learner.tasks[None])


def test_neighbours_of_a_shuffled_stream_are_not_alike_and_frames_of_a_track_are():
    images, tracks = walks(6, 20)
    learner = learn(images, tracks % 3)
    assert learner.tasks[None].confidence.duplicates
    assert learner.tasks[None].confidence.held == []
    assert learner.tasks[None].buffer.index.held_out == 0  # what was held out at first is replayed
    order = np.random.default_rng(1).permutation(20)  # class by class all the same, a track each
    shuffled = learn(images.reshape(6, 20, 8, 8, 3)[:, order].reshape(-1, 8, 8, 3), tracks)
    assert not shuffled.tasks[None].confidence.duplicates
    assert shuffled.tasks[None].confidence.held
    noise = learn(np.concatenate([IMAGES] * 2), np.arange(120) // 40)
    assert not noise.tasks[None].confidence.duplicates


def test_near_duplicates_are_all_augmented_strongly():
    images, tracks = walks(6, 20)
    twins = [learn(images, tracks % 3, prefetch=prefetch) for prefetch in (True, False)]
    assert policy_of(twins[0]) == ColdStart().policy.at(1.0)
    assert twins[0].fingerprint() == twins[1].fingerprint()
    assert policy_of(learn(np.concatenate([IMAGES] * 2), np.arange(120) // 40)) == ColdStart().policy.at(0.5)
    assert policy_of(learn(images, tracks % 3, augment="crop|flip", calibrate=True)) == Policy.parse("crop|flip")
    alone = learn(images, tracks % 3, calibrate=False)
    assert policy_of(alone) == ColdStart().policy.at(1.0)
    assert (alone.tasks[None].confidence.temperature, alone.tasks[None].buffer.index.held_out) == (1, 0)


def test_the_first_frames_of_known_classes_are_tests_and_no_others(monkeypatch):
    images, tracks = walks(6, 20)
    tests = []
    monkeypatch.setattr(Confidence, "test", lambda self, logits, labels: tests.append((logits.shape, *labels)))
    learn(images, tracks % 3)
    assert tests == [
        ((1, 3), 0),
        ((1, 3), 1),
        ((1, 3), 2),
    ]  # the second tracks; when the first ones came, their classes were new


def test_a_shuffled_stream_is_tested_until_enough_are_kept_back(monkeypatch):
    tests = []
    monkeypatch.setattr(Confidence, "test", lambda self, logits, labels: tests.extend(labels))
    labels = np.tile([0, 1, 2, 0, 2, 1, 1], 40)
    learner = learn(np.concatenate([IMAGES] * 5)[: len(labels)], labels)
    assert learner.tasks[None].confidence.held
    assert tests[:7] == [0, 2, 1, 0, 1, 2, 0]  # not the first of a class, nor one after its like
    alone, buffer = Confidence(), learner.tasks[None].buffer
    alone.held = list(range(ENOUGH))
    assert not alone.register(buffer, IMAGES[0], 1, 10**6, np.random.default_rng(0), True)
    alone.held.pop()
    assert not alone.register(buffer, IMAGES[0], 1, 10**6, np.random.default_rng(0), True)  # the second of a run
    assert alone.register(buffer, IMAGES[0], 2, 10**6, np.random.default_rng(0), True)


def test_tests_before_learning_decide_until_something_is_kept_back():
    confidence = Confidence()
    for row, label in zip(*overconfident(60, 3.0), strict=True):
        confidence.test(row[None], np.array([label]))
    first = confidence.temperature
    assert 2 < first < 4.5
    confidence.held = [0]
    confidence.fit(np.array([[0.1, 0.0]]), np.array([1]))  # which says next to nothing
    assert confidence.temperature == pytest.approx(first, rel=0.02)


@pytest.mark.parametrize(("untested", "share"), [(0, 1.0), (30, 0.98**30), (1000, 0.0)])
def test_many_tests_outweigh_the_first_that_are_kept_back_until_they_are_old(untested, share):
    """The mode of a Gaussian prior with the curvatures of the tests, and the likelihood of the held-out examples."""
    confidence, fresh = Confidence(), ReplayBuffer((2, 2, 3))
    for row, label in zip(*overconfident(60, 3.0), strict=True):
        confidence.test(row[None], np.array([label]))
    centre = np.log(confidence.temperature)
    for id in range(untested):
        confidence.register(fresh, np.zeros((2, 2, 3), np.uint8), 0, id, np.random.default_rng(0), True)
    logits, labels = overconfident(10, 0.5, seed=1)
    confidence.held = list(range(10))
    confidence.fit(logits, labels)
    precision = max(PRIOR, share * confidence._first_curvature)
    grid = np.linspace(-3, 3, 6001)
    posterior = [loss(logits, labels, log) + precision * (log - centre) ** 2 / 2 for log in grid]
    assert np.log(confidence.temperature) == pytest.approx(grid[int(np.argmin(posterior))], abs=2e-3)
    assert confidence._first_curvature > 4 * PRIOR


@pytest.mark.parametrize("factor", [0.5, 1.0, 3.0])
def test_tests_in_turn_lead_to_about_the_likeliest_temperature(factor):
    logits, labels = overconfident(1000, factor)
    confidence, logs = Confidence(), []
    for row, label in zip(logits, labels, strict=True):
        confidence.test(row[None], np.array([label]))
        logs.append(confidence._first_log)
    grid = np.linspace(-3, 3, 6001)
    best = grid[int(np.argmin([loss(logits, labels, log) for log in grid]))]
    assert np.mean(logs[200:]) == pytest.approx(best, abs=0.1)


@pytest.mark.parametrize("shuffled", [False, True])
def test_kept_and_taken_up_again(shuffled, tmp_path):
    images, tracks = walks(6, 20)
    if shuffled:
        order = np.random.default_rng(1).permutation(len(images))
        images, tracks = images[order], tracks[order]
    straight, first = (learn(images[:70], tracks[:70] % 3) for _ in range(2))
    assert bool(first.tasks[None].confidence.held) == shuffled
    first.save(tmp_path / "kept")
    second = ColdStart.load(tmp_path / "kept")
    for learner in (straight, second):
        for image, track in zip(images[70:], tracks[70:].tolist(), strict=True):
            learner.learn_one(image, track % 3)
    assert straight.tasks[None].confidence.state() == second.tasks[None].confidence.state()
    assert straight.tasks[None].confidence.temperature != 1
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
    before = merged.tasks[None].confidence.temperature
    for learner in (apart, merged):
        for image, label in zip(images[100:], labels[100:].tolist(), strict=True):
            learner.learn_one(image, label)
    # If predictions of the merged one counted as mistakes, the temperature would be 2.5 to 6 times as high, and the
    # mean confidence 0.72 to 0.77 (four seeds).
    assert merged.tasks[None].confidence.temperature < 1.5 * before
    assert merged.predict_proba_many(images[:40]).max(axis=1).mean() > 0.82


def test_the_right_answer_is_that_of_predictions():
    images, labels = clusters(60, 4)
    learner = learn(images, labels)
    learner.merge_classes(3, 0)
    learner.learn_one(images[0], "once")
    learner.undo()  # a class that is not predicted
    rows = [0 if label == 3 else label for label in labels[:8].tolist()]
    logits, right = learner._answers(
        learner.tasks[None], learner.engine.logits(learner.tasks[None].head, images[:8]), rows
    )
    assert logits.shape == (8, 4)
    for row, column, label in zip(logits, right, labels[:8].tolist(), strict=True):
        assert column == (max((0, 3), key=lambda one: row[one]) if label in (0, 3) else label)


def test_a_temperature_is_found_without_replay_and_given_up_with_what_it_was_found_on():
    images, labels = clusters(60, 2)
    alone = learn(images, labels, replay=0)
    temperatures = [alone.tasks[None].confidence.temperature]
    for image, label in zip([*images] * 2, [*labels.tolist()] * 2, strict=True):
        alone.learn_one(image, label)
        temperatures.append(alone.tasks[None].confidence.temperature)
    assert len(set(temperatures)) > 1
    learner = learn(images, labels)
    assert learner.tasks[None].confidence.held
    for id in list(learner.tasks[None].confidence.held):
        learner.forget(id)
    assert learner.tasks[None].confidence.held == []
    assert learner.tasks[None].confidence.temperature == np.exp(learner.tasks[None].confidence._first_log)


def test_every_task_is_looked_at():
    images, labels = clusters(120, 3)
    learner = ColdStart(size=8, replay=10, channels=3)
    for number, (image, label) in enumerate(zip(images, labels.tolist(), strict=True)):
        learner.learn_one(image, label, task="first" if number < 60 else "second")
        if number == 60:
            before = learner.tasks["first"].confidence.temperature
    assert learner.tasks_ == ["first", "second"]
    first = learner.tasks["first"].confidence
    assert first.held
    assert first.temperature != before
    assert learner.tasks["second"].confidence.held


def test_what_is_learned_again_keeps_its_part(monkeypatch):
    images, labels = clusters(90, 2)
    learner = ColdStart(size=8, replay=6, channels=3, passes=1)
    tests = []
    for turn in range(2):
        for id, (image, label) in enumerate(zip(images, labels.tolist(), strict=True)):
            learner.learn_one(image, label, id=id)
        if not turn:
            held = sorted(learner.tasks[None].confidence.held)
            monkeypatch.setattr(Confidence, "test", lambda self, logits, labels: tests.append(labels))
    assert len(held) == 8
    assert sorted(learner.tasks[None].confidence.held) == held
    assert learner.tasks[None].buffer.index.held_out == 8
    assert tests == []  # what was learned before is no test


def mid_round(**settings):
    """Return a learner in the middle of a round: of more held-out examples than are looked at in a step."""
    images, labels = clusters(140, 3)
    learner = learn(images, labels, replay=20, **settings)  # two looks per step
    while not 2 <= len(learner.tasks[None].confidence._collected) < len(learner.tasks[None].confidence.held) - 2:
        learner.learn_one(images[0], 0)
    return learner, images, labels


@pytest.mark.parametrize("edit", [None, "forget", "relabel", "new class", "merge", "undo", "again"])
def test_a_round_resumes_after_any_edit(edit, tmp_path):
    learner, images, labels = mid_round()
    confidence = learner.tasks[None].confidence
    looked_at, count = next(iter(confidence._collected)), len(confidence._collected)
    match edit:
        case "forget":
            learner.forget(looked_at)
        case "relabel":
            learner.relabel(looked_at, (learner.tasks[None].buffer.label_of(looked_at) + 1) % 3)
        case "new class":
            learner.relabel(looked_at, "new")
        case "merge":
            learner.merge_classes(2, 0)
        case "undo":
            learner.undo()
        case "again":
            learner.learn_one(images[5], 1, id=looked_at)
    if edit in ("forget", "relabel", "new class"):
        assert looked_at not in confidence._collected
        assert len(confidence._collected) == count - 1
    learner.save(tmp_path / "saved")
    resumed = ColdStart.load(tmp_path / "saved")
    assert resumed.fingerprint() == learner.fingerprint()
    temperatures = set()
    for _ in range(2):
        for image, label in zip(images[:20], labels[:20].tolist(), strict=True):
            for one in (learner, resumed):
                one.learn_one(image, 0 if edit == "merge" and label == 2 else label)
            temperatures.add(confidence.temperature)
    assert resumed.fingerprint() == learner.fingerprint()
    assert len(temperatures) > 2
    assert max(temperatures) < 20


def test_most_steps_look_at_as_many():
    learner, images, labels = mid_round()
    counts, look = [], Confidence.collect
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            Confidence, "collect", lambda self, ids, logits: (counts.append(len(logits)), look(self, ids, logits))
        )
        for image, label in zip(images[:40], labels[:40].tolist(), strict=True):
            learner.learn_one(image, label)
    assert max(counts) == 8
    assert len(counts) == 10
