"""An exported network answers as its learner does."""

import json

import numpy as np
import pytest
import torch
from torch import nn

from coldstream import CSSL, ColdStart
from coldstream.learners import ER, DeepSLDA, GDumb, ICaRL
from coldstream.learners.exporting import answer

IMAGES = np.random.default_rng(0).integers(0, 256, (40, 8, 8, 3), np.uint8)
LABELS = [("cat", True), "dog", 3, "bird"] * 10
SMALL = {"model": "linear", "size": 8}


def taught(learner, images=IMAGES, **named):
    for image, label in zip(images, LABELS, strict=True):
        learner.learn_one(image, label, **named)
    return learner


def answers_of(learner, images=IMAGES, task=None):
    network, _ = answer(learner, task)
    with torch.no_grad():
        return network(torch.from_numpy(images)).numpy()


def edited():
    learner = taught(ColdStart(**SMALL))
    learner.merge_classes("dog", "bird")
    for id in range(2, 40, 4):
        learner.forget(id)  # a class without examples is not predicted
    return learner


def with_tasks():
    learner = CSSL(**SMALL)
    for task in ("one", "two"):
        taught(learner, task=task)
    return learner


LEARNERS = {
    "cold-start": lambda: taught(ColdStart(**SMALL)),
    "cold-start, convolutions": lambda: taught(ColdStart(model="resnet8-16", replay=4)),
    "cold-start, float64": lambda: taught(ColdStart(model="resnet8-16", replay=4, precision="float64")),
    "cold-start, no average": lambda: taught(ColdStart(**SMALL, average=False)),
    "cold-start, one class": lambda: one_class(),
    "cold-start, edited": edited,
    "cold-start, ImageNet's normalisation": lambda: taught(ColdStart(**SMALL, normalize="imagenet")),
    "er": lambda: taught(ER(**SMALL)),
    "deep-slda": lambda: taught(DeepSLDA(**SMALL, init="random")),
    "grey": lambda: taught(ColdStart(**SMALL, channels=1)),
}


def one_class():
    learner = ColdStart(**SMALL)
    learner.learn_one(IMAGES[0], "only")
    return learner


@pytest.mark.parametrize("make", LEARNERS.values(), ids=LEARNERS)
def test_the_graph_answers_as_the_learner(make):
    learner = make()
    before = learner.fingerprint()
    images = IMAGES if learner.shape[2] == 3 else IMAGES[:, :, :, :1]
    expected = learner.predict_proba_many(images)
    np.testing.assert_allclose(answers_of(learner, images), expected, rtol=0, atol=1e-5)
    assert learner.fingerprint() == before
    learner.learn_one(IMAGES[0], learner.classes_[0])  # the module is a copy: learning goes on


def test_each_task_has_its_own_graph():
    learner = with_tasks()
    for task in ("one", "two"):
        expected = learner.predict_proba_many(IMAGES, task=task)
        np.testing.assert_allclose(answers_of(learner, task=task), expected, rtol=0, atol=1e-5)
    with pytest.raises(ValueError, match="this learner has tasks"):
        learner.export("never.pt2")


def test_vectors():
    vectors = np.random.default_rng(1).normal(size=(40, 6)).astype(np.float32)
    learner = taught(CSSL(items="vectors", model="linear", augment="none"), vectors)
    np.testing.assert_allclose(answers_of(learner, vectors), learner.predict_proba_many(vectors), atol=1e-5)


def test_the_pt2_file(tmp_path):
    learner = taught(ColdStart(**SMALL))
    learner.export(tmp_path / "model.pt2")
    extra = {"coldstream.json": ""}
    program = torch.export.load(tmp_path / "model.pt2", extra_files=extra)
    described = json.loads(extra["coldstream.json"])
    assert described["classes"] == [["cat", True], "dog", 3, "bird"]
    assert described["input"] == {"shape": ["batch", 8, 8, 3], "dtype": "uint8"}
    for count in (1, 3, 40):
        expected = learner.predict_proba_many(IMAGES[:count])
        np.testing.assert_allclose(program.module()(torch.from_numpy(IMAGES[:count])), expected, atol=1e-5)
    assert [file.name for file in tmp_path.iterdir()] == ["model.pt2"]


def test_the_onnx_file(tmp_path):
    runtime = pytest.importorskip("onnxruntime")
    learner = taught(ColdStart(model="resnet8-16", replay=4))
    learner.export(tmp_path / "model.onnx")
    session = runtime.InferenceSession(tmp_path / "model.onnx")
    described = session.get_modelmeta().custom_metadata_map
    assert json.loads(described["classes"]) == [["cat", True], "dog", 3, "bird"]
    assert json.loads(described["preparation"])["channels"] == "RGB"
    for count in (1, 40):
        (answers,) = session.run(["probabilities"], {"images": IMAGES[:count]})
        np.testing.assert_allclose(answers, learner.predict_proba_many(IMAGES[:count]), rtol=0, atol=1e-5)
    assert [file.name for file in tmp_path.iterdir()] == ["model.onnx"]


@pytest.mark.slow
@pytest.mark.parametrize("model", ["resnet18-20", "mobilenet-small", "densenet-small"])
@pytest.mark.parametrize("learner", [ColdStart, DeepSLDA], ids=lambda learner: learner.__name__)
def test_onnx_files_of_other_networks(learner, model, tmp_path):
    runtime = pytest.importorskip("onnxruntime")
    learner = learner(model=model, size=16, **({"init": "random"} if learner is DeepSLDA else {"replay": 8}))
    taught(learner).export(tmp_path / "model.onnx")
    session = runtime.InferenceSession(tmp_path / "model.onnx")
    images = np.random.default_rng(2).integers(0, 256, (9, 16, 16, 3), np.uint8)
    (answers,) = session.run(["probabilities"], {"images": images})
    np.testing.assert_allclose(answers, learner.predict_proba_many(images), rtol=0, atol=1e-5)


def test_what_cannot_be_exported(tmp_path):
    learner = ColdStart(**SMALL)
    with pytest.raises(ValueError, match="no class yet: nothing was learned"):
        learner.export(tmp_path / "model.pt2")
    taught(learner)
    with pytest.raises(ValueError, match=r"NAME.onnx or NAME.pt2, not 'model.tflite'"):
        learner.export("model.tflite")
    with pytest.raises(ValueError, match="there is no folder"):
        learner.export(tmp_path / "nowhere" / "model.pt2")
    assert not [*tmp_path.iterdir()]


def test_an_own_network_that_cannot_be_traced(tmp_path):
    class Branching(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(192, 4)

        def forward(self, x):
            return self.layer(x.flatten(1)) if float(x.sum()) > 0 else self.layer(-x.flatten(1))

    learner = taught(ColdStart(model=lambda: Branching(), size=8))
    with pytest.raises(ValueError, match=r"this network cannot be exported to \.pt2"):
        learner.export(tmp_path / "model.pt2")
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("kind", [ICaRL, GDumb])
def test_methods_that_answer_in_another_way_refuse(kind, tmp_path):
    learner = taught(kind(**SMALL, epochs=1))
    learner.end_batch()
    with pytest.raises(ValueError, match=f"{kind.__name__} does not answer with a network and one linear layer"):
        learner.export(tmp_path / "model.pt2")


def test_a_subclass_with_other_answers_is_refused(tmp_path):
    class Sharper(ColdStart):
        def _logits(self, task, items):
            return 2 * super()._logits(task, items)

    with pytest.raises(ValueError, match="Sharper does not answer"):
        taught(Sharper(**SMALL)).export(tmp_path / "model.pt2")
