"""A campaign of mutated image files and zips: each gives an array within the limits, or a ValueError."""

from __future__ import annotations

import io
import os
import random
import struct
import time
import warnings
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from coldstream.data.files import LazyImages, ZipFiles
from coldstream.images import as_array
from coldstream.limits import MAX_MEMORY, MAX_PIXELS, pixel_limit
from image_files import FILES
from large_images import LARGE

TIMES = float(os.environ.get("COLDSTREAM_CAMPAIGN", "1"))
"""How much larger the slow campaign is than 200,000 files."""
STATUS = Path("/proc/self/status")
Mutation = Callable[[bytearray, random.Random, list[bytes]], bytes | bytearray]
SIZES = [
    0,
    1,
    2,
    3,
    255,
    256,
    4000,
    8000,
    0x3FFF,
    0x7FFF,
    0x8000,
    0xFFFF,
    0x10000,
    0x7FFFFFFF,
    0x80000000,
    0xFFFFFFFF,
]


def flip(data: bytearray, dice: random.Random, others: list[bytes]) -> bytearray:
    """Set some bytes; the header is where the harm is."""
    for _ in range(dice.randint(1, 6)):
        at = dice.randrange(min(len(data), dice.choice([32, 64, 200, len(data)])))
        data[at] = dice.choice([0, 1, 127, 255, data[at] ^ 1 << dice.randrange(8), dice.randrange(256)])
    return data


def truncate(data: bytearray, dice: random.Random, others: list[bytes]) -> bytearray:
    return data[: dice.randrange(len(data))]


def splice(data: bytearray, dice: random.Random, others: list[bytes]) -> bytearray:
    """Join the beginning of one file and the end of another."""
    other = dice.choice(others)
    at = dice.randrange(len(data))
    return data[:at] + other[at if dice.random() < 0.5 else dice.randrange(len(other)) :]


def resize(data: bytearray, dice: random.Random, others: list[bytes]) -> bytearray:
    """Put numbers where sizes, offsets and counts are, in either byte order."""
    for _ in range(dice.randint(1, 3)):
        number, width = dice.choice([*SIZES, len(data), dice.getrandbits(16)]), dice.choice([2, 3, 4])
        at = dice.randrange(min(len(data), dice.choice([40, 200, len(data)])))
        data[at : at + width] = (number % (1 << 8 * width)).to_bytes(width, dice.choice(["little", "big"]))
    return data


def repeat(data: bytearray, dice: random.Random, others: list[bytes]) -> bytearray:
    """Repeat a part, or leave it out."""
    start = dice.randrange(len(data))
    end = dice.randrange(start, min(len(data), start + 200) + 1)
    return data[:start] + data[start:end] * dice.choice([0, 2, 3, 50]) + data[end:]


def fill(data: bytearray, dice: random.Random, others: list[bytes]) -> bytearray:
    start, length = dice.randrange(len(data)), dice.randrange(1, 100)
    data[start : start + length] = dice.choice([bytes(length), b"\xff" * length, dice.randbytes(length)])
    return data


def mend(data: bytearray) -> bytearray:
    """Correct the checksums of a PNG and the length of a WebP, so that a decoder reads on."""
    if data[:4] == b"RIFF":
        data[4:8] = struct.pack("<I", max(0, len(data) - 8) & 0xFFFFFFFE)
    at = 8
    while data[:4] == b"\x89PNG" and at + 12 <= len(data):
        end = at + 8 + struct.unpack_from(">I", data, at)[0]
        if end + 4 > len(data):
            break
        struct.pack_into(">I", data, end, zlib.crc32(data[at + 4 : end]))
        at = end + 4
    return data


MUTATIONS: list[Mutation] = [flip, flip, truncate, splice, resize, resize, repeat, fill]
FORMATS = sorted({name.split(",")[0] for name in FILES})


def corpus(format: str) -> list[bytes]:
    small = [data for name, data in FILES.items() if name.split(",")[0] == format]
    return small + [make(40) for name, make in LARGE.items() if name.split(",")[0] == format]


def memory(kind: str) -> int:
    lines = STATUS.read_text().splitlines() if STATUS.exists() else ["VmHWM: 0", "VmRSS: 0"]
    return next(int(line.split()[1]) for line in lines if line.startswith(kind)) * 1024


