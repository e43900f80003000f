"""Images in every form a user may hand over, and in the forms an attacker may."""

from __future__ import annotations

import io
import os
import pathlib
import random
import struct
import tracemalloc
import warnings
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageFile

from coldstream import images
from coldstream.images import as_array, fit
from coldstream.limits import MAX_PIXELS, pixel_limit
from image_files import FILES, encode, exif, palette_image, smooth

GREY = np.array([[0, 51, 255], [10, 128, 200]], np.uint8)
COLOUR = np.random.default_rng(0).integers(0, 256, (6, 4, 3), dtype=np.uint8)


def luma(rgb: np.ndarray) -> np.ndarray:
    r, g, b = (rgb[..., i].astype(np.int64) for i in range(3))
    return ((r * 19595 + g * 38470 + b * 7471 + 0x8000) >> 16).astype(np.uint8)[..., None]


def on_white(colour: np.ndarray, alpha: np.ndarray) -> np.ndarray:
    exact = (colour.astype(float) * alpha + 255.0 * (255 - alpha.astype(float))) / 255
    return np.floor(exact + 0.5).astype(np.uint8)


# ------------------------------------------------------------------------------------------ arrays and tensors


@pytest.mark.parametrize("shape", [(2, 3), (2, 3, 1)])
def test_grey_arrays(shape: tuple[int, ...]) -> None:
    out = as_array(GREY.reshape(shape))
    assert out.shape == (2, 3, 1)
    assert out.dtype == np.uint8
    np.testing.assert_array_equal(out[..., 0], GREY)
    np.testing.assert_array_equal(as_array(GREY.reshape(shape), channels=3), np.dstack([GREY] * 3))


def test_colour_array_and_luma() -> None:
    np.testing.assert_array_equal(as_array(COLOUR), COLOUR)
    np.testing.assert_array_equal(as_array(COLOUR, channels=1), luma(COLOUR))
    np.testing.assert_array_equal(as_array(COLOUR, 1)[..., 0], np.asarray(Image.fromarray(COLOUR).convert("L")))
    assert as_array(np.array([[[255, 0, 0]]], np.uint8), channels=1).item() == 76


@pytest.mark.parametrize("image", [COLOUR, COLOUR[:, ::-1], np.asfortranarray(COLOUR), torch.from_numpy(COLOUR.T)])
def test_result_is_new_contiguous_and_writable(image: np.ndarray | torch.Tensor) -> None:
    before = image.copy() if isinstance(image, np.ndarray) else image.clone().numpy()
    out = as_array(image)
    assert out.flags.c_contiguous
    assert out.flags.writeable
    assert type(out) is np.ndarray
    out[...] = 7
    np.testing.assert_array_equal(np.asarray(image), before)


def test_read_only_array_is_taken() -> None:
    image = COLOUR.copy()
    image.flags.writeable = False
    assert as_array(image).flags.writeable


@pytest.mark.parametrize("dtype", ["<u2", ">u2"])
def test_16_bit_arrays_round(dtype: str) -> None:
    values = np.array([[0, 128, 129, 257, 32768, 65535, 65407, 65406]], dtype)
    assert as_array(values).ravel().tolist() == [0, 0, 1, 1, 128, 255, 255, 254]
    every = np.arange(65536, dtype=dtype).reshape(256, 256)
    np.testing.assert_array_equal(as_array(every)[..., 0], np.rint(every / 257).astype(np.uint8))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.longdouble])
