"""One update against torch's own optimiser; layouts and precisions; base initialisation and offline training."""

import math
from collections import OrderedDict

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from coldstream import CSSL, ColdStart
from coldstream.data import Dataset, digits
from coldstream.learners import OfflineRecipe
from coldstream.learners.training.engine import Engine
from coldstream.models import Body, Head


def batch(seed, rows=9, classes=4):
    rng = torch.Generator().manual_seed(seed)
    targets = torch.softmax(torch.randn(rows, classes, generator=rng), 1)
    return torch.randn(rows, 3, 8, 8, generator=rng), targets


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_updates_are_those_of_torch_sgd(precision):
    engine = Engine(
        Body.build("resnet8-16", (3, 8, 8), 0),
        momentum=0.9,
        weight_decay=1e-3,
        precision=precision,
        memory_format="contiguous",
    )
    dtype = torch.float64 if precision == "float64" else torch.float32
    head = engine.new_head(0, 4)
    body = Body.build("resnet8-16", (3, 8, 8), 0)
    other = torch.nn.Sequential(OrderedDict(body=body.module, head=Head(body.features, 0, 4))).to(dtype)
    optimizer = torch.optim.SGD(other.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-3, fused=True)
    for step in range(5):
        images, targets = (tensor.to(dtype) for tensor in batch(step))
        rate = 0.1 / (1 + step)
        engine.update(head, images, targets, rate, 0, step)
        optimizer.param_groups[0]["lr"] = rate
        optimizer.zero_grad()
        loss = -(targets * F.log_softmax(other(images), 1)).sum(1).mean()  # the mean over the batch, spelled out
        loss.backward()
        optimizer.step()
    for one, two in zip((*engine.body.parameters(), *head.parameters()), other.parameters(), strict=True):
        torch.testing.assert_close(one, two, rtol=0, atol=1e-6)
    state = engine.state() | {name.replace(".", ".head.", 1): value for name, value in head.state().items()}
    for name, parameter in other.named_parameters():
        velocity = optimizer.state[parameter]["momentum_buffer"].numpy()
        np.testing.assert_allclose(state[f"momentum.{name}"], velocity, rtol=0, atol=1e-5)


def test_without_momentum_a_step_is_the_gradient(tmp_path):
    engine = Engine(Body.build("linear", (3, 8, 8), 0), momentum=0, weight_decay=0.5)
    head = engine.new_head(0, 4)
    for step in range(2):
        images, targets = batch(step)
        weight = head.weight.detach().clone()
        x = images.flatten(1)
        error = torch.softmax(x @ weight.T + head.bias.detach(), 1) - targets
        engine.update(head, images, targets, 0.1, 0, step)
        wanted = weight - 0.1 * (error.T @ x / len(x) + 0.5 * weight)
        torch.testing.assert_close(head.weight.detach(), wanted)
    assert not [name for name in (*engine.state(), *head.state()) if name.startswith("momentum.")]
    learner = ColdStart(model="linear", momentum=0, size=8)
    learner.learn_one(np.zeros((8, 8, 3), np.uint8), 0)
    learner.save(tmp_path / "learner")
    assert ColdStart.load(tmp_path / "learner").fingerprint() == learner.fingerprint()


def test_memory_formats_agree_within_rounding():
    images = np.random.default_rng(0).integers(0, 256, (20, 8, 8, 3), dtype=np.uint8)
    tables = []
    for memory_format in ("contiguous", "channels_last"):
        learner = ColdStart(replay=5, memory_format=memory_format, precision="float64")
        learner.learn_many(images, [i % 3 for i in range(20)])
        tables.append(learner.predict_proba_many(images))
    np.testing.assert_allclose(tables[0], tables[1], atol=1e-7)


def test_normalisation_by_hand():
    engine = Engine(Body.build("linear", (3, 2, 2), 0), momentum=0, weight_decay=0, normalize="imagenet")
    pixels = np.array([[[[0, 128, 255]] * 2] * 2], np.uint8)
    values = engine.normalise(engine.to_device(pixels))[0, :, 0, 0]
    expected = [(0 - 0.485) / 0.229, (128 / 255 - 0.456) / 0.224, (1 - 0.406) / 0.225]
    np.testing.assert_allclose(values, expected, rtol=1e-5)
    engine = Engine(Body.build("linear", (1, 2, 2), 0), momentum=0, weight_decay=0, normalize=((0.2,), (0.5,)))
    assert engine.normalise(engine.to_device(np.full((1, 2, 2, 1), 255, np.uint8))).max() == pytest.approx(1.6)


def test_offline_rates():
    recipe = OfflineRecipe(epochs=200)
    assert recipe.rate_at(0) == 0.1
    assert recipe.rate_at(100) == pytest.approx(0.05)
    assert recipe.rate_at(199) == pytest.approx(0.05 * (1 + math.cos(math.pi * 199 / 200)))
    falling = OfflineRecipe(epochs=40, rate=0.01, drops=(15, 30))  # as the paper's on CORe50
    assert [falling.rate_at(e) for e in (0, 14, 15, 29, 30, 39)] == pytest.approx(
        [0.01, 0.01, 0.001, 0.001, 0.0001, 0.0001]
    )


def small_digits(per_class, classes):
    train, _ = digits()
    keep = np.concatenate([np.flatnonzero(train.labels == c)[:per_class] for c in range(classes)])
    return train.take(keep)


