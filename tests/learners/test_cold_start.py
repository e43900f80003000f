"""Our recipe for short streams: each ingredient alone, what all of them make, and CSSL where none is left."""

import numpy as np
import pytest
import torch

from coldstream import CSSL, ColdStart, native
from coldstream.augment import Policy
from coldstream.augment.crops import spared
from coldstream.data import Dataset
from coldstream.learners import OfflineRecipe
from coldstream.learners.training.engine import Engine

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
    augmented = whole.at(0.4).augment(IMAGES, 3, 9)
    np.testing.assert_array_equal(augmented[alone], light.augment(IMAGES, 3, 9)[alone])
    np.testing.assert_array_equal(augmented[~alone], whole.augment(IMAGES, 3, 9)[~alone])
    x, y = torch.randn(64, 3, 8, 8), torch.eye(64)
    (mixed, targets), (all_mixed, all_targets) = whole.at(0.4).mix(x, y, 3, 9), whole.mix(x, y, 3, 9)
    for some, left, done in ((mixed, x, all_mixed), (targets, y, all_targets)):
        assert torch.equal(some[alone], left[alone])
        assert torch.equal(some[~alone], done[~alone])


def test_all_and_nothing():
    whole, light = Policy.parse(POLICIES[0]), Policy.parse("crop|flip")
    np.testing.assert_array_equal(whole.at(1.0).augment(IMAGES, 0, 1), whole.augment(IMAGES, 0, 1))
    np.testing.assert_array_equal(whole.at(0.0).augment(IMAGES, 0, 1), light.augment(IMAGES, 0, 1))


