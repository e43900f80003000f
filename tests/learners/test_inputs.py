"""Images come in outside the lock; what the learner says of those that do not suit it, and of itself."""

import threading
import time
import warnings
from functools import partial

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from coldstream import CSSL, ColdStart, images
from coldstream.data import digits
from coldstream.learners import LEARNERS
from coldstream.learners.inputs import Inputs
from coldstream.limits import NETWORK_PIXELS, pixel_limit
from image_files import encode
from large_images import LARGE

COLOUR = np.random.default_rng(0).integers(0, 256, (16, 16, 3), dtype=np.uint8)
GREY = COLOUR[:, :, :1].copy()


def taught(kind=ColdStart, count=2, **settings):
    learner = kind(**{"replay": 4, "model": "linear", **settings})
    for number in range(count):
        learner.learn_one(COLOUR, "ab"[number % 2])
    return learner


# ---------------------------------------------------------------------------------------------------- the lock


class Gate:
    """Holds the decoding of one image until it is opened."""

    def __init__(self, monkeypatch, stopped):
        self.entered, self.open = threading.Event(), threading.Event()
        real = images.as_array

        def as_array(image, *rest, **named):
            if image is stopped:
                self.entered.set()
                assert self.open.wait(30)
            return real(image, *rest, **named)

        monkeypatch.setattr(images, "as_array", as_array)


def started(*actions):
    threads = [threading.Thread(target=action) for action in actions]
    for thread in threads:
        thread.start()
    return threads


VERBS = {
    "learn_one": lambda learner, image: learner.learn_one(image, "a"),
    "learn_many": lambda learner, image: learner.learn_many([COLOUR, image], ["a", "b"]),
    "predict_one": lambda learner, image: learner.predict_one(image),
    "predict_many": lambda learner, image: learner.predict_many([COLOUR, image]),
    "predict_proba_one": lambda learner, image: learner.predict_proba_one(image),
    "predict_proba_many": lambda learner, image: learner.predict_proba_many([COLOUR, image]),
}


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("count", [0, 2], ids=["new", "taught"])
def test_others_need_not_wait_for_a_decoder(monkeypatch, verb, count):
    learner, slow = taught(count=count), encode(Image.fromarray(COLOUR), "PNG")
    gate, done = Gate(monkeypatch, slow), []
    threads = started(
        lambda: VERBS[verb](learner, slow),
        lambda: (
            gate.entered.wait(30)
            and done.append((learner.predict_one(COLOUR), learner.learn_one(COLOUR, "b"), learner.fingerprint()))
        ),
    )
    threads[1].join(timeout=30)
    assert done, "a question waited for an image of another thread to be decoded"
    gate.open.set()
    threads[0].join(timeout=30)
    assert not threads[0].is_alive()


@pytest.mark.parametrize("verb", ["learn_one", "learn_many"])
def test_two_first_images_at_once(monkeypatch, verb):
    """Both are brought to their own size; the one that comes second is then brought to that of the first."""
    learner = ColdStart(replay=4, model="linear")
    first, second = np.zeros((8, 8, 3), np.uint8), np.zeros((20, 12, 3), np.uint8)
    both, real, asked = threading.Barrier(2), Inputs.admit, []

    def admit(self, item, shape, **named):
        asked.append(shape)
        if shape is None:
            both.wait(timeout=30)
        return real(self, item, shape, **named)

    monkeypatch.setattr(Inputs, "admit", admit)
    ids = []
    for thread in started(
        lambda: ids.append(VERBS[verb](learner, first) if verb == "learn_one" else learner.learn_many([first], "a")),
        lambda: ids.append(
            VERBS[verb](learner, second) if verb == "learn_one" else learner.learn_many([second], "a")
        ),
    ):
        thread.join(timeout=30)
    assert len(ids) == 2
    assert learner.shape in ((8, 8, 3), (20, 12, 3))
    assert asked[:2] == [None, None]
    assert asked[2:] == [learner.shape], "the second image was learned at its own size, or decoded more than twice"
    assert learner.memory()[0] == learner.step == 2
    learner.predict_one(second)


