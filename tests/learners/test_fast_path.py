"""The fast path has the bits of the slow one: compiled kernels, and the next step's data prefetched."""

import threading

import numpy as np
import pytest
import torch

from coldstream import CSSL, ColdStart, native
from coldstream.augment import Policy
from coldstream.checks import check_learner
from coldstream.learners.changes import UnfinishedChange
from coldstream.learners.training.engine import Engine
from coldstream.learners.training.prefetch import prefetches
from coldstream.models import Body
from coldstream.replay import one_hot

FULL = "crop|flip|autoaugment(cifar10)|mixup(0.1)/cutmix(0.8)"
SETTINGS = {
    "full policy": {"kind": CSSL, "augment": FULL, "codec": "resize(0.66)|quantize(6)", "capacity": 20},
    "balanced, consolidated": {"sample": "class-balanced", "evict": "consolidate-mixup(1.0, limit=2)", "capacity": 9},
    "the default recipe": {"capacity": 20},
    "from disk, as JPEG": {"storage": "disk", "codec": "jpeg(80)", "capacity": "12KB"},
    "no augmentation, grey": {"kind": CSSL, "augment": "none", "channels": 1, "evict": "reservoir", "capacity": 15},
}


def learner(kind=ColdStart, **settings):
    return kind(**{"model": "resnet8-16", "size": 12, "replay": 6, "channels": 3, "seed": 3, **settings})


def images(count, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (count, 12, 12, 3), dtype=np.uint8)


def stream(learner, first=0, count=14):
    for i, image in enumerate(images(40)[first : first + count], first):
        learner.learn_one(image, f"class {i % 3}")


def weights(learner):
    """Return the weights, statistics, momentum and average of a network by name."""
    return learner.engine.state() | learner.tasks[None].head.state()


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_ahead_and_in_turn_have_the_same_bits(settings):
    prefetching, in_turn = learner(prefetch=True, **settings), learner(prefetch=False, **settings)
    for one in (prefetching, in_turn):
        stream(one)
        one.learn_many(images(10, 1), [i % 4 for i in range(10)], per_update=3)
        stream(one, 14)
    assert prefetching.fingerprint() == in_turn.fingerprint()


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


def edit_all(one):
    assert one.relabel(3, "class 9")
    stream(one, 14, 2)
    assert one.forget(4)
    stream(one, 16, 2)
    one.undo()
    stream(one, 18, 2)
    one.merge_classes("class 1", "class 2")
    one.rename_class("class 0", "class zero")
    stream(one, 20, 2)
    one.learn_one(images(1, 5)[0], "class 2", id=6)  # an id that is stored is overwritten


@pytest.mark.parametrize("sample", ["uniform", "class-balanced", "least-replayed"])
def test_edits_between_ahead_and_use_stay_exact(sample):
    prefetching, in_turn = (learner(CSSL, prefetch=on, sample=sample, augment=FULL) for on in (True, False))
    for one in (prefetching, in_turn):
        stream(one)
        edit_all(one)
        stream(one, 30)
    assert prefetching.fingerprint() == in_turn.fingerprint()


@pytest.mark.parametrize("kind", [CSSL, ColdStart])
def test_an_edit_waits_for_the_work_under_way(kind, monkeypatch):
    busy = learner(kind, prefetch=True)
    stream(busy)
    seen, began, go = [], threading.Event(), threading.Event()
    update, buffer = busy.engine.update, busy.tasks[None].buffer

    def slow_update(*rest, **named):
        began.set()
        assert go.wait(10)
        update(*rest, **named)
        seen.append(len(buffer))

    monkeypatch.setattr(busy.engine, "update", slow_update)
    learning = threading.Thread(target=busy.learn_one, args=(images(1)[0], "class 0"))
    learning.start()
    assert began.wait(10)
    timer = threading.Timer(0.2, go.set)
    timer.start()
    assert busy.forget(2)
    assert seen == [15]  # the work saw the buffer as it was
    assert len(buffer) == 14
    learning.join()


def test_nothing_is_under_way_between_two_steps(monkeypatch):
    busy = learner(prefetch=True)
    futures, start = [], busy.steps._background.start

    def on_start(work):
        futures.append(start(work))
        return futures[-1]

    monkeypatch.setattr(busy.steps._background, "start", on_start)
    for i, image in enumerate(images(5)):
        busy.learn_one(image, f"class {i % 3}")
        assert [future.done() for future in futures] == [True] * (i + 1)


def test_saved_with_work_ahead_and_taken_up_without(tmp_path):
    straight = learner(CSSL, prefetch=False, augment=FULL)
    stream(straight, count=30)
    first = learner(CSSL, prefetch=True, augment=FULL)
    stream(first, count=15)
    first.save(tmp_path / "kept")
    stream(first, 15, 15)
    second = CSSL.load(tmp_path / "kept", prefetch=False)
    stream(second, 15, 15)
    assert second.settings.prefetch is False
    for other in (first, second):
        assert weights(straight).keys() == weights(other).keys()
        for name, value in weights(straight).items():
            np.testing.assert_array_equal(value, weights(other)[name])


