"""The fast path has the bits of the slow one: compiled kernels, and the next step's data made ready ahead."""

import threading

import numpy as np
import pytest
import torch

from coldstream import CSSL, native
from coldstream.augment import Policy
from coldstream.checks import check_learner
from coldstream.learners.training.engine import Engine
from coldstream.learners.training.prefetch import Ahead, prefetches
from coldstream.models import Classifier
from coldstream.replay import one_hot

FULL = "crop|flip|autoaugment(cifar10)|mixup(0.1)/cutmix(0.8)"
SETTINGS = {
    "full policy": {"augment": FULL, "codec": "resize(0.66)|quantize(6)", "capacity": 20},
    "balanced, consolidated": {"sample": "class-balanced", "evict": "consolidate-mixup(1.0, limit=2)", "capacity": 9},
    "auto": {"augment": "auto", "capacity": 20},
    "from disk, as JPEG": {"storage": "disk", "codec": "jpeg(80)", "capacity": "12KB"},
    "no augmentation, grey": {"augment": "none", "channels": 1, "evict": "reservoir", "capacity": 15},
}


def learner(**settings):
    return CSSL(**{"model": "resnet8-16", "size": 12, "replay": 6, "channels": 3, "seed": 3, **settings})


def images(count, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (count, 12, 12, 3), dtype=np.uint8)


def stream(mine, first=0, count=14):
    for i, image in enumerate(images(40)[first : first + count], first):
        mine.learn_one(image, f"class {i % 3}")


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_ahead_and_in_turn_have_the_same_bits(settings):
    ahead, turn = learner(prefetch=True, **settings), learner(prefetch=False, **settings)
    for mine in (ahead, turn):
        stream(mine)
        mine.learn_many(images(10, 1), [i % 4 for i in range(10)], per_update=3)
        stream(mine, 14)
    assert ahead.fingerprint() == turn.fingerprint()


@pytest.mark.skipif(not native.available(), reason=f"no compiled kernels: {native.state()}")
@pytest.mark.parametrize("prefetch", [True, False])
@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_kernels_and_torch_have_the_same_bits(settings, prefetch, monkeypatch):
    fast, slow = (learner(prefetch=prefetch, **settings) for _ in range(2))
    stream(fast, count=25)
    monkeypatch.setattr(native, "available", lambda: False)
    stream(slow, count=25)
    assert fast.fingerprint() == slow.fingerprint()
    np.testing.assert_array_equal(fast.predict_proba_many(images(5)), slow.predict_proba_many(images(5)))


def edit_all(mine):
    assert mine.relabel(3, "class 9")
    stream(mine, 14, 2)
    assert mine.forget(4)
    stream(mine, 16, 2)
    mine.undo()
    stream(mine, 18, 2)
    mine.merge_classes("class 1", "class 2")
    mine.rename_class("class 0", "class zero")
    stream(mine, 20, 2)
    mine.learn_one(images(1, 5)[0], "class 2", id=6)  # an id that is stored is overwritten


@pytest.mark.parametrize("sample", ["uniform", "class-balanced", "least-replayed"])
def test_edits_between_ahead_and_use_stay_exact(sample):
    ahead, turn = (learner(prefetch=prefetch, sample=sample, augment=FULL) for prefetch in (True, False))
    for mine in (ahead, turn):
        stream(mine)
        edit_all(mine)
        stream(mine, 30)
    assert ahead.fingerprint() == turn.fingerprint()


def test_an_edit_waits_for_the_work_under_way(monkeypatch):
    mine = learner(prefetch=True)
    stream(mine)
    seen, go = [], threading.Event()
    items = mine.buffer.items

    def slow_items(rows):
        assert go.wait(10)
        seen.append(len(mine.buffer))
        return items(rows)

    mine._ahead.drop()
    monkeypatch.setattr(mine.buffer, "items", slow_items)
    timer = threading.Timer(0.2, go.set)
    mine._ahead.begin("next", lambda: mine._replay(14, 1))
    timer.start()
    assert mine.forget(2)
    assert seen == [14]  # the work saw the buffer as it was
    assert len(mine.buffer) == 13


def test_saved_with_work_ahead_and_taken_up_without(tmp_path):
    straight = learner(prefetch=False, augment=FULL)
    stream(straight, count=30)
    first = learner(prefetch=True, augment=FULL)
    stream(first, count=15)
    first.save(tmp_path / "kept")
    stream(first, 15, 15)
    second = CSSL.load(tmp_path / "kept", prefetch=False)
    stream(second, 15, 15)
    assert second.settings["prefetch"] is False
    assert straight.engine.state().keys() == first.engine.state().keys()
    for other in (first, second):
        for name, value in straight.engine.state().items():
            np.testing.assert_array_equal(value, other.engine.state()[name])


