"""Each kind of wrong input: a clear error, the learner unchanged, nothing half-written."""

import io
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from coldstream import CSSL, ColdStart
from coldstream.learners import LEARNERS

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
    learner = ColdStart(replay=4, model="linear", classes=3)
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
    fresh = ColdStart(model="linear")
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


def nested(depth):
    label = 1
    for _ in range(depth):
        label = (label,)
    return label


def crowd(depth):
    return "x" if depth == 0 else (crowd(depth - 1),) * 5


OVERSIZE = {
    "int": (10**5000, "at most 64 bits, not 16,610"),
    "int of 65 bits": (1 << 64, "at most 64 bits, not 65"),
    "negative int": (-(1 << 63) - 1, "at most 64 bits"),
    "int in a tuple": (("a", 10**5000), "at most 64 bits"),
    "str": ("x" * 1001, "at most 1,000 characters, not 1,001: 'xxx"),
    "str in a tuple": ((("x" * 5_000_000,),), "at most 1,000 characters"),
    "depth 11": (nested(11), "at most 10 levels"),
    "depth 900": (nested(900), "at most 10 levels"),
    "depth 100,000": (nested(100_000), "at most 10 levels"),
    "long tuple": (tuple(range(101)), "at most 100 values in its tuples, not 101"),
    "crowd": (crowd(4), "at most 100 values in its tuples"),
}


@pytest.mark.parametrize("name", OVERSIZE)
def test_labels_are_bounded(learner, name, tmp_path):
    label, says = OVERSIZE[name]
    before = learner.fingerprint()
    for action in (
        lambda: learner.learn_one(GOOD, label),
        lambda: learner.learn_many([GOOD, GOOD], ["a", label]),
        lambda: learner.learn_one(GOOD, "a", task=label),
        lambda: learner.predict_one(GOOD, task=label),
        lambda: learner.relabel(0, label),
        lambda: learner.rename_class("a", label),
        lambda: learner.rename_class(label, "c"),
        lambda: learner.merge_classes(label, "a"),
        lambda: learner.merge_classes("a", label),
        lambda: CSSL(counts={label: 3}),
    ):
        with pytest.raises(ValueError, match=says):
            action()
    assert learner.fingerprint() == before
    learner.save(tmp_path / "saved")


def test_labels_at_the_bounds_are_kept(tmp_path):
    labels = [
        (1 << 64) - 1,
        -(1 << 63),
        "x" * 1000,
        "é\n\0\u2028",
        nested(10),
        tuple(range(99)),
        ("a", True, ("b", 0)),
    ]
    learner = CSSL(replay=2, model="linear", augment="none")
    for label in labels:
        learner.learn_one(GOOD, label)
    learner.save(tmp_path / "saved")
    assert CSSL.load(tmp_path / "saved").classes_ == labels
    assert repr(learner)


@pytest.mark.parametrize(
    "id", [10**5000, 1 << 61, -1, "x" * 1001, 1.5, True, b"id", [], torch.zeros((), device="meta")], ids=lambda id: ""
)
def test_ids_are_bounded(learner, id, tmp_path):
    before = learner.fingerprint()
    for action in (
        lambda: learner.learn_one(GOOD, "a", id=id),
        lambda: learner.learn_many([GOOD, GOOD], ["a", "b"], ids=[None, id]),
    ):
        with pytest.raises(
            ValueError, match=r"an id (has at most 1,000 characters|is a whole number from 0 to below 2\*\*61)"
        ):
            action()
    for action in (lambda: learner.forget(id), lambda: learner.relabel(id, "b")):
        if not isinstance(id, int) or id != 1 << 61:
            with pytest.raises(ValueError, match="an id"):
                action()
    assert learner.fingerprint() == before
    learner.save(tmp_path / "saved")


@pytest.mark.parametrize("label", [torch.zeros((), device="meta"), torch.zeros(()), np.float64(1), np.array("x")])
def test_scalars_of_arrays_as_labels(learner, label):
    if isinstance(label, np.ndarray):
        learner.learn_one(GOOD, label)
        assert "x" in learner.classes_
        return
    with pytest.raises(ValueError, match="a label is a str, int or bool"):
        learner.learn_one(GOOD, label)


