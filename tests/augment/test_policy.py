"""The policy as a string and as a whole."""

import random

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from coldstream.augment import Policy

FULL = "crop|flip|autoaugment(cifar10)|mixup(0.1)/cutmix(0.8)"
OTHER = "resizedcrop(0.2)|flip(0.3)|randaugment(2, 14)|cutmix(1)"


def random_images(count=33, channels=3, height=16, width=20):
    shape = (count, channels, height, width)
    return torch.from_numpy(np.random.default_rng(0).integers(0, 256, shape).astype(np.uint8))


def floats_and_targets(count=33):
    return random_images(count).float() / 255 - 0.5, torch.eye(count)


def augmented(policy, images, seed, step):
    """Return a tensor of images (N, C, H, W) after `augment`."""
    array = np.ascontiguousarray(images.permute(0, 2, 3, 1).numpy())
    return torch.from_numpy(policy.augment(array, seed, step)).permute(0, 3, 1, 2)


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        (FULL, FULL),
        (OTHER, OTHER),
        ("none", "none"),
        (" none ", "none"),
        ("flip(0.5)", "flip"),
        ("flip(1)", "flip(1)"),
        ("flip(1.0)", "flip(1)"),
        ("crop()", "crop"),
        ("crop(4)", "crop(4)"),
        ("resizedcrop(0.08)", "resizedcrop"),
        ("randaugment", "randaugment(2, 9)"),
        ("randaugment(1)", "randaugment(1, 9)"),
        ("randaugment(3,30)", "randaugment(3, 30)"),
        (" crop | flip | mixup( 1 ) / cutmix( 0.80 ) ", "crop|flip|mixup(1)/cutmix(0.8)"),
        ("mixup(1e-7)", "mixup(1e-07)"),
        ("mixup(1e30)", "mixup(1e+30)"),
    ],
)
def test_canonical_string(text, canonical):
    policy = Policy.parse(text)
    assert str(policy) == canonical
    assert Policy.parse(canonical) == policy
    assert hash(Policy.parse(canonical)) == hash(policy)


