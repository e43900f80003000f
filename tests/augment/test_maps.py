"""Crops and mixtures of feature maps against torch's interpolation, one map at a time."""

import numpy as np
import pytest
import torch
from torch.nn.functional import interpolate

from coldstream.augment.crops import ResizedCrop
from coldstream.augment.maps import Taps

RNG = np.random.default_rng(0)


def as_vectors(maps):
    return maps.permute(0, 2, 3, 1).reshape(-1, maps.shape[1])


def as_maps(vectors, height, width):
    return vectors.view(-1, height, width, vectors.shape[1]).permute(0, 3, 1, 2)


def one_by_one(maps, boxes):
    size = maps.shape[2:]
    pieces = [m[None, :, t : t + h, x : x + w] for m, (t, x, h, w) in zip(maps, boxes.T, strict=True)]
    return torch.cat([interpolate(piece, size, mode="bilinear", align_corners=False) for piece in pieces])


@pytest.mark.parametrize(("height", "width"), [(4, 4), (7, 7), (8, 5), (1, 1), (1, 3)])
def test_a_crop_is_torchs_interpolation(height, width):
    maps = torch.from_numpy(RNG.normal(size=(50, 6, height, width)))
    boxes = ResizedCrop(2 / 7).draw(50, height, width, 0, 3)
    cropped = Taps.cropped(boxes, height, width)(as_vectors(maps))
    np.testing.assert_allclose(as_maps(cropped, height, width), one_by_one(maps, boxes), rtol=0, atol=1e-12)


def test_a_mixture_is_the_weighted_sum_of_two_crops():
    maps = torch.from_numpy(RNG.normal(size=(7, 3, 4, 4)).astype(np.float32))
    boxes = ResizedCrop(2 / 7).draw(7, 4, 4, 0, 0)
    first, second, share = np.array([0, 1, 2, 3]), np.array([0, 4, 5, 6]), np.array([1, 0.3, 0.3, 0])
    mixed = as_maps(Taps.cropped(boxes, 4, 4).mixed(first, second, share)(as_vectors(maps)), 4, 4)
    alone = one_by_one(maps, boxes)
    weight = torch.from_numpy(share).float().view(-1, 1, 1, 1)
    np.testing.assert_allclose(mixed, weight * alone[first] + (1 - weight) * alone[second], rtol=0, atol=1e-6)


def test_whole_maps_keep_their_bits():
    vectors = torch.from_numpy(RNG.normal(size=(24, 5)).astype(np.float32))
    taps = Taps.whole(4, 2, 3)
    assert torch.equal(taps(vectors), vectors)
    same = taps.mixed(np.arange(4), np.arange(4), np.ones(4))
    assert torch.equal(same(vectors), vectors)


def test_areas_of_reminds_crops():
    """On 7x7 maps: sides as torchvision draws them, areas spread evenly from 2/7 to the whole."""
    _, _, high, wide = ResizedCrop(2 / 7).draw(20_000, 7, 7, 0, 0)
    share = high * wide / 49
    assert share.min() >= 9 / 49
    assert share.max() == 1
    # E[U] = 9/14 for U uniform in [2/7, 1]; less because large boxes that are not square do not fit.
    assert 0.56 < share.mean() < 9 / 14
    assert (share < 2 / 7).mean() < 0.1  # 3x4 = 12 and 3x3 = 9 of 49 come from rounding
    draws = np.random.default_rng(1)
    area = 49 * draws.uniform(2 / 7, 1, (20_000, 10))
    ratio = np.exp(draws.uniform(np.log(3 / 4), np.log(4 / 3), (20_000, 10)))
    w, h = np.rint(np.sqrt(area * ratio)), np.rint(np.sqrt(area / ratio))
    fits = ((w <= 7) & (h <= 7)).argmax(1)
    rows = np.arange(20_000)
    for ours, theirs in ((high, h[rows, fits]), (wide, w[rows, fits])):
        ours, theirs = (np.bincount(sides.astype(int), minlength=8)[:8] / 20_000 for sides in (ours, theirs))
        assert np.abs(ours - theirs).max() < 0.02
