"""The open class set: growing heads, labels of every kind, and editing."""

import tracemalloc

import numpy as np
import pytest
import torch

from coldstream import CSSL, ColdStart
from coldstream.labels import as_label


def images(count, seed=0, side=8):
    return np.random.default_rng(seed).integers(0, 256, (count, side, side, 3), dtype=np.uint8)


def taught(count=12, classes=3, **settings):
    learner = CSSL(**{"replay": 6, "model": "linear", "augment": "none", **settings})
    for i, image in enumerate(images(count)):
        learner.learn_one(image, f"c{i % classes}")
    return learner


def test_growing_keeps_rows_and_momentum_and_logits():
    learner = taught(model="resnet8-16")
    engine, head = learner.engine, learner.tasks[None].head
    before = engine.state() | head.state()
    probe = images(5, seed=1)
    logits = engine.logits(head, probe)
    head.grow(7)
    after = engine.state() | head.state()
    for name in ("model.weight", "model.bias", "momentum.weight", "momentum.bias"):
        assert len(after[name]) == 7
        assert after[name][:3].tobytes() == before[name].tobytes()
    assert not after["momentum.weight"][3:].any()
    for name in before.keys() - {"model.weight", "model.bias", "momentum.weight", "momentum.bias"}:
        assert after[name].tobytes() == before[name].tobytes()
    np.testing.assert_allclose(engine.logits(head, probe)[:, :3], logits, rtol=0, atol=1e-6)


def test_a_grown_head_starts_like_a_whole_one():
    grown, whole = ColdStart(replay=2, model="linear"), ColdStart(replay=2, model="linear", classes=3)
    image = images(1)[0]
    whole.learn_one(image, "a")
    grown.learn_one(image, "a")
    grown.tasks[None].head.grow(3)
    fresh = [learner.tasks[None].head.weight[1:] for learner in (grown, whole)]
    initial = whole.tasks[None].head._row(1)[:-1]
    np.testing.assert_allclose(fresh[0][0].detach(), initial, rtol=0, atol=1e-7)
    assert torch.allclose(fresh[0], fresh[1], atol=0.1)


def test_fixed_class_count_masks_what_was_not_seen():
    learner = ColdStart(replay=2, model="linear", classes=3)
    pictures = images(4)
    learner.learn_one(pictures[0], "a")
    assert learner.predict_proba_one(pictures[1]) == {"a": 1.0}
    learner.learn_one(pictures[1], "b")
    assert sum(learner.predict_proba_one(pictures[1]).values()) == pytest.approx(1)
    assert learner.tasks[None].head.rows == 3
    learner.learn_one(pictures[2], "c")
    before = learner.fingerprint()
    with pytest.raises(ValueError, match="class 4 of a learner made for classes=3"):
        learner.learn_one(pictures[3], "d")
    with pytest.raises(ValueError, match="'e' would be class 4"):
        learner.learn_many(pictures, ["a", "e", "b", "a"])
    assert learner.fingerprint() == before


@pytest.mark.parametrize(
    ("given", "plain"),
    [
        (np.int32(3), 3),
        (np.str_("x"), "x"),
        (np.bool_(True), True),
        (torch.tensor(4), 4),
        (torch.tensor(True), True),
        (np.array(5), 5),
        ((np.int64(1), "a", (True,)), (1, "a", (True,))),
    ],
)
def test_labels_are_made_plain(given, plain):
    assert as_label(given) == plain
    assert type(as_label(given)) is type(plain)


@pytest.mark.parametrize(
    "bad", [None, 1.0, np.float32(1), torch.tensor(1.5), b"x", ["a"], {"a"}, (), (1.0,), object()]
)
def test_other_labels_are_refused(bad):
    with pytest.raises(ValueError, match="a label is a str, int or bool"):
        as_label(bad)


def test_true_and_one_cannot_be_two_classes():
    learner = ColdStart(replay=2, model="linear")
    learner.learn_one(images(1)[0], 1)
    with pytest.raises(ValueError, match="cannot be told from"):
        learner.learn_one(images(1)[0], True)
    with pytest.raises(ValueError, match="cannot be told from"):
        ColdStart(replay=2, model="linear").learn_many(images(2), [(0, True), (0, 1)])