def test_what_goes_wrong_ahead_is_said_at_the_step_that_needs_it(monkeypatch):
    prefetching, in_turn = (learner(CSSL, prefetch=prefetch) for prefetch in (True, False))
    for one in (prefetching, in_turn):
        stream(one)

    def broken(slots):
        raise OSError("the disk is gone")

    with monkeypatch.context() as patch:
        patch.setattr(prefetching.tasks[None].buffer, "items", broken)
        stream(prefetching, 14, 1)  # what it replays was there already
        stream(in_turn, 14, 1)
        assert prefetching.fingerprint() == in_turn.fingerprint()
        with pytest.raises(OSError, match="the disk is gone"):
            prefetching.learn_one(images(1)[0], "class 0", id="lost")
    with pytest.raises(UnfinishedChange):
        prefetching.fingerprint()


def test_work_for_another_step_is_not_used(monkeypatch):
    prefetching = learner(prefetch=True)
    stream(prefetching)
    drawn, draw = [], prefetching.steps._draw

    def on_draw(task, count, seed, step):
        drawn.append(step)
        return draw(task, count, seed, step)

    monkeypatch.setattr(prefetching.steps, "_draw", on_draw)
    stream(prefetching, 14, 1)
    assert drawn == [15]  # what this step needed was there; the next one's is
    prefetching.learn_many(images(2, 1), ["class 0", "class 1"], per_update=2)
    assert drawn == [15, 15, 17]  # made for one new example, not for two
    assert prefetching.forget(3)
    prefetching.learn_many(images(2, 2), ["class 0", "class 1"], per_update=2)
    assert drawn == [15, 15, 17, 17, 19]  # made from a buffer that has changed since


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


@pytest.mark.parametrize("kind", [CSSL, ColdStart])
@pytest.mark.parametrize("prefetch", [True, False])
def test_the_contract_holds_in_both_ways(prefetch, kind):
    check_learner(lambda: kind(size=8, replay=4, prefetch=prefetch, seed=1))


@pytest.mark.skipif(not native.available(), reason=f"no compiled kernels: {native.state()}")
@pytest.mark.parametrize("normalize", ["half", "cifar100", ((0.1, 0.2, 0.3), (0.9, 0.8, 0.7))], ids=str)
@pytest.mark.parametrize("memory_format", ["channels_last", "contiguous"])
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("policy", ["none", FULL])
def test_prepared_batches(policy, channels, memory_format, normalize, monkeypatch):
    engine = Engine(
        Body.build("resnet8-16", (channels, 12, 12), 0),
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
        engine = Engine(Body.build(model, (3, 8, 8), 0), momentum=0.9, weight_decay=0)
        batch, _ = engine.prepare(images(2)[:, :8, :8], one_hot([0, 1], 2), Policy(), 0, 0)
        formats[model] = batch.is_contiguous(memory_format=torch.channels_last)
    assert formats == {"linear": False, "resnet8-16": True}


@pytest.mark.slow
def test_compiled_networks_learn_the_same_within_rounding(tmp_path):
    eager, compiled = (learner(compile=compile, replay=5) for compile in (False, True))
    for one in (eager, compiled):
        stream(one, count=8)
    compiled.save(tmp_path / "kept")
    for one in (eager, compiled):
        stream(one, 8, 4)
    # Weights drift apart by rounding, which BatchNorm and momentum make larger from step to step.
    for name, value in weights(eager).items():
        np.testing.assert_allclose(weights(compiled)[name], value, rtol=1e-2, atol=1e-3, err_msg=name)
    assert any((weights(compiled)[name] != value).any() for name, value in weights(eager).items())
    loaded = ColdStart.load(tmp_path / "kept")
    stream(loaded, 8, 4)
    assert loaded.fingerprint() == compiled.fingerprint()


def test_compiling_without_a_compiler_is_refused(monkeypatch):
    monkeypatch.setattr("shutil.which", lambda name: None)
    with pytest.raises(ValueError, match=r"needs a C\+\+ compiler"):
        CSSL(compile=True)
    with pytest.raises(ValueError, match="compile is True or False"):
        CSSL(compile="yes")


def test_the_thread_of_the_update_follows_a_changed_number_of_threads():
    """Bits depend on torch's threads, and a thread keeps the number that it began with."""
    images = np.random.default_rng(5).integers(0, 256, (24, 16, 16, 3), dtype=np.uint8)
    before, prints = torch.get_num_threads(), []
    try:
        for prefetch in (False, True):
            torch.set_num_threads(2)
            learner = CSSL(model="resnet14-16", replay=20, prefetch=prefetch)
            learner.learn_many(images[:12], [0, 1] * 6)
            torch.set_num_threads(1)
            learner.learn_many(images[12:], [0, 1] * 6)
            prints.append(learner.fingerprint())
    finally:
        torch.set_num_threads(before)
    assert prints[0] == prints[1]
