"""Each kind of wrong input: a clear error, the learner unchanged, nothing half-written."""

import io
import struct
import zlib

import numpy as np
import pytest
import torch
from PIL import Image

from coldstream import CSSL

GOOD = np.random.default_rng(0).integers(0, 256, (16, 16, 3), dtype=np.uint8)


def encoded(kind):
    out = io.BytesIO()
    Image.fromarray(GOOD).save(out, kind)
    return out.getvalue()


def hostile_png():
    """About 12 KB that claim 100 megapixels."""

    def chunk(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    header = struct.pack(">IIBBBBB", 10_000, 10_000, 8, 2, 0, 0, 0)
    body = zlib.compress(bytes(12_000_000), 9)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", body) + chunk(b"IEND", b"")


BAD_IMAGES = {
    "wrong dtype": GOOD.astype(np.int32),
    "bool": GOOD > 3,
    "one dimension": GOOD.ravel(),
    "four dimensions": GOOD[None],
    "two channels": GOOD[..., :2],
    "channels first": GOOD.transpose(2, 0, 1),
    "zero size": GOOD[:0],
    "NaN": torch.full((3, 8, 8), float("nan")),
    "out of range": torch.full((3, 8, 8), 7.0),
    "channels last tensor": torch.from_numpy(GOOD),
    "truncated JPEG": encoded("JPEG")[:200],
    "truncated PNG": encoded("PNG")[:-40],
    "no image": b"hello",
    "no bytes": b"",
    "hostile": hostile_png(),
    "path": "bird.jpg",
    "None": None,
    "list": [[1, 2], [3, 4]],
}


@pytest.fixture
def learner():
    learner = CSSL(replay=4, model="linear", classes=3)
    learner.learn_one(GOOD, "a")
    learner.learn_one(255 - GOOD, "b")
    return learner


@pytest.mark.parametrize("name", BAD_IMAGES)
def test_images(learner, name):
    assert len(hostile_png()) < 13_000
    before = learner.fingerprint()
    for action in (
        lambda: learner.learn_one(BAD_IMAGES[name], "a"),
        lambda: learner.learn_one(BAD_IMAGES[name], "new"),
        lambda: learner.predict_one(BAD_IMAGES[name]),
        lambda: learner.learn_many([GOOD, BAD_IMAGES[name]], ["a", "new"]),
    ):
        with pytest.raises(ValueError, match=r"\w{3,}"):
            action()
    assert learner.fingerprint() == before
    fresh = CSSL(model="linear")
    empty = fresh.fingerprint()
    with pytest.raises(ValueError):
        fresh.learn_one(BAD_IMAGES[name], "a")
    assert fresh.fingerprint() == empty


@pytest.mark.parametrize("label", [None, 1.5, [1], {"a": 1}, float("nan"), np.zeros(2), object()])
def test_labels(learner, label):
    before = learner.fingerprint()
    with pytest.raises(ValueError, match="a label is a str, int or bool"):
        learner.learn_one(GOOD, label)
    assert learner.fingerprint() == before


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"replay": -1}, "replay is a whole number from 0, not -1"),
        ({"replay": 2.5}, "replay is a whole number"),
        ({"capacity": "0MB"}, "smaller than one example"),
        ({"capacity": -3}, "smaller than one example"),
        ({"capacity": "30 lightyears"}, "unknown unit 'lightyears'"),
        ({"capacity": 1.5}, "capacity is a size"),
        ({"codec": "quantise(6)"}, "unknown codec 'quantise'; did you mean 'quantize'"),
        ({"codec": "quantize(9)"}, "takes 1 to 8"),
        ({"codec": "quantize(6)|resize(0.5)"}, "packing comes last"),
        ({"evict": "largest"}, "did you mean 'largest-class'"),
        ({"sample": "unifrom"}, "did you mean 'uniform'"),
        ({"augment": "autoaugmnt(cifar10)"}, "did you mean 'autoaugment'"),
        ({"rate": "linaer(0.1, 0.01)"}, "did you mean 'linear'"),
        ({"model": "resnet8_16"}, "did you mean 'resnet8-16'"),
        ({"normalize": "cifar"}, "did you mean 'cifar10"),
        ({"normalize": 5}, "normalize is a name or"),
        ({"normalize": ([0.5], [0.0])}, "std above 0"),
        ({"init": "no/such.pt"}, "does not exist"),
        ({"precision": "float"}, "unknown precision"),
        ({"memory_format": "nhwc"}, "unknown memory format"),
        ({"device": "gpu"}, "device 'gpu'"),
        ({"storage": "cloud"}, "storage is 'memory'"),
        ({"storage": "disk:no/such/folder"}, "does not exist"),
        ({"size": 0}, "size is a whole number from 1"),
        ({"size": "big"}, "size is one side or"),
        ({"channels": 4}, "channels is 1"),
        ({"classes": 0}, "classes is a whole number from 1"),
        ({"zoom": 2}, "zoom is above 0"),
        ({"seed": -1}, "seed is a whole number"),
        ({"items": "sounds"}, "items is 'images' or 'vectors'"),
        ({"momentum": -1}, "momentum is a number"),
        ({"weight_decay": float("nan")}, "weight_decay is a number"),
    ],
)
def test_settings(settings, message):
    with pytest.raises(ValueError, match=message):
        CSSL(**settings)


def test_unknown_setting_names_the_nearest():
    with pytest.raises(ValueError, match="unknown setting of CSSL 'replya'; did you mean 'replay'"):
        CSSL(replya=3)


def test_capacity_smaller_than_one_example():
    learner = CSSL(capacity="100B")
    empty = learner.fingerprint()
    with pytest.raises(ValueError, match="capacity of 100 bytes is smaller than one example"):
        learner.learn_one(GOOD, "a")
    assert learner.fingerprint() == empty
    jpeg = CSSL(model="linear", codec="jpeg(95)", capacity="700B", size=16)
    jpeg.learn_one(np.zeros((16, 16, 3), np.uint8), "a")
    before = jpeg.fingerprint()
    with pytest.raises(ValueError, match="smaller than one example"):
        jpeg.learn_one(GOOD, "a")
    assert jpeg.fingerprint() == before


def test_recipes():
    with pytest.raises(ValueError, match="did you mean 'cifar100'"):
        CSSL.paper("cifar-100")
    with pytest.raises(ValueError, match="needs the class counts"):
        CSSL.paper("cifar100")


def test_tasks_and_base_initialisation_at_the_wrong_time(learner):
    from coldstream.data import digits

    before = learner.fingerprint()
    with pytest.raises(ValueError, match="began without tasks"):
        learner.learn_one(GOOD, "a", task="birds")
    with pytest.raises(ValueError, match="began without tasks"):
        learner.predict_one(GOOD, task="birds")
    with pytest.raises(ValueError, match="comes before streaming"):
        learner.base_init(digits()[0])
    assert learner.fingerprint() == before


def test_one_image_where_several_are_expected(learner):
    for action in (learner.predict_many, learner.predict_proba_many):
        with pytest.raises(ValueError, match="expected several images"):
            action(GOOD)
    with pytest.raises(ValueError, match="expected several images"):
        learner.learn_many(GOOD, ["a"] * 16)
