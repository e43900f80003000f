"""REMIND against its description: one step by hand, what is stored, what never changes."""

import copy
from collections import OrderedDict

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from coldstream.augment.crops import ResizedCrop
from coldstream.data import Dataset
from coldstream.learners import REMIND, OfflineRecipe
from coldstream.learners.properties import built
from coldstream.randomness import generator
from coldstream.replay.codecs import Codec

RNG = np.random.default_rng(0)
NAMES = ("ash", "beech", "cedar")
LABELS = np.arange(30) % 3
IMAGES = (60 * LABELS[:, None, None, None] + RNG.integers(0, 60, (30, 12, 12, 3))).astype(np.uint8)
BASE = Dataset("base", IMAGES[LABELS < 2], LABELS[LABELS < 2], NAMES)
SHORT = OfflineRecipe(epochs=3, batch=10, rate=0.01, augment="none")


def network():
    """Maps of 8x4x4."""
    frozen = nn.Sequential(nn.Conv2d(3, 8, 3, 3), nn.BatchNorm2d(8), nn.ReLU())
    plastic = nn.Sequential(nn.Conv2d(8, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    return nn.Sequential(OrderedDict(frozen=frozen, plastic=plastic))


def remind(**settings):
    learner = REMIND(**{"model": network, "replay": 4, "centroids": 16, "codebooks": 4, **settings})
    learner.base_init(BASE, SHORT)
    return learner


class ByHand:
    """The method on paper: loops over maps and codebooks, torch's interpolation, SGD as a formula."""

    def __init__(self, learner, extra=False):
        body = copy.deepcopy(learner.engine.body)
        self.frozen, self.plastic = (body[0], body[1]) if extra else (body.frozen, body.plastic)
        self.frozen.eval()
        self.plastic.train()
        self.head = nn.Linear(6, 3)
        with torch.no_grad():
            self.head.weight.copy_(learner.tasks[None].head.weight)
            self.head.bias.copy_(learner.tasks[None].head.bias)
        self.trained = [*self.plastic.parameters(), *self.head.parameters()]
        self.velocity = [torch.zeros_like(parameter) for parameter in self.trained]
        self.table = learner.quantiser.table
        self.stored = [self.encode(image) for image in BASE.images]
        self.labels = [int(label) for label in BASE.labels]

    def encode(self, image):
        x = torch.from_numpy(image / 255.0).float().permute(2, 0, 1)[None]
        with torch.no_grad():
            maps = self.frozen((x - 0.5) / 0.25)[0].numpy().astype(float)
        codes = np.empty((4, 4, len(self.table)), np.uint8)
        for i, j, book in np.ndindex(codes.shape):
            part = maps[:, i, j].reshape(len(self.table), -1)[book]
            codes[i, j, book] = ((self.table[book] - part) ** 2).sum(1).argmin()
        return codes

    def decode(self, codes):
        maps = np.empty((8, 4, 4), np.float32)
        for i, j in np.ndindex(4, 4):
            maps[:, i, j] = np.concatenate([self.table[book][code] for book, code in enumerate(codes[i, j])])
        return torch.from_numpy(maps)

    def learn(self, image, label, step, replay):
        new = self.encode(image)
        if 2 * replay >= len(self.stored):
            drawn = np.arange(len(self.stored))
        else:
            drawn = generator(0, step, "sample").choice(len(self.stored), 2 * replay, replace=False)
        drawn = generator(0, step, "order").permutation(drawn)
        maps = [self.decode(code) for code in [new, *(self.stored[row] for row in drawn)]]
        boxes = ResizedCrop(2 / 7).draw(len(maps), 4, 4, 0, step).T
        maps = [
            F.interpolate(m[None, :, t : t + h, x : x + w], (4, 4), mode="bilinear", align_corners=False)[0]
            for m, (t, x, h, w) in zip(maps, boxes, strict=True)
        ]
        labels = [label, *(self.labels[row] for row in drawn)]
        share = generator(0, step, "mixup").beta(0.1, 0.1)
        half = (len(drawn) + 1) // 2
        pairs = [(0, 0)] + [(1 + i, 1 + len(drawn) - half + i) for i in range(half)]
        x = torch.stack([share * maps[a] + (1 - share) * maps[b] for a, b in pairs])
        logp = F.log_softmax(self.head(self.plastic(x)), 1)
        rows = zip(logp, pairs, strict=True)
        loss = -sum(share * row[labels[a]] + (1 - share) * row[labels[b]] for row, (a, b) in rows) / len(pairs)
        with torch.no_grad():
            for w, v, g in zip(self.trained, self.velocity, torch.autograd.grad(loss, self.trained), strict=True):
                v.mul_(0.9).add_(g + 0.01 * w)
                w -= 0.1 * v
        self.stored.append(new)
        self.labels.append(label)


@pytest.mark.parametrize("replay", [4, 10, 50])  # 8 of 20; all; all of an odd number
@pytest.mark.parametrize("extra", [False, True])
def test_two_steps_by_hand(replay, extra):
    learner = remind(replay=replay, rate=0.1, weight_decay=0.01, classes=3, extra_params=extra)
    hand = ByHand(learner, extra)
    before = copy.deepcopy(hand.frozen.state_dict())
    for step, (image, label) in enumerate([(IMAGES[2], 2), (IMAGES[4], 1)]):
        learner.learn_one(image, NAMES[label])
        hand.learn(image, label, step, replay)
    body, head = learner.engine.body, learner.tasks[None].head
    plastic = (body[1] if extra else body.plastic).state_dict()
    for name, value in hand.plastic.state_dict().items():
        np.testing.assert_allclose(plastic[name], value, rtol=1e-5, atol=2e-6)
    for name, value in hand.head.state_dict().items():
        np.testing.assert_allclose(getattr(head, name).detach(), value, rtol=1e-5, atol=2e-6)
    assert np.array_equal(learner.tasks[None].buffer.items(np.arange(22)), np.stack(hand.stored).reshape(22, -1))
    assert learner.tasks[None].buffer.index.labels.view.tolist() == hand.labels
    frozen = learner.engine.split.frozen.state_dict()
    assert all(frozen[name].equal(value) for name, value in before.items())
    assert learner._frozen() is learner.engine.split.frozen


def test_test_images_pass_through_the_quantiser():
    learner = remind(classes=3)
    hand = ByHand(learner)
    hand.plastic.eval()
    with torch.no_grad():
        maps = torch.stack([hand.decode(hand.encode(image)) for image in IMAGES[:6]])
        expected = torch.softmax(hand.head(hand.plastic(maps))[:, :2].double(), 1)
    np.testing.assert_allclose(learner.predict_proba_many(IMAGES[:6]), expected, atol=1e-6)


def test_without_crops_and_mixing(monkeypatch):
    learner = remind(crop=False, mixup=None, replay=3)
    seen = []
    update = learner.engine.update
    monkeypatch.setattr(learner.engine, "update", lambda *a, **k: (seen.append(a), update(*a, **k)))
    stored = learner._maps(learner._decode(learner.tasks[None].buffer.items(np.arange(20))))
    learner.learn_one(IMAGES[2], "ash")
    maps, targets = seen[0][1:3]
    drawn = generator(0, 0, "order").permutation(generator(0, 0, "sample").choice(20, 3, replace=False))
    assert torch.equal(maps[1:], stored[drawn])
    assert torch.equal(maps[0], learner._maps(learner._decode(learner.tasks[None].buffer.items(np.array([20]))))[0])
    assert torch.equal(targets, torch.eye(2)[[0, *BASE.labels[drawn]]])


def test_fewer_stored_than_needed(monkeypatch):
    sizes = []
    for capacity in (1, 2, 3, 7, 8, 9):
        learner = remind(capacity=capacity)
        seen = []
        monkeypatch.setattr(learner.engine, "update", lambda head, maps, *a, seen=seen, **k: seen.append(len(maps)))
        learner.learn_one(IMAGES[0], "ash")
        sizes += seen
    assert sizes == [2, 2, 3, 5, 5, 5]
    learner = remind()
    for id in BASE.identities():
        assert learner.forget(id)
    learner.learn_one(IMAGES[0], "ash")  # nothing to replay: the new one alone
    assert np.isfinite(learner.tasks[None].head.bias.detach().numpy()).all()


def test_re_streaming_the_base_batch_replaces_what_was_kept():
    learner = remind()
    assert learner.memory() == (20, 20 * 4 * 4 * 4)
    before = learner.tasks[None].buffer.items(np.arange(20))
    for image, label, id in zip(BASE.images, BASE.labels, BASE.identities(), strict=True):
        learner.learn_one(image, NAMES[label], id=id)
    assert learner.tasks[None].classes.counts == [10, 10]
    # G and the quantiser are fixed: the same image has the same code
    assert np.array_equal(learner.tasks[None].buffer.items(np.arange(20)), before)


def test_a_class_that_comes_after_base_initialisation():
    learner = remind()
    assert learner.classes_ == ["ash", "beech"]
    for image in np.concatenate([IMAGES[LABELS == 2]] * 2):
        learner.learn_one(image, "cedar")
    assert learner.classes_ == ["ash", "beech", "cedar"]
    assert learner.predict_many(IMAGES[LABELS == 2]).count("cedar") >= 9


def test_given_weights_need_the_quantiser_all_the_same(tmp_path):
    weights = network().state_dict()
    torch.save(weights, tmp_path / "w.pt")
    learner = REMIND(model=network, init=tmp_path / "w.pt")
    for action in (lambda: learner.learn_one(IMAGES[0], "ash"), lambda: learner.predict_one(IMAGES[0])):
        with pytest.raises(ValueError, match="to fit its quantiser"):
            action()
    learner.base_init(BASE, OfflineRecipe(epochs=0))
    loaded = learner.engine.body.state_dict()
    assert all(loaded[name].equal(value) for name, value in weights.items())
    assert learner.memory()[0] == 20


@pytest.mark.parametrize(
    ("model", "side", "codebooks"),
    [("resnet14-16", 32, 16), ("resnet14-16", 12, 16), ("resnet18-20", 32, 32), ("resnet18", 64, 32)],
)
def test_a_code_is_smaller_than_a_packed_image(model, side, codebooks):
    learner = built(REMIND, model=model, size=side, channels=3)
    assert learner.engine.codebooks == codebooks
    code = learner.tasks[None].buffer.codec.row_bytes
    assert code == codebooks * learner.engine.split.shape[1] * learner.engine.split.shape[2]
    packed = Codec.parse("resize(0.66)|quantize(6)", (side, side, 3)).row_bytes
    assert code < packed < side * side * 3 / 1.9


def test_the_papers_network():
    """512x4x4 maps take 512 bytes, all 50,000 images of CIFAR-100 25.6 MB; 57.5% of the parameters are frozen."""
    learner = built(REMIND, model="resnet18-cifar", classes=100, size=32, channels=3)
    assert round(learner.frozen_share(), 3) == 0.575
    assert learner.tasks[None].buffer.codec.row_bytes * 50_000 == 25_600_000


def test_the_vectors_that_centroids_are_made_of(monkeypatch):
    """At most 256 a centroid, drawn from all positions of all images; here in chunks of 8 images."""
    monkeypatch.setattr("coldstream.learners.remind._IMAGES", 8)
    seen = []
    fit = REMIND._after_base_init.__globals__["ProductQuantiser"].fit
    monkeypatch.setattr(
        "coldstream.learners.remind.ProductQuantiser.fit", lambda v, *a: (seen.append(v), fit(v, *a))[1]
    )
    learner = remind(centroids=1)
    every = learner.engine.outputs(BASE.images, learner._vectors).numpy()
    picked = np.sort(generator(0, 0, "positions").choice(320, 256, replace=False))
    np.testing.assert_allclose(seen[0], every[picked], atol=1e-6)
    assert learner.quantiser.table.shape == (4, 1, 2)
    np.testing.assert_allclose(learner.quantiser.table.ravel(), every[picked].mean(0), atol=1e-5)


def test_wrong_settings():
    with pytest.raises(ValueError, match="single block.*resnet14-16"):
        REMIND(model="resnet8-16")
    with pytest.raises(ValueError, match="from 1 to 256"):
        REMIND(centroids=300)
    with pytest.raises(ValueError, match="codes have no average"):
        REMIND(evict="consolidate-mixup(0.4)")
    with pytest.raises(ValueError, match="above 0"):
        REMIND(mixup=-1)
    with pytest.raises(ValueError, match="codebooks=3 does not divide the 8 channels"):
        remind(codebooks=3)