def outcome(decode: Callable[[], np.ndarray], limit: int) -> str:
    """Decode under a limit of pixels; fail on anything but an array within it or a ValueError."""
    began = time.process_time()
    with warnings.catch_warnings(record=True) as heard, pixel_limit(limit):
        warnings.simplefilter("always")
        try:
            array = decode()
        except ValueError:
            result = "refused"
        else:
            assert array.dtype == np.uint8
            assert array.ndim == 3
            assert array.shape[2] in (1, 3)
            assert 0 < array.shape[0] * array.shape[1] <= limit
            result = "array"
    assert not heard, str(heard[0].message)
    assert time.process_time() - began < 20, "it took too long"
    return result


def attack(format: str, seed: int, count: int) -> Counter[str]:
    """Decode mutated files: most under a low limit of pixels, one in 200 under the default."""
    dice, files, outcomes = random.Random(f"{format} {seed}"), corpus(format), Counter[str]()
    for data in files:
        as_array(data)
    start = memory("VmRSS")
    for number in range(count):
        data = bytearray(dice.choice(files))
        for _ in range(dice.choice([1, 1, 1, 2, 3])):
            data = bytearray(dice.choice(MUTATIONS)(data, dice, files)) or bytearray(b"\0")
        if dice.random() < 0.7:  # the first bytes decide the format: most keep them
            head = 12 if format == "webp" else 3
            data[:head] = files[0][:head]
        content = bytes(mend(data) if dice.random() < 0.7 else data)
        limit = MAX_PIXELS if number % 200 == 0 else 500_000
        try:
            outcomes[outcome(lambda content=content: as_array(content), limit)] += 1  # type: ignore[misc]
        except BaseException as error:
            raise AssertionError(f"{format}, seed {seed}, file {number}: {content!r}") from error
    assert memory("VmHWM") - start < MAX_MEMORY + 30_000_000
    return outcomes


def lies(seed: int, count: int, folder: Path) -> Counter[str]:
    """Read zips whose headers or members are damaged, or claim other sizes than they have."""
    dice, outcomes, path = random.Random(f"zip {seed}"), Counter[str](), folder / "lies.zip"
    images = [data for data in FILES.values() if len(data) < 2000]
    for number in range(count):
        buffer = io.BytesIO()
        method = dice.choice([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
        with zipfile.ZipFile(buffer, "w", method) as archive:
            for member in range(dice.randint(1, 3)):
                archive.writestr(f"{member}.png", dice.choice(images) + bytes(dice.choice([0, 0, 300_000])))
                if dice.random() < 0.5:
                    info = archive.getinfo(f"{member}.png")
                    setattr(
                        info, dice.choice(["file_size", "compress_size", "header_offset"]), dice.choice(SIZES[:-2])
                    )
        data = bytearray(buffer.getvalue())
        directory = data.rindex(b"PK\1\2")
        for _ in range(dice.randint(0, 3)):
            at = dice.choice([dice.randrange(len(data)), dice.randrange(directory, len(data)), dice.randrange(60)])
            data[at : at + 4] = dice.choice([struct.pack("<I", dice.choice(SIZES)), bytes([dice.randrange(256)])])
        path.write_bytes(data)

        def everything() -> np.ndarray:
            files = ZipFiles(path)
            shapes = [image.shape for image in LazyImages(files, files.images())]
            return np.zeros(shapes[0] if shapes else (1, 1, 1), np.uint8)

        try:
            outcomes[outcome(everything, 500_000)] += 1
        except BaseException as error:
            raise AssertionError(f"zip, seed {seed}, file {number}: {bytes(data)!r}") from error
    return outcomes


@pytest.mark.parametrize("format", FORMATS)
def test_mutated_files(format: str) -> None:
    assert attack(format, seed=0, count=200).keys() == {"array", "refused"}


def test_zips_that_lie(tmp_path: Path) -> None:
    assert lies(0, 200, tmp_path).keys() == {"array", "refused"}


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 9))
@pytest.mark.parametrize("format", FORMATS)
def test_campaign_of_mutated_files(format: str, seed: int) -> None:
    count = round(TIMES * 184_000 / len(FORMATS) / 8) + 1
    assert sum(attack(format, seed, count).values()) == count


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 9))
def test_campaign_of_zips_that_lie(tmp_path: Path, seed: int) -> None:
    count = round(TIMES * 2_000)
    assert sum(lies(seed, count, tmp_path).values()) == count
