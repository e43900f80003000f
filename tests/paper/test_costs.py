"""What runs at the paper's scale cost."""

import pytest

from coldstream.learners.properties import operations
from coldstream.paper import costs


def _convolution(size, inputs, outputs, kernel=3):
    return 2 * size * size * inputs * outputs * kernel * kernel


def test_operations_of_the_papers_resnet18_for_small_images():
    """By its layers: a stem, four stages of four convolutions, and three that halve the maps in the shortcut."""
    by_hand = _convolution(32, 3, 64) + 4 * _convolution(32, 64, 64)
    for size, channels in ((16, 128), (8, 256), (4, 512)):
        by_hand += _convolution(size, channels // 2, channels) + 3 * _convolution(size, channels, channels)
        by_hand += _convolution(size, channels // 2, channels, kernel=1)
    assert operations("resnet18-cifar", 32) == by_hand


def test_operations_of_resnet18_are_the_published_ones():
    """1.8 billion multiplications, says the paper that introduced it."""
    assert operations("resnet18", 224) / 2 == pytest.approx(1.8e9, rel=0.02)


def test_hours_are_operations_at_the_rate():
    header, cifar, *_ = costs.table()
    line = dict(zip(header, cifar, strict=True))
    total = 50_000 * 101 * 3 * operations("resnet18-cifar", 32)
    assert float(line["operations"]) == pytest.approx(total, rel=0.05)
    assert float(line["hours on one GPU"]) == pytest.approx(total / 1e13 / 3600, abs=0.05)
    assert line["runs"] == "42"  # 14 learners, three seeds
