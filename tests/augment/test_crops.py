"""Crops and flips against slow and obvious versions, and their distributions."""

import numpy as np
import pytest
import torch
from scipy import stats
from torchvision.transforms import RandomResizedCrop
from torchvision.transforms import functional as tv

from coldstream.augment.crops import Crop, Flip, ResizedCrop

# Some hundred assertions of this folder are statistical: at this level all of them together raise a false alarm
# about once in a hundred choices of seeds (which are fixed), and samples are large enough to see small errors.
LEVEL = 1e-4


def random_images(count, *shape):
    return torch.from_numpy(np.random.default_rng(0).integers(1, 256, (count, *shape)).astype(np.uint8))


@pytest.mark.parametrize(
    ("side", "margin"), [(32, 4), (28, 4), (8, 1), (4, 1), (1, 1), (20, 3), (64, 8), (96, 12), (224, 28)]
)
def test_margin_is_an_eighth_of_the_side(side, margin):
    assert Crop().margin(side) == margin
    assert Crop(2).margin(side) == 2


@pytest.mark.parametrize("shape", [(3, 32, 32), (1, 28, 28), (3, 8, 24), (3, 17, 9), (1, 1, 1)])
@pytest.mark.parametrize("crop", [Crop(), Crop(1), Crop(40)], ids=str)
def test_crop_is_a_window_of_the_padded_image(crop, shape):
    images = random_images(40, *shape)
    down, across = crop.margin(shape[1]), crop.margin(shape[2])
    top, left = crop.draw(40, *shape[1:], seed=3, step=4)
    cropped = crop(images, 3, 4)
    for i in range(40):
        padded = torch.nn.functional.pad(images[i], (across, across, down, down))
        assert torch.equal(cropped[i], padded[:, top[i] :, left[i] :][:, : shape[1], : shape[2]])
    channels_last = images.to(memory_format=torch.channels_last)
    assert torch.equal(crop(channels_last, 3, 4), cropped)


def test_offsets_are_uniform_over_all_positions():
    top, left = Crop().draw(40_000, 32, 16, seed=1, step=2)
    counts = np.histogram2d(top, left, bins=(np.arange(10), np.arange(6)))[0]
    assert counts.sum() == 40_000  # that is, no offset beyond 0..8 and 0..4
    assert counts.min() > 0
    assert stats.chisquare(counts.ravel()).pvalue > LEVEL


@pytest.mark.parametrize("chance", [0.0, 0.3, 0.5, 1.0])
def test_flip_has_its_probability_and_mirrors_whole_images(chance):
    flip = Flip(chance)
    mirrored = flip.draw(200_000, seed=0, step=0)
    assert stats.binomtest(int(mirrored.sum()), 200_000, chance).pvalue > LEVEL
    images = random_images(50, 3, 5, 7)
    mirrored = flip.draw(50, seed=0, step=1)
    expected = torch.stack([row.flip(-1) if m else row for row, m in zip(images, mirrored, strict=True)])
    assert torch.equal(flip(images, 0, 1), expected)


@pytest.mark.parametrize(
    "draw", [lambda n, step: Crop().draw(n, 32, 32, 0, step)[0], lambda n, s: Flip().draw(n, 0, s)]
)
def test_rows_and_steps_are_independent(draw):
    values = np.array([draw(4, step) for step in range(4000)], dtype=float)
    correlation = np.corrcoef(np.concatenate([values[:-1], values[1:]], axis=1).T)
    assert np.abs(correlation[~np.eye(8, dtype=bool)]).max() < 0.06


@pytest.mark.parametrize("size", [(32, 32), (20, 50), (9, 8)])
@pytest.mark.parametrize("lower", [0.08, 0.5])
def test_resizedcrop_is_within_one_level_of_torchvision(lower, size):
    crop = ResizedCrop(lower)
    images = random_images(60, 3, *size)
    ours = crop(images, 5, 6)
    boxes = crop.draw(60, *size, 5, 6)
    theirs = torch.stack(
        [tv.resized_crop(row, *box, size) for row, box in zip(images, boxes.T.tolist(), strict=True)]
    )
    difference = (ours.int() - theirs.int()).abs()
    assert difference.max() <= 1
    assert (difference > 0).float().mean() < 0.02


def test_resizedcrop_of_the_whole_image_changes_nothing():
    class Whole(ResizedCrop):
        def draw(self, count, height, width, seed, step):
            return np.tile([[0], [0], [height], [width]], count)

    images = random_images(5, 3, 33, 21)
    assert torch.equal(Whole()(images, 0, 0), images)


@pytest.mark.parametrize(("size", "lower"), [((32, 32), 0.08), ((32, 32), 0.9), ((12, 40), 0.5), ((40, 12), 0.3)])
def test_boxes_are_distributed_as_those_of_torchvision(size, lower):
    count = 4000
    ours = ResizedCrop(lower).draw(count, *size, seed=0, step=9)
    image = torch.empty(1, *size)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        params = [RandomResizedCrop.get_params(image, [lower, 1.0], [3 / 4, 4 / 3]) for _ in range(count)]
    theirs = np.array(params).T
    for drawn, other in zip(ours, theirs, strict=True):
        values = np.union1d(drawn, other)
        table = np.array([np.searchsorted(values, x) for x in (drawn, other)])
        counts = np.array([np.bincount(row, minlength=values.size) for row in table])
        counts = counts[:, counts.sum(0) > 10]
        if counts.shape[1] > 1:
            assert stats.chi2_contingency(counts).pvalue > LEVEL
        else:
            np.testing.assert_array_equal(np.unique(drawn), np.unique(other))
    top, left, height, width = ours
    assert (top >= 0).all()
    assert (left >= 0).all()
    assert (top + height <= size[0]).all()
    assert (left + width <= size[1]).all()


def test_boxes_that_never_fit_fall_back_to_the_centre():
    top, left, height, width = ResizedCrop(1.0).draw(50, 10, 100, seed=0, step=0)
    assert {*zip(top.tolist(), left.tolist(), height.tolist(), width.tolist(), strict=True)} == {(0, 43, 10, 13)}