def test_relabel_changes_the_buffer_not_the_weights():
    learner = taught()
    head = learner.tasks[None].head
    weights, body = head.state(), learner.engine.state()
    assert learner.relabel(0, "new") is True
    assert learner.tasks[None].buffer.label_of(0) == 3
    assert learner.classes_ == ["c0", "c1", "c2", "new"]
    assert head.state()["model.weight"][:3].tobytes() == weights["model.weight"].tobytes()
    assert all(value.tobytes() == body[name].tobytes() for name, value in learner.engine.state().items())
    assert learner.relabel(999, "c0") is False
    with pytest.raises(ValueError, match="a label is"):
        learner.relabel(0, 1.5)


def test_relabelling_the_only_example_retires_its_class():
    learner = taught(3, 3)
    learner.relabel(2, "c0")
    assert learner.classes_ == ["c0", "c1"]
    learner.learn_one(images(1)[0], "c2")
    assert learner.classes_ == ["c0", "c1", "c2"]


def test_edits_of_evicted_examples_change_nothing():
    learner = taught(30, capacity=5)
    gone = next(id for id in range(30) if learner.tasks[None].buffer.label_of(id) is None)
    before = learner.fingerprint()
    assert learner.relabel(gone, "c1") is False
    assert learner.forget(gone) is False
    assert learner.fingerprint() == before


def test_forget_removes_from_the_buffer():
    learner = taught()
    stored = len(learner.tasks[None].buffer)
    assert learner.forget(4) is True
    assert len(learner.tasks[None].buffer) == stored - 1
    assert learner.tasks[None].buffer.label_of(4) is None
    assert learner.forget(4) is False


def test_forgetting_a_source_removes_the_consolidated_entry():
    learner = taught(20, capacity=6, evict="consolidate-mixup(1.0)")
    entry, blend = next(iter(learner.tasks[None].buffer.blends.items()))
    source = next(id for id, _, _ in blend.sources if id != entry)
    stored = len(learner.tasks[None].buffer)
    assert learner.forget(source) is True
    assert len(learner.tasks[None].buffer) == stored - 1
    assert learner.tasks[None].buffer.label_of(entry) is None


@pytest.mark.parametrize("id", ["photo-7.jpg", "é", "", 12, 2**60])
def test_ids_of_the_user(id):
    learner = taught()
    assert learner.learn_one(images(1)[0], "c0", id=id) == id
    assert learner.relabel(id, "c2") is True
    assert learner.tasks[None].buffer.label_of(2) is not None
    stored = len(learner.tasks[None].buffer)
    learner.learn_one(images(1)[0], "c1", id=id)
    assert len(learner.tasks[None].buffer) == stored  # the same id again overwrites
    assert learner.forget(id) is True


def test_numbers_given_by_the_learner_never_meet_the_users():
    learner = ColdStart(replay=2, model="linear")
    pictures = images(4)
    given = [
        learner.learn_one(pictures[0], "a"),
        learner.learn_one(pictures[1], "a", id=10),
        learner.learn_one(pictures[2], "a"),
        learner.learn_one(pictures[3], "a", id="x"),
        learner.learn_one(pictures[3], "a"),
    ]
    assert given == [0, 10, 11, "x", 12]
    assert len(learner.tasks[None].buffer) == 5


def test_undo_takes_the_last_label_back():
    learner = taught()
    typo = learner.learn_one(images(1)[0], "brid")
    assert "brid" in learner.classes_
    assert learner.undo() == typo
    assert "brid" not in learner.classes_
    assert "brid" not in learner.predict_proba_one(images(1)[0])
    with pytest.raises(ValueError, match="nothing to undo"):
        learner.undo()
    learner.learn_one(images(1)[0], "brid")
    assert learner.classes_[-1] == "brid"
    assert learner.tasks[None].head.rows == 4  # the row it had is used again


def test_a_class_may_be_opened_where_torch_infers_only():
    learner = ColdStart(size=8, replay=4, channels=3)
    first, second = images(2)
    id = learner.learn_one(first, "a")
    with torch.inference_mode():
        learner.relabel(id, "b")
    learner.learn_one(second, "a")
    assert learner.classes_ == ["a", "b"]


def test_undo_of_an_example_that_was_evicted_at_once():
    learner = taught(12, 2, capacity=1, evict="reservoir")
    for i in range(50):  # a reservoir of one soon drops a new example
        id = learner.learn_one(images(1)[0], f"rare {i}")
        if learner.tasks[None].buffer.label_of(id) is None:
            break
    assert learner.classes_[-1] == f"rare {i}"
    learner.undo()
    assert f"rare {i}" not in learner.classes_


