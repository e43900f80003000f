"""Base initialisation: what a learner knows after it, before it, and in an experiment."""

import numpy as np
import pytest
from safetensors.torch import save_file

from coldstream import CSSL
from coldstream.data import Dataset
from coldstream.lab import Experiment, make_config, run_jobs
from coldstream.learners import ER, LEARNERS, REMIND, ColdStart, DeepSLDA, LinearProbe, OfflineRecipe
from coldstream.learners.features import frozen_features

RNG = np.random.default_rng(0)
NAMES = ("ash", "beech", "cedar")
LABELS = np.arange(24) % 3
IMAGES = (60 * LABELS[:, None, None, None] + RNG.integers(0, 60, (24, 8, 8, 3))).astype(np.uint8)
BASE = Dataset("base", IMAGES[LABELS < 2], LABELS[LABELS < 2], NAMES)
SHORT = OfflineRecipe(epochs=3, batch=8, augment="none")


def probe(**settings):
    learner = LinearProbe(model="mlp", replay=4, **settings)
    learner.base_init(BASE, SHORT)
    return learner


def test_re_streaming_the_base_batch_replaces_what_was_kept():
    learner = probe()
    assert learner.memory() == (16, 16 * 64 * 4)
    for image, label, id in zip(BASE.images, BASE.labels, BASE.identities(), strict=True):
        learner.learn_one(image, NAMES[label], id=id)
    assert learner.memory()[0] == 16
    assert learner.tasks[None].classes.counts == [8, 8]


def test_a_class_that_comes_after_base_initialisation():
    learner = probe()
    assert learner.classes_ == ["ash", "beech"]
    new = IMAGES[LABELS == 2]
    for image in new:
        learner.learn_one(image, "cedar")
    assert learner.classes_ == ["ash", "beech", "cedar"]
    assert learner.predict_many(new) == ["cedar"] * len(new)


def test_the_frozen_part_never_changes_and_the_rest_does():
    learner = probe()
    body, head = learner.engine.body, learner.tasks[None].head
    before, weight = {name: value.clone() for name, value in body.state_dict().items()}, head.weight.detach().clone()
    for image, label in zip(IMAGES, LABELS, strict=True):
        learner.learn_one(image, NAMES[label])
    after = body.state_dict()
    assert learner.engine.body is body
    assert all(before[name].equal(after[name]) for name in before)
    assert not weight.equal(head.weight[:2])


def test_the_probes_step_is_the_formula():
    """One new example beside all replayed ones: v = g + decay w, w -= rate v, on the mean cross-entropy."""
    learner = probe(rate=0.1, weight_decay=0.01)
    head = learner.tasks[None].head
    z = learner.engine.features_of(np.stack([IMAGES[2], *BASE.images])).numpy().astype(float)
    w, b = (p.detach().numpy().astype(float) for p in (head.weight, head.bias))
    head.grow(3)
    w3, b3 = (p.detach().numpy().astype(float) for p in (head.weight, head.bias))
    y = np.eye(3)[[2, *BASE.labels]]
    logits = z @ w3.T + b3
    p = np.exp(logits - logits.max(1, keepdims=True))
    error = (p / p.sum(1, keepdims=True) - y) / len(y)
    fresh = LinearProbe(model="mlp", replay=16, rate=0.1, weight_decay=0.01)
    fresh.base_init(BASE, SHORT)
    fresh.learn_one(IMAGES[2], "cedar")
    assert np.allclose(w3[:2], w)
    assert np.allclose(b3[:2], b)
    stepped = fresh.tasks[None].head
    assert np.allclose(stepped.weight.detach(), w3 - 0.1 * (error.T @ z + 0.01 * w3), atol=1e-5)
    assert np.allclose(stepped.bias.detach(), b3 - 0.1 * (error.sum(0) + 0.01 * b3), atol=1e-5)


@pytest.mark.parametrize("init", ["base", "random"])
def test_a_frozen_network_sees_new_images_cropped_as_in_tests(init):
    """With zoom 0.5 the network sees the middle half, magnified, when it learns and when it is asked."""
    framed = np.full((8, 8, 3), 255, np.uint8)
    framed[2:6, 2:6] = 51
    learner = DeepSLDA(model="linear", init=init, zoom=0.5, size=4, channels=3, normalize="none")
    if init == "base":
        learner.base_init(Dataset("base", framed[None], np.zeros(1, int), ("dark",)), OfflineRecipe(epochs=0))
        assert np.allclose(learner.tasks[None].means, 0.2)
    learner.learn_one(framed, "dark")
    assert np.allclose(learner.tasks[None].means, 0.2)


def test_zero_epochs_leave_the_weights():
    untrained = LinearProbe(model="mlp", init="random")
    untrained.learn_one(IMAGES[0], "ash")
    learner = LinearProbe(model="mlp")
    learner.base_init(BASE, OfflineRecipe(epochs=0))
    one, two = (x.engine.body.state_dict() for x in (untrained, learner))
    assert all(one[name].equal(two[name]) for name in one)


def test_base_initialisation_is_refused_late_and_twice():
    learner = probe()
    with pytest.raises(ValueError, match="done already"):
        learner.base_init(BASE, SHORT)
    cold = CSSL(model="mlp", augment="none")
    cold.learn_one(IMAGES[0], "ash")
    with pytest.raises(ValueError, match="before streaming"):
        cold.base_init(BASE, SHORT)


