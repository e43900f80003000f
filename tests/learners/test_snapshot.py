"""A snapshot answers as its learner did, whatever that one does next, and does nothing else."""

import gc
import weakref

import numpy as np
import pytest
import torch
from torch import nn

from coldstream import CSSL, ColdStart


def images(count, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (count, 8, 8, 3), dtype=np.uint8)


def taught(**settings):
    learner = ColdStart(**{"replay": 6, "augment": "crop", **settings})
    for i, image in enumerate(images(12)):
        learner.learn_one(image, ("c", i % 3))
    return learner


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten())

    def forward(self, x):
        return self.layers(x)


@pytest.mark.parametrize("model", ["resnet8-16", Net(), lambda: Net()], ids=["named", "object", "function"])
@pytest.mark.parametrize("more", [{}, {"rate": "linear(0.1, 0.01)", "counts": {("c", i): 9 for i in range(3)}}])
def test_the_same_bits_however_the_learner_goes_on(model, more):
    learner, probe = taught(model=model, **more), images(9, seed=1)
    learner.merge_classes(("c", 2), ("c", 1))
    before, fingerprint = learner.predict_proba_many(probe), learner.fingerprint()
    snapshot = learner.snapshot()
    assert snapshot.predict_proba_many(probe).tobytes() == before.tobytes()
    assert learner.fingerprint() == fingerprint
    learner.rename_class(("c", 0), "zero") if more else learner.learn_one(probe[0], "new")
    learner.learn_one(probe[1], ("c", 1))
    assert snapshot.predict_proba_many(probe).tobytes() == before.tobytes()
    assert snapshot.classes_ == [("c", 0), ("c", 1)]
    assert learner.predict_proba_many(probe).tobytes() != before.tobytes()


def test_nothing_that_changes_is_shared(tmp_path):
    """Spoiling every array of the snapshot leaves the learner as it was; its buffer is not copied, nor its files."""
    learner = taught(storage=f"disk:{tmp_path}")
    files = sorted(tmp_path.rglob("*"))
    fingerprint = learner.fingerprint()
    snapshot = learner.snapshot()
    assert len(snapshot.tasks[None].buffer) == 0
    assert sorted(tmp_path.rglob("*")) == files
    with torch.no_grad():
        task, engine = snapshot.tasks[None], snapshot.engine
        modules = (engine.body, engine.average.body, task.head)
        tensors = [tensor for module in modules for tensor in module.state_dict().values()]
        for tensor in (
            *tensors,
            *engine.velocity.values(),
            *task.head.velocity.values(),
            *task.head.average.values(),
        ):
            tensor.zero_()
    task.classes.counts.clear()
    task.confidence.held.append(7)
    assert learner.fingerprint() == fingerprint


def test_it_only_answers(tmp_path):
    learner = taught(model="linear")
    snapshot, (image,) = learner.snapshot(), images(1)
    for act in (
        lambda: snapshot.learn_one(image, "x"),
        lambda: snapshot.learn_many([image], ["x"]),
        lambda: snapshot.base_init(None),
        lambda: snapshot.rehearse(),
        lambda: snapshot.end_batch(),
        lambda: snapshot.relabel(0, "x"),
        lambda: snapshot.forget(0),
        lambda: snapshot.undo(),
        lambda: snapshot.rename_class(("c", 0), "x"),
        lambda: snapshot.merge_classes(("c", 0), ("c", 1)),
        lambda: snapshot.save(tmp_path / "kept"),
    ):
        with pytest.raises(ValueError, match="a snapshot only answers"):
            act()
    assert not (tmp_path / "kept").exists()
    assert ColdStart().snapshot().predict_one(image) is None
    assert snapshot.snapshot().predict_proba_one(image) == learner.predict_proba_one(image)


@pytest.mark.parametrize("kind", [CSSL, ColdStart])
def test_a_learner_is_freed_when_nobody_has_it(kind):
    """At once: a cycle would keep its buffer until the garbage collector comes."""
    learner = kind(size=8, replay=4, channels=3)
    learner.learn_many(np.zeros((6, 8, 8, 3), np.uint8), [0, 1] * 3)
    gone = [weakref.ref(learner), weakref.ref(learner.tasks[None].buffer), weakref.ref(learner.snapshot())]
    gc.disable()
    try:
        del learner
        assert [one() for one in gone] == [None] * 3
    finally:
        gc.enable()