def test_rename():
    learner = taught()
    probe = images(3, seed=2)
    before = learner.predict_proba_many(probe)
    learner.rename_class("c1", "bird")
    assert learner.classes_ == ["c0", "bird", "c2"]
    np.testing.assert_array_equal(learner.predict_proba_many(probe), before)
    learner.learn_one(probe[0], "bird")
    assert learner.classes_ == ["c0", "bird", "c2"]
    learner.learn_one(probe[0], "c1")  # the old name is free, and a class of its own now
    assert learner.classes_ == ["c0", "bird", "c2", "c1"]
    with pytest.raises(ValueError, match="use merge_classes"):
        learner.rename_class("c0", "bird")
    with pytest.raises(ValueError, match="there is no class 'dog'"):
        learner.rename_class("dog", "cat")


def test_merge_adds_probabilities_and_moves_examples():
    learner = taught()
    probe = images(3, seed=2)
    before = learner.predict_proba_many(probe)
    learner.merge_classes("c2", "c0")
    assert learner.classes_ == ["c0", "c1"]
    after = learner.predict_proba_many(probe)
    np.testing.assert_allclose(after, np.stack([before[:, 0] + before[:, 2], before[:, 1]], axis=1))
    assert not len(learner.tasks[None].buffer.index.members[2])
    learner.learn_one(probe[0], "c2")  # the merged label is now another name of c0
    assert learner.classes_ == ["c0", "c1"]
    assert learner.tasks[None].classes.counts[:2] == [9, 4]
    with pytest.raises(ValueError, match="into itself"):
        learner.merge_classes("c2", "c0")


def test_edits_survive_save_and_load(tmp_path):
    learner = taught(20, capacity=9, evict="consolidate-cutmix(1.0)")
    learner.rename_class("c1", ("bird", 1))
    learner.merge_classes("c2", "c0")
    learner.learn_one(images(1)[0], "typo")
    learner.save(tmp_path / "kept")
    loaded = CSSL.load(tmp_path / "kept")
    assert loaded.classes_ == learner.classes_ == ["c0", ("bird", 1), "typo"]
    assert loaded.undo() == learner.undo() == 20
    for one in (learner, loaded):
        one.learn_one(images(1, seed=5)[0], "c2")
    assert loaded.fingerprint() == learner.fingerprint()


def test_forget_then_undo_counts_once():
    learner = taught(4, 1)
    learner.forget(3)
    with pytest.raises(ValueError, match="nothing to undo"):
        learner.undo()
    assert learner.tasks[None].classes.counts == [3]
    assert learner.classes_ == ["c0"]


def test_undo_after_a_merge_counts_for_the_class_merged_into():
    learner = taught(6, 2)
    learner.merge_classes("c1", "c0")
    learner.tasks[None].buffer.forget(5)  # as if it had been evicted
    learner.undo()
    assert learner.tasks[None].classes.counts == [5, 0]


def test_a_merge_in_the_wrong_direction_can_be_turned():
    learner = taught()
    learner.merge_classes("c1", "c0")
    with pytest.raises(ValueError, match="was merged into 'c0'"):
        learner.rename_class("c1", "other")
    learner.rename_class("c0", "c1")
    assert learner.classes_ == ["c1", "c2"]
    learner.learn_one(images(1)[0], "c0")  # still another name of the same class
    assert learner.classes_ == ["c1", "c2"]


def test_renaming_keeps_the_counts_of_the_schedule():
    learner = ColdStart(model="linear", replay=2, rate="linear(0.1, 0.001)", counts={"a": 5, "b": 5})
    learner.learn_one(images(1)[0], "a")
    learner.rename_class("a", "c")
    learner.learn_one(images(1)[0], "c")
    with pytest.raises(ValueError, match="label 'd' is not among the counts"):
        learner.learn_one(images(1)[0], "d")


def test_the_largest_id_leaves_room_for_the_next():
    learner = ColdStart(model="linear", replay=2)
    learner.learn_one(images(1)[0], "a", id=2**61 - 1)
    assert learner.forget(learner.learn_one(images(1)[0], "a")) is True
    with pytest.raises(ValueError, match="an id is"):
        learner.learn_one(images(1)[0], "a", id=2**61)


def test_thousands_of_classes_stay_cheap():
    """No matrix of classes by classes is made anywhere."""
    learner = CSSL(model="linear", replay=4, classes=5000, size=2, augment="none")
    tracemalloc.start()
    for i, image in enumerate(images(5, side=2)):
        learner.learn_one(image, i)
    learner.predict_proba_many(images(3, side=2))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20e6
