"""Open encoded images, whose bytes are untrusted, so that Pillow decodes them within bounds of memory and time.

The claimed size is checked before pixels are decoded, and metadata that Pillow would parse is removed first. That
also prevents Pillow's warnings about damaged metadata, which cannot be caught in one thread without affecting the
others.
"""

from __future__ import annotations

import io
import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from PIL import Image, ImageFile, TiffTags
from PIL.BmpImagePlugin import BmpImageFile
from PIL.GifImagePlugin import GifImageFile
from PIL.JpegImagePlugin import JpegImageFile
from PIL.PngImagePlugin import PngImageFile
from PIL.TiffImagePlugin import TiffImageFile
from PIL.WebPImagePlugin import WebPImageFile

from coldstream.limits import MAX_MEMORY, check_size

# No real file has as many, and Pillow, or a decoder, takes time for each.
_MAX_SCANS = 100
_MAX_SEGMENTS = 5_000
_MAX_CHUNKS = 100_000
_MAX_STRIPS = 1 << 16
# Pillow decodes run-length encoded BMP files in Python.
_MAX_RLE_PIXELS = 10_000_000
_MAX_RLE_WIDTH = 1 << 16
_MAX_RLE_BYTES = 16_000_000


@dataclass(frozen=True)
class Format:
    """How files of one format begin, are cleaned and opened, and the memory that decoding them takes."""

    name: str
    start: re.Pattern[bytes]
    clean: Callable[[bytes], bytes]
    opener: Callable[[io.BytesIO], ImageFile.ImageFile]
    bytes_per_pixel: int = 12

    def open(self, data: bytes) -> tuple[ImageFile.ImageFile, int]:
        """Return an image whose pixels are not decoded yet, and the bytes of memory that this will take."""
        image = self.opener(io.BytesIO(self.clean(data)))
        check_size(image.height, image.width)
        # Tiles that overlap, beyond separate colour planes, would make a small file slow to decode.
        boxes = [tile[1] for tile in image.tile if tile[1]]
        if sum((x1 - x0) * (y1 - y0) for x0, y0, x1, y1 in boxes) > 8 * image.height * image.width:
            raise ValueError("its tiles overlap")
        pixels = max(image.height * image.width, _tile(image))
        memory = self.bytes_per_pixel * pixels
        if memory > MAX_MEMORY:
            raise ValueError(
                f"{image.height} x {image.width} pixels are over the limit of {MAX_MEMORY // self.bytes_per_pixel:,} "
                f"for {self.name}; shrink the image or save it as PNG or JPEG"
            )
        return image, memory


def format_of(data: bytes) -> Format | None:
    """Return the format that a file begins like, or None."""
    return next((format for format in _FORMATS if format.start.match(data)), None)


class _Jpeg(JpegImageFile):
    """A JPEG file whose EXIF block is kept but not parsed, and whose further images (MPO) are ignored."""

    def getexif(self) -> Image.Exif:
        return Image.Exif()


class _WebP(WebPImageFile):
    """A WebP file that allocates nothing before it is loaded, and lets its decoder go afterwards.

    Pillow's own makes a decoder on opening, with two canvases, and keeps it.
    """

    _opened = False

    def _open(self) -> None:
        assert self.fp is not None
        height, width = _webp_size(self.fp.read(30))
        self._size, self._mode = (width, height), "RGBA"

    def load(self) -> Any:
        if not self._opened:
            claimed, self._opened = self._size, True
            assert self.fp is not None
            self.fp.seek(0)
            super()._open()
            if self._size != claimed:
                raise ValueError(f"its header claims {claimed} and its frames are {self._size}")
        access = super().load()
        self._decoder = None
        return access


_FILL = re.compile(rb"\xff+")
_MARKER = re.compile(rb"\xff[^\0\xd0-\xd7\xff]")