def test_a_first_image_that_is_refused_decides_nothing(monkeypatch):
    learner, bad = ColdStart(replay=4, model="linear"), np.zeros((8, 8, 3), np.int64)
    with pytest.raises(ValueError):
        learner.learn_one(bad, "a")
    assert learner.shape is None
    learner.learn_one(np.zeros((9, 9, 3), np.uint8), "a")
    assert learner.shape == (9, 9, 3)


def test_many_threads_begin_one_learner():
    def both(learner, picture):
        learner.learn_one(picture, "a")
        learner.predict_one(picture)

    for seed in range(5):
        learner, dice = CSSL(replay=2, model="linear", augment="none"), np.random.default_rng(seed)
        sides = dice.integers(4, 30, (6, 2))
        pictures = [dice.integers(0, 256, (*size, 3), dtype=np.uint8) for size in sides]
        for thread in started(*(partial(both, learner, picture) for picture in pictures)):
            thread.join(timeout=30)
        assert learner.step == 6
        assert learner.shape in [picture.shape for picture in pictures]


@pytest.mark.parametrize("name", ["webp, lossless", "png, rgba of 16 bits", "jpeg, progressive"])
def test_a_large_image_does_not_stop_the_others(name):
    learner, data = taught(), LARGE[name](3000)
    began, longest, done = time.perf_counter(), 0.0, threading.Event()
    (thread,) = started(lambda: (learner.predict_one(data), done.set()))
    while not done.is_set():
        asked = time.perf_counter()
        learner.predict_one(COLOUR)
        longest = max(longest, time.perf_counter() - asked)
    thread.join()
    assert longest < 0.2 + (time.perf_counter() - began) / 2


def test_the_limit_of_the_network_holds_for_every_verb():
    learner, data = taught(), LARGE["png, 1 bit"](4100)
    before = learner.fingerprint()
    with pixel_limit(NETWORK_PIXELS):
        for verb in VERBS.values():
            with pytest.raises(ValueError, match="4100 x 4100 pixels are over the limit of 16,000,000"):
                verb(learner, data)
    assert learner.fingerprint() == before
    learner.predict_one(data)


# ------------------------------------------------------------------------------------------------ grey learners


def test_a_colour_image_at_a_grey_learner_warns_once():
    learner = ColdStart(replay=4, model="linear")
    learner.learn_one(GREY, "a")
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        for _ in range(3):
            learner.learn_one(COLOUR, "b")
            learner.predict_one(COLOUR)
    assert [str(one.message).split(";")[0] for one in heard] == [
        "this image has colours, and the learner sees it in grey, as its first image was"
    ]
    assert "channels=3" in str(heard[0].message)
    assert heard[0].filename == __file__


def test_a_warning_that_is_an_error_changes_nothing():
    learner = ColdStart(replay=4, model="linear")
    learner.learn_one(GREY, "a")
    before = learner.fingerprint()
    with pytest.raises(UserWarning, match="has colours"):
        learner.learn_one(COLOUR, "b")
    assert learner.fingerprint() == before


@pytest.mark.parametrize("channels", [None, 1, 3])
def test_no_warning_where_nothing_is_lost(channels):
    learner = ColdStart(replay=4, model="linear", channels=channels)
    learner.learn_one(GREY, "a")
    same = np.repeat(GREY, 3, axis=2)
    for image in (same, encode(Image.fromarray(same), "PNG"), encode(Image.fromarray(same), "JPEG"), GREY):
        learner.learn_one(image, "b")
    if channels is not None:
        learner.learn_one(COLOUR, "b")


def test_grey_learners_see_the_same_with_and_without_the_warning():
    one, other = (ColdStart(replay=4, model="linear", channels=channels) for channels in (None, 1))
    picture = encode(Image.fromarray(np.tile(COLOUR, (20, 20, 1))), "JPEG")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for learner in (one, other):
            for image in (GREY, COLOUR, picture, COLOUR):
                learner.learn_one(image, "a")
    probe = np.random.default_rng(1).integers(0, 256, (5, 16, 16, 3), dtype=np.uint8)
    np.testing.assert_array_equal(one.predict_proba_many(probe), other.predict_proba_many(probe))
    items = [next(iter(learner.tasks.values())).buffer.items(np.arange(4)) for learner in (one, other)]
    np.testing.assert_array_equal(*items)