@pytest.mark.parametrize("old", ["roze", "Rose", "ros"])
def test_classes_that_are_not_there_suggest_the_nearest(old):
    learner = CSSL(replay=2, model="linear")
    for label in ("rose", "tulip", 7, ("a", 1)):
        learner.learn_one(GOOD, label)
    for action in (
        lambda: learner.merge_classes(old, "tulip"),
        lambda: learner.merge_classes("tulip", old),
        lambda: learner.rename_class(old, "oak"),
    ):
        with pytest.raises(ValueError, match=f"there is no class '{old}'; did you mean 'rose'\\? known: .*'tulip'"):
            action()
    with pytest.raises(ValueError, match="there is no class 'zzzzzzz'; known"):
        learner.merge_classes("zzzzzzz", "rose")
    with pytest.raises(ValueError, match="there is no class '7'; did you mean 7"):
        learner.rename_class("7", "seven")


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
        ({"device": "gpu"}, "^unknown device 'gpu'; use 'cpu' or 'cuda'$"),
        ({"device": "meta"}, "^unknown device 'meta'; use 'cpu' or 'cuda'$"),
        ({"device": 5}, "device 5|cuda:5|unknown device|wrong type"),
        ({"rate": None}, "rate is a schedule"),
        ({"counts": 5}, "counts gives the number of examples of each label"),
        ({"precision": []}, "unknown precision"),
        ({"replay": 10**5000}, "replay has a number of 16,610 bits"),
        ({"replay": 1 << 63}, "replay is at most 9,2"),
        ({"seed": [10**5000]}, "seed has a number of 16,610 bits"),
        ({"weight_decay": 10**5000}, "weight_decay has a number of 16,610 bits"),
        ({"normalize": eval("(" * 60 + "1" + ",)" * 60)}, "normalize has more than 10 levels"),
        ({"storage": "cloud"}, "storage is 'memory'"),
        ({"storage": "disk:no/such/folder"}, "does not exist"),
        ({"size": 0}, "size is a whole number from 1"),
        ({"size": "big"}, "size is one side or"),
        ({"channels": 4}, "channels is 1"),
        ({"classes": 0}, "classes is a whole number from 1"),
        ({"classes": 10**12}, "^classes is at most 100,000, not 1000000000000$"),
        ({"zoom": 2}, "zoom is above 0"),
        ({"seed": -1}, "seed is a whole number"),
        ({"items": "sounds"}, "items is 'images' or 'vectors'"),
        ({"momentum": -1}, "momentum is a number"),
        ({"weight_decay": float("nan")}, "weight_decay is a number"),
    ],
)
@pytest.mark.parametrize("kind", [CSSL, ColdStart])
def test_settings(kind, settings, message):
    with pytest.raises(ValueError, match=message):
        kind(**settings)


WEIRD = [
    *(
        None,
        True,
        5,
        -1,
        0,
        0.5,
        10**5000,
        float("nan"),
        float("inf"),
        "",
        "x",
        "README.md",
        "(",
        b"x",
        [],
        {},
        set(),
        (),
    ),
    *(
        (1, 2, 3, 4),
        [[1], [2, 3]],
        {"a": -1},
        object(),
        object,
        range(3),
        np.zeros(0),
        np.zeros((2, 3)),
        np.int64(-7),
    ),
    *(torch.zeros(3, device="meta"), torch.zeros(2, 3), complex(1, 2), "9" * 5000, eval("(" * 60 + "1" + ",)" * 60)),
]


@pytest.mark.filterwarnings("ignore:init=")
@pytest.mark.parametrize("name", LEARNERS)
def test_any_value_of_any_setting(name):
    """Each is accepted, or refused with a ValueError that names the setting or what it may be."""
    kind = LEARNERS[name]
    needed = {"classes": 3} if name == "offline" else {}
    for setting in kind.Settings.model_fields:
        for value in WEIRD:
            try:
                kind(**{**needed, setting: value})
            except ValueError as error:
                said = str(error)
            except Exception as error:
                pytest.fail(f"{setting}={type(value).__name__} {str(value)[:40]}: {error!r}")
            else:
                continue
            assert len(said) > 10, (setting, value)
            assert "int_max_str_digits" not in said, (setting, said)