def test_er_is_cssl_with_its_settings():
    settings = {"model": "linear", "replay": 4, "capacity": 10}
    one, two = ER(**settings), CSSL(**settings, augment="crop|flip", codec="raw", evict="reservoir")
    for image, label in zip(IMAGES, LABELS, strict=True):
        one.learn_one(image, NAMES[label])
        two.learn_one(image, NAMES[label])
    states = [each.engine.state() | each.tasks[None].head.state() for each in (one, two)]
    assert states[0].keys() == states[1].keys()
    assert all(np.array_equal(states[0][name], states[1][name]) for name in states[0])


@pytest.mark.parametrize("classes", [3, None])
def test_in_an_experiment_the_beginning_of_the_stream_is_the_base(tmp_path, monkeypatch, classes):
    config = make_config(
        {
            "data": {"per_class": 6},
            "stream": {"test_every": 2},
            "learner": {"model": "linear", "replay": 4},
            "learners": {"cold": {}, "probe": {"kind": "linear-probe"}},
            "offline": {"enabled": False},
            "base": {"classes": classes, "epochs": 2, "batch": 8},
        }
    )
    experiment = Experiment.create(config, tmp_path / "run")
    base = experiment.inputs.base(0)
    part = experiment.inputs.stream(0).parts[None]
    seen = part.dataset.labels[part.order]
    first = list(dict.fromkeys(seen.tolist()))[: classes or 2]
    assert sorted(set(base.labels.tolist())) == sorted(first)
    assert len(base) == 6 * len(first)
    called = []
    base_init = LinearProbe.base_init
    monkeypatch.setattr(
        LinearProbe, "base_init", lambda self, *rest: called.append(rest[0]) or base_init(self, *rest)
    )
    monkeypatch.setattr(ColdStart, "base_init", lambda *_: pytest.fail("it begins from random weights"))
    run_jobs(experiment)
    assert [dataset.fingerprint() for dataset in called] == [base.fingerprint()]
    assert experiment.results().learners["probe"].units[0].learner.buffer.examples == 60


@pytest.mark.parametrize("kind", LEARNERS.values(), ids=LEARNERS)
def test_all_take_weights(kind, tmp_path):
    """Every learner begins with the weights of a file, and the frozen ones need nothing else."""
    source = CSSL(model="resnet14-16", seed=7, classes=3)
    source.learn_one(IMAGES[0], "ash")
    weights = {name: value.contiguous() for name, value in source.engine.body.state_dict().items()}
    save_file(weights, tmp_path / "weights.safetensors")
    learner = kind(model="resnet14-16", init=str(tmp_path / "weights.safetensors"), classes=3)
    if learner.needs_base_init:
        assert kind is REMIND
        learner.base_init(BASE, OfflineRecipe(epochs=0))
    elif kind.batch_incremental or isinstance(learner, CSSL):
        engine = learner._build((8, 8, 3))
    else:
        learner.learn_one(IMAGES[0], "ash")
    loaded = (learner.engine if learner.built else engine).body.state_dict()
    assert all(value.equal(loaded[name]) for name, value in weights.items())


def test_what_is_kept_of_a_base_larger_than_the_capacity_is_a_uniform_sample():
    """A reservoir of 4 of 16: each example stays with probability 1/4, and no more than 4 are ever held."""
    kept = np.zeros(16)
    for seed in range(200):
        learner = LinearProbe(model="linear", capacity=4, evict="reservoir", seed=seed)
        learner.base_init(BASE, OfflineRecipe(epochs=0))
        assert learner.memory()[0] == 4
        features = learner.tasks[None].buffer.items(np.arange(4))
        everything = frozen_features(learner.engine, BASE.images)
        kept += (everything[:, None] == features[None]).all(axis=2).any(axis=1)
    assert kept.sum() == 800
    assert (np.abs(kept - 50) < 4.5 * np.sqrt(200 * 0.25 * 0.75)).all()


@pytest.mark.parametrize(
    "wrong", [{"epochs": -1}, {"batch": 0}, {"rate": -1.0}, {"rate": float("nan")}, {"augment": "crap"}]
)
def test_a_recipe_that_cannot_be_is_refused(wrong):
    with pytest.raises(ValueError):
        OfflineRecipe(**wrong)


def test_vectors_take_no_augmentation_in_base_initialisation():
    learner = DeepSLDA(model="linear", items="vectors")
    vectors = Dataset("vectors", IMAGES[:4], LABELS[:4], NAMES)
    with pytest.raises(ValueError, match="for vectors"):
        learner.base_init(vectors)


def test_editing_what_a_probe_keeps():
    learner = probe()
    first, last = BASE.identities()[0], learner.learn_one(IMAGES[2], "cedar")
    assert learner.relabel(first, "beech")
    assert learner.tasks[None].classes.counts == [7, 9, 1]
    assert learner.undo() == last
    assert learner.classes_ == ["ash", "beech"]
    learner.merge_classes("ash", "beech")
    assert set(learner.predict_many(IMAGES)) == {"beech"}
    assert set(learner.tasks[None].buffer.index.labels.view.tolist()) == {1}


def test_er_keeps_its_own_ways_in_the_papers_experiments():
    settings = ER.paper("core50").settings
    assert (settings.augment, settings.codec, settings.evict) == ("resizedcrop|flip", "raw", "reservoir")
    assert (settings.size, settings.rate) == (128, "constant(0.01)")
