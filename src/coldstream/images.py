"""What a user may hand over as an image, turned into one uint8 array (height, width, channel), once.

Encoded bytes come from strangers: the claimed size is checked before pixels are decoded, and metadata that
Pillow would parse is taken out of the file before Pillow sees it. That also keeps Pillow silent: it reports
damaged metadata by Python warnings, which cannot be caught in one thread without touching the others.
"""

from __future__ import annotations

import io
import math
import os
import re
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image, ImageFile, TiffTags
from PIL.BmpImagePlugin import BmpImageFile
from PIL.GifImagePlugin import GifImageFile
from PIL.JpegImagePlugin import JpegImageFile
from PIL.PngImagePlugin import PngImageFile
from PIL.TiffImagePlugin import TiffImageFile
from PIL.WebPImagePlugin import WebPImageFile

MAX_PIXELS = 64_000_000
MAX_BYTES = 64_000_000

Pixels = npt.NDArray[np.uint8]

_ACCEPTED = (
    "a NumPy array (H, W) or (H, W, C), a torch tensor (H, W) or (C, H, W), a PIL image, "
    "or the bytes of a JPEG, PNG, WebP, GIF, BMP or TIFF file"
)
# What each Pillow mode is read as; modes of more than 8 bits are scaled apart.
_READ_AS = {"1": "L", "L": "L", "LA": "LA", "La": "LA"}
_READ_AS |= dict.fromkeys(("P", "PA", "RGBA", "RGBa"), "RGBA")
_READ_AS |= dict.fromkeys(("RGB", "RGBX", "CMYK", "YCbCr", "LAB", "HSV"), "RGB")


def as_array(image: object, channels: int | None = None, *, min_side: int | None = None) -> Pixels:
    """Turn `image` into a new, C-contiguous uint8 array of shape (H, W, 1) or (H, W, 3).

    EXIF orientation is applied, transparency is laid on white, deeper values are scaled to 8 bits. What is
    none of the following, damaged, empty, or over `MAX_PIXELS` or `MAX_BYTES` is refused by a ValueError.

    Parameters
    ----------
    image : array, tensor, PIL image or bytes
        Arrays are HW or HWC, tensors HW or CHW, with 1, 3 or 4 channels; uint8, uint16, or floating within
        [0, 1]. Bytes are a whole JPEG, PNG, WebP, GIF, BMP or TIFF file, of which the first frame is taken.
        The image is never modified.
    channels : {None, 1, 3}
        How many channels to return; None keeps grey as 1 and colour as 3.
    min_side : int, optional
        Let JPEG bytes be decoded at 1/2, 1/4 or 1/8 of their size, as long as no side gets below this.

    Examples
    --------
    >>> as_array(np.array([[0.0, 1.0]])).tolist()
    [[[0], [255]]]
    >>> as_array(torch.zeros(3, 8, 6, dtype=torch.uint8), channels=1).shape
    (8, 6, 1)
    """
    if channels not in (None, 1, 3) or (min_side is not None and min_side < 1):
        raise ValueError(f"expected channels None, 1 or 3 and min_side >= 1, got {channels} and {min_side}")
    if isinstance(image, np.ndarray):
        pixels = _from_array(image)
    elif isinstance(image, torch.Tensor):
        pixels = _from_tensor(image)
    elif isinstance(image, Image.Image):
        with _explained(f"this PIL image of mode {image.mode}", "check that it loads and is open"):
            pixels = _from_pil(image)
    elif isinstance(image, bytes | bytearray | memoryview):
        pixels = _from_bytes(image, min_side)
    elif isinstance(image, str | os.PathLike):
        raise ValueError(f"a path is not an image: open the file or pass its bytes, got {str(image)[:80]!r}")
    else:
        raise ValueError(f"expected {_ACCEPTED}, got {type(image).__module__}.{type(image).__qualname__}")
    if channels == 3 and pixels.shape[2] == 1:
        pixels = np.repeat(pixels, 3, axis=2)
    elif channels == 1 and pixels.shape[2] == 3:
        pixels = _read_out(Image.fromarray(pixels).convert("L"))
    return np.ascontiguousarray(pixels)


