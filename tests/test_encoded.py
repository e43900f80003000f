"""Small or well-formed files that would keep a decoder busy, or make it ask for memory."""

from __future__ import annotations

import io
import struct
import time

import numpy as np
import pytest
from PIL import Image

from coldstream.images import as_array
from large_images import LARGE, chunk, tiff


def encode(format: str, **options: object) -> bytes:
    y, x = np.mgrid[0:24, 0:40]
    image = Image.fromarray(np.stack([y * 10, x * 6, x + y], 2).astype(np.uint8))
    buffer = io.BytesIO()
    image.save(buffer, format, **options)
    return buffer.getvalue()


JPEG, PNG, GIF, TIFF = (encode(format) for format in ("JPEG", "PNG", "GIF", "TIFF"))
PROGRESSIVE = encode("JPEG", progressive=True)
AFTER_PALETTE = 13 + 3 * 256


def scans(more: int, data: bytes = PROGRESSIVE) -> bytes:
    """Repeat a progressive file's last scan."""
    last = data[data.rindex(b"\xff\xda") : -2]
    return data[:-2] + last * more + b"\xff\xd9"


def bmp(width: int, height: int, body: bytes, compression: int = 1) -> bytes:
    colours = 256 if compression == 1 else 16
    head = struct.pack(
        "<IiiHHIIiiII", 40, width, height, 1, 8 if compression == 1 else 4, compression, len(body), 0, 0, colours, 0
    )
    head += bytes(4 * colours)
    return b"BM" + struct.pack("<IHHI", 14 + len(head) + len(body), 0, 0, 14 + len(head)) + head + body


def compressed_as(number: int) -> bytes:
    data = tiff(16, (8,), 1)
    entry = struct.pack("<HHII", 259, 3, 1, 8)
    assert data.count(entry) == 1
    return data.replace(entry, struct.pack("<HHII", 259, 3, 1, number))


def strips(count: int) -> bytes:
    """Return a TIFF whose tiles all are the same 16 x 16 bytes."""
    side = int(count**0.5) * 16
    count, body = (side // 16) ** 2, bytes(256)
    offsets, sizes = struct.pack("<I", 8) * count, struct.pack("<I", 256) * count
    at = 8 + len(body)
    entries = {256: (1, side), 257: (1, side), 258: (1, 8), 259: (1, 1), 262: (1, 1), 277: (1, 1), 322: (1, 16)}
    entries |= {323: (1, 16), 324: (count, at), 325: (count, at + len(offsets))}
    table = b"".join(struct.pack("<HHII", tag, 4, *entry) for tag, entry in sorted(entries.items()))
    start = at + len(offsets) + len(sizes)
    return (
        b"II*\0"
        + struct.pack("<I", start)
        + body
        + offsets
        + sizes
        + struct.pack("<H", len(entries))
        + table
        + bytes(4)
    )


BUSY = {
    "jpeg, segments": (lambda n: JPEG[:2] + b"\xff\xfe\0\2" * n + JPEG[2:], 10_000_000, 4_000, "5,000 segments"),
    "jpeg, fill bytes": (lambda n: JPEG[:2] + b"\xff" * n + JPEG[2:], 40_000_000, 4_000, "filled up"),
    "jpeg, scans": (scans, 200_000, 80, "more than 100 scans"),
    "png, chunks": (lambda n: PNG[:33] + chunk(b"IDAT", b"") * n + PNG[33:], 4_000_000, 50_000, "100,000 chunks"),
    "gif, blocks": (
        lambda n: GIF[:AFTER_PALETTE] + b"\x21\xfe" + b"\1x" * n + b"\0" + GIF[AFTER_PALETTE:],
        25_000_000,
        50_000,
        "100,000 blocks",
    ),
    "gif, nothing": (
        lambda n: GIF[:AFTER_PALETTE] + bytes(n) + GIF[AFTER_PALETTE:],
        40_000_000,
        50_000,
        "blocks",
    ),
    "tiff, tiles": (strips, 200_000, 4_000, "strips or tiles; the limit is 65,536"),
}


@pytest.mark.parametrize("name", BUSY)
def test_what_keeps_a_decoder_busy_is_refused_at_once(name: str) -> None:
    make, many, few, says = BUSY[name]
    data = make(many)
    assert len(data) < 64_000_000
    began = time.process_time()
    with pytest.raises(ValueError, match=says):
        as_array(data)
    assert time.process_time() - began < 1
    assert as_array(make(few)).shape[2] in (1, 3)


def test_scans_are_counted_in_the_image_alone() -> None:
    """Other pictures in the metadata, or behind the image, have scans of their own."""
    many = b"\xff\xda" * 300
    comment = b"\xff\xfe" + struct.pack(">H", 2 + len(many)) + many
    expected = as_array(PROGRESSIVE)
    for data in (PROGRESSIVE[:2] + comment + PROGRESSIVE[2:], PROGRESSIVE + scans(200)):
        np.testing.assert_array_equal(as_array(data), expected)
    at = PROGRESSIVE.rindex(b"\xff\xda")
    np.testing.assert_array_equal(as_array(PROGRESSIVE[:at] + comment + PROGRESSIVE[at:]), expected)


@pytest.mark.parametrize(
    "data",
    [
        bmp(64_000_000, 1, b"\0\2\0\xff"),
        bmp(70_000, 100, b"\0\2\0\xff"),
        bmp(8000, 8000, b"\0\0" * 1000),
        bmp(8000, -8000, b"\0\0" * 1000, 2),
        bmp(100, 100, b"\0\0" * 9_000_000),
    ],
    ids=["one row", "wide", "large", "rle4", "many bytes"],
)
def test_run_length_encoding_is_bounded(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"over the limit of 10,000,000 for run-length encoding; save it without"):
        as_array(data)


@pytest.mark.parametrize("compression", [1, 2])
def test_run_length_encoded_files_are_read(compression: int) -> None:
    body = (bytes([20, 0x11]) * 2 + b"\0\0" if compression == 1 else bytes([40, 0x11]) + b"\0\0") * 24 + b"\0\1"
    assert as_array(bmp(40, 24, body, compression)).shape == (24, 40, 3)


@pytest.mark.parametrize("number", [34925, 50000, 50001, 34887, 34676, 9, 0])
def test_compressions_that_choose_their_memory_are_refused(number: int) -> None:
    assert as_array(compressed_as(8)).shape == (16, 16, 1)
    with pytest.raises(ValueError, match=f"compression, number {number}, is not supported: save it with LZW"):
        as_array(compressed_as(number))


def test_a_tile_counts_where_the_image_is_smaller() -> None:
    data = tiff(16, (16, 16, 16, 16), 2, (338, 3, 2), (322, 4, 1 << 13), (323, 4, 1 << 13))
    with pytest.raises(ValueError, match="limit"):
        as_array(data)


def test_a_webp_whose_frames_are_larger_than_its_header_says() -> None:
    data = bytearray(LARGE["webp, animated"](64))
    assert as_array(bytes(data)).shape == (64, 64, 3)
    data[24:27] = (15).to_bytes(3, "little")
    with pytest.raises(ValueError, match="WebP"):
        as_array(bytes(data))