# ---------------------------------------------------------------------------------------------- published weights


@pytest.mark.parametrize(
    ("kind", "given", "says"),
    [
        ("cssl", {}, "give normalize='imagenet' and rate=0.01 .now normalize='half' and rate='inverse-sqrt"),
        ("cold-start", {"rate": 0.01}, "give normalize='imagenet' .now normalize='half', for random weights"),
        ("er", {"normalize": "imagenet"}, "give rate=0.01 .now rate='inverse-sqrt"),
        ("linear-probe", {}, "give normalize='imagenet' .now normalize='half',"),
        ("deep-slda", {}, "give normalize='imagenet' .now normalize='half',"),
        ("icarl", {}, "give normalize='imagenet' .now normalize='half',"),
        ("remind", {}, "give normalize='imagenet' .now normalize='half',"),
    ],
)
def test_published_weights_want_other_settings(kind, given, says):
    with pytest.warns(UserWarning, match=f"init='IMAGENET1K_V1' are weights trained .*{says}") as heard:
        LEARNERS[kind](model="resnet18", init="IMAGENET1K_V1", size=32, **given)
    assert len(heard) == 1
    assert heard[0].filename == __file__


def test_no_warning_of_weights_where_the_settings_were_given(tmp_path):
    CSSL(model="resnet18", init="IMAGENET1K_V1", normalize="half", rate="inverse-sqrt(0.1)")
    CSSL(init="random")
    CSSL(init="base")
    torch.save({}, tmp_path / "own.pt")
    CSSL(init=tmp_path / "own.pt")


# ---------------------------------------------------------------------------------------------------------- repr


def test_repr_says_what_it_is_and_knows():
    assert repr(CSSL()) == "<CSSL(): 0 classes, 0 stored, step 0>"
    learner = ColdStart(replay=4, model="linear", size=(16, 16), capacity="1MB")
    assert (
        repr(learner)
        == "<ColdStart(model='linear', size=[16, 16], replay=4, capacity='1MB'): 0 classes, 0 stored, step 0>"
    )
    for number in range(5):
        learner.learn_one(COLOUR, f"c{number % 3}")
    learner.forget(0)
    assert repr(learner).endswith(": 3 classes, 4 stored, step 5>")
    assert repr(learner.snapshot()).endswith(": 3 classes, 0 stored, step 5>")
    tasks = CSSL(replay=2, model="linear", augment="none")
    for task in ("x", "y"):
        tasks.learn_one(COLOUR, "a", task=task)
    assert repr(tasks) == "<CSSL(model='linear', replay=2, augment='none'): 2 classes in 2 tasks, 2 stored, step 2>"


@pytest.mark.parametrize("name", LEARNERS)
def test_repr_of_every_learner_is_one_short_line(name):
    counts = {f"class {number}": 5 for number in range(1000)}
    more = {"counts": counts} if "counts" in LEARNERS[name].Settings.model_fields else {}
    for settings in (
        {},
        {"model": nn.Sequential(*(nn.Identity() for _ in range(50)))},
        {"normalize": ([0.5], [0.1]), **more},
    ):
        text = repr(LEARNERS[name](**{"classes": 10, **settings}))
        assert "\n" not in text
        assert len(text) < 300
        assert " at 0x" not in text


def test_repr_while_another_thread_holds_the_lock():
    learner, heard = taught(), []
    with learner._lock:
        (thread,) = started(lambda: heard.append(repr(learner)))
        thread.join(timeout=10)
        assert heard, "a debugger could not show a learner that is at work"


def test_repr_names_a_data_set():
    learner = CSSL(model="linear", init=digits()[0].take(np.arange(20)), replay=2, augment="none")
    assert "init=<data set 'digits'>" in repr(learner)