def fit(array: Pixels, size: tuple[int, int], zoom: float = 1.0) -> Pixels:
    """Bring an array from `as_array` to exactly `size` = (height, width): scale to cover, crop the centre.

    It is returned as it is when it already has the size and `zoom` is 1. A `zoom` in (0, 1] is the share of
    the covered sides that is kept: 0.875 scales the shorter side to 256 for a crop of 224.

    Examples
    --------
    >>> fit(np.zeros((480, 640, 3), np.uint8), (224, 224), zoom=0.875).shape
    (224, 224, 3)
    """
    if array.dtype != np.uint8 or array.ndim != 3 or array.shape[2] not in (1, 3) or 0 in array.shape:
        raise ValueError(f"expected a uint8 array (H, W, 1 or 3), got {array.dtype} {array.shape}")
    if min(size) < 1 or not 0 < zoom <= 1:
        raise ValueError(f"expected a size of at least (1, 1) and zoom within (0, 1], got {size} and {zoom}")
    if array.shape[:2] == tuple(size) and zoom == 1:
        return array
    cover = [round(side / zoom) for side in size]
    _check_size(*cover)
    scale = max(cover[0] / array.shape[0], cover[1] / array.shape[1])
    # A strip of 1 x 5000 scaled to cover a square would be 5000 squares long. What is far from the centre is
    # cropped away in any case, so drop it first, equally on both sides to keep the centre in place.
    y, x = (max(0, n - math.ceil(16 * c / scale)) // 2 for n, c in zip(array.shape[:2], cover, strict=True))
    array = array[y : array.shape[0] - y, x : array.shape[1] - x]
    height, width = (max(c, round(n * scale)) for n, c in zip(array.shape[:2], cover, strict=True))
    top, left = (height - size[0]) // 2, (width - size[1]) // 2
    picture = Image.fromarray(array if array.shape[2] == 3 else array[:, :, 0])
    picture = picture.resize((width, height), Image.Resampling.BILINEAR)
    return _read_out(picture.crop((left, top, left + size[1], top + size[0])))


def _check_size(height: int, width: int) -> None:
    if height < 1 or width < 1:
        raise ValueError(f"the image is empty: {height} x {width} pixels")
    if height * width > MAX_PIXELS:
        raise ValueError(f"{height} x {width} pixels are over the limit of {MAX_PIXELS:,}; shrink the image")


@contextmanager
def _explained(what: str, advice: str) -> Iterator[None]:
    # Decoders raise whatever they meet: OSError, SyntaxError, struct.error, EOFError, MemoryError, ...
    try:
        yield
    except Exception as error:
        raise ValueError(f"cannot read {what}: {str(error) or type(error).__name__} ({advice})") from error


def _check_shape(what: str, shape: tuple[int, ...], channel_axis: int) -> None:
    if len(shape) != 2 and (len(shape) != 3 or shape[channel_axis] not in (1, 3, 4)):
        hint = "arrays are HWC, tensors are CHW, one image at a time"
        raise ValueError(f"expected {what} with C in 1, 3, 4, got shape {shape}; {hint}")
    _check_size(*(shape[-2:] if channel_axis == 0 else shape[:2]))


def _from_array(array: npt.NDArray[Any]) -> Pixels:
    _check_shape("an array (H, W) or (H, W, C)", array.shape, 2)
    pixels = _to_8_bits(array if array.ndim == 3 else array[:, :, None])
    return _flatten(Image.fromarray(pixels)) if pixels.shape[2] == 4 else pixels


def _from_tensor(tensor: torch.Tensor) -> Pixels:
    _check_shape("a tensor (H, W) or (C, H, W)", tuple(tensor.shape), 0)
    with _explained(f"this {tensor.dtype} tensor", "pass a dense uint8, uint16 or floating one"):
        values = tensor.detach().cpu()
        if values.is_floating_point() and values.itemsize < 4:
            values = values.float()  # NumPy has no bfloat16
        array = values.numpy()
    return _from_array(array if array.ndim == 2 else array.transpose(1, 2, 0))


def _to_8_bits(values: npt.NDArray[Any]) -> Pixels:
    """Return a new uint8 array: 16-bit values divided by 257, floating ones multiplied by 255, rounded."""
    if values.dtype == np.uint8:
        return np.array(values, order="C")
    if values.dtype.kind == "u" and values.dtype.itemsize == 2:
        scaled = (values.astype(np.uint32) + 128) // 257
    elif values.dtype.kind == "f":
        low, high = float(values.min()), float(values.max())
        if not (low >= 0 and high <= 1):
            found = "NaN" if math.isnan(low) else f"[{low:g}, {high:g}]"
            raise ValueError(f"expected floating values within [0, 1], got {found}; rescale or pass uint8")
        scaled = np.rint(values.astype(np.result_type(values, np.float32)) * 255)  # float16 is too coarse
    else:
        raise ValueError(f"expected uint8, uint16, or floating values within [0, 1], got {values.dtype}")
    return scaled.astype(np.uint8, order="C")


def _from_pil(image: Image.Image) -> Pixels:
    _check_size(image.height, image.width)
    image.load()
    exif = image.info.get("exif")
    # Pillow warns about damaged EXIF, so ask it only for what was set in memory.
    turn = _orientation(exif) if isinstance(exif, bytes) else image.getexif().get(0x0112, 1)
    pixels = _pixels(image)
    if turn in (5, 6, 7, 8):
        pixels = pixels.transpose(1, 0, 2)
    if turn in (2, 3, 6, 7):
        pixels = pixels[:, ::-1]
    return pixels[::-1] if turn in (3, 4, 7, 8) else pixels


def _pixels(image: Image.Image) -> Pixels:
    """Return the pixels of a loaded image, as they lie, transparency laid on white."""
    if image.mode == "F" or image.mode.startswith("I"):
        values = np.asarray(image)[:, :, None]
        if image.mode == "I" and (values.min() < 0 or values.max() > 65535):
            raise ValueError(f"expected values within [0, 65535], got [{values.min()}, {values.max()}]")
        pixels = _to_8_bits(values.astype(np.uint16) if image.mode == "I" else values)
    elif _READ_AS[image.mode] in ("LA", "RGBA"):
        # Pillow writes the transparency into the palette of what it converts, so give it a copy.
        return _flatten((image.copy() if image.mode == "P" else image).convert(_READ_AS[image.mode]))
    else:
        values = pixels = _read_out(image.convert(_READ_AS[image.mode]))
    key = image.info.get("transparency")  # here: the one grey or colour that stands for "nothing"
    if isinstance(key, int | tuple) and np.size(key) == pixels.shape[2]:
        pixels[(values == np.array(key)).all(axis=2)] = 255
    return pixels


def _flatten(image: Image.Image) -> Pixels:
    white = Image.new("L" if image.mode == "LA" else "RGB", image.size, "white")
    white.paste(image, (0, 0), image)  # rounds to nearest, unlike alpha_composite
    return _read_out(white)


def _read_out(image: Image.Image) -> Pixels:
    return np.array(image).reshape(image.height, image.width, -1)


def _from_bytes(encoded: bytes | bytearray | memoryview, min_side: int | None) -> Pixels:
    length = memoryview(encoded).nbytes
    if length > MAX_BYTES:
        raise ValueError(f"{length:,} bytes are over the limit of {MAX_BYTES:,}; shrink the image")
    data = bytes(encoded)
    found = next((entry for entry in _FORMATS if re.match(entry[0], data, re.DOTALL)), None)
    if found is None:
        raise ValueError(f"expected {_ACCEPTED}; got {length} bytes of another kind, starting {data[:12]!r}")
    _, name, strip, opener = found
    with _explained(f"these {length} bytes as {name}", "expected a whole, undamaged file; save it again"):
        image = opener(io.BytesIO(strip(data)))
        _check_size(image.height, image.width)
        # Tiles lying on each other, more than colour planes do, would make a small file slow to decode.
        boxes = [tile[1] for tile in image.tile if tile[1]]
        if sum((x1 - x0) * (y1 - y0) for x0, y0, x1, y1 in boxes) > 8 * image.height * image.width:
            raise ValueError("its tiles overlap")
        if min_side is not None and name == "JPEG":
            image.draft(None, (min_side, min_side))
        return _from_pil(image)


class _Jpeg(JpegImageFile):
    """A JPEG file whose EXIF block is kept but not parsed, and whose further pictures (MPO) are not looked for."""

    def getexif(self) -> Image.Exif:
        return Image.Exif()


def _strip_png(data: bytes) -> bytes:
    kept, at = [data[:8]], 8
    while at + 8 <= len(data):
        length, name = struct.unpack_from(">I4s", data, at)
        if name in (b"IHDR", b"PLTE", b"tRNS", b"IDAT", b"IEND", b"eXIf"):
            kept.append(data[at : at + 12 + length])
        at += 12 + length
    return b"".join(kept)


def _strip_gif(data: bytes) -> bytes:
    start = at = 13 + (6 << (data[10] & 7) if data[10] & 0x80 else 0)
    control = b""
    while data[at] != 0x2C:  # the first frame
        if data[at] == 0x21:  # an extension, of which only the transparent colour matters
            if data[at + 1] == 0xF9 and data[at + 3] & 1:
                control = b"\x21\xf9\x04\x01\0\0" + data[at + 6 : at + 7] + b"\0"
            at += 2
            while data[at]:
                at += 1 + data[at]
        at += 1
    left, top, width, height = struct.unpack_from("<4H", data, at + 1)
    right, bottom = struct.unpack_from("<2H", data, 6)
    # Pillow widens the screen to a frame that sticks out, and may warn then: widen it here.
    width, height = max(right, left + width), max(bottom, top + height)
    _check_size(height, width)
    return data[:6] + struct.pack("<2H", width, height) + data[10:start] + control + data[at:]


def _strip_webp(data: bytes) -> bytes:
    # Opening allocates the whole canvas, so its size is read here. Pillow leaves the metadata alone.
    first, second, bits = (int.from_bytes(data[a:b], "little") for a, b in ((24, 27), (27, 30), (21, 25)))
    sizes = {
        b"VP8X": (second + 1, first + 1),
        b"VP8L": ((bits >> 14 & 0x3FFF) + 1, (bits & 0x3FFF) + 1),
        b"VP8 ": (second >> 8 & 0x3FFF, int.from_bytes(data[26:28], "little") & 0x3FFF),
    }
    _check_size(*sizes[data[12:16]])
    return data


# Pixels depend on these tags only: size, layout, compression, orientation, strips, tiles, palette, JPEG tables.
_TIFF_TAGS = {*range(256, 260), 262, 266, 273, 274, *range(277, 280), 284, 292, 293, 317, 320, *range(322, 326)}
_TIFF_TAGS |= {332, 338, 339, 347, *range(512, 522), *range(529, 533), 50674}
_TIFF_BYTES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 1, 7: 1, 8: 2, 9: 4, 10: 8, 11: 4, 12: 8, 13: 4, 16: 8}