def test_floating_arrays_round_trip(dtype: type[np.floating]) -> None:
    every = (np.arange(256).reshape(16, 16) / 255).astype(dtype)
    expected = np.arange(256).reshape(16, 16)
    np.testing.assert_array_equal(as_array(every)[..., 0], expected)


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ([[0.0, 255.0]], r"\[0, 255\]"),
        ([[-0.5, 0.5]], r"\[-0.5, 0.5\]"),
        ([[0.0, float("nan")]], "NaN"),
        ([[0.0, float("inf")]], "inf"),
        ([[0.0, -float("inf")]], "-inf"),
        ([[float("nan"), float("inf")]], "NaN"),
    ],
)
def test_floating_out_of_range(values: list[list[float]], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        as_array(np.array(values, np.float32))
    with pytest.raises(ValueError, match=says):
        as_array(torch.tensor(values))


@pytest.mark.parametrize(
    "dtype", [bool, np.int8, np.int16, np.int32, np.int64, np.uint32, np.complex64, object, "S1"]
)
def test_other_dtypes_are_refused(dtype: object) -> None:
    with pytest.raises(ValueError, match="uint8"):
        as_array(np.zeros((4, 4), dtype))


@pytest.mark.parametrize("dtype", [torch.bool, torch.int8, torch.int32, torch.int64, torch.complex64])
def test_other_tensor_dtypes_are_refused(dtype: torch.dtype) -> None:
    with pytest.raises(ValueError, match="uint8"):
        as_array(torch.zeros(4, 4, dtype=dtype))


@pytest.mark.parametrize(
    "dtype", [torch.uint8, torch.uint16, torch.float16, torch.bfloat16, torch.float32, torch.float64]
)
def test_tensors(dtype: torch.dtype) -> None:
    top = {torch.uint8: 255, torch.uint16: 65535}.get(dtype, 1)
    tensor = torch.tensor([[[0, top]], [[top, 0]], [[top, top]]], dtype=torch.float64).to(dtype)
    assert as_array(tensor).tolist() == [[[0, 255, 255], [255, 0, 255]]]
    assert as_array(tensor[0]).tolist() == [[[0], [255]]]
    assert as_array(tensor[:1]).tolist() == [[[0], [255]]]
    assert as_array(tensor[:1], channels=3).shape == (1, 2, 3)


def test_tensor_with_gradient_and_odd_strides() -> None:
    tensor = torch.rand(3, 5, 7, requires_grad=True)
    expected = np.rint(tensor.detach().numpy() * 255).astype(np.uint8).transpose(1, 2, 0)
    np.testing.assert_array_equal(as_array(tensor), expected)
    np.testing.assert_array_equal(as_array(tensor.transpose(1, 2)), expected.transpose(1, 0, 2))
    assert as_array(torch.zeros(1, 1, 1, dtype=torch.uint8).expand(3, 4, 5)).shape == (4, 5, 3)


@pytest.mark.parametrize("tensor", [torch.zeros(3, 4, 4, device="meta"), torch.zeros(4, 4).to_sparse()])
def test_tensors_without_values_are_refused(tensor: torch.Tensor) -> None:
    with pytest.raises(ValueError, match="dense"):
        as_array(tensor)


def test_four_channels_are_laid_on_white() -> None:
    rgba = np.random.default_rng(1).integers(0, 256, (64, 64, 4), dtype=np.uint8)
    expected = on_white(rgba[..., :3], rgba[..., 3:])
    np.testing.assert_array_equal(as_array(rgba), expected)
    np.testing.assert_array_equal(as_array(torch.from_numpy(rgba).permute(2, 0, 1)), expected)
    np.testing.assert_array_equal(as_array(rgba.astype(np.uint16) * 257), expected)
    np.testing.assert_array_equal(as_array((rgba / 255).astype(np.float32)), expected)
    np.testing.assert_array_equal(as_array(rgba, channels=1), luma(expected))
    assert as_array(np.array([[[0, 0, 0, 0], [0, 100, 255, 255]]], np.uint8)).tolist() == [[[255] * 3, [0, 100, 255]]]


@pytest.mark.parametrize("shape", [(3, 32, 32), (1, 28, 28), (2, 8, 8, 3), (8,), (8, 8, 2), (8, 8, 5), ()])
def test_wrong_array_shapes(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="arrays are HWC, tensors are CHW"):
        as_array(np.zeros(shape, np.uint8))


@pytest.mark.parametrize("shape", [(32, 32, 3), (2, 3, 8, 8), (8,), (2, 8, 8), ()])
def test_wrong_tensor_shapes(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="arrays are HWC, tensors are CHW"):
        as_array(torch.zeros(shape, dtype=torch.uint8))


@pytest.mark.parametrize(
    "image",
    [
        np.zeros((0, 4, 3), np.uint8),
        np.zeros((4, 0)),
        torch.zeros(3, 0, 4),
        Image.new("RGB", (0, 5)),
        np.broadcast_to(np.uint8(0), (8001, 8000, 3)),
        torch.zeros(1, 1).expand(8001, 8000),
    ],
)
def test_empty_and_huge_are_refused(image: object) -> None:
    with pytest.raises(ValueError, match=r"empty|limit"):
        as_array(image)


def test_a_str_is_refused() -> None:
    with pytest.raises(ValueError, match=r"for a file pass pathlib\.Path\('cat.png'\)"):
        as_array("cat.png")


def test_a_path_is_the_file(tmp_path: pathlib.Path) -> None:
    pixels = np.arange(48, dtype=np.uint8).reshape(4, 4, 3)
    Image.fromarray(pixels).save(tmp_path / "cat.png")
    assert np.array_equal(as_array(tmp_path / "cat.png"), pixels)


def test_paths_without_an_image_are_refused(tmp_path: pathlib.Path) -> None:
    (tmp_path / "text.png").write_text("no image")
    os.mkfifo(tmp_path / "pipe.png")  # reading it would wait for ever
    for name, says in [
        ("text.png", r"text\.png.*of another kind"),
        ("pipe.png", "it is not a file"),
        ("", "it is not a file"),
        ("nowhere.png", "there is no such file"),
    ]:
        with pytest.raises(ValueError, match=says):
            as_array(tmp_path / name)


@pytest.mark.parametrize("image", [None, 3, [[1, 2]], {}, io.BytesIO(b"x"), np.uint8(3)])
def test_other_types_are_refused(image: object) -> None:
    with pytest.raises(ValueError, match=rf"PIL image.*{type(image).__name__}"):
        as_array(image)


@pytest.mark.parametrize("options", [{"channels": 2}, {"channels": 0}, {"min_side": 0}])
def test_wrong_options(options: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="channels None, 1 or 3"):
        as_array(COLOUR, **options)  # type: ignore[arg-type]


# -------------------------------------------------------------------------------------------------- PIL images


@pytest.mark.parametrize(
    ("mode", "pixel", "expected"),
    [
        ("1", 1, [255]),
        ("1", 0, [0]),
        ("L", 77, [77]),
        ("LA", (100, 0), [255]),
        ("LA", (100, 255), [100]),
        ("LA", (0, 51), [204]),
        ("RGB", (1, 2, 3), [1, 2, 3]),
        ("RGBX", (1, 2, 3, 0), [1, 2, 3]),
        ("RGBA", (0, 100, 255, 51), [204, 224, 255]),
        ("CMYK", (0, 255, 51, 0), [255, 0, 204]),
        ("YCbCr", (255, 128, 128), [255, 255, 255]),
        ("YCbCr", (76, 85, 255), [254, 0, 0]),
        ("HSV", (0, 255, 255), [255, 0, 0]),
        ("HSV", (0, 0, 51), [51, 51, 51]),
        ("LAB", (255, 128, 128), [255, 255, 255]),
        ("LAB", (0, 128, 128), [0, 0, 0]),
        ("I", 0, [0]),
        ("I", 65535, [255]),
        ("I", 257 * 9 + 128, [9]),
        ("I;16", 257 * 9 + 129, [10]),
        ("I;16B", 257 * 200, [200]),
        ("I;16L", 65535, [255]),
        ("F", 0.5, [128]),
        ("F", 1.0, [255]),
    ],
)
def test_pil_modes(mode: str, pixel: object, expected: list[int]) -> None:
    out = as_array(Image.new(mode, (3, 2), pixel))  # type: ignore[arg-type]
    assert out.shape == (2, 3, len(expected))
    # Pillow converts LAB by colour management, whose white and black are one step off.
    np.testing.assert_allclose(out[1, 2].astype(int), expected, rtol=0, atol=1 if mode == "LAB" else 0)
    assert (out == out[0, 0]).all()


def test_premultiplied_modes() -> None:
    rgba = Image.new("RGBA", (2, 2), (200, 100, 0, 51))
    expected = as_array(rgba)
    assert np.abs(as_array(rgba.convert("RGBa")).astype(int) - expected).max() <= 1
    assert as_array(Image.new("LA", (2, 2), (0, 51)).convert("La"))[0, 0].tolist() == [204]


@pytest.mark.parametrize(("mode", "pixel"), [("I", 65536), ("I", -1), ("F", 1.5), ("F", float("nan"))])
def test_pil_values_out_of_range(mode: str, pixel: float) -> None:
    with pytest.raises(ValueError, match="expected"):
        as_array(Image.new(mode, (2, 2), pixel))


def test_palettes() -> None:
    image = palette_image()
    assert as_array(image).tolist() == [[[0, 0, 0], [10, 20, 30], [200, 100, 50]]]
    image.info["transparency"] = 1
    assert as_array(image).tolist() == [[[0, 0, 0], [255] * 3, [200, 100, 50]]]
    image.info["transparency"] = bytes([255, 0, 51])
    assert as_array(image).tolist() == [[[0, 0, 0], [255] * 3, [244, 224, 214]]]
    rgba = Image.new("P", (1, 1))
    rgba.putpalette([200, 100, 50, 51], "RGBA")
    assert as_array(rgba).tolist() == [[[244, 224, 214]]]
    assert as_array(rgba.convert("PA")).tolist() == [[[244, 224, 214]]]


@pytest.mark.parametrize("format", ["PNG", "GIF", "TIFF", "BMP", "WEBP"])
def test_palette_bytes(format: str) -> None:
    lossless = {"lossless": True} if format == "WEBP" else {}
    expected = [[[0, 0, 0], [10, 20, 30], [200, 100, 50]]]
    assert as_array(encode(palette_image(), format, **lossless)).tolist() == expected


@pytest.mark.parametrize("transparency", [1, bytes([255, 0, 51])])
def test_palette_transparency_in_png(transparency: int | bytes) -> None:
    last = [200, 100, 50] if isinstance(transparency, int) else [244, 224, 214]
    data = encode(palette_image(), "PNG", transparency=transparency)
    assert as_array(data).tolist() == [[[0, 0, 0], [255] * 3, last]]
    with Image.open(io.BytesIO(data)) as image:
        assert as_array(image).tolist() == [[[0, 0, 0], [255] * 3, last]]


def test_transparency_in_gif_and_first_frame() -> None:
    data = encode(palette_image(), "GIF", transparency=1, disposal=2, comment=b"hello", loop=3)
    assert as_array(data).tolist() == [[[0, 0, 0], [255] * 3, [200, 100, 50]]]
    frames = [Image.new("RGB", (5, 4), colour) for colour in ("red", "lime", "blue")]
    for format in ("GIF", "PNG", "TIFF", "WEBP"):
        options = {"lossless": True} if format == "WEBP" else {}
        data = encode(frames[0], format, save_all=True, append_images=frames[1:], **options)
        np.testing.assert_array_equal(as_array(data), np.full((4, 5, 3), [255, 0, 0], np.uint8))


@pytest.mark.parametrize(
    ("image", "key", "expected"),
    [
        (Image.fromarray(GREY), 51, [[0], [255], [255]]),
        (Image.fromarray(GREY.astype(np.uint16) * 257), 51 * 257, [[0], [255], [255]]),
        (Image.fromarray(np.dstack([GREY, GREY, GREY])), (51, 51, 51), [[0] * 3, [255] * 3, [255] * 3]),
        (Image.fromarray(np.dstack([GREY, GREY, GREY])), (51, 51, 50), [[0] * 3, [51] * 3, [255] * 3]),
    ],
)
def test_transparent_colour_of_png(image: Image.Image, key: object, expected: list[list[int]]) -> None:
    data = encode(image, "PNG", transparency=key)
    assert as_array(data)[0].tolist() == expected
    with Image.open(io.BytesIO(data)) as opened:
        assert as_array(opened)[0].tolist() == expected


def test_16_bit_png_and_tiff_bytes() -> None:
    values = np.array([[0, 128, 129, 257, 32768, 65535]], np.uint16)
    for format in ("PNG", "TIFF"):
        data = encode(Image.fromarray(values), format)
        assert as_array(data).ravel().tolist() == [0, 0, 1, 1, 128, 255]
    big = encode(Image.frombytes("I;16B", (6, 1), values.astype(">u2").tobytes()), "TIFF")
    assert as_array(big).ravel().tolist() == [0, 0, 1, 1, 128, 255]


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
@pytest.mark.parametrize("format", ["PNG", "BMP", "TIFF", "WEBP", "GIF", "JPEG"])
def test_encoded_bytes(kind: type, format: str) -> None:
    image = smooth()
    data = kind(encode(image, format, **({"lossless": True} if format == "WEBP" else {})))
    before = bytes(data)
    out = as_array(data)
    assert out.shape == (24, 40, 3)
    assert bytes(data) == before
    with Image.open(io.BytesIO(before)) as opened:
        np.testing.assert_array_equal(out, np.asarray(opened.convert("RGB")))
    if format not in ("GIF", "JPEG"):
        np.testing.assert_array_equal(out, np.asarray(image))


@pytest.mark.parametrize("compression", [None, "tiff_lzw", "tiff_adobe_deflate", "packbits", "jpeg"])
@pytest.mark.parametrize("mode", ["L", "LA", "RGB", "RGBA", "CMYK", "LAB", "YCbCr"])
def test_tiff_like_pillow(mode: str, compression: str | None) -> None:
    data = encode(smooth().convert(mode), "TIFF", compression=compression, dpi=(72, 72), software="x" * 50)
    with Image.open(io.BytesIO(data)) as image:
        np.testing.assert_array_equal(as_array(data), as_array(image))


def test_cmyk_and_grey_jpeg() -> None:
    for mode, channels in (("CMYK", 3), ("L", 1)):
        data = encode(smooth().convert(mode), "JPEG", quality=95, icc_profile=b"x" * 200, comment=b"hi")
        with Image.open(io.BytesIO(data)) as image:
            np.testing.assert_array_equal(as_array(data), as_array(image))
        assert as_array(data).shape[2] == channels


def test_pil_image_is_not_changed() -> None:
    data = encode(palette_image(), "PNG", transparency=bytes([255, 0, 51]))
    with Image.open(io.BytesIO(data)) as image:
        image.load()
        before = (image.mode, dict(image.info), image.tobytes(), image.getpalette("RGBA"), image.size)
        as_array(image)
        as_array(image, channels=1)
        assert (image.mode, dict(image.info), image.tobytes(), image.getpalette("RGBA"), image.size) == before


def test_closed_pil_image() -> None:
    image = Image.open(io.BytesIO(encode(smooth(), "PNG")))
    image.close()
    with pytest.raises(ValueError, match="cannot read this PIL image"):
        as_array(image)


# ------------------------------------------------------------------------------------------------- orientation

TURNED = {
    1: lambda a: a,
    2: np.fliplr,
    3: lambda a: np.rot90(a, 2),
    4: np.flipud,
    5: lambda a: np.swapaxes(a, 0, 1),
    6: lambda a: np.rot90(a, -1),
    7: lambda a: np.swapaxes(np.rot90(a, 2), 0, 1),
    8: lambda a: np.rot90(a, 1),
}


@pytest.mark.parametrize("orientation", TURNED)
@pytest.mark.parametrize("format", ["JPEG", "PNG", "WEBP", "TIFF"])
def test_orientation(orientation: int, format: str) -> None:
    options = {"lossless": True} if format == "WEBP" else {}
    plain = as_array(encode(smooth(), format, **options))
    turned = encode(smooth(), format, exif=exif(orientation), **options)
    expected = TURNED[orientation](plain)
    out = as_array(turned)
    assert out.flags.c_contiguous
    np.testing.assert_array_equal(out, expected)
    with Image.open(io.BytesIO(turned)) as image:
        np.testing.assert_array_equal(as_array(image), expected)
        np.testing.assert_array_equal(as_array(image), expected)  # and it stays so


@pytest.mark.parametrize("orientation", TURNED)
def test_orientation_set_in_memory(orientation: int) -> None:
    image = smooth()
    image.getexif()[0x0112] = orientation
    np.testing.assert_array_equal(as_array(image), TURNED[orientation](np.asarray(image)))


@pytest.mark.parametrize("orientation", [0, 9, 60000])
def test_senseless_orientation_is_upright(orientation: int) -> None:
    assert as_array(encode(smooth(), "PNG", exif=exif(orientation))).shape == (24, 40, 3)


@pytest.mark.parametrize("order", ["<", ">"])
def test_damaged_exif_keeps_picture_and_orientation(order: str) -> None:
    start = {"<": b"II*\0", ">": b"MM\0*"}[order] + struct.pack(order + "I", 8)
    beyond = struct.pack(order + "HHII", 0x010F, 2, 5000, 1 << 20)  # a string that lies outside the block
    turn = struct.pack(order + "HHIHH", 0x0112, 3, 1, 6, 0)
    block = b"Exif\0\0" + start + struct.pack(order + "H", 2) + beyond + turn + bytes(4)
    for damaged, shape in ((block, (40, 24, 3)), (block[:30], (24, 40, 3)), (b"Exif\0\0junk", (24, 40, 3))):
        image = smooth()
        image.info["exif"] = damaged
        for format in ("PNG", "WEBP", "JPEG"):
            assert as_array(encode(smooth(), format, exif=damaged)).shape == shape
        assert as_array(image).shape == shape


# ----------------------------------------------------------------------------------------------------- hostile


def png_chunk(name: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))


