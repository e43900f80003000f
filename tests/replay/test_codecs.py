"""Chains of codecs: exact sizes, exact pixels, and every wrong chain refused."""

import io
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from coldstream.replay import Codec, ReplayBuffer, codecs

SHAPES = [(32, 32, 3), (28, 28, 1), (20, 37, 3), (41, 16, 1)]
CHAINS = [
    "raw",
    "quantize(6)",
    "quantize(1)",
    "resize(0.66)",
    "resize(0.66)|quantize(6)",
    "jpeg",
    "resize(0.5)|jpeg(70)",
]
SMALL_CIFAR = "resize(0.66)|quantize(6)"


def picture(shape, seed=0):
    """Smooth colours and noise: neither compresses to nothing nor to pure chance."""
    rng = np.random.default_rng(seed)
    ramp = np.linspace(0, 200, shape[0])[:, None, None] * np.linspace(0.2, 1, shape[1])[None, :, None]
    return (ramp + rng.integers(0, 56, shape)).astype(np.uint8)


def through(codec, image):
    """Encode one image and decode it, as a buffer would."""
    packed = codec.encode(image)
    return codec.decode(packed[None] if codec.row_bytes else [packed.tobytes()])[0]


def pillow_resize(image, height, width):
    grey = image.shape[2] == 1
    resized = Image.fromarray(image[..., 0] if grey else image).resize((width, height), Image.Resampling.BILINEAR)
    return np.asarray(resized).reshape(height, width, -1)


# Sizes.


@pytest.mark.parametrize(
    ("chain", "shape", "small", "row_bytes"),
    [
        ("raw", (32, 32, 3), None, 3072),
        ("quantize(6)", (32, 32, 3), None, 2304),
        ("resize(0.66)", (32, 32, 3), (26, 26), 2028),
        (SMALL_CIFAR, (32, 32, 3), (26, 26), 1521),
        ("raw", (128, 128, 3), None, 49_152),
        ("quantize(4)", (128, 128, 3), None, 24_576),
        ("resize(0.75)|quantize(4)", (128, 128, 3), (111, 111), 18_482),
        ("resize(0.75)", (224, 224, 3), (194, 194), 194 * 194 * 3),
        ("quantize(3)", (5, 5, 1), None, 10),
        ("resize(0.001)", (4, 8, 1), (1, 1), 1),
    ],
)
def test_exact_sizes(chain, shape, small, row_bytes):
    codec = Codec.parse(chain, shape)
    assert codec.small == small
    assert codec.row_bytes == row_bytes
    assert codec.encode(picture(shape)).shape == (row_bytes,)


def test_the_papers_capacities():
    assert 30_000_000 // Codec.parse("raw", (32, 32, 3)).row_bytes == 9_765
    assert 30_000_000 // Codec.parse(SMALL_CIFAR, (32, 32, 3)).row_bytes == 19_723
    assert 50_000 * Codec.parse(SMALL_CIFAR, (32, 32, 3)).row_bytes == 76_050_000
    core50 = (128, 128, 3)
    assert 6_000 * Codec.parse("raw", core50).row_bytes == 294_912_000
    assert 6_000 * Codec.parse("quantize(4)", core50).row_bytes == 147_456_000
    assert 100_000_000 // Codec.parse("resize(0.75)|quantize(4)", core50).row_bytes == 5_410


@pytest.mark.parametrize(("chain", "held"), [("raw", 9_765), (SMALL_CIFAR, 19_723)])
def test_thirty_megabytes_really_hold_so_many_cifar_images(chain, held):
    buffer = ReplayBuffer((32, 32, 3), codec=chain, capacity="30MB")
    packed = [buffer.compress(picture((32, 32, 3), seed)) for seed in range(10)]
    rng = np.random.default_rng(0)
    for id in range(held):
        buffer.store(packed[id % 10], id % 100, id)
    buffer.evict(rng)
    assert len(buffer) == held
    assert 30_000_000 - len(packed[0]) < buffer.nbytes <= 30_000_000
    buffer.store(packed[0], 0, held)
    assert buffer.nbytes > 30_000_000
    buffer.evict(rng)
    assert len(buffer) == held
    rows = rng.choice(held, 200, replace=False)
    expected = np.stack([through(buffer.codec, picture((32, 32, 3), seed)) for seed in range(10)])
    np.testing.assert_array_equal(buffer.items(rows), expected[buffer.index.ids.view[rows] % 10])


# Pixels.