def test_base_initialisation_learns_and_streaming_goes_on(tmp_path):
    base = small_digits(40, 3)
    recipe = OfflineRecipe(epochs=6, batch=32, augment="crop")
    learner = CSSL(replay=10, augment="crop")
    learner.base_init(base, recipe)
    assert learner.classes_ == ["0", "1", "2"]
    assert learner.step == len(learner.tasks[None].buffer) == 0
    guesses = learner.predict_many(base.images)
    assert np.mean([guess == base.names[label] for guess, label in zip(guesses, base.labels, strict=True)]) > 0.9
    again = CSSL(replay=10, augment="crop")
    again.base_init(base, recipe)
    assert again.fingerprint() == learner.fingerprint()
    learner.save(tmp_path / "base")
    loaded = CSSL.load(tmp_path / "base")
    for one in (learner, loaded):
        one.learn_one(base.images[0], "new")
    assert learner.classes_ == ["0", "1", "2", "new"]
    assert loaded.fingerprint() == learner.fingerprint()


def test_init_takes_a_dataset():
    base = small_digits(4, 2)
    learner = ColdStart(model="linear", init=base, replay=2)
    assert learner.classes_ == ["0", "1"]


def test_wrong_base_initialisation():
    empty = Dataset("empty", np.zeros((0, 8, 8, 1), np.uint8), np.zeros(0, np.int64), ("a",))
    learner = ColdStart(model="linear")
    before = learner.fingerprint()
    with pytest.raises(ValueError, match="at least one example"):
        learner.base_init(empty)
    with pytest.raises(ValueError, match="made for classes=1"):
        ColdStart(classes=1).base_init(small_digits(2, 2))
    assert learner.fingerprint() == before
    with pytest.raises(ValueError, match="2 images but 1 labels"):
        Dataset("wrong", np.zeros((2, 8, 8, 1), np.uint8), np.zeros(1, np.int64), ("a",))
    with pytest.raises(ValueError, match="indices into its 1 names"):
        Dataset("wrong", np.zeros((2, 8, 8, 1), np.uint8), np.array([0, 1]), ("a",))


def test_own_dropout_draws_from_its_own_generator():
    def make():
        return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Dropout(0.5), torch.nn.Linear(192, 8))

    states = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        learner = ColdStart(model=make, replay=3)
        learner.learn_many(np.random.default_rng(0).integers(0, 256, (6, 8, 8, 3), dtype=np.uint8), [0, 1] * 3)
        states.append(learner.fingerprint())
    assert states[0] == states[1]


def test_random_layers_of_any_kind_draw_from_their_own_generator():
    def make():
        return torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.RReLU(), torch.nn.Flatten())

    pictures = np.random.default_rng(0).integers(0, 256, (6, 8, 8, 3), dtype=np.uint8)
    states = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        learner = ColdStart(model=make, replay=3)
        learner.learn_many(pictures, [0, 1] * 3)
        states.append(learner.fingerprint())
    assert states[0] == states[1]


class Scaled(torch.nn.Module):
    """A network with a parameter that is a single number."""

    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 4, 3)
        self.scale = torch.nn.Parameter(torch.tensor(1.0))

    def forward(self, x):
        return self.conv(x).mean((2, 3)) * self.scale


def test_scalar_parameters(tmp_path):
    learner = ColdStart(model=lambda: Scaled(), replay=3)
    pictures = np.random.default_rng(0).integers(0, 256, (6, 8, 8, 3), dtype=np.uint8)
    learner.learn_many(pictures, [0, 1, 2] * 2)
    learner.save(tmp_path / "kept")
    assert ColdStart.load(tmp_path / "kept", model=lambda: Scaled()).fingerprint() == learner.fingerprint()


def test_a_module_given_is_not_trained_itself():
    net = Scaled()
    before = net.conv.weight.clone()
    pictures = np.random.default_rng(0).integers(0, 256, (4, 8, 8, 3), dtype=np.uint8)
    one, two = ColdStart(model=net, replay=3), ColdStart(model=net, replay=3)
    one.learn_many(pictures, [0, 1] * 2)
    assert torch.equal(net.conv.weight, before)
    two.learn_many(pictures, [0, 1] * 2)
    assert one.fingerprint() == two.fingerprint()


def test_an_interrupted_step_leaves_no_gradient_behind():
    pictures = np.random.default_rng(0).integers(0, 256, (4, 8, 8, 3), dtype=np.uint8)
    learners = [ColdStart(model="linear", replay=0), ColdStart(model="linear", replay=0)]
    for learner in learners:
        learner.learn_one(pictures[0], "a")
    head = learners[0].tasks[None].head
    head.weight.grad = torch.ones_like(head.weight)
    for learner in learners:
        learner.learn_one(pictures[1], "a")
    assert learners[0].fingerprint() == learners[1].fingerprint()


def test_learning_inside_inference_mode():
    pictures = np.random.default_rng(0).integers(0, 256, (4, 8, 8, 3), dtype=np.uint8)
    learner, other = ColdStart(model="linear", replay=3), ColdStart(model="linear", replay=3)
    with torch.inference_mode():
        learner.learn_many(pictures, [0, 1, 0, 1])
    other.learn_many(pictures, [0, 1, 0, 1])
    assert learner.fingerprint() == other.fingerprint()


def test_a_wrong_recipe_changes_nothing():
    learner = ColdStart(model="linear")
    before = learner.fingerprint()
    with pytest.raises(ValueError, match="unknown augmentation"):
        learner.base_init(small_digits(2, 2), OfflineRecipe(augment="bogus"))
    assert learner.fingerprint() == before