def png(width: int, height: int, pixels: bytes, *extra: bytes, depth: int = 8, colour: int = 0) -> bytes:
    header = png_chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0))
    body = [
        b"\x89PNG\r\n\x1a\n",
        header,
        *extra,
        png_chunk(b"IDAT", zlib.compress(pixels, 9)),
        png_chunk(b"IEND", b""),
    ]
    return b"".join(body)


def gif(screen: tuple[int, int], frame: tuple[int, int, int, int], control: bytes = b"") -> bytes:
    head = b"GIF89a" + struct.pack("<2H", *screen) + b"\x80\0\0" + b"\1\2\3\4\5\6"
    return head + control + b"," + struct.pack("<4H", *frame) + b"\0\x02\x02\x44\x01\0;"


def tiff(width: int, height: int, order: str = "<", **tags: int) -> bytes:
    entries = {256: width, 257: height, 258: 8, 259: 1, 262: 1, 273: 8, 277: 1, 278: height, 279: 16}
    entries |= {int(tag[1:]): value for tag, value in tags.items()}
    body = b"".join(struct.pack(order + "HHII", tag, 4, 1, value) for tag, value in sorted(entries.items()))
    start = {"<": b"II*\0", ">": b"MM\0*"}[order] + struct.pack(order + "I", 24) + bytes(16)
    return start + struct.pack(order + "H", len(entries)) + body + bytes(4)