def test_files_that_are_no_weights(tmp_path):
    for number, content in enumerate([b"", b"# Readme", b"PK\3\4", b"\x80\2", b"{}", bytes(100), b"\x80\2]q\0."]):
        for suffix in ("md", "pt", "safetensors"):
            path = tmp_path / f"{number}.{suffix}"
            path.write_bytes(content)
            fresh = CSSL(init=path)
            with pytest.raises(ValueError, match=f"weights file '.*{number}.{suffix}'") as error:
                fresh.learn_one(GOOD, "a")
            assert "weights_only" not in str(error.value)  # torch recommends loading that runs code
            assert not fresh.built


def test_unknown_setting_names_the_nearest():
    with pytest.raises(ValueError, match="unknown setting of CSSL 'replya'; did you mean 'replay'"):
        CSSL(replya=3)


def test_capacity_smaller_than_one_example():
    learner = ColdStart(capacity="100B")
    empty = learner.fingerprint()
    with pytest.raises(ValueError, match="capacity of 100 bytes is smaller than one example"):
        learner.learn_one(GOOD, "a")
    assert learner.fingerprint() == empty
    jpeg = ColdStart(model="linear", codec="jpeg(95)", capacity="700B", size=16)
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


@pytest.mark.parametrize(
    ("images", "says"),
    [
        ("inbox", "got one str: 'inbox'; pass a list of images"),
        (Path("inbox"), "got one PosixPath.*pathlib.Path of a folder"),
        (encoded("PNG"), "got one bytes"),
        (None, "in a list or an array, got NoneType"),
        (5, "in a list or an array, got int"),
        ({}, "in a list or an array, got dict"),
        ({b"x"}, "in a list or an array, got set"),
        (Image.fromarray(GOOD), "in a list or an array, got Image"),
        (np.uint8(3), "in a list or an array, got uint8"),
        (np.array(3), "in a list or an array, got ndarray"),
        (torch.zeros((), device="meta"), "in a list or an array, got Tensor"),
    ],
    ids=lambda value: "" if isinstance(value, str) else type(value).__name__,
)
def test_what_is_not_several_images(learner, images, says):
    before = learner.fingerprint()
    for asked in (learner, ColdStart(model="linear")):
        for action in (
            asked.predict_many,
            asked.predict_proba_many,
            lambda images, on=asked: on.learn_many(images, ["a"]),
        ):
            with pytest.raises(ValueError, match=f"expected several images.*({says})"):
                action(images)
    for labels in (None, 5, object()):
        with pytest.raises(ValueError, match="labels has a value for each image"):
            learner.learn_many([GOOD], labels)
    with pytest.raises(ValueError, match="ids has a value for each image"):
        learner.learn_many([GOOD], ["a"], ids=3)
    assert learner.fingerprint() == before


def test_several_images_from_a_generator(learner):
    assert len(learner.predict_many(image for image in [GOOD, GOOD])) == 2
    assert learner.learn_many((image for image in [GOOD, GOOD]), iter(["a", "b"]), ids=iter([70, 71])) == [70, 71]


@pytest.mark.parametrize(
    "vector",
    [
        torch.zeros(3, device="meta"),
        torch.zeros(3, requires_grad=True),
        torch.zeros(3).to_sparse(),
        [[1], [2, 3]],
        *("abc", None, {}, object(), [10**5000, 1, 2], [1, None, 2], b"abc"),
    ],
    ids=lambda vector: type(vector).__name__,
)
def test_vectors(vector):
    learner = CSSL(items="vectors", augment="none", model="linear", replay=2)
    for _ in range(2):
        with pytest.raises(ValueError, match="expected a vector of numbers"):
            learner.learn_one(vector, "a")
        with pytest.raises(ValueError, match="expected a vector of numbers"):
            learner.predict_one(vector)
        learner.learn_one([0.0, 1.0, 2.0], "a")


def test_one_image_where_several_are_expected(learner):
    for action in (learner.predict_many, learner.predict_proba_many):
        with pytest.raises(ValueError, match="expected several images"):
            action(GOOD)
    with pytest.raises(ValueError, match="expected several images"):
        learner.learn_many(GOOD, ["a"] * 16)