def _directory(data: bytes) -> tuple[str, list[tuple[int, int, int, bytes]]]:
    """Return byte order and (tag, type, count, value or offset) of a TIFF file's or EXIF block's first page."""
    order = {b"II*\0": "<", b"MM\0*": ">"}[data[:4]]
    (at,) = struct.unpack_from(order + "I", data, 4)
    (count,) = struct.unpack_from(order + "H", data, at)
    return order, [struct.unpack_from(order + "HHI4s", data, at + 2 + 12 * i) for i in range(count)]


def _strip_tiff(data: bytes) -> bytes:
    order, entries = _directory(data)
    kept: dict[int, bytes] = {}
    total = tile = 1
    for tag, kind, count, value in entries:
        if tag not in _TIFF_TAGS or tag in kept:
            continue
        size = count * _TIFF_BYTES.get(kind, 0)
        (number,) = struct.unpack(order + ("H2x" if kind == 3 and count == 1 else "I"), value)
        total += size
        # Each of these would make Pillow warn, or fill the memory with a table no real file has.
        beyond = total > len(data) or (size > 4 and number + size > len(data)) or count > 1 << 18
        single = kind not in (1, 2, 7) and TiffTags.lookup(tag).length == 1  # those kinds are strings to Pillow
        if beyond or (single and count != 1):
            raise ValueError(f"tag {tag} of its directory is damaged")
        tile *= number if tag in (322, 323) else 1
        kept[tag] = struct.pack(order + "HHI4s", tag, kind, count, value)
    _check_size(tile, 1)  # a tile is decoded whole, even where the image is smaller
    body = data + bytes(len(data) % 2)
    directory = struct.pack(order + "H", len(kept)) + b"".join(kept.values()) + bytes(4)
    return body[:4] + struct.pack(order + "I", len(body)) + body[8:] + directory


def _orientation(exif: bytes) -> int:
    try:
        order, entries = _directory(exif.removeprefix(b"Exif\0\0"))
        turns = [struct.unpack(order + "H2x", v)[0] for t, k, n, v in entries if (t, k, n) == (0x0112, 3, 1)]
    except (KeyError, struct.error):
        return 1  # damaged metadata must not cost the picture
    return turns[0] if turns else 1


_FORMATS: list[tuple[bytes, str, Callable[[bytes], bytes], Callable[[io.BytesIO], ImageFile.ImageFile]]] = [
    (rb"\xff\xd8\xff", "JPEG", bytes, _Jpeg),
    (rb"\x89PNG\r\n\x1a\n", "PNG", _strip_png, PngImageFile),
    (rb"RIFF....WEBP", "WebP", _strip_webp, WebPImageFile),
    (rb"GIF8[79]a", "GIF", _strip_gif, GifImageFile),
    (rb"BM", "BMP", bytes, BmpImageFile),
    (rb"II\*\0|MM\0\*", "TIFF", _strip_tiff, TiffImageFile),
]