def webp(kind: bytes, body: bytes) -> bytes:
    chunk = kind + struct.pack("<I", len(body)) + body + bytes(64)
    return b"RIFF" + struct.pack("<I", 4 + len(chunk)) + b"WEBP" + chunk


def bmp(width: int, height: int, bits: int = 24) -> bytes:
    info = struct.pack("<IiiHHIIIIII", 40, width, height, 1, bits, 0, 0, 0, 0, 0, 0)
    return b"BM" + struct.pack("<IHHI", 54 + 64, 0, 0, 54) + info + bytes(64)


def huge_jpeg() -> bytes:
    data = bytearray(encode(smooth(), "JPEG"))
    at = data.index(b"\xff\xc0")
    data[at + 5 : at + 9] = struct.pack(">HH", 10_000, 10_000)
    return bytes(data)


BOMBS = {
    "png": png(10_000, 10_000, bytes(12_000_000)),
    "png, a little over": png(8001, 8000, bytes(1000)),
    "png, beyond Pillow's own limit": png(60_000, 60_000, bytes(1000)),
    "png, second header": png(
        4, 4, bytes(20), png_chunk(b"IHDR", struct.pack(">IIBBBBB", 9999, 9999, 8, 0, 0, 0, 0))
    ),
    "gif screen": gif((10_000, 10_000), (0, 0, 4, 4)),
    "gif frame": gif((4, 4), (0, 0, 10_000, 10_000)),
    "gif frame far out": gif((4, 4), (65_000, 65_000, 600, 600)),
    "gif disposal": gif((4, 4), (0, 0, 10_000, 10_000), b"\x21\xf9\x04\x08\0\0\0\0"),
    "gif after an empty extension": gif((4, 4), (0, 0, 10_000, 10_000), b"\x21\xff\0\x21\xfe\x01x\0"),
    "tiff": tiff(10_000, 10_000),
    "tiff, big-endian": tiff(60_000, 60_000, ">"),
    "tiff tile": tiff(16, 16, t259=5, t322=1 << 15, t323=1 << 15, t324=8, t325=16),
    "webp VP8X": webp(b"VP8X", bytes(4) + (9999).to_bytes(3, "little") * 2),
    "webp VP8L": webp(b"VP8L", b"\x2f" + (9999 | 9999 << 14).to_bytes(4, "little")),
    "webp VP8": webp(b"VP8 ", b"\x10\0\0\x9d\x01\x2a" + struct.pack("<HH", 10_000, 10_000)),
    "bmp": bmp(10_000, 10_000),
    "bmp, top down": bmp(10_000, -10_000),
    "jpeg": huge_jpeg(),
}


