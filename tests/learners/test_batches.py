"""Batch-incremental learners: what waits, what is predicted, what is kept; offline training and GDumb's buffer."""

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from coldstream.learners import EndToEnd, GDumb, ICaRL, Offline, OfflineRecipe, train_offline
from coldstream.learners.training.engine import Engine
from coldstream.models import Body

RNG = np.random.default_rng(0)
LABELS = np.arange(24) % 3
IMAGES = (60 * LABELS[:, None, None, None] + RNG.integers(0, 60, (24, 6, 6, 3))).astype(np.uint8)
NAMES = ("ash", "beech", "cedar")
KINDS = {
    "icarl": lambda **more: ICaRL(**{"model": "mlp", "exemplars": 7, "epochs": 2, "batch": 8, "rate": 0.5, **more}),
    "e2eil": lambda **more: EndToEnd(
        **{"model": "mlp", "exemplars": 7, "epochs": 2, "fine_epochs": 1, "batch": 8, **more}
    ),
    "gdumb": lambda **more: GDumb(**{"model": "mlp", "capacity": 7, "epochs": 2, **more}),
    "offline": lambda **more: Offline(**{"model": "mlp", "epochs": 2, "batch": 8, **more}),
}
every = pytest.mark.parametrize("make", KINDS.values(), ids=KINDS)


def stream(learner, *rows, start=0, stop=24):
    for i in range(start, stop):
        if LABELS[i] in rows:
            learner.learn_one(IMAGES[i], NAMES[LABELS[i]], id=i)


def copied(body, head):
    """Return the weights and statistics of a network by name."""
    named = {f"body.{name}": value for name, value in body.state_dict().items()} | head.state_dict()
    return {name: value.clone() for name, value in named.items()}


def weights(learner):
    return copied(learner.engine.body, learner.tasks[None].head)


def same(one, two):
    return one.keys() == two.keys() and all(one[name].equal(two[name]) for name in one)


@every
def test_a_class_is_not_predicted_until_its_batch_has_ended(make):
    learner = make()
    stream(learner, 0, 1)
    assert learner.step == 16
    assert learner.classes_ == []
    assert learner.predict_one(IMAGES[0]) is None
    learner.end_batch()
    assert learner.classes_ == ["ash", "beech"]
    before, trained = learner.predict_proba_many(IMAGES), weights(learner)
    stream(learner, 2)
    assert learner.classes_ == ["ash", "beech"]
    assert np.array_equal(before, learner.predict_proba_many(IMAGES))
    # The head grew by a row; those that were there kept their bits.
    grown = weights(learner)
    assert grown["weight"].shape[0] == 3
    assert same(trained, {**grown, "weight": grown["weight"][:2], "bias": grown["bias"][:2]})
    learner.end_batch()
    assert learner.classes_ == list(NAMES)
    assert learner.predict_proba_many(IMAGES).shape == (24, 3)


@every
def test_an_end_without_anything_new_does_nothing(make):
    learner = make()
    learner.end_batch()
    stream(learner, 0, 1)
    learner.end_batch()
    before, heard = learner.fingerprint(), []
    learner.end_batch(lambda done, total: heard.append(done))
    assert learner.fingerprint() == before
    assert heard == []


@every
def test_unseen_classes_are_never_predicted(make):
    learner = make(classes=5)
    stream(learner, 0, 1)
    learner.end_batch()
    assert learner.predict_proba_many(IMAGES).shape == (24, 2)
    assert set(learner.predict_many(IMAGES)) <= {"ash", "beech"}