def _clean_jpeg(data: bytes) -> bytes:
    at = 2
    for _ in range(_MAX_SEGMENTS):
        fill = _FILL.match(data, at)
        if fill is None or fill.end() == len(data) or data[fill.end()] == 0xDA:
            break
        if fill.end() - at > _MAX_SEGMENTS:
            raise ValueError("its first segments are filled up beyond measure")
        at = fill.end() + 1
        at += int.from_bytes(data[at : at + 2]) if data[at - 1] not in (0x01, 0xD8) else 0
    else:
        raise ValueError(f"more than {_MAX_SEGMENTS:,} segments come before its first scan")
    # A scan may refine all pixels in a few bytes, again and again.
    if data.count(b"\xff\xda") > _MAX_SCANS and _scans(data, at) > _MAX_SCANS:
        raise ValueError(f"it has more than {_MAX_SCANS} scans")
    return data


def _scans(data: bytes, at: int) -> int:
    """Count the scans of a JPEG file from its first one, up to the end of the image or one over the limit."""
    scans = 0
    while scans <= _MAX_SCANS and (match := _MARKER.search(data, at)) and data[match.end() - 1] != 0xD9:
        at = match.end()
        scans += data[at - 1] == 0xDA
        at += int.from_bytes(data[at : at + 2])
    return scans


def _clean_png(data: bytes) -> bytes:
    kept, at = [data[:8]], 8
    for _ in range(_MAX_CHUNKS):
        if at + 8 > len(data):
            break
        length, name = struct.unpack_from(">I4s", data, at)
        if name in (b"IHDR", b"PLTE", b"tRNS", b"IDAT", b"IEND", b"eXIf"):
            kept.append(data[at : at + 12 + length])
        at += 12 + length
    else:
        raise ValueError(f"it has more than {_MAX_CHUNKS:,} chunks")
    return b"".join(kept)


def _clean_gif(data: bytes) -> bytes:
    start = at = 13 + (6 << (data[10] & 7) if data[10] & 0x80 else 0)
    control, blocks = b"", 0
    while data[at] != 0x2C:  # the first frame
        if data[at] == 0x21:  # an extension, of which only the transparent colour matters
            if data[at + 1] == 0xF9 and data[at + 3] & 1:
                control = b"\x21\xf9\x04\x01\0\0" + data[at + 6 : at + 7] + b"\0"
            at += 2
            while data[at]:
                at += 1 + data[at]
                blocks += 1
                _check_blocks(blocks)
        at += 1
        blocks += 1
        _check_blocks(blocks)
    left, top, width, height = struct.unpack_from("<4H", data, at + 1)
    right, bottom = struct.unpack_from("<2H", data, 6)
    # Pillow enlarges the canvas to a frame that exceeds it, and may warn: enlarge it here.
    width, height = max(right, left + width), max(bottom, top + height)
    check_size(height, width)
    return data[:6] + struct.pack("<2H", width, height) + data[10:start] + control + data[at:]


def _check_blocks(blocks: int) -> None:
    if blocks > _MAX_CHUNKS:
        raise ValueError(f"more than {_MAX_CHUNKS:,} blocks come before its first frame")


def _webp_size(data: bytes) -> tuple[int, int]:
    """Return (height, width) as the header claims them."""
    first, second, bits = (int.from_bytes(data[a:b], "little") for a, b in ((24, 27), (27, 30), (21, 25)))
    sizes = {
        b"VP8X": (second + 1, first + 1),
        b"VP8L": ((bits >> 14 & 0x3FFF) + 1, (bits & 0x3FFF) + 1),
        b"VP8 ": (second >> 8 & 0x3FFF, int.from_bytes(data[26:28], "little") & 0x3FFF),
    }
    if data[12:16] not in sizes:
        raise ValueError(f"its first chunk is {data[12:16]!r}, which is not an image")
    return sizes[data[12:16]]


def _check_bmp(data: bytes) -> bytes:
    width, height, compression = struct.unpack_from("<ii4xI", data, 18) if len(data) >= 34 else (0, 0, 0)
    if compression in (1, 2) and (
        abs(width * height) > _MAX_RLE_PIXELS or abs(width) > _MAX_RLE_WIDTH or len(data) > _MAX_RLE_BYTES
    ):
        raise ValueError(
            f"{abs(height)} x {abs(width)} pixels in {len(data):,} bytes are over the limit of "
            f"{_MAX_RLE_PIXELS:,} for run-length encoding; save it without"
        )
    return data