@pytest.mark.parametrize("name", BOMBS)
def test_bombs_are_refused_without_allocating(name: str) -> None:
    assert len(BOMBS[name]) < 13_000
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match="limit"):
            as_array(BOMBS[name])
        assert tracemalloc.get_traced_memory()[1] < 500_000
    finally:
        tracemalloc.stop()


def test_bombs_do_not_grow_the_process() -> None:
    resource = pytest.importorskip("resource")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for data in BOMBS.values():
        with pytest.raises(ValueError):
            as_array(data)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 16_000  # KB; one such image is 100 MB


def test_pil_bomb_is_refused_before_it_is_loaded() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)
        image = Image.open(io.BytesIO(BOMBS["png"]))
    with pytest.raises(ValueError, match="limit"):
        as_array(image)


def test_too_many_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    data = encode(smooth(), "PNG")
    monkeypatch.setattr(images, "MAX_BYTES", len(data) - 1)
    with pytest.raises(ValueError, match="bytes are over the limit"):
        as_array(data)
    with pytest.raises(ValueError, match="bytes are over the limit"):
        as_array(memoryview(data + bytes(len(data) % 2)).cast("H"))
    monkeypatch.setattr(images, "MAX_BYTES", len(data))
    assert as_array(data).shape == (24, 40, 3)