_POSITIVE = st.floats(0, exclude_min=True, allow_infinity=False, allow_nan=False)
_CHAINS = st.tuples(
    st.one_of(
        st.just(""),
        st.just("crop"),
        st.integers(1, 99).map("crop({})".format),
        st.floats(0, 1, exclude_min=True).map("resizedcrop({})".format),
    ),
    st.one_of(st.just(""), st.just("flip"), st.floats(0, 1).map("flip({})".format)),
    st.one_of(
        st.just(""),
        st.sampled_from(["autoaugment(cifar10)", "autoaugment(imagenet)"]),
        st.tuples(st.integers(1, 9), st.integers(0, 30)).map("randaugment{}".format),
    ),
    st.one_of(
        st.just(""),
        _POSITIVE.map("mixup({})".format),
        _POSITIVE.map("cutmix({})".format),
        st.tuples(_POSITIVE, _POSITIVE).map(lambda ab: f"mixup({ab[0]})/cutmix({ab[1]})"),
    ),
)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(_CHAINS)
def test_every_policy_is_read_back(chain):
    text = "|".join(part for part in chain if part) or "none"
    policy = Policy.parse(text)
    assert Policy.parse(str(policy)) == policy
    assert len(policy.stages) + (policy.mixing is not None) == sum(bool(part) for part in chain)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "empty; write none"),
        ("  ", "empty; write none"),
        ("crop|", "cannot read ''"),
        ("crop flip", "cannot read 'crop flip'"),
        ("crop|flipp", "unknown augmentation 'flipp'; did you mean 'flip'?"),
        ("None", "unknown augmentation 'None'; did you mean 'none'?"),
        ("none|flip", "none stands with other stages; write it alone"),
        ("flip|crop", "out of order; write 'crop|flip'"),
        ("mixup(0.1)/cutmix(0.8)|flip", "out of order; write 'flip|mixup(0.1)/cutmix(0.8)'"),
        ("autoaugment(cifar10)|resizedcrop(0.2)", "out of order; write 'resizedcrop(0.2)|autoaugment(cifar10)'"),
        ("flip|flip", "flip appears more than once; write it once"),
        ("mixup(0.1)/mixup(0.1)", "/ only joins mixup and cutmix"),
        ("crop|resizedcrop", "crop and resizedcrop exclude each other; write one of them"),
        ("autoaugment(cifar10)|randaugment", "autoaugment and randaugment exclude each other"),
        ("crop/flip", "crop/flip is not a choice; / only joins mixup and cutmix"),
        ("cutmix(0.8)/mixup(0.1)", "as in mixup(0.1)/cutmix(0.8)"),
        ("mixup(0.1)|cutmix(0.8)", "join them by /"),
        ("mixup", "mixup takes 1 argument, not 0; write mixup(0.1)"),
        ("cutmix", "cutmix takes 1 argument, not 0; write cutmix(0.8)"),
        ("mixup(0.1, 0.2)", "mixup takes 1 argument, not 2"),
        ("mixup(-1)", "mixup(-1): the parameter of the Beta distribution is a number above 0"),
        ("mixup(0)", "a number above 0; write for example mixup(0.1)"),
        ("mixup(nan)", "a number above 0"),
        ("cutmix(inf)", "a number above 0; write for example cutmix(0.8)"),
        ("cutmix(much)", "cutmix(much): the parameter"),
        ("flip(2)", "flip(2): the probability lies between 0 and 1"),
        ("flip(-0.1)", "the probability lies between 0 and 1"),
        ("flip(nan)", "the probability lies between 0 and 1"),
        ("flip(p=0.3)", "flip takes no named arguments; write flip or flip(0.3)"),
        ("flip(0.1, 0.2)", "flip takes up to 1 argument, not 2"),
        ("crop(-1)", "crop(-1): the margin is a whole number of pixels, at least 1"),
        ("crop(0)", "at least 1; write crop for an eighth"),
        ("crop(2.5)", "whole number of pixels"),
        ("crop(four)", "whole number of pixels"),
        ("resizedcrop(0)", "a share above 0 and at most 1"),
        ("resizedcrop(1.5)", "a share above 0 and at most 1"),
        ("autoaugment", "autoaugment takes 1 argument, not 0; write autoaugment(cifar10)"),
        ("autoaugment(cifar)", "unknown autoaugment table 'cifar'; did you mean 'cifar10'?"),
        ("autoaugment(3)", "unknown autoaugment table 3; valid: cifar10, imagenet"),
        ("randaugment(0, 9)", "number of operations is a whole number, at least 1"),
        ("randaugment(1.5)", "number of operations is a whole number"),
        ("randaugment(2, 31)", "magnitude is a whole number from 0 to 30"),
        ("randaugment(2, -1)", "magnitude is a whole number from 0 to 30"),
        ("randaugment(2, 9, 31)", "randaugment takes up to 2 arguments, not 3"),
    ],
)
def test_wrong_string_says_what_to_write(text, message):
    with pytest.raises(ValueError) as error:
        Policy.parse(text)
    assert message in str(error.value)


# Each stage also alone: in a chain, one stage that changes with the step would hide another that does not.
@pytest.mark.parametrize(
    "text",
    [
        FULL,
        OTHER,
        "crop",
        "resizedcrop",
        "flip",
        "autoaugment(cifar10)",
        "autoaugment(imagenet)",
        "randaugment(1, 4)",
    ],
)
@pytest.mark.parametrize("channels", [1, 3])
def test_same_step_same_bits_and_other_steps_others(text, channels):
    policy, images = Policy.parse(text), random_images(channels=channels)
    before = images.clone()
    once = augmented(policy, images, 4, 7)
    assert once.shape == images.shape
    assert once.dtype == torch.uint8
    assert torch.equal(once, augmented(policy, images, 4, 7))
    assert not torch.equal(once, augmented(policy, images, 4, 8))
    assert not torch.equal(once, augmented(policy, images, 5, 7))
    assert torch.equal(images, before)