@every
@pytest.mark.parametrize("at", [5, 15, 20])
def test_resumes_in_the_middle_of_a_batch_and_between_two(make, at, tmp_path):
    def run(folder):
        learner = make()
        for i in range(24):
            learner.learn_one(IMAGES[i], NAMES[LABELS[i] if i > 9 else LABELS[i] // 2], id=i)
            if i == 15:
                learner.end_batch()
            if folder and i == at:
                learner.save(folder)
                learner = type(learner).load(folder)
        learner.end_batch()
        return learner.fingerprint()

    assert run(tmp_path / "kept") == run(None)


@every
def test_interrupted_training_leaves_the_learner_as_it_was(make):
    def stop(done, total):
        raise KeyboardInterrupt

    learner, other = make(), make()
    for one in (learner, other):
        stream(one, 0, 1)
        one.end_batch()
        stream(one, 2)
    before = learner.fingerprint()
    with pytest.raises(KeyboardInterrupt):
        learner.end_batch(stop)
    assert learner.fingerprint() == before
    learner.end_batch()
    other.end_batch()
    assert learner.fingerprint() == other.fingerprint()


@pytest.mark.parametrize(
    ("make", "epochs"), [(KINDS["icarl"], 2), (KINDS["e2eil"], 3), (KINDS["gdumb"], 2), (KINDS["offline"], 2)]
)
def test_progress_hears_of_every_epoch(make, epochs):
    learner, heard = make(), []
    stream(learner, 0)
    learner.end_batch()
    stream(learner, 1)
    learner.end_batch(lambda *told: heard.append(told))
    assert heard == [(epoch, epochs) for epoch in range(1, epochs + 1)]


def test_editing_what_waits_and_what_is_kept():
    learner = Offline(model="mlp", epochs=1)
    stream(learner, 0, 1)
    assert learner.relabel(0, "oak")
    assert learner.forget(3)
    assert learner.classes_ == []
    learner.end_batch()
    assert learner.classes_ == ["ash", "beech", "oak"]
    assert learner.tasks[None].classes.counts == [6, 8, 1]
    assert learner.memory() == (15, 15 * 108)
    before = weights(learner)["body.2.weight"]
    assert learner.relabel(1, "elm")  # kept and trained on; from now on it waits again
    assert learner.classes_ == ["ash", "beech", "oak"]
    assert learner.relabel(0, "ash")
    assert learner.classes_ == ["ash", "beech"]
    learner.learn_one(IMAGES[2], "cedar")
    learner.undo()
    learner.end_batch()
    assert learner.classes_ == ["ash", "beech", "elm"]
    assert not before.equal(weights(learner)["body.2.weight"])


def test_a_class_undone_before_its_batch_ended_waits_when_it_comes_again():
    learner = Offline(model="mlp", epochs=1)
    stream(learner, 0)
    learner.learn_one(IMAGES[1], "beech")
    learner.undo()
    learner.end_batch()
    learner.learn_one(IMAGES[1], "beech")
    assert learner.classes_ == ["ash"]
    learner.end_batch()
    assert learner.classes_ == ["ash", "beech"]


@every
def test_merged_classes_are_predicted_as_one_by_the_rows_that_were_trained(make):
    learner = make()
    stream(learner, 0, 1)
    learner.end_batch()
    stream(learner, 2)
    two = learner.predict_proba_many(IMAGES)
    learner.merge_classes("cedar", "ash")  # waiting into known: its row was never trained, and says nothing
    assert np.array_equal(learner.predict_proba_many(IMAGES), two)
    learner.merge_classes("ash", "beech")
    assert np.allclose(learner.predict_proba_many(IMAGES), 1)
    learner.end_batch()
    assert learner.classes_ == ["beech"]
    assert np.allclose(learner.predict_proba_many(IMAGES), 1)


@every
@pytest.mark.parametrize("wrong", [{"init": "base"}, {"items": "vectors"}, {"epochs": 0}, {"rate": 0}, {"lr": 1}])
def test_settings_that_make_no_sense_are_refused(make, wrong):
    with pytest.raises(ValueError, match=r"base initialisation|images|epochs|rate|setting"):
        make(**wrong)


# Offline.


def by_hand(items, labels, recipe, seed, weights_of=None):
    body = Body.build("mlp", (3, 6, 6), seed)
    if weights_of is not None:
        body.module.load_state_dict(weights_of)
    engine = Engine(body, momentum=recipe.momentum, weight_decay=recipe.weight_decay)
    head = engine.new_head(seed, 3)
    train_offline(engine, head, items, labels, recipe, seed)
    return copied(engine.body, head)


def test_offline_is_offline_training_on_all_so_far():
    recipe = OfflineRecipe(epochs=3, batch=5, drops=(2,))
    learner = Offline(model="mlp", epochs=3, batch=5, drops=(2,), seed=4)
    stream(learner, 0, 1, 2, stop=12)
    learner.end_batch()
    stream(learner, 0, 1, 2, start=12)
    learner.end_batch()
    assert same(weights(learner), by_hand(IMAGES, LABELS, recipe, 4))


@pytest.mark.parametrize("loaded", [False, True])
def test_training_from_scratch_begins_at_the_given_weights(tmp_path, loaded):
    given = Body.build("mlp", (3, 6, 6), seed=99).module.state_dict()
    save_file(given, tmp_path / "weights.safetensors")
    learner = Offline(model="mlp", epochs=2, init=tmp_path / "weights.safetensors")
    stream(learner, 0, 1, 2, stop=12)
    learner.end_batch()
    if loaded:
        for _ in range(2):
            learner.save(tmp_path / "kept")
            learner = Offline.load(tmp_path / "kept")
    stream(learner, 0, 1, 2, start=12)
    learner.end_batch()
    expected = by_hand(IMAGES, LABELS, OfflineRecipe(epochs=2), 0, given)
    assert same(weights(learner), expected)
    assert not same(weights(learner), by_hand(IMAGES, LABELS, OfflineRecipe(epochs=2), 0))


# GDumb.


@pytest.mark.parametrize("seed", range(6))
def test_gdumb_keeps_what_its_algorithm_keeps(seed):
    """Algorithm 1 as written, which example makes room taken from the learner, against the buffer at every step."""
    rng = np.random.default_rng(seed)
    k, classes = int(rng.integers(5, 16)), int(rng.integers(2, 6))
    labels = rng.integers(0, classes, 80) if seed % 2 else np.sort(rng.integers(0, classes, 80))
    learner = GDumb(model="linear", capacity=k)
    memory: dict[int, int] = {}
    known: set[int] = set()
    for id, y in enumerate(labels.tolist()):
        learner.learn_one(IMAGES[0], y, id=id)
        index = learner.tasks[None].buffer.index
        kept = set(index.ids.view.tolist())
        sizes = {c: sum(label == c for label in memory.values()) for c in known}
        if y not in known or sizes[y] < k / len(known):
            if len(memory) >= k:
                (gone,) = memory.keys() - kept
                assert sizes[memory[gone]] == max(sizes.values())
                del memory[gone]
            memory[id] = y
            known.add(y)
        assert kept == memory.keys()
        labels_of = dict(zip(index.ids.view.tolist(), index.labels.view.tolist(), strict=True))
        assert {i: learner.tasks[None].classes.labels[row] for i, row in labels_of.items()} == memory
    sizes = [sum(label == c for label in memory.values()) for c in known]
    assert max(sizes) - min(sizes) <= 1
    assert learner.memory() == (len(memory), 108 * len(memory))


def test_gdumb_draws_the_member_that_makes_room():
    gone = np.zeros(10, int)
    for seed in range(120):
        learner = GDumb(model="linear", capacity=10, seed=seed)
        for id in range(11):
            learner.learn_one(IMAGES[0], int(id == 10), id=id)
        gone[list(set(range(10)) - set(learner.tasks[None].buffer.index.ids.view.tolist()))] += 1
    assert gone.sum() == 120
    assert ((gone - 12) ** 2 / 12).sum() < 27.9  # chi-squared with 9 degrees of freedom, p = 0.001


def test_gdumb_trains_on_its_buffer_from_scratch():
    learner = GDumb(model="mlp", capacity=9, epochs=2)
    stream(learner, 0, 1)
    learner.end_batch()
    stream(learner, 2)
    learner.end_batch()
    rows = learner.tasks[None].buffer.index.ids.view.astype(int)
    recipe = OfflineRecipe(epochs=2, batch=16, rate=0.05, weight_decay=1e-6)
    assert same(weights(learner), by_hand(IMAGES[rows], LABELS[rows], recipe, 0))
    assert sorted(np.bincount(LABELS[rows])) == [3, 3, 3]


def test_gdumbs_capacity_in_bytes_is_as_many_whole_images():
    learner = GDumb(model="linear", capacity="800B")
    stream(learner, 0, 1, 2)
    assert learner.memory() == (7, 7 * 108)


def test_batches_end_in_inference_mode_and_in_bfloat16_too():
    with torch.inference_mode():
        learner = ICaRL(model="mlp", epochs=1, precision="bfloat16")
        stream(learner, 0, 1)
        learner.end_batch()
        stream(learner, 2)
        learner.end_batch()
        assert learner.classes_ == list(NAMES)


@pytest.mark.parametrize("kind", [ICaRL, EndToEnd])
def test_a_network_that_diverged_is_not_taken(kind):
    learner = kind(model="mlp", exemplars=4, epochs=3, batch=8, rate=1e30)
    for image, label in zip(IMAGES, LABELS, strict=True):
        learner.learn_one(image, label)
    before, held = learner.fingerprint(), learner.memory()
    with pytest.raises(FloatingPointError, match="lower rate"):
        learner.end_batch()
    assert (learner.fingerprint(), learner.memory()) == (before, held)


@pytest.mark.parametrize("kind", [ICaRL, EndToEnd])
def test_an_interruption_while_exemplars_are_chosen_changes_nothing(kind, monkeypatch):
    def taught():
        learner = kind(model="mlp", exemplars=6, epochs=2, batch=8, rate=0.1)
        for image, label in zip(IMAGES, LABELS, strict=True):
            learner.learn_one(image, label)
        return learner

    straight, stopped = taught(), taught()
    straight.end_batch()
    before = stopped.fingerprint()
    with monkeypatch.context() as patch:
        patch.setattr("coldstream.learners.exemplars.herd", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            stopped.end_batch()
    assert stopped.fingerprint() == before
    stopped.end_batch()
    assert stopped.fingerprint() == straight.fingerprint()