def test_tiff_tables_and_overlapping_strips_are_refused() -> None:
    data = bytearray(tiff(64, 64, t278=63))
    at = data.index(struct.pack("<HHI", 273, 4, 1))
    struct.pack_into("<II", data, at + 4, 3000, len(data))  # 3000 strips that all cover the image
    with pytest.raises(ValueError, match="overlap"):
        as_array(bytes(data) + struct.pack("<I", 8) * 3000)
    struct.pack_into("<II", data, at + 4, 1 << 20, len(data))
    with pytest.raises(ValueError, match="tag 273"):
        as_array(bytes(data) + bytes(4 << 20))


@pytest.mark.parametrize(
    "data", [b"", b"\0", b"hello world", b"%PDF-1.4", b"P6 1 1 255\nabc", b"\0\0\1\0\1\0", b"8BPS\0\1"]
)
def test_other_formats_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="JPEG, PNG, WebP, GIF, BMP or TIFF"):
        as_array(data)


def survives(data: bytes) -> None:
    """Decode to an array or refuse by a ValueError, without a warning, also none that became the error."""
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        try:
            out = as_array(data)
        except ValueError:
            out = np.zeros((1, 1, 1), np.uint8)
    assert not heard
    assert out.dtype == np.uint8
    assert out.ndim == 3
    assert out.shape[2] in (1, 3)
    assert 0 < out.shape[0] * out.shape[1] <= MAX_PIXELS


