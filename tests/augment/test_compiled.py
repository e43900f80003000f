"""The compiled path against the torch path, bit for bit."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from coldstream import native
from coldstream.augment import Policy, compiled
from coldstream.augment.mixing import Mixing, mix_images
from coldstream.augment.ops import OP_ID, OPS, apply_ops
from coldstream.augment.policies import SIGNED, magnitude_table

pytestmark = pytest.mark.skipif(not native.available(), reason=f"no compiled kernels: {native.state()}")

SHAPES = [(32, 32, 3), (28, 28, 1), (9, 13, 3), (20, 7, 1), (2, 5, 3), (1, 1, 1), (1, 1, 3), (64, 48, 3)]
POLICIES = [
    "crop",
    "crop(11)",
    "flip",
    "crop|flip",
    "autoaugment(cifar10)",
    "crop|flip|autoaugment(imagenet)",
    "randaugment(3, 30)",
    "flip|randaugment(1, 0)",
    "resizedcrop|flip|autoaugment(cifar10)",
]


def random_images(seed, count, shape):
    """Return noise, of which every third image has low contrast and every seventh is flat."""
    images = np.random.default_rng(seed).integers(0, 256, (count, *shape), dtype=np.uint8)
    images[1::3] = images[1::3] // 5 + 40
    images[2::7] = 77
    return images


def by_torch(policy, images, seed, step):
    return policy._by_torch(images, policy.stages, seed, step, None)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", OPS)
def test_every_operation_at_every_magnitude(name, shape, monkeypatch):
    magnitudes = np.concatenate([magnitude_table(bins, *shape[:2])[OP_ID[name]] for bins in (10, 31)])
    if name in SIGNED:
        magnitudes = np.concatenate([magnitudes, -magnitudes])
    images = random_images(OP_ID[name], len(magnitudes), shape)
    ops = np.full(len(magnitudes), OP_ID[name])
    stage = Policy.parse("randaugment").stages[0]
    monkeypatch.setattr(type(stage), "draw", lambda *_: (ops[None], magnitudes[None]))
    ours = compiled.augment(images, (stage,), 0, 0, None)
    theirs = apply_ops(torch.from_numpy(images).permute(0, 3, 1, 2), ops, magnitudes).permute(0, 2, 3, 1).numpy()
    np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("text", POLICIES)
def test_policies_have_the_bits_of_the_torch_path(text, shape):
    policy, images = Policy.parse(text), random_images(1, 23, shape)
    before = images.copy()
    changed = False
    for step in range(4):
        ours = policy.augment(images, 5, step)
        np.testing.assert_array_equal(ours, by_torch(policy, images, 5, step))
        np.testing.assert_array_equal(images, before)
        changed |= bool((ours != images).any())
    assert changed or shape[:2] == (1, 1)


@pytest.mark.parametrize("kernels", [True, False])
@pytest.mark.parametrize("text", POLICIES)
def test_a_part_of_a_batch_gets_the_draws_of_its_rows(text, kernels, monkeypatch):
    monkeypatch.setattr(native, "available", lambda: kernels)
    policy, images = Policy.parse(text), random_images(2, 13, (9, 9, 3))
    whole = policy.augment(images, 0, 3)
    parts = [policy.augment(images[a:b], 0, 3, (a, 13)) for a, b in ((0, 1), (1, 8), (8, 13))]
    np.testing.assert_array_equal(np.concatenate(parts), whole)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_random_images_policies_and_sizes(data):
    shape = (data.draw(st.integers(1, 20)), data.draw(st.integers(1, 20)), data.draw(st.sampled_from([1, 3])))
    policy = Policy.parse(data.draw(st.sampled_from(POLICIES)))
    images = random_images(data.draw(st.integers(0, 99)), data.draw(st.integers(1, 9)), shape)
    seed, step = data.draw(st.integers(0, 99)), data.draw(st.integers(0, 10**6))
    np.testing.assert_array_equal(policy.augment(images, seed, step), by_torch(policy, images, seed, step))


def test_images_that_are_not_contiguous():
    images = random_images(3, 10, (8, 8, 3))[::2, :, ::-1]
    policy = Policy.parse("crop|flip|autoaugment(cifar10)")
    np.testing.assert_array_equal(policy.augment(images, 0, 0), policy.augment(images.copy(), 0, 0))


@pytest.mark.parametrize("wrong", [np.zeros((2, 8, 8, 2), np.uint8), np.zeros((2, 8, 8, 3), np.float32)])
def test_what_is_no_image_is_refused(wrong):
    with pytest.raises(ValueError, match="takes uint8 images"):
        Policy.parse("crop").augment(wrong, 0, 0)


@pytest.mark.parametrize(
    "mixing", [None, Mixing(mixup=0.4), Mixing(cutmix=0.8), Mixing(mixup=0.1, cutmix=0.8)], ids=str
)
@pytest.mark.parametrize("last", [True, False])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_numbers_and_mixtures(shape, last, mixing):
    images, count = random_images(4, 17, shape), 17
    rng = np.random.default_rng(0)
    scale, shift = (rng.normal(size=shape[2]).astype(np.float32) for _ in range(2))
    bytes_first = torch.from_numpy(images).permute(0, 3, 1, 2).to(torch.float32)
    expected = torch.addcmul(
        torch.from_numpy(shift)[:, None, None], bytes_first, torch.from_numpy(scale)[:, None, None]
    )
    mixture = None if mixing is None else mixing.draw(count, *shape[:2], 0, 1)
    if mixture is not None:
        assert (mixture.partner != np.arange(count)).any()
        expected = mix_images(expected, mixture)
    out = np.full((count, *shape) if last else (count, shape[2], *shape[:2]), np.nan, np.float32)
    compiled.normalise(images, scale, shift, mixture, out, channels_last=last)
    np.testing.assert_array_equal(out.transpose(0, 3, 1, 2) if last else out, expected.numpy())