# Pixels depend on these tags only: size, layout, compression, orientation, strips, tiles, palette, JPEG tables.
_TIFF_TAGS = {*range(256, 260), 262, 266, 273, 274, *range(277, 280), 284, 292, 293, 317, 320, *range(322, 326)}
_TIFF_TAGS |= {332, 338, 339, 347, *range(512, 522), *range(529, 533), 50674}
_TIFF_BYTES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 1, 7: 1, 8: 2, 9: 4, 10: 8, 11: 4, 12: 8, 13: 4, 16: 8}
# None, CCITT, LZW, JPEG, Deflate, PackBits. Others take a memory that the file itself may choose.
_TIFF_COMPRESSIONS = {1, 2, 3, 4, 5, 6, 7, 8, 32771, 32773, 32946}


def _directory(data: bytes) -> tuple[str, list[tuple[int, int, int, bytes]]]:
    """Return byte order and (tag, type, count, value or offset) of a TIFF file's or EXIF block's first page."""
    order = {b"II*\0": "<", b"MM\0*": ">"}[data[:4]]
    (at,) = struct.unpack_from(order + "I", data, 4)
    (count,) = struct.unpack_from(order + "H", data, at)
    return order, [struct.unpack_from(order + "HHI4s", data, at + 2 + 12 * i) for i in range(count)]


def _clean_tiff(data: bytes) -> bytes:
    order, entries = _directory(data)
    kept: dict[int, bytes] = {}
    total = 0
    for tag, kind, count, value in entries:
        if tag not in _TIFF_TAGS or tag in kept:
            continue
        size = count * _TIFF_BYTES.get(kind, 0)
        (number,) = struct.unpack(order + ("H2x" if kind == 3 and count == 1 else "I"), value)
        total += size
        # Each of these makes Pillow warn, or allocates a table that no real file has.
        beyond = total > len(data) or (size > 4 and number + size > len(data)) or count > 1 << 18
        single = kind not in (1, 2, 7) and TiffTags.lookup(tag).length == 1  # those kinds are strings to Pillow
        if beyond or (single and count != 1):
            raise ValueError(f"tag {tag} of its directory is damaged")
        if tag in (273, 324) and count > _MAX_STRIPS:
            raise ValueError(f"it has {count:,} strips or tiles; the limit is {_MAX_STRIPS:,}")
        if tag == 259 and number not in _TIFF_COMPRESSIONS:
            raise ValueError(f"its compression, number {number}, is not supported: save it with LZW or Deflate")
        kept[tag] = struct.pack(order + "HHI4s", tag, kind, count, value)
    body = data + bytes(len(data) % 2)
    directory = struct.pack(order + "H", len(kept)) + b"".join(kept.values()) + bytes(4)
    return body[:4] + struct.pack(order + "I", len(body)) + body[8:] + directory


def _tile(image: ImageFile.ImageFile) -> int:
    """Return the pixels of a tile: a tile is decoded whole, even where the image is smaller."""
    if not isinstance(image, TiffImageFile):
        return 1
    height, width = (image.tag_v2.get(tag, 1) for tag in (323, 322))
    check_size(height, width)
    return int(height * width)


def orientation(exif: bytes) -> int:
    """Return the orientation that an EXIF block gives; upright where it is damaged."""
    try:
        order, entries = _directory(exif.removeprefix(b"Exif\0\0"))
        turns = [struct.unpack(order + "H2x", v)[0] for t, k, n, v in entries if (t, k, n) == (0x0112, 3, 1)]
    except (KeyError, struct.error):
        return 1  # damaged metadata must not make the image unreadable
    return turns[0] if turns else 1


def _start(pattern: bytes) -> re.Pattern[bytes]:
    return re.compile(pattern, re.DOTALL)


_FORMATS = [
    Format("JPEG", _start(rb"\xff\xd8\xff"), _clean_jpeg, _Jpeg),
    Format("PNG", _start(rb"\x89PNG\r\n\x1a\n"), _clean_png, PngImageFile),
    Format("WebP", _start(rb"RIFF....WEBP"), bytes, _WebP, bytes_per_pixel=16),
    Format("GIF", _start(rb"GIF8[79]a"), _clean_gif, GifImageFile),
    Format("BMP", _start(rb"BM"), _check_bmp, BmpImageFile),
    Format("TIFF", _start(rb"II\*\0|MM\0\*"), _clean_tiff, TiffImageFile),
]