@pytest.mark.parametrize("settings", [{}, {"storage": "disk"}, {"sample": "uniform", "capacity": 9}])
def test_made_ready_ahead_or_in_turn_the_bits_are_the_same(settings):
    twins = [ColdStart(size=8, replay=12, channels=3, prefetch=prefetch, **settings) for prefetch in (True, False)]
    for learner in twins:
        for i, image in enumerate(IMAGES):
            learner.learn_one(image // 4 + 60 * (i % 3), i % 3)
    assert twins[0].fingerprint() == twins[1].fingerprint()


@pytest.mark.parametrize("prefetch", [True, False])
def test_what_is_replayed_is_counted(prefetch):
    learner = ColdStart(size=8, replay=5, channels=3, prefetch=prefetch, calibrate=False)
    for i in range(20):
        learner.learn_one(IMAGES[i], i % 3)
        assert learner.tasks[None].buffer.index.times.view.sum() == sum(min(5, stored) for stored in range(i + 1))
    before = learner.tasks[None].buffer.index.times.view.copy()
    learner.predict_many(IMAGES[:3])
    learner.relabel(4, 2)  # what was made ready ahead is dropped, and does not count
    np.testing.assert_array_equal(learner.tasks[None].buffer.index.times.view, before)
    learner.learn_one(IMAGES[0], 0, id=7)  # learned anew
    assert learner.tasks[None].buffer.index.times[learner.tasks[None].buffer.index.find(7)] == 0


def test_with_tasks_each_counts_its_own():
    learner = ColdStart(size=8, replay=4, channels=3, calibrate=False)
    for i in range(12):
        learner.learn_one(IMAGES[i], i % 2, task="ab"[i % 2])
    counted = [int(task.buffer.index.times.view.sum()) for task in learner.tasks.values()]
    beside, apart = [min(3, n) for n in range(6)], [min(4, n) for n in (*range(1, 6), 6)]
    assert counted == [sum(beside) + sum(apart), sum(beside) + sum(apart[:-1])]


def test_defaults_and_mistakes():
    names = ("strong_share", "full_on_duplicates", "sample", "weight_decay")
    names = (*names, "average", "calibrate", "unseen", "passes", "warm_up")
    settings = ColdStart().settings
    assert [getattr(settings, name) for name in names] == [
        *(0.5, True, "least-replayed", 1e-3),
        *(True, True, True, 8, True),
    ]
    for name, wrong in (
        *(("average", 1), ("calibrate", "yes"), ("unseen", None), ("full_on_duplicates", 0), ("warm_up", 1)),
        *(("passes", 0), ("passes", 1.5), ("strong_share", 1.1), ("strong_share", True), ("weight_decay", 1)),
    ):
        with pytest.raises(ValueError, match=name):
            ColdStart(**{name: wrong})
    with pytest.raises(ValueError, match="'oldest'"):
        ColdStart(sample="oldest")


def test_a_policy_of_your_own_and_mistakes():
    assert ColdStart(augment="crop|mixup(0.1)").policy == Policy.parse("crop|mixup(0.1)").at(0.5)
    assert ColdStart(augment="crop|mixup(0.1)", strong_share=0.2).policy == Policy.parse("crop|mixup(0.1)").at(0.2)
    assert ColdStart().policy == Policy.parse("crop|flip|autoaugment(cifar10)").at(0.5)
    with pytest.raises(ValueError, match="sharpen"):
        ColdStart(augment="sharpen")
    with pytest.raises(ValueError, match="auto"):
        ColdStart(augment="auto|flip")
    for kind in (CSSL, ColdStart):
        with pytest.raises(ValueError, match="'auto'"):
            kind(augment="auto")


def rates(learner, images, labels, **named):
    """Return the rate of each update that each of these labels takes."""
    made, update = [], learner.engine.update

    def counted(head, inputs, targets, rate, *others, **more):
        made[-1].append(rate)
        update(head, inputs, targets, rate, *others, **more)

    vars(learner.engine)["update"] = counted
    for image, label in zip(images, labels, strict=True):
        made.append([])
        learner.learn_one(image, label, **named)
    del vars(learner.engine)["update"]
    return made


def updates(learner, images, labels, **named):
    """Return how many updates each of these labels takes."""
    return [len(each) for each in rates(learner, images, labels, **named)]


# One ingredient at a time.

INGREDIENTS = {
    "strong_share": (0.25, "share"),
    "full_on_duplicates": (False, "share on duplicates"),
    "sample": ("uniform", "sampler"),
    "weight_decay": (1e-5, "decay"),
    "average": (False, "average"),
    "calibrate": (False, "temperature"),
    "unseen": (False, "unseen"),
    "passes": (1, "updates"),
    "warm_up": (False, "rates"),
}
"""For each, another value, and what it changes of what `observe` gives."""
LABELS = (np.random.default_rng(0).geometric(0.22, size=64) - 1).tolist()
"""In any order, a few classes often and others once."""


def video(tracks=6, frames=16):
    """Return frames that change little from one to the next, and their labels."""
    rng = np.random.default_rng(0)
    starts, paths = rng.integers(40, 216, (tracks, 1, 8, 8, 3)), rng.normal(0, 3, (tracks, frames, 8, 8, 3))
    images = (starts + paths.cumsum(axis=1)).clip(0, 255).astype(np.uint8)
    return images.reshape(-1, 8, 8, 3), (np.repeat(np.arange(tracks), frames) % 3).tolist()


def streamed(images, labels, **settings):
    """Return a learner that has learned a stream, and the rates and policies of its updates, label by label."""
    learner = ColdStart(**{"size": 8, "replay": 6, "channels": 3, "rate": 0.05, **settings})
    learner.learn_one(images[0], labels[0])
    policies, prepare = [], learner.engine.prepare

    def watched(items, targets, policy, *others):
        policies.append(policy)
        return prepare(items, targets, policy, *others)

    vars(learner.engine)["prepare"] = watched
    each = rates(learner, images[1:], labels[1:])
    del vars(learner.engine)["prepare"]
    return learner, each, policies


def observe(**settings):
    """Return what each ingredient of the recipe is there for, in a shuffled stream and in a video."""
    learner, each, policies = streamed(IMAGES, LABELS, **settings)
    on_video, _, video_policies = streamed(*video(), **settings)
    task = learner.tasks[None]
    assert not task.confidence.duplicates
    assert on_video.tasks[None].confidence.duplicates
    assert len(set(policies)) == 1
    return {
        "share": policies[-1],
        "share on duplicates": video_policies[-1],
        "sampler": task.buffer._sample,
        "decay": learner.engine._sgd.weight_decay,
        "average": learner.engine.average is not None,
        "temperature": (task.confidence.temperature != 1, task.confidence.held, task.buffer.index.held_out),
        "unseen": learner._unseen(task),
        "updates": [len(of_label) for of_label in each],
        "rates": [of_label[0] for of_label in each],
    }


@pytest.fixture(scope="module")
def as_it_is():
    return observe()


def test_all_ingredients_are_here_and_work(as_it_is):
    of_cssl = {name: field.default for name, field in CSSL.Settings.model_fields.items()}
    differ = {
        name
        for name, field in ColdStart.Settings.model_fields.items()
        if name not in of_cssl or field.default != of_cssl[name]
    }
    assert differ == {*INGREDIENTS, "augment", "rehearse"}
    assert ColdStart.Settings.model_fields["rehearse"].default == 0  # off: test_rehearsing.py
    assert as_it_is["share"] == Policy.parse("crop|flip|autoaugment(cifar10)").at(0.5)
    assert as_it_is["share on duplicates"] == Policy.parse("crop|flip|autoaugment(cifar10)")
    fitted, held, held_out = as_it_is["temperature"]
    assert fitted
    assert len(held) == held_out > 0
    assert as_it_is["unseen"] > 0
    assert max(as_it_is["updates"]) > 1
    assert as_it_is["rates"][0] < as_it_is["rates"][-1]


@pytest.mark.parametrize("name", INGREDIENTS)
def test_an_ingredient_alone_changes_just_what_it_is_for(name, as_it_is):
    value, what = INGREDIENTS[name]
    changed = observe(**{name: value})
    assert {key for key in as_it_is if as_it_is[key] != changed[key]} == {what}
    switched_off = {"temperature": (False, [], 0), "unseen": 0.0, "updates": [1] * 63, "rates": [0.05] * 63}
    if what in switched_off:
        assert changed[what] == switched_off[what]
    if what.startswith("share"):
        share = value if what == "share" else 0.5
        assert changed[what] == Policy.parse("crop|flip|autoaugment(cifar10)").at(share)


def weights(learner):
    """Return the weights, statistics and momentum of the network, without averages."""
    state = learner.engine.state() | learner.tasks[None].head.state()
    return {name: array.tobytes() for name, array in state.items() if not name.startswith("average")}


@pytest.mark.parametrize("name", ["average", "unseen"])
def test_what_is_for_predictions_alone_leaves_the_network_as_it_is(name):
    learners = [streamed(IMAGES, LABELS, **settings)[0] for settings in ({}, {name: False})]
    assert weights(learners[0]) == weights(learners[1])
    assert not np.array_equal(*(learner.predict_proba_many(IMAGES[:9]) for learner in learners))


@pytest.mark.parametrize("name", ["strong_share", "sample", "weight_decay", "passes", "warm_up"])
def test_what_is_for_learning_changes_the_network(name):
    learners = [streamed(IMAGES, LABELS, **settings)[0] for settings in ({}, {name: INGREDIENTS[name][0]})]
    assert weights(learners[0]) != weights(learners[1])


@pytest.mark.parametrize("prefetch", [True, False])
@pytest.mark.parametrize("stream", [(IMAGES, LABELS), video()], ids=["shuffled", "video"])
def test_without_any_ingredient_it_is_cssl_bit_for_bit(stream, prefetch):
    shared = {"size": 8, "replay": 6, "capacity": 20, "augment": POLICIES[0], "prefetch": prefetch}
    off = {"strong_share": 1.0, "sample": "uniform", "weight_decay": 1e-5, "passes": 1}
    off |= dict.fromkeys(("full_on_duplicates", "average", "calibrate", "unseen", "warm_up"), False)
    plain, without = CSSL(**shared), ColdStart(**shared, **off)
    for learner in (plain, without):
        learner.learn_many(*stream)
    assert weights(plain) == weights(without)
    np.testing.assert_array_equal(*(one.predict_proba_many(IMAGES[:9]) for one in (plain, without)))
    ids = [one.tasks[None].buffer.index.ids.view.tolist() for one in (plain, without)]
    assert ids[0] == ids[1]


@pytest.mark.parametrize(
    ("settings", "named", "shares"),
    [
        ({}, {}, [2 / 5, 3 / 5, 4 / 5, 1, 1]),
        ({"capacity": 2}, {}, [2 / 5, 3 / 5, 3 / 5, 3 / 5, 3 / 5]),
        ({"warm_up": False}, {}, [1] * 5),
        ({"augment": "crop|flip"}, {}, [2 / 5, 3 / 5, 4 / 5, 1, 1]),
        ({}, {"task": "birds"}, [2 / 4, 3 / 4, 1, 1, 1]),
    ],
)
def test_a_batch_that_is_not_full_has_so_much_less_of_the_rate(settings, named, shares):
    learner = ColdStart(size=8, replay=4, channels=3, calibrate=False, passes=1, rate=0.1, **settings)
    learner.learn_one(IMAGES[0], 0, **named)
    made = rates(learner, IMAGES[1:6], [0, 1, 0, 1, 0], **named)
    np.testing.assert_allclose(made, 0.1 * np.array(shares)[:, None], rtol=1e-12)


def test_the_paper_has_neither_warm_up_nor_passes():
    learner = CSSL(size=8, replay=12, channels=3, rate=0.1)
    learner.learn_one(IMAGES[0], 0)
    assert rates(learner, IMAGES[1:6], [0, 1, 0, 1, 0]) == [[0.1]] * 5


def test_every_pass_has_the_rate_of_its_label():
    learner = ColdStart(size=8, replay=12, channels=3, calibrate=False, rate=0.1)
    learner.learn_one(IMAGES[0], 0)
    made = rates(learner, IMAGES[1:4], [0, 1, 0])
    assert [[round(13 * rate / 0.1) for rate in each] for each in made] == [[2], [3] * 4, [4] * 3]


def test_several_passes_while_a_batch_has_room_for_all_that_is_known():
    learner = ColdStart(size=8, replay=12, channels=3, calibrate=False)
    learner.learn_one(IMAGES[0], 0)
    assert updates(learner, IMAGES[1:8], [0, 1, 0, 1, 0, 1, 0]) == [1, 4, 3, 2, 2, 1, 1]


def test_no_passes_over_less_than_what_is_known():
    labels = np.arange(20) % 4
    based = ColdStart(size=8, replay=12, channels=3, init="base", calibrate=False)
    based.base_init(Dataset("base", IMAGES[:20], labels, tuple("abcd")), OfflineRecipe(epochs=1))
    assert updates(based, IMAGES[20:26], "abacad") == [1, 1, 1, 1, 1, 2]  # of each class one is stored then
    tasks = ColdStart(size=8, replay=12, channels=3, calibrate=False)
    tasks.learn_many(IMAGES[:4], [0, 1, 0, 1], task="first")
    assert updates(tasks, IMAGES[4:6], [0, 1], task="second") == [2, 2]  # one for each task


def test_a_loss_of_a_subclass_is_used_in_all_passes():
    """With passes over a small buffer, too; what is stored beside examples is refused."""
    seen = []

    class Watched(ColdStart):
        def loss(self, logits, batch, targets):
            seen.append((len(batch.new), len(logits)))
            return super().loss(logits, batch, targets)

    learner, plain = (kind(model="mlp", replay=8, size=8, augment="none") for kind in (Watched, ColdStart))
    for i in range(4):
        for one in (learner, plain):
            one.learn_one(np.full((8, 8, 1), 60 * i, np.uint8), i % 2)
    assert {new for new, _ in seen} == {0, 1}
    assert len(seen) > 4
    ours, others = (one.engine.state() | one.tasks[None].head.state() for one in (learner, plain))
    assert ours.keys() == others.keys()
    assert all(np.array_equal(ours[name], others[name]) for name in ours)
    with pytest.raises(TypeError, match="derive from CSSL or ER"):
        type("Storing", (ColdStart,), {"extra": lambda self, batch: []})
    with pytest.raises(TypeError, match="derive from CSSL or ER"):
        type("Drawing", (ColdStart,), {"draws": 2})


def test_a_step_has_one_policy(monkeypatch):
    """Also the step in which near-duplicates are noticed, whose images are mixed as they were augmented."""
    learner, seen = ColdStart(size=8, replay=6, channels=3, augment="crop|flip|mixup(0.1)", prefetch=False), []
    rng = np.random.default_rng(0)
    engine_prepare, augment = Engine.prepare, type(learner.policy).augment

    def noted(policy, *arguments):
        seen.append(("augment", policy))
        return augment(policy, *arguments)

    def prepare(engine, items, targets, policy, seed, step):
        seen.append(("mix", policy))
        return engine_prepare(engine, items, targets, policy, seed, step)

    monkeypatch.setattr(type(learner.policy), "augment", noted)
    monkeypatch.setattr(Engine, "prepare", prepare)
    noticed = []
    for start in range(12):
        frame = rng.integers(0, 256, (8, 8, 3), dtype=np.uint8)
        for _ in range(12):
            learner.learn_one(np.clip(frame + rng.integers(0, 3, frame.shape), 0, 255).astype(np.uint8), start % 3)
            noticed.append(learner.tasks[None].confidence.duplicates)
    assert True in noticed
    steps = [*zip(seen[::2], seen[1::2], strict=True)]
    assert all((first[0], second[0]) == ("augment", "mix") and first[1] is second[1] for first, second in steps)
    assert len({id(first[1]) for first, _ in steps}) == 2
