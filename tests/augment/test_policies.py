"""The tables against torchvision's, and the frequencies of what is drawn from them."""

import numpy as np
import pytest
import torch
from scipy import stats
from torchvision.transforms import InterpolationMode, autoaugment

from coldstream.augment.ops import OP_ID, OPS
from coldstream.augment.policies import (
    AUTOAUGMENT,
    RANDAUGMENT_OPS,
    SIGNED,
    AutoAugment,
    RandAugment,
    magnitude_table,
)

LEVEL = 1e-4  # see test_crops.py
SIZES = [(32, 32), (8, 8), (28, 40), (224, 224)]


@pytest.mark.parametrize("table", sorted(AUTOAUGMENT))
def test_sub_policies_are_those_of_torchvision(table):
    theirs = autoaugment.AutoAugment(autoaugment.AutoAugmentPolicy(table)).policies
    assert list(AUTOAUGMENT[table]) == theirs
    assert len(theirs) == 25


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("theirs", "bins"), [(autoaugment.AutoAugment(), 10), (autoaugment.RandAugment(), 31)])
def test_magnitudes_are_those_of_torchvision(theirs, bins, size):
    table = magnitude_table(bins, *size)
    space = theirs._augmentation_space(bins, size)
    for name, (magnitudes, signed) in space.items():
        np.testing.assert_array_equal(table[OP_ID[name]], np.broadcast_to(magnitudes.double().numpy(), bins))
        assert signed == (name in SIGNED), name
    if bins == 31:
        assert tuple(space) == RANDAUGMENT_OPS


def autoaugment_draws(table, count=200_000):
    return AutoAugment(table).choose(count, seed=5, step=11)


@pytest.mark.parametrize("table", sorted(AUTOAUGMENT))
def test_sub_policies_are_uniform(table):
    which, _, _ = autoaugment_draws(table)
    assert stats.chisquare(np.bincount(which, minlength=25)).pvalue > LEVEL


@pytest.mark.parametrize("table", sorted(AUTOAUGMENT))
def test_steps_happen_with_their_probability(table):
    which, happens, _ = autoaugment_draws(table)
    for position, pair in enumerate(AUTOAUGMENT[table]):
        rows = happens[:, which == position]
        for done, (_, chance, _) in zip(rows, pair, strict=True):
            assert stats.binomtest(int(done.sum()), done.size, chance).pvalue > LEVEL
        a, b = rows
        if len({*a}) == len({*b}) == 2:  # the two steps are decided apart from each other
            assert stats.chi2_contingency(np.histogram2d(a, b, bins=2)[0]).pvalue > LEVEL


def test_signs_are_fair_and_independent():
    _, happens, negative = autoaugment_draws("cifar10")
    for row in negative:
        assert stats.binomtest(int(row.sum()), row.size, 0.5).pvalue > LEVEL
    assert abs(np.corrcoef(negative)[0, 1]) < 0.02
    assert abs(np.corrcoef(negative[0], happens[0])[0, 1]) < 0.02


def test_autoaugment_draws_are_those_of_its_choices():
    policy = AutoAugment("cifar10")
    which, happens, negative = policy.choose(2000, 0, 1)
    ops, magnitudes = policy.draw(2000, 32, 24, 0, 1)
    space = autoaugment.AutoAugment()._augmentation_space(10, (32, 24))
    for i in range(2000):
        for j in range(2):
            name, _, position = AUTOAUGMENT["cifar10"][which[i]][j]
            assert OPS[ops[j, i]] == (name if happens[j, i] else "Identity")
            values, signed = space[name]
            expected = 0.0 if position is None else values[position].item()
            assert magnitudes[j, i] == (-expected if signed and negative[j, i] else expected)


def test_randaugment_operations_are_uniform_and_signs_fair():
    ops, magnitudes = RandAugment(2, 9).draw(100_000, 32, 32, seed=2, step=3)
    pairs = np.bincount(ops[0] * 14 + ops[1], minlength=14 * 14)
    assert pairs.size == 14 * 14  # Invert is not among them
    assert stats.chisquare(pairs).pvalue > LEVEL
    expected = magnitude_table(31, 32, 32)[ops, 9]
    np.testing.assert_array_equal(np.abs(magnitudes), expected)
    signed = np.isin(ops, [OP_ID[name] for name in SIGNED])
    assert (magnitudes[~signed] >= 0).all()
    negative = magnitudes[signed] < 0
    assert stats.binomtest(int(negative.sum()), negative.size, 0.5).pvalue > LEVEL


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("magnitude", [0, 4, 9, 14, 30])
def test_randaugment_has_its_number_and_magnitude(count, magnitude):
    policy = RandAugment(count, magnitude)
    ops, magnitudes = policy.draw(50, 32, 32, seed=0, step=0)
    assert ops.shape == magnitudes.shape == (count, 50)
    np.testing.assert_array_equal(np.abs(magnitudes), magnitude_table(31, 32, 32)[ops, magnitude])


@pytest.mark.parametrize("policy", [AutoAugment("cifar10"), AutoAugment("imagenet"), RandAugment(3, 14)], ids=str)
def test_images_go_through_the_drawn_operations_in_turn(policy):
    images = torch.from_numpy(np.random.default_rng(0).integers(0, 256, (60, 3, 16, 16)).astype(np.uint8))
    ours = policy(images, 1, 2)
    ops, magnitudes = policy.draw(60, 16, 16, 1, 2)
    for i, row in enumerate(images):
        for op, magnitude in zip(ops[:, i], magnitudes[:, i], strict=True):
            row = autoaugment._apply_op(row, OPS[op], float(magnitude), InterpolationMode.NEAREST, None)
        assert (ours[i] != row).float().mean() < 0.05  # sampling ties, see ops.py; none where we tried
