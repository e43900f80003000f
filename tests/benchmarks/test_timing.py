"""The pieces of a step: what is timed is what the learner does, and it does the same as when nobody looks."""

import json
from collections import OrderedDict

import numpy as np
import pytest
import torch
from torch import nn

from benchmarks import run_bench, timing
from benchmarks.measuring import Bench, Scale
from coldstream.data import Dataset
from coldstream.learners import CSSL, REMIND, OfflineRecipe

TINY = Scale(*(0.01, 2, 2, 0.001), stored=12, replay=3)
LABELS = np.arange(20) % 2
IMAGES = np.random.default_rng(0).integers(0, 256, (20, 8, 8, 3), dtype=np.uint8)
DATA = Dataset("data", IMAGES, LABELS, ("a", "b"))
ONCE = OfflineRecipe(epochs=0)


class Clock:
    """Time that passes only as it is told."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now

    def __deepcopy__(self, memo):
        return self  # the twin of the network that answers is a copy, and time passes there too


class Slow(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, clock, there, back):
        ctx.clock, ctx.back = clock, back
        clock.now += there
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        ctx.clock.now += ctx.back
        return gradient, None, None, None


class Layer(nn.Module):
    """A layer that takes so long in each direction."""

    def __init__(self, clock, there, back):
        super().__init__()
        self.conv, self.slow = nn.Conv2d(3, 3, 3, padding=1), (clock, there, back)

    def forward(self, x):
        return Slow.apply(self.conv(x), *self.slow)


def fixed(**settings):
    """Return a learner of the paper's algorithm: one update a step, and no more."""
    return CSSL(augment="crop|flip", **settings)


@pytest.mark.parametrize("kind", [fixed, REMIND])
def test_every_piece_has_its_own_time(kind, monkeypatch):
    clock = Clock()
    monkeypatch.setattr(timing.time, "perf_counter", clock)

    def network():
        end = nn.Sequential(Layer(clock, 0.002, 0.03), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        return nn.Sequential(OrderedDict(frozen=Layer(clock, 0.5, 7.0), plastic=end))

    learner = kind(model=network, replay=4, classes=2)
    learner.base_init(DATA, ONCE)
    watch = timing.Watch(learner)
    for image in IMAGES[:3]:
        learner.learn_one(image, "a")
        learner.predict_one(image)  # which is not a piece of a step, though REMIND encodes there too
    milliseconds = {piece: np.unique(np.round(values, 6)).tolist() for piece, values in watch.taken.items()}
    assert {len(values) for values in watch.taken.values()} == {3}
    if kind is fixed:
        assert milliseconds == {"forward": [502.0], "backward": [7030.0], "update": [0.0]}
    else:
        assert milliseconds == {
            "frozen": [500.0],
            "encode": [0.0],
            "forward": [2.0],
            "backward": [30.0],
            "update": [0.0],
        }


@pytest.mark.parametrize("kind", [fixed, REMIND])
def test_it_learns_the_same_when_watched(kind):
    marks = []
    for watched in (False, True):
        learner = kind(model="resnet10-16", replay=4)
        learner.base_init(DATA, ONCE)
        if watched:
            watch = timing.Watch(learner)
        for image, label in zip(IMAGES[:4], LABELS, strict=False):
            learner.learn_one(image, "ab"[label])
        marks.append(learner.fingerprint())
    assert marks[0] == marks[1]
    assert all(len(values) == 4 and min(values) > 0 for values in watch.taken.values())


def test_the_table(tmp_path):
    milliseconds = timing.pieces(Bench(tmp_path, TINY), model="resnet10-16", size=8, replay=3, iterations=4)
    assert list(milliseconds) == ["CSSL", "REMIND", "REMIND + extra params"]
    pieces = ["forward", "backward", "update"]
    assert [sorted(by_piece) for by_piece in milliseconds.values()] == [sorted(pieces)] + 2 * [
        sorted([*pieces, "frozen", "encode"])
    ]
    assert all(
        len(values) == 4 and (values > 0).all() for by_piece in milliseconds.values() for values in by_piece.values()
    )


def test_mean_and_deviation_by_hand():
    assert timing._mean(np.array([1.0, 2.0, 6.0])) == (3.0, pytest.approx(np.sqrt((4 + 1 + 9) / 2)))
    assert timing._mean(np.array([4.0])) == (4.0, 0.0)


def test_the_part_of_the_benchmark(tmp_path):
    bench = run_bench(["timing"], tmp_path, scale=TINY)
    rows = json.loads((tmp_path / "bench.json").read_text())["rows"]
    assert len(rows) == len(bench.rows) == 3 + 5 + 5
    assert {row["group"] for row in rows} == {"resnet10-16 at 32 px, B = 3"}
    assert all("mean" in row["note"] for row in rows)
    assert "## timing" in (tmp_path / "bench.md").read_text()