@pytest.fixture(autouse=True)
def _limit(request: pytest.FixtureRequest) -> Iterator[None]:
    # A flipped byte may claim 60 megapixels, which is allowed but slow to fill.
    damaged = "damaged" in request.node.name or "truncated" in request.node.name
    with pixel_limit(1_000_000 if damaged else MAX_PIXELS):
        yield


@pytest.mark.parametrize("name", FILES)
def test_valid_files_decode(name: str) -> None:
    assert as_array(FILES[name]).shape[2] in (1, 3)


@pytest.mark.parametrize("name", FILES)
def test_truncated_files(name: str) -> None:
    data = FILES[name]
    for length in range(0, len(data), 1 if len(data) < 400 else 5):
        survives(data[:length])


@pytest.mark.parametrize("name", ["jpeg", "png", "bmp", "tiff", "webp", "gif"])
def test_files_truncated_by_half_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"cannot read these \d+ bytes as .*undamaged"):
        as_array(FILES[name][: len(FILES[name]) // 2])


@pytest.mark.parametrize("name", FILES)
def test_damaged_files(name: str) -> None:
    dice = random.Random(name)
    for _ in range(150):
        data = bytearray(FILES[name])
        for _ in range(dice.randint(1, 6)):
            # The header is where the harm is.
            data[dice.randrange(min(len(data), dice.choice([64, 200, len(data)])))] = dice.choice(
                [0, 1, 255, dice.randrange(256)]
            )
        survives(bytes(data[: dice.choice([len(data), dice.randrange(len(data))])]))


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(sorted(FILES)), st.data())
def test_damaged_files_hypothesis(name: str, data: st.DataObject) -> None:
    content = bytearray(FILES[name])
    for _ in range(data.draw(st.integers(0, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    survives(bytes(content[: data.draw(st.integers(0, len(content)))]))


HEADS = [b"", b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"GIF89a", b"BM", b"II*\0", b"MM\0*", b"RIFF\0\0\0\0WEBPVP8X"]


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(HEADS), st.binary(max_size=200))
def test_damaged_random_bytes(head: bytes, tail: bytes) -> None:
    survives(head + tail)


def test_damaged_png_animation_header_does_not_warn() -> None:
    broken = png(2, 2, b"\0\1\2\0\3\4", png_chunk(b"acTL", bytes(8)))
    assert as_array(broken)[..., 0].tolist() == [[1, 2], [3, 4]]


def test_pillow_settings_are_left_alone() -> None:
    before = (Image.MAX_IMAGE_PIXELS, ImageFile.LOAD_TRUNCATED_IMAGES, list(warnings.filters))
    for data in [*FILES.values(), BOMBS["png"], FILES["jpeg"][:300]]:
        survives(data)
    assert (Image.MAX_IMAGE_PIXELS, ImageFile.LOAD_TRUNCATED_IMAGES, list(warnings.filters)) == before


def test_threads() -> None:
    work = list(FILES.values()) * 4
    with ThreadPoolExecutor(4) as pool:
        for data, out in zip(work, pool.map(as_array, work), strict=True):
            np.testing.assert_array_equal(out, as_array(data))


# ------------------------------------------------------------------------------------------- draft and fitting


@pytest.mark.parametrize(
    ("min_side", "expected"),
    [
        (None, (200, 331)),
        (1, (25, 42)),
        (25, (25, 42)),
        (26, (50, 83)),
        (100, (100, 166)),
        (101, (200, 331)),
        (999, (200, 331)),
    ],
)
def test_min_side_decodes_jpeg_smaller(min_side: int | None, expected: tuple[int, int]) -> None:
    data = encode(smooth(200, 331), "JPEG")
    assert as_array(data, min_side=min_side).shape == (*expected, 3)
    turned = encode(smooth(200, 331), "JPEG", exif=exif(6))
    assert as_array(turned, min_side=min_side).shape == (*expected[::-1], 3)
    assert as_array(encode(smooth(200, 331), "PNG"), min_side=min_side).shape == (200, 331, 3)


def test_fit_identity() -> None:
    assert fit(COLOUR, (6, 4)) is COLOUR


@pytest.mark.parametrize(
    ("shape", "size", "zoom", "resized", "corner"),
    [
        ((480, 640), (224, 224), 0.875, (256, 341), (16, 58)),
        ((640, 480), (224, 224), 0.875, (341, 256), (58, 16)),
        ((32, 32), (224, 224), 1.0, (224, 224), (0, 0)),
        ((100, 300), (50, 50), 1.0, (50, 150), (0, 50)),
        ((28, 28), (32, 32), 1.0, (32, 32), (0, 0)),
        ((32, 32), (32, 32), 0.5, (64, 64), (16, 16)),
        ((60, 80), (30, 20), 1.0, (30, 40), (0, 10)),
    ],
)
@pytest.mark.parametrize("channels", [1, 3])
def test_fit_is_resize_and_crop(
    shape: tuple[int, int],
    size: tuple[int, int],
    zoom: float,
    resized: tuple[int, int],
    corner: tuple[int, int],
    channels: int,
) -> None:
    array = np.random.default_rng(2).integers(0, 256, (*shape, channels), dtype=np.uint8)
    before = array.copy()
    picture = Image.fromarray(array.squeeze()).resize(resized[::-1], Image.Resampling.BILINEAR)
    expected = np.asarray(picture)[corner[0] : corner[0] + size[0], corner[1] : corner[1] + size[1]]
    out = fit(array, size, zoom)
    assert out.shape == (*size, channels)
    assert out.flags.c_contiguous
    np.testing.assert_array_equal(out.squeeze(), expected)
    np.testing.assert_array_equal(array, before)


@pytest.mark.parametrize("shape", [(1, 5000), (5000, 1), (1, 1), (1, 100_000), (3, 60_000), (2000, 7)])
def test_fit_of_extreme_shapes_stays_small(shape: tuple[int, int]) -> None:
    array = np.full((*shape, 3), 200, np.uint8)
    ends = array if shape[0] > shape[1] else array.swapaxes(0, 1)
    if max(shape) > 1:
        ends[: max(shape) // 3] = ends[-(max(shape) // 3) :] = 0
    tracemalloc.start()
    try:
        out = fit(array, (224, 224), zoom=0.875)
        assert tracemalloc.get_traced_memory()[1] < 20_000_000
    finally:
        tracemalloc.stop()
    assert out.shape == (224, 224, 3)
    assert (out == 200).all()


def test_fit_trims_without_moving_the_picture() -> None:
    array = np.random.default_rng(3).integers(0, 256, (8, 2000, 3), dtype=np.uint8)
    whole = Image.fromarray(array).resize((8000, 32), Image.Resampling.BILINEAR).crop((3984, 0, 4016, 32))
    np.testing.assert_array_equal(fit(array, (32, 32)), np.asarray(whole))


@pytest.mark.parametrize(
    ("array", "size", "zoom"),
    [
        (COLOUR, (0, 4), 1.0),
        (COLOUR, (4, 4), 0.0),
        (COLOUR, (4, 4), 1.5),
        (COLOUR, (4, 4), float("nan")),
        (COLOUR, (4, 4), 1e-6),
        (COLOUR[..., 0], (4, 4), 1.0),
        (COLOUR.astype(np.float32), (4, 4), 1.0),
        (COLOUR[:0], (4, 4), 1.0),
    ],
)
def test_fit_refuses(array: np.ndarray, size: tuple[int, int], zoom: float) -> None:
    with pytest.raises(ValueError, match=r"expected|limit"):
        fit(array, size, zoom)
