"""Compress: a chain of codecs between an image and the bytes that the replay buffer keeps of it.

A chain is written left to right as it is applied, and packing comes last: ``resize(0.66)|quantize(6)``.

========================  ======================================================================
``raw``                   the bytes as they are
``quantize(b)``           ``x // 2**(8-b)``, really packed into b bits; decoding multiplies back
``resize(r)``             to r of the area, side = round(side * sqrt(r)); decoding resizes back
``jpeg(q)``               JPEG of quality q (default 90): a row of its own length for each image
========================  ======================================================================
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch.nn.functional import interpolate

from coldstream import native
from coldstream.parsing import Call, parse_chain, unknown
from coldstream.replay.packing import Bytes, pack, packed_bytes, unpack_high
from coldstream.replay.upscaling import enlarge

Packed = Bytes | Sequence[bytes]
"""Packed rows: an array (count, row_bytes), or byte strings of different lengths."""


@dataclass(frozen=True)
class Codec:
    """A chain bound to items of one shape and dtype: `encode` one item, `decode` many rows.

    Use `Codec.parse`. `row_bytes` is the exact size of every encoded item, or None where it varies (JPEG).

    Examples
    --------
    >>> Codec.parse("resize(0.66)|quantize(6)", (32, 32, 3)).row_bytes
    1521
    """

    text: str
    shape: tuple[int, ...]
    dtype: np.dtype[np.generic]
    small: tuple[int, int] | None
    bits: int
    quality: int | None

    @classmethod
    def parse(cls, text: str, shape: tuple[int, ...], dtype: str = "uint8") -> Codec:
        """Read a chain such as ``resize(0.75)|quantize(4)`` for items of `shape` (height, width, channels)."""
        ratio, bits, quality, packing = 1.0, 8, None, ""
        for call in check_chain(text):
            if call.name == "resize":
                ratio = float(call.args[0])
                continue
            packing = call.name
            if call.name == "quantize":
                bits = int(call.args[0])
            elif call.name == "jpeg":
                quality = int(call.args[0]) if call.args else 90
        kind = np.dtype(dtype)
        if (packing not in ("", "raw") or ratio != 1.0) and (kind != np.uint8 or len(shape) != 3):
            raise ValueError(f"codec {text!r} is for uint8 images; vectors of {kind} can only be kept raw")
        if quality is not None and shape[2] not in (1, 3):
            raise ValueError(f"codec 'jpeg' takes 1 or 3 channels, not {shape[2]}")
        small = None
        if ratio != 1.0:
            small = (max(1, round(shape[0] * math.sqrt(ratio))), max(1, round(shape[1] * math.sqrt(ratio))))
            small = None if small == shape[:2] else small
        return cls(text, shape, kind, small, bits, quality)

    @property
    def row_bytes(self) -> int | None:
        if self.quality is not None:
            return None
        values = math.prod(self._small_shape)
        return values * self.dtype.itemsize if self.dtype != np.uint8 else packed_bytes(values, self.bits)

    @property
    def most_bytes(self) -> int:
        """Upper bound of the bytes of an encoded item.

        A JPEG has at most 27 bits per coefficient, half of its bytes may be stuffing, blocks are filled up to 16x16,
        and its tables take less than 4 KB.
        """
        if self.row_bytes is not None:
            return self.row_bytes
        height, width, channels = self._small_shape
        return 4096 + 7 * channels * 256 * -(-height // 16) * -(-width // 16)

    @property
    def _small_shape(self) -> tuple[int, ...]:
        return (*self.small, self.shape[2]) if self.small else self.shape

    def encode(self, item: NDArray[np.generic]) -> Bytes:
        """Return the bytes that are kept of one item."""
        if self.small:
            # Torch warns of read-only memory, which is what NumPy makes of a Pillow image.
            item = _resize(np.require(item, np.uint8, ("C", "W"))[None], self.small)[0]
        if self.quality is not None:
            out = io.BytesIO()
            picture = Image.fromarray(item[..., 0] if item.shape[2] == 1 else item)
            picture.save(out, "JPEG", quality=self.quality)
            return np.frombuffer(out.getbuffer(), np.uint8)
        flat: Bytes = np.ascontiguousarray(item).reshape(-1).view(np.uint8)
        return flat if self.bits == 8 else pack(np.right_shift(flat, 8 - self.bits, dtype=np.uint8), self.bits)

    def decode(self, rows: Packed) -> NDArray[np.generic]:
        """Return the items of `rows` as one array (count, *shape), in a single pass over all of them."""
        count, shape = len(rows), self._small_shape
        if count == 0:
            return np.empty((0, *self.shape), self.dtype)
        if isinstance(rows, np.ndarray):
            if self.dtype != np.uint8:
                return np.ascontiguousarray(rows).view(self.dtype).reshape(count, *shape)
            values = math.prod(shape)
            items = (rows if self.bits == 8 else unpack_high(rows, values, self.bits)).reshape(count, *shape)
        else:
            items = np.empty((count, *shape), np.uint8)
            decode = _jpeg_decoder()
            for item, encoded in zip(items, rows, strict=True):
                if (decoded := decode(encoded, item)) != shape:
                    raise ValueError(f"a stored JPEG image is of shape {decoded}, not {shape}")
        return _resize(items, (self.shape[0], self.shape[1])) if self.small else items


@cache
def _jpeg_decoder() -> Callable[[bytes, Bytes], tuple[int, ...]]:
    """Return what decodes into an array and returns the image's shape; a larger image is not decoded.

    simplejpeg uses Pillow's JPEG library without Pillow's overhead per image, and gives the same bits.
    """
    try:
        from simplejpeg import decode_jpeg
    except ImportError:
        return _decode_with_pillow

    def decode(encoded: bytes, out: Bytes) -> tuple[int, ...]:
        shape: tuple[int, ...] = decode_jpeg(encoded, "GRAY" if out.shape[2] == 1 else "RGB", buffer=out).shape
        return shape

    return decode


def _decode_with_pillow(encoded: bytes, out: Bytes) -> tuple[int, ...]:
    with Image.open(io.BytesIO(encoded), formats=["JPEG"]) as picture:
        shape = (picture.height, picture.width, len(picture.getbands()))
        if shape == out.shape:
            out[:] = np.asarray(picture).reshape(shape)
    return shape


def check_chain(text: str) -> list[Call]:
    """Return the links of a chain, or say what is wrong with it; needs no image size."""
    calls = parse_chain(text, "codec")
    limits = {"raw": None, "resize": (0.0, 1.0), "quantize": (1, 8), "jpeg": (1, 100)}
    seen: list[str] = []
    for call in calls:
        if call.name not in limits:
            raise unknown("codec", call.name, limits)
        limit = limits[call.name]
        wanted = 0 if limit is None else 1
        optional = call.name == "jpeg"
        if call.kwargs or len(call.args) > wanted or (len(call.args) < wanted and not optional):
            raise ValueError(f"codec {call.name!r} takes {wanted} argument{'s' * (wanted != 1)}, in {text!r}")
        for value in call.args:
            whole = call.name != "resize"
            if limit is None or isinstance(value, str) or (whole and not float(value).is_integer()):
                raise ValueError(f"codec {call.name!r} cannot take {value!r}, in {text!r}")
            if not limit[0] <= value <= limit[1] or value == 0:
                raise ValueError(f"codec {call.name!r} takes {limit[0]:g} to {limit[1]:g}, not {value}")
        if call.name in seen:
            raise ValueError(f"codec {text!r} names {call.name!r} twice")
        packs = [name for name in seen if name != "resize"]
        if packs and call.name == "resize":
            raise ValueError(f"packing comes last: write resize before {packs[0]} in codec {text!r}")
        if packs:
            raise ValueError(f"codec {text!r} packs twice; use one of {packs[0]} and {call.name}")
        seen.append(call.name)
    return calls


def _resize(images: Bytes, size: tuple[int, int]) -> Bytes:
    """Resize (count, height, width, channels), bilinear and antialiased when shrinking, as Pillow does."""
    if size[0] >= images.shape[1] and size[1] >= images.shape[2] and native.available():
        return enlarge(images, size)
    channels_last = torch.from_numpy(images).permute(0, 3, 1, 2)
    resized = interpolate(channels_last, size, mode="bilinear", antialias=True)
    return np.ascontiguousarray(resized.permute(0, 2, 3, 1).numpy())