@pytest.mark.parametrize("text", [FULL, OTHER, "mixup(1)"])
def test_mixing_is_a_function_of_seed_and_step(text):
    policy, (images, targets) = Policy.parse(text), floats_and_targets()
    before = images.clone(), targets.clone()
    once = policy.mix(images, targets, 4, 7)
    for ours, again in zip(once, policy.mix(images, targets, 4, 7), strict=True):
        assert torch.equal(ours, again)
    for seed, step in ((4, 8), (5, 7)):
        for ours, other in zip(once, policy.mix(images, targets, seed, step), strict=True):
            assert not torch.equal(ours, other)
    assert torch.equal(images, before[0])
    assert torch.equal(targets, before[1])


@pytest.mark.parametrize("text", [FULL, OTHER])
def test_parts_do_not_change_the_draws_of_each_other(text):
    """A chain is each of its stages alone, one after the other, at the same step."""
    images = random_images()
    *stages, mixing = text.split("|")
    apart = images
    for stage in stages:
        apart = augmented(Policy.parse(stage), apart, 2, 3)
    assert torch.equal(augmented(Policy.parse(text), images, 2, 3), apart)
    floats, targets = floats_and_targets()
    together = Policy.parse(text).mix(floats, targets, 2, 3)
    for ours, alone in zip(together, Policy.parse(mixing).mix(floats, targets, 2, 3), strict=True):
        assert torch.equal(ours, alone)


@pytest.mark.parametrize("text", [FULL, OTHER])
def test_global_generators_are_neither_moved_nor_read(text):
    policy, images, (floats, targets) = Policy.parse(text), random_images(), floats_and_targets()

    def outcome():
        return [augmented(policy, images, 0, 0), *policy.mix(floats, targets, 0, 0)]

    first = outcome()
    state = torch.get_rng_state(), random.getstate(), np.random.get_state()  # noqa: NPY002
    second = outcome()
    assert torch.equal(torch.get_rng_state(), state[0])
    assert random.getstate() == state[1]
    assert str(np.random.get_state()) == str(state[2])  # noqa: NPY002
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(123)
        third = outcome()
    for a, b, c in zip(first, second, third, strict=True):
        assert torch.equal(a, b)
        assert torch.equal(a, c)


@pytest.mark.parametrize("text", [FULL, OTHER])
@pytest.mark.parametrize("count", [0, 1, 2])
@pytest.mark.parametrize("size", [(8, 8), (5, 9)])
def test_small_batches_of_small_images(text, count, size):
    policy = Policy.parse(text)
    images = random_images(count, 3, *size)
    assert augmented(policy, images, 0, 0).shape == images.shape
    floats, targets = images.float(), torch.ones(count, 2) / 2
    mixed, soft = policy.mix(floats, targets, 0, 0)
    assert mixed.shape == images.shape
    assert torch.equal(soft, targets)
    if count == 1:
        assert torch.equal(mixed, floats)


def test_nothing_is_nothing():
    images, (floats, targets) = random_images(), floats_and_targets()
    assert Policy.parse("none") == Policy()
    array = images.numpy()
    assert Policy.parse("none").augment(array, 0, 0) is array
    assert Policy.parse("crop|flip").mix(floats, targets, 0, 0) == (floats, targets)
    assert torch.equal(augmented(Policy.parse("mixup(1)"), images, 0, 0), images)


def test_wrong_tensors_are_refused():
    policy, (images, targets) = Policy.parse(FULL), floats_and_targets()
    with pytest.raises(ValueError, match="augment takes uint8 images"):
        augmented(policy, images, 0, 0)
    with pytest.raises(ValueError, match="C = 1 or 3"):
        augmented(policy, random_images(channels=2), 0, 0)
    with pytest.raises(ValueError, match="mix takes floating images"):
        policy.mix(random_images(), targets, 0, 0)
    with pytest.raises(ValueError, match="mix takes floating targets"):
        policy.mix(images, targets.argmax(1), 0, 0)
    with pytest.raises(ValueError, match="one row for each of the 33 images"):
        policy.mix(images, targets[:5], 0, 0)
