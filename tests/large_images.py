"""Small files that decode to many pixels: the most that each format may claim, for tests of memory and time."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Callable

import numpy as np
from PIL import Image


def _encode(image: Image.Image, format: str, **options: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, format, **options)
    return buffer.getvalue()


def chunk(name: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))


def png(side: int, depth: int, colour: int, *extra: bytes, interlaced: bool = False) -> bytes:
    """Return a PNG of zeros, packed row by row so that making it takes no memory."""
    samples = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}[colour]
    packer, parts = zlib.compressobj(9), []
    steps = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]
    for x, y, across, down in steps if interlaced else [(0, 0, 1, 1)]:
        columns, rows = -(-(side - x) // across), -(-(side - y) // down)
        for _ in range(rows):
            parts.append(packer.compress(bytes(1 + -(-columns * samples * depth // 8))))
    parts.append(packer.flush())
    header = struct.pack(">IIBBBBB", side, side, depth, colour, 0, 0, int(interlaced))
    chunks = chunk(b"IHDR", header) + b"".join(extra) + chunk(b"IDAT", b"".join(parts)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + chunks


_PALETTE = chunk(b"PLTE", bytes(range(48)))


def _turned(data: bytes) -> bytes:
    """Give a JPEG file of Pillow's the orientation 6."""
    exif = Image.Exif()
    exif[0x0112] = 6
    block = exif.tobytes()
    return data[:2] + b"\xff\xe1" + struct.pack(">H", 2 + len(block)) + block + data[2:]


def _jpeg(mode: str, side: int, **options: object) -> bytes:
    return _encode(Image.new(mode, (side, side)), "JPEG", quality=50, **options)


def _webp(mode: str, side: int, **options: object) -> bytes:
    return _encode(Image.new(mode, (side, side)), "WEBP", method=0, **options)


def _noise(side: int, mode: str) -> Image.Image:
    """Return a tile of noise, repeated: it has all that a real picture needs of a decoder."""
    tile = np.random.default_rng(0).integers(0, 256, (min(side, 500), min(side, 500), len(mode)), dtype=np.uint8)
    times = -(-side // len(tile))
    return Image.fromarray(np.tile(tile, (times, times, 1))[:side, :side].copy())


def _bmp_rle(side: int, run: int) -> bytes:
    row = (struct.pack("BB", run, 0) * (side // run)) + (struct.pack("BB", side % run, 0) if side % run else b"")
    body = (row + b"\0\0") * side + b"\0\1"
    head = struct.pack("<IiiHHIIiiII", 40, side, side, 1, 8, 1, len(body), 0, 0, 256, 0) + bytes(1024)
    return b"BM" + struct.pack("<IHHI", 14 + len(head) + len(body), 0, 0, 14 + len(head)) + head + body


def tiff(side: int, bits: tuple[int, ...], photometric: int, *more: tuple[int, int, int], fill: int = 0) -> bytes:
    """Return a TIFF of one strip of zeros under Deflate."""
    packer, parts = zlib.compressobj(9), []
    for _ in range(side):
        parts.append(packer.compress(bytes([fill]) * (side * sum(bits) // 8)))
    body = b"".join([*parts, packer.flush()])
    strip = 8 + len(body) % 2 + len(body)
    table = struct.pack(f"<{len(bits)}H", *bits)
    entries = {256: (4, 1, side), 257: (4, 1, side), 259: (3, 1, 8), 262: (3, 1, photometric), 273: (4, 1, 8)}
    entries |= {277: (3, 1, len(bits)), 278: (4, 1, side), 279: (4, 1, len(body))}
    entries[258] = (3, len(bits), strip if len(bits) > 2 else int.from_bytes(table, "little"))
    entries |= {tag: (kind, 1, value) for tag, kind, value in more}
    directory = b"".join(struct.pack("<HHII", tag, *entry) for tag, entry in sorted(entries.items()))
    offset = strip + len(table)
    head = b"II*\0" + struct.pack("<I", offset)
    return head + body + bytes(len(body) % 2) + table + struct.pack("<H", len(entries)) + directory + bytes(4)


LARGE: dict[str, Callable[[int], bytes]] = {
    "jpeg": lambda side: _jpeg("RGB", side),
    "jpeg, turned": lambda side: _turned(_jpeg("RGB", side)),
    "jpeg, grey": lambda side: _jpeg("L", side),
    "jpeg, progressive": lambda side: _jpeg("RGB", side, progressive=True, subsampling=0),
    "jpeg, progressive cmyk": lambda side: _jpeg("CMYK", side, progressive=True),
    "png, 1 bit": lambda side: png(side, 1, 0),
    "png, grey": lambda side: png(side, 8, 0),
    "png, grey and key": lambda side: png(side, 8, 0, chunk(b"tRNS", b"\0\0")),
    "png, 16 bits": lambda side: png(side, 16, 0),
    "png, palette": lambda side: png(side, 8, 3, _PALETTE, chunk(b"tRNS", b"\0\5")),
    "png, rgb and key": lambda side: png(side, 8, 2, chunk(b"tRNS", bytes(6))),
    "png, grey and alpha": lambda side: png(side, 8, 4),
    "png, rgba of 16 bits": lambda side: png(side, 16, 6),
    "png, rgba, interlaced": lambda side: png(side, 8, 6, interlaced=True),
    "webp": lambda side: _webp("RGB", side),
    "webp, alpha": lambda side: _webp("RGBA", side),
    "webp, lossless": lambda side: _webp("RGB", side, lossless=True),
    "webp, lossless, alpha": lambda side: _webp("RGBA", side, lossless=True),
    "webp, lossless, noise": lambda side: _encode(_noise(side, "RGBA"), "WEBP", method=0, lossless=True, quality=0),
    "webp, noise and alpha": lambda side: _encode(_noise(side, "RGBA"), "WEBP", method=0, quality=0),
    "webp, animated": lambda side: _webp(
        "RGBA", side, save_all=True, lossless=True, append_images=[Image.new("RGBA", (side, side), "red")]
    ),
    "gif": lambda side: _encode(Image.new("P", (side, side)), "GIF", interlace=0),
    "gif, transparent": lambda side: _encode(Image.new("P", (side, side)), "GIF", transparency=0, interlace=1),
    "bmp, rle": lambda side: _bmp_rle(side, 255),
    "bmp, rle of single pixels": lambda side: _bmp_rle(side, 1),
    "tiff, grey": lambda side: tiff(side, (8,), 1),
    "tiff, rgb of 16 bits": lambda side: tiff(side, (16, 16, 16), 2),
    "tiff, rgba of 16 bits": lambda side: tiff(side, (16, 16, 16, 16), 2, (338, 3, 2)),
    "tiff, cmyk of 16 bits": lambda side: tiff(side, (16, 16, 16, 16), 5),
    "tiff, palette": lambda side: tiff(side, (1,), 0),
    "tiff, integers": lambda side: tiff(side, (32,), 1, (339, 3, 2)),
    "tiff, floating": lambda side: tiff(side, (32,), 1, (339, 3, 3)),
    "tiff, turned": lambda side: tiff(side, (8, 8, 8), 2, (274, 3, 6)),
}
"""Name to a function of the side."""
