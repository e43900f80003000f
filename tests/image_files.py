"""Small valid files of every format, and the parts that they are made of."""

from __future__ import annotations

import io

import numpy as np
from PIL import Image


def encode(image: Image.Image, format: str, **options: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, format, **options)
    return buffer.getvalue()


def smooth(height: int = 24, width: int = 40) -> Image.Image:
    y, x = np.mgrid[0:height, 0:width]
    return Image.fromarray(np.stack([y * 255 // height, x * 255 // width, (x + y) * 2], 2).astype(np.uint8))


def palette_image() -> Image.Image:
    image = Image.new("P", (3, 1))
    image.putpalette([0, 0, 0, 10, 20, 30, 200, 100, 50])
    image.putdata([0, 1, 2])
    return image


def exif(orientation: int) -> Image.Exif:
    block = Image.Exif()
    block[0x010F] = "A maker with a long name"
    block[0x0112] = orientation
    return block


def valid_files() -> dict[str, bytes]:
    image, turn = smooth(12, 16), exif(6)
    grey = np.array([[0, 51, 255], [10, 128, 200]], np.uint16)
    animation = [Image.new("RGB", (16, 12), colour) for colour in ("red", "blue")]
    return {
        "jpeg": encode(image, "JPEG", exif=turn, comment=b"hello", dpi=(72, 72)),
        "jpeg, exif only": encode(image, "JPEG", exif=turn).replace(b"JFIF", b"JUNK", 1),
        "jpeg, progressive": encode(image, "JPEG", progressive=True, exif=turn, icc_profile=b"p" * 40),
        "mpo": encode(image, "MPO", save_all=True, append_images=[image]),
        "png": encode(image, "PNG", exif=turn, dpi=(72, 72), icc_profile=b"p" * 40),
        "png, palette": encode(palette_image(), "PNG", transparency=bytes([255, 0, 51])),
        "png, animated": encode(animation[0], "PNG", save_all=True, append_images=animation[1:]),
        "png, 16 bit": encode(Image.fromarray(grey), "PNG"),
        "webp": encode(image, "WEBP", exif=turn),
        "webp, lossless": encode(image.convert("RGBA"), "WEBP", lossless=True),
        "webp, animated": encode(animation[0], "WEBP", save_all=True, append_images=animation[1:]),
        "gif": encode(image, "GIF", comment=b"hello"),
        "gif, animated": encode(animation[0], "GIF", save_all=True, append_images=animation[1:], loop=1, disposal=2),
        "bmp": encode(image, "BMP"),
        "bmp, palette": encode(palette_image(), "BMP"),
        "tiff": encode(image, "TIFF", exif=turn, dpi=(72, 72), software="hello"),
        "tiff, lzw": encode(image, "TIFF", compression="tiff_lzw", exif=turn),
        "tiff, palette": encode(palette_image(), "TIFF"),
        "tiff, pages": encode(animation[0], "TIFF", save_all=True, append_images=animation[1:]),
    }


FILES = valid_files()
"""Name to content; the name begins with the format."""