@pytest.mark.parametrize("bits", range(1, 9))
def test_quantising_is_floor_division_for_every_byte(bits):
    image = np.arange(256, dtype=np.uint8).reshape(16, 16, 1)
    step = 2 ** (8 - bits)
    out = through(Codec.parse(f"quantize({bits})", image.shape), image)
    assert out.reshape(-1).tolist() == [value // step * step for value in range(256)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("ratio", [0.1, 0.5, 0.66, 0.75])
def test_resizing_is_pillows_bilinear_both_ways(shape, ratio):
    # Both round between their two passes and need not pass in the same order: a level apart, never more.
    image = picture(shape)
    codec = Codec.parse(f"resize({ratio})", shape)
    packed = codec.encode(image).reshape(*codec.small, shape[2])
    assert codec.small == (round(shape[0] * ratio**0.5), round(shape[1] * ratio**0.5))

    def check(ours, pillows):
        apart = np.abs(ours.astype(int) - pillows.astype(int))
        assert apart.max() <= 1
        assert apart.mean() < 0.3

    check(packed, pillow_resize(image, *codec.small))
    check(codec.decode(packed.reshape(1, -1))[0], pillow_resize(packed, *shape[:2]))


def test_resizing_then_quantising_is_one_after_the_other():
    image = picture((32, 32, 3))
    small = Codec.parse("resize(0.66)", (32, 32, 3)).encode(image)
    both = Codec.parse(SMALL_CIFAR, (32, 32, 3))
    kept = (small // 4 * 4).reshape(26, 26, 3)
    apart = through(both, image).astype(int) - pillow_resize(kept, 32, 32).astype(int)
    assert np.abs(apart).max() <= 1


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("chain", "quality"), [("jpeg", 90), ("jpeg(35)", 35), ("jpeg(100)", 100)])
def test_jpeg_is_pillows(shape, chain, quality):
    image = picture(shape)
    codec = Codec.parse(chain, shape)
    packed = codec.encode(image)
    file = io.BytesIO()
    Image.fromarray(image[..., 0] if shape[2] == 1 else image).save(file, "JPEG", quality=quality)
    assert packed.tobytes() == file.getvalue()
    np.testing.assert_array_equal(through(codec, image), np.asarray(Image.open(file)).reshape(shape))
    assert codec.row_bytes is None


@pytest.fixture(params=["simplejpeg", "Pillow"])
def decoder(request, monkeypatch):
    if request.param == "Pillow":
        monkeypatch.setitem(sys.modules, "simplejpeg", None)  # as if it were not installed
    else:
        pytest.importorskip("simplejpeg")
    codecs._jpeg_decoder.cache_clear()
    yield request.param
    codecs._jpeg_decoder.cache_clear()


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize(
    "size", [(1, 1), (7, 1), (8, 8), (17, 5), (26, 26), (32, 32), (33, 27), (48, 64), (224, 200)]
)
def test_jpegs_decode_to_pillows_bits(decoder, size, channels):
    assert (codecs._jpeg_decoder() is codecs._decode_with_pillow) == (decoder == "Pillow")
    rng = np.random.default_rng(size[0])
    smooth = np.broadcast_to((np.arange(size[1]) * 7 % 256)[None, :, None], (*size, channels)).astype(np.uint8)
    for quality in range(1, 101, 9):
        codec = Codec.parse(f"jpeg({quality})", (*size, channels))
        noise = rng.integers(0, 256, (*size, channels), dtype=np.uint8)
        rows = [codec.encode(image).tobytes() for image in (noise, smooth, noise // 2 + smooth // 2)]
        pictures = [np.asarray(Image.open(io.BytesIO(row))).reshape(codec.shape) for row in rows]
        np.testing.assert_array_equal(codec.decode(rows), pictures)


@pytest.mark.parametrize("shape", [(8, 8, 3), (24, 24, 3), (16, 24, 3)])
def test_a_jpeg_of_another_size_is_refused(decoder, shape):
    row = Codec.parse("jpeg", (16, 16, 3)).encode(np.zeros((16, 16, 3), np.uint8)).tobytes()
    with pytest.raises(ValueError, match="of shape|too small"):
        Codec.parse("jpeg", shape).decode([row])


@pytest.mark.parametrize("chain", ["jpeg(100)", "resize(0.5)|jpeg(100)", "quantize(6)", "raw"])
@pytest.mark.parametrize("shape", [(1, 1, 3), (9, 17, 3), (32, 32, 3), (40, 8, 1)])
def test_no_row_is_larger_than_the_codec_says(chain, shape):
    codec, rng = Codec.parse(chain, shape), np.random.default_rng(2)
    noise = rng.integers(0, 256, shape, dtype=np.uint8)
    extremes = (255 * rng.integers(0, 2, shape)).astype(np.uint8)
    largest = max(len(codec.encode(image)) for image in (noise, extremes))
    assert largest <= codec.most_bytes
    if "jpeg" not in chain:
        assert largest == codec.most_bytes


def test_a_small_jpeg_is_resized_after_decoding():
    shape = (20, 37, 3)
    codec = Codec.parse("resize(0.5)|jpeg(80)", shape)
    packed = codec.encode(picture(shape))
    small = np.asarray(Image.open(io.BytesIO(packed.tobytes())))
    assert small.shape == (14, 26, 3)
    apart = codec.decode([packed.tobytes()])[0].astype(int) - pillow_resize(small, 20, 37).astype(int)
    assert np.abs(apart).max() <= 1


@pytest.mark.parametrize("shape", [*SHAPES, (3, 5, 4), (9, 2)])
def test_raw_is_exact(shape):
    image = np.random.default_rng(1).integers(0, 256, shape, dtype=np.uint8)
    codec = Codec.parse("raw", shape)
    assert codec.encode(image).tobytes() == image.tobytes()
    np.testing.assert_array_equal(through(codec, image), image)


@pytest.mark.parametrize("chain", ["resize(1)", "resize(1)|quantize(8)", "quantize(8)", "resize(1)|raw", "raw()"])
def test_chains_that_change_nothing(chain):
    image = picture((32, 32, 3))
    codec = Codec.parse(chain, image.shape)
    assert codec.row_bytes == 3072
    np.testing.assert_array_equal(through(codec, image), image)


@given(st.integers(1, 8), st.integers(1, 40), st.integers(1, 40), st.sampled_from([1, 3]), st.integers(0, 2**32 - 1))
def test_quantising_any_image(bits, height, width, channels, seed):
    image = np.random.default_rng(seed).integers(0, 256, (height, width, channels), dtype=np.uint8)
    codec = Codec.parse(f"quantize({bits})", image.shape)
    np.testing.assert_array_equal(through(codec, image), image // 2 ** (8 - bits) * 2 ** (8 - bits))


@pytest.mark.parametrize("chain", CHAINS)
def test_many_rows_decode_as_one_by_one(chain):
    shape = (20, 37, 3)
    codec = Codec.parse(chain, shape)
    packed = [codec.encode(picture(shape, seed)) for seed in range(4)]
    rows = np.stack(packed) if codec.row_bytes else [row.tobytes() for row in packed]
    together = codec.decode(rows)
    assert together.shape == (4, *shape)
    assert together.dtype == np.uint8
    for seed in range(4):
        np.testing.assert_array_equal(together[seed], through(codec, picture(shape, seed)))
    assert codec.decode(rows[:0]).shape == (0, *shape)


# What goes in stays as it was, and what is stored stays as it is.


@pytest.mark.parametrize("storage", ["memory", "disk"])
@pytest.mark.parametrize("chain", CHAINS)
def test_a_stored_image_shares_no_memory_with_its_source(chain, storage):
    shape = (32, 32, 3)
    buffer = ReplayBuffer(shape, codec=chain, storage=storage)
    image = picture(shape)
    before = image.copy()
    buffer.store(buffer.compress(image), 0, 0)
    np.testing.assert_array_equal(image, before)
    kept = through(buffer.codec, before)
    image[:] = 255 - image
    np.testing.assert_array_equal(buffer.items(np.array([0]))[0], kept)
    out = buffer.items(np.array([0]))
    out[:] = 0
    np.testing.assert_array_equal(buffer.items(np.array([0]))[0], kept)


@pytest.mark.parametrize("chain", CHAINS)
def test_read_only_and_strided_images_are_taken_as_they_are(chain):
    # NumPy's view of a Pillow image is read-only.
    shape = (32, 32, 3)
    codec = Codec.parse(chain, shape)
    image = picture(shape)
    expected = codec.encode(image).tobytes()
    assert codec.encode(np.asarray(Image.fromarray(image))).tobytes() == expected
    turned = np.ascontiguousarray(image[::-1, ::-1])[::-1, ::-1]
    channels_first = np.ascontiguousarray(image.transpose(2, 0, 1)).transpose(1, 2, 0)
    for view in (turned, channels_first):
        assert not view.flags.c_contiguous
        assert codec.encode(view).tobytes() == expected


# Vectors.


def test_float_vectors_keep_every_bit():
    vectors = np.random.default_rng(0).standard_normal((3, 17)).astype(np.float32)
    vectors[0, :4] = np.nan, np.inf, -0.0, 1e-45
    codec = Codec.parse("raw", (17,), "float32")
    assert codec.row_bytes == 68
    rows = np.stack([codec.encode(vector) for vector in vectors])
    assert codec.decode(rows).dtype == np.float32
    assert codec.decode(rows).tobytes() == vectors.tobytes()


@pytest.mark.parametrize("chain", ["quantize(6)", "quantize(8)", "resize(0.5)", "jpeg", "resize(0.66)|quantize(6)"])
@pytest.mark.parametrize(("shape", "dtype"), [((17,), "float32"), ((8, 8, 3), "float32"), ((64,), "uint8")])
def test_only_images_are_compressed(chain, shape, dtype):
    with pytest.raises(ValueError, match=r"is for uint8 images; vectors of .* can only be kept raw"):
        Codec.parse(chain, shape, dtype)


# Chains that make no sense.


@pytest.mark.parametrize(
    ("chain", "message"),
    [
        ("quantise(6)", "unknown codec 'quantise'; did you mean 'quantize'"),
        ("resise(0.5)|quantize(6)", "unknown codec 'resise'; did you mean 'resize'"),
        ("jpg", "unknown codec 'jpg'; did you mean 'jpeg'"),
        ("Raw", "did you mean 'raw'"),
        ("zstandard", "unknown codec 'zstandard'; valid: jpeg, quantize, raw, resize"),
        ("resize(0.5)|resize(0.5)", "names 'resize' twice"),
        ("quantize(6)|quantize(4)", "names 'quantize' twice"),
        ("raw|raw", "names 'raw' twice"),
        ("jpeg|jpeg(50)", "names 'jpeg' twice"),
        ("quantize(6)|resize(0.66)", "packing comes last: write resize before quantize"),
        ("jpeg|resize(0.66)", "packing comes last: write resize before jpeg"),
        ("raw|resize(0.66)", "packing comes last: write resize before raw"),
        ("quantize(6)|jpeg", "packs twice; use one of quantize and jpeg"),
        ("jpeg(80)|quantize(6)", "packs twice; use one of jpeg and quantize"),
        ("raw|quantize(6)", "packs twice; use one of raw and quantize"),
        ("quantize", "'quantize' takes 1 argument, in"),
        ("quantize(4, 6)", "'quantize' takes 1 argument, in"),
        ("quantize(bits=4)", "'quantize' takes 1 argument, in"),
        ("resize", "'resize' takes 1 argument, in"),
        ("raw(1)", "'raw' takes 0 arguments, in"),
        ("jpeg(1, 2)", "'jpeg' takes 1 argument, in"),
        ("quantize(0)", "'quantize' takes 1 to 8, not 0"),
        ("quantize(9)", "'quantize' takes 1 to 8, not 9"),
        ("quantize(-1)", "'quantize' takes 1 to 8, not -1"),
        ("quantize(4.5)", "'quantize' cannot take 4.5"),
        ("quantize(six)", "'quantize' cannot take 'six'"),
        ("quantize(inf)", "'quantize' cannot take inf"),
        ("quantize(nan)", "'quantize' cannot take nan"),
        ("resize(0)", "'resize' takes 0 to 1, not 0"),
        ("resize(0.0)", "'resize' takes 0 to 1, not 0.0"),
        ("resize(1.5)", "'resize' takes 0 to 1, not 1.5"),
        ("resize(-0.5)", "'resize' takes 0 to 1, not -0.5"),
        ("resize(nan)", "'resize' takes 0 to 1, not nan"),
        ("resize(half)", "'resize' cannot take 'half'"),
        ("jpeg(0)", "'jpeg' takes 1 to 100, not 0"),
        ("jpeg(101)", "'jpeg' takes 1 to 100, not 101"),
        ("jpeg(89.5)", "'jpeg' cannot take 89.5"),
        ("jpeg(-inf)", "'jpeg' cannot take -inf"),
        ("", "codec: cannot read ''"),
        ("resize(0.5)|", "codec: cannot read ''"),
        ("resize(0.5", "codec: cannot read"),
        ("resize(0.5)quantize(4)", "codec: cannot read"),
    ],
)
def test_wrong_chains_say_what_is_wrong(chain, message):
    with pytest.raises(ValueError, match=message.replace("(", r"\(").replace(")", r"\)")):
        Codec.parse(chain, (32, 32, 3))


def test_jpeg_has_one_or_three_channels():
    with pytest.raises(ValueError, match="takes 1 or 3 channels, not 4"):
        Codec.parse("jpeg", (8, 8, 4))