def test_what_goes_wrong_ahead_is_said_at_the_step_that_needs_it(monkeypatch):
    mine = learner(prefetch=True)
    stream(mine)
    mine._ahead.drop()

    def broken(rows):
        raise OSError("the disk is gone")

    with monkeypatch.context() as patch:
        patch.setattr(mine.buffer, "items", broken)
        mine._ahead.begin((mine.step, 1), lambda: mine._replay(mine.step, 1))
        with pytest.raises(OSError, match="the disk is gone"):
            mine.learn_one(images(1)[0], "class 0")
    stream(mine, 20)


def test_work_for_another_step_is_not_used():
    ahead: Ahead[str] = Ahead()
    assert ahead.take("one") is None
    ahead.begin("one", lambda: "found")
    assert ahead.take("two") is None
    assert ahead.take("one") is None
    ahead.begin("three", lambda: "found")
    assert ahead.take("three") == "found"
    ahead.drop()


def test_where_to_work_ahead(monkeypatch):
    cpu, gpu = torch.device("cpu"), torch.device("cuda")
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1}, raising=False)
    monkeypatch.delenv("COLDSTREAM_CORES", raising=False)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    assert not prefetches("auto", cpu, "memory")
    assert prefetches("auto", cpu, "disk")
    assert prefetches("auto", gpu, "memory")
    assert prefetches(True, cpu, "memory")
    assert not prefetches(False, gpu, "disk")
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    assert prefetches("auto", cpu, "memory")
    monkeypatch.setenv("COLDSTREAM_CORES", "1")  # the other one belongs to another job
    assert not prefetches("auto", cpu, "memory")


@pytest.mark.parametrize("prefetch", ["yes", 1, None])
def test_a_setting_that_is_none(prefetch):
    with pytest.raises(ValueError, match="prefetch is 'auto', True or False"):
        CSSL(prefetch=prefetch)


@pytest.mark.parametrize("prefetch", [True, False])
def test_the_contract_holds_in_both_ways(prefetch):
    check_learner(lambda: CSSL(size=8, replay=4, prefetch=prefetch, seed=1))


@pytest.mark.skipif(not native.available(), reason=f"no compiled kernels: {native.state()}")
@pytest.mark.parametrize("normalize", ["half", "cifar100", ((0.1, 0.2, 0.3), (0.9, 0.8, 0.7))], ids=str)
@pytest.mark.parametrize("memory_format", ["channels_last", "contiguous"])
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("policy", ["none", FULL])
def test_prepared_batches(policy, channels, memory_format, normalize, monkeypatch):
    engine = Engine(
        Classifier("resnet8-16", (channels, 12, 12), 0, 3),
        momentum=0.9,
        weight_decay=0,
        normalize=normalize,
        memory_format=memory_format,
    )
    batch, targets = images(9)[..., :channels], one_hot([i % 3 for i in range(9)], 3)
    fast = [tensor.clone() for tensor in engine.prepare(batch, targets, Policy.parse(policy), 1, 2)]
    strides = engine.prepare(batch, targets, Policy.parse(policy), 1, 2)[0].stride()
    monkeypatch.setattr(native, "available", lambda: False)
    slow = engine.prepare(batch, targets, Policy.parse(policy), 1, 2)
    assert strides == slow[0].stride()
    assert strides[1] == (1 if memory_format == "channels_last" else 144)
    for one, two in zip(fast, slow, strict=True):
        assert torch.equal(one, two)


def test_formats_by_network():
    formats = {}
    for model in ("linear", "resnet8-16"):
        engine = Engine(Classifier(model, (3, 8, 8), 0, 2), momentum=0.9, weight_decay=0)
        batch, _ = engine.prepare(images(2)[:, :8, :8], one_hot([0, 1], 2), Policy(), 0, 0)
        formats[model] = batch.is_contiguous(memory_format=torch.channels_last)
    assert formats == {"linear": False, "resnet8-16": True}


@pytest.mark.slow
def test_compiled_networks_learn_the_same_within_rounding(tmp_path):
    eager, compiled = (learner(compile=compile, replay=5) for compile in (False, True))
    for mine in (eager, compiled):
        stream(mine, count=8)
    compiled.save(tmp_path / "kept")
    for mine in (eager, compiled):
        stream(mine, 8, 4)
    # Weights drift apart by rounding, which BatchNorm and momentum make larger from step to step.
    for name, value in eager.engine.state().items():
        np.testing.assert_allclose(compiled.engine.state()[name], value, rtol=1e-2, atol=1e-3, err_msg=name)
    assert any((compiled.engine.state()[name] != value).any() for name, value in eager.engine.state().items())
    loaded = CSSL.load(tmp_path / "kept")
    stream(loaded, 8, 4)
    assert loaded.fingerprint() == compiled.fingerprint()


def test_compiling_without_a_compiler_is_refused(monkeypatch):
    monkeypatch.setattr("shutil.which", lambda name: None)
    with pytest.raises(ValueError, match=r"needs a C\+\+ compiler"):
        CSSL(compile=True)
    with pytest.raises(ValueError, match="compile is True or False"):
        CSSL(compile="yes")
