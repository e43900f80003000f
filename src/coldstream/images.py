"""Convert every supported kind of image to one uint8 array (height, width, channel).

Images are converted in bands of rows, which takes little memory beside the image and the array. What
decoding takes is bounded over all threads together (`coldstream.limits`).
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from coldstream import encoded
from coldstream._lazy import is_tensor
from coldstream.limits import DECODING, MAX_BYTES, check_size

if TYPE_CHECKING:
    from torch import Tensor

Pixels = npt.NDArray[np.uint8]

_ACCEPTED = (
    "a NumPy array (H, W) or (H, W, C), a torch tensor (H, W) or (C, H, W), a PIL image, "
    "or a JPEG, PNG, WebP, GIF, BMP or TIFF file, as bytes or as a pathlib.Path"
)
# The mode that each Pillow mode is converted to; modes of more than 8 bits are scaled separately.
_READ_AS = {"1": "L", "L": "L", "LA": "LA", "La": "LA"}
_READ_AS |= dict.fromkeys(("P", "PA", "RGBA", "RGBa"), "RGBA")
_READ_AS |= dict.fromkeys(("RGB", "RGBX", "CMYK", "YCbCr", "LAB", "HSV"), "RGB")
_BAND = 1 << 19
"""Pixels that are converted at once."""
_BYTES_OF_PIL = 16
"""Most bytes per pixel that loading a PIL image takes, of any format."""


def as_array(image: object, channels: int | None = None, *, min_side: int | None = None) -> Pixels:
    """Turn `image` into a new, C-contiguous uint8 array of shape (H, W, 1) or (H, W, 3).

    EXIF orientation is applied, transparency is composited on white, deeper values are scaled to 8 bits. Other types,
    and images that are damaged, empty, or over a limit (`coldstream.limits`), raise a ValueError.

    Parameters
    ----------
    image : array, tensor, PIL image, bytes or Path
        Arrays are HW or HWC, tensors HW or CHW, with 1, 3 or 4 channels; uint8, uint16, or floating within
        [0, 1]. Bytes, and what a path names, are a whole JPEG, PNG, WebP, GIF, BMP or TIFF file, of
        which the first frame is taken.
        The image is never modified.
    channels : {None, 1, 3}
        How many channels to return; None keeps grey as 1 and colour as 3.
    min_side : int, optional
        Allow JPEG to be decoded at 1/2, 1/4 or 1/8 of its size, as long as no side gets below this.

    Examples
    --------
    >>> as_array(np.array([[0.0, 1.0]])).tolist()
    [[[0], [255]]]
    >>> import torch
    >>> as_array(torch.zeros(3, 8, 6, dtype=torch.uint8), channels=1).shape
    (8, 6, 1)
    """
    if channels not in (None, 1, 3) or (min_side is not None and min_side < 1):
        raise ValueError(f"expected channels None, 1 or 3 and min_side >= 1, got {channels} and {min_side}")
    if isinstance(image, np.ndarray):
        return _from_array(image, channels)
    if is_tensor(image):
        return _from_tensor(image, channels)
    if isinstance(image, Image.Image):
        with _explained(f"this PIL image of mode {image.mode}", "check that it loads and is open"):
            check_size(image.height, image.width)
            with DECODING.take(_BYTES_OF_PIL * image.height * image.width):
                return _from_pil(image, channels)
    if isinstance(image, bytes | bytearray | memoryview):
        return _from_bytes(image, channels, min_side)
    if isinstance(image, os.PathLike):
        return _from_file(image, channels, min_side)
    if isinstance(image, str):
        raise ValueError(f"a str is not an image; for a file pass pathlib.Path({image[:80]!r})")
    raise ValueError(f"expected {_ACCEPTED}, got {type(image).__module__}.{type(image).__qualname__}")


def has_colour(array: Pixels) -> bool:
    """Return whether an array from `as_array` has a pixel that is not grey.

    Examples
    --------
    >>> has_colour(np.full((2, 2, 3), 7, np.uint8)), has_colour(np.array([[[7, 7, 8]]], np.uint8))
    (False, True)
    """
    return array.shape[2] == 3 and any(bool((array[:, :, 0] != array[:, :, i]).any()) for i in (1, 2))


def fit(array: Pixels, size: tuple[int, int], zoom: float = 1.0) -> Pixels:
    """Bring an array from `as_array` to exactly `size` = (height, width): scale to cover, crop the centre.

    The array itself is returned if it already has the size and `zoom` is 1. A `zoom` in (0, 1] is the share of the
    scaled sides that the crop keeps: 0.875 scales the shorter side to 256 for a crop of 224.

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
    check_size(*cover)
    scale = max(cover[0] / array.shape[0], cover[1] / array.shape[1])
    # A strip of 1 x 5000 scaled to cover a square would be 5000 squares long. What is far from the centre is
    # cropped away in any case, so drop it first, equally on both sides to keep the centre in place.
    y, x = (max(0, n - math.ceil(16 * c / scale)) // 2 for n, c in zip(array.shape[:2], cover, strict=True))
    array = array[y : array.shape[0] - y, x : array.shape[1] - x]
    height, width = (max(c, round(n * scale)) for n, c in zip(array.shape[:2], cover, strict=True))
    top, left = (height - size[0]) // 2, (width - size[1]) // 2
    with DECODING.take(4 * (array.shape[0] * array.shape[1] + height * width)):
        picture = Image.fromarray(array if array.shape[2] == 3 else array[:, :, 0])
        picture = picture.resize((width, height), Image.Resampling.BILINEAR)
        return _read_out(picture.crop((left, top, left + size[1], top + size[0])))


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
    check_size(*(shape[-2:] if channel_axis == 0 else shape[:2]))


def _from_array(array: npt.NDArray[Any], channels: int | None) -> Pixels:
    _check_shape("an array (H, W) or (H, W, C)", array.shape, 2)
    return _from_rows(array.shape, lambda top, bottom: array[top:bottom], channels)


def _from_tensor(tensor: Tensor, channels: int | None) -> Pixels:
    _check_shape("a tensor (H, W) or (C, H, W)", tuple(tensor.shape), 0)

    def rows(top: int, bottom: int) -> npt.NDArray[Any]:
        with _explained(f"this {tensor.dtype} tensor", "pass a dense uint8, uint16 or floating one"):
            values = tensor.detach()[..., top:bottom, :].cpu()
            if values.is_floating_point() and values.itemsize < 4:
                values = values.float()  # NumPy has no bfloat16
            array = values.numpy()
        return array if array.ndim == 2 else array.transpose(1, 2, 0)

    return _from_rows((*tensor.shape[-2:], *tensor.shape[:-2]), rows, channels)


def _from_rows(shape: tuple[int, ...], rows: Callable[[int, int], npt.NDArray[Any]], channels: int | None) -> Pixels:
    """Convert values (H, W) or (H, W, C), given by their rows."""

    def read(top: int, bottom: int) -> Pixels:
        pixels = _to_8_bits(rows(top, bottom).reshape(bottom - top, shape[1], -1))
        return _flatten(Image.fromarray(pixels)) if pixels.shape[2] == 4 else pixels

    native = 1 if len(shape) == 2 or shape[2] == 1 else 3
    return _in_bands(shape[0], shape[1], read, channels or native)


def _in_bands(
    height: int, width: int, read: Callable[[int, int], Pixels], channels: int, orientation: int = 1
) -> Pixels:
    """Return a new array of what `read(top, bottom)` gives for bands of rows, turned as EXIF says."""
    size = (width, height) if orientation in (5, 6, 7, 8) else (height, width)
    pixels = view = np.empty((*size, channels), np.uint8)
    if orientation in (3, 4, 7, 8):
        view = view[::-1]
    if orientation in (2, 3, 6, 7):
        view = view[:, ::-1]
    if orientation in (5, 6, 7, 8):
        view = view.transpose(1, 0, 2)
    rows = max(1, _BAND // width)
    for top in range(0, height, rows):
        band = read(top, min(top + rows, height))
        if channels == 1 and band.shape[2] == 3:
            band = _read_out(Image.fromarray(band).convert("L"))
        view[top : top + rows] = band
    return pixels


def _to_8_bits(values: npt.NDArray[Any]) -> Pixels:
    """Return uint8: 16-bit values divided by 257, floating ones multiplied by 255, rounded."""
    if values.dtype == np.uint8:
        return values
    if values.dtype.kind == "u" and values.dtype.itemsize == 2:
        scaled = (values.astype(np.uint32) + 128) // 257
    elif values.dtype.kind == "f":
        low, high = float(values.min()), float(values.max())
        if not (low >= 0 and high <= 1):
            interval = "NaN" if math.isnan(low) else f"[{low:g}, {high:g}]"
            raise ValueError(f"expected floating values within [0, 1], got {interval}; rescale or pass uint8")
        scaled = np.rint(values.astype(np.result_type(values, np.float32)) * 255)  # float16 is too coarse
    else:
        raise ValueError(f"expected uint8, uint16, or floating values within [0, 1], got {values.dtype}")
    return scaled.astype(np.uint8, order="C")


def _from_pil(image: Image.Image, channels: int | None) -> Pixels:
    image.load()
    exif = image.info.get("exif")
    # Pillow warns about damaged EXIF, so ask it only for what was set in memory.
    turn = encoded.orientation(exif) if isinstance(exif, bytes) else image.getexif().get(0x0112, 1)
    native = 1 if image.mode == "F" or image.mode.startswith("I") or _READ_AS[image.mode] in ("L", "LA") else 3

    def read(top: int, bottom: int) -> Pixels:
        # Pillow writes the transparency into the palette of what it converts, so give it a copy.
        whole = bottom - top == image.height and image.mode != "P"
        return _pixels(image if whole else image.crop((0, top, image.width, bottom)))

    return _in_bands(image.height, image.width, read, channels or native, turn)


def _pixels(image: Image.Image) -> Pixels:
    """Return the pixels of a loaded image, not rotated, transparency composited on white."""
    if image.mode == "F" or image.mode.startswith("I"):
        values = np.asarray(image)[:, :, None]
        if image.mode == "I" and (values.min() < 0 or values.max() > 65535):
            raise ValueError(f"expected values within [0, 65535], got [{values.min()}, {values.max()}]")
        pixels = _to_8_bits(values.astype(np.uint16) if image.mode == "I" else values)
    elif _READ_AS[image.mode] in ("LA", "RGBA"):
        return _flatten(image.convert(_READ_AS[image.mode]))
    else:
        values = pixels = _read_out(image.convert(_READ_AS[image.mode]))
    key = image.info.get("transparency")  # the grey level or colour that is transparent
    if isinstance(key, int | tuple) and np.size(key) == pixels.shape[2]:
        pixels[(values == np.array(key)).all(axis=2)] = 255
    return pixels


def _flatten(image: Image.Image) -> Pixels:
    white = Image.new("L" if image.mode == "LA" else "RGB", image.size, "white")
    white.paste(image, (0, 0), image)  # rounds to nearest, unlike alpha_composite
    return _read_out(white)


def _read_out(image: Image.Image) -> Pixels:
    return np.array(image).reshape(image.height, image.width, -1)


def _from_file(path: os.PathLike[Any], channels: int | None, min_side: int | None) -> Pixels:
    try:
        if not os.path.isfile(path):  # reading a pipe or a device would wait, or never end
            raise FileNotFoundError("there is no such file" if not os.path.exists(path) else "it is not a file")
        with open(path, "rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ValueError(f"cannot read {os.fspath(path)!r}: {error.strerror or error}") from None
    try:
        return _from_bytes(data, channels, min_side)
    except ValueError as error:
        raise ValueError(f"{os.fspath(path)!r}: {error}") from error


def _from_bytes(data: bytes | bytearray | memoryview, channels: int | None, min_side: int | None) -> Pixels:
    length = memoryview(data).nbytes
    if length > MAX_BYTES:
        raise ValueError(f"{length:,} bytes are over the limit of {MAX_BYTES:,}; shrink the image")
    data = bytes(data)
    format = encoded.format_of(data)
    if format is None:
        raise ValueError(f"expected {_ACCEPTED}; got {length} bytes of another kind, starting {data[:12]!r}")
    with _explained(f"these {length} bytes as {format.name}", "expected a whole, undamaged file; save it again"):
        image, memory = format.open(data)
        if min_side is not None and format.name == "JPEG":
            image.draft(None, (min_side, min_side))
        with DECODING.take(memory):
            return _from_pil(image, channels)
