"""The demo: scikit-learn's handwritten digits as image files without labels."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
from PIL import Image

from coldstream.checkpoint import make_folder, write_atomically
from coldstream.data.built_in import digits


def write_digits(folder: Path) -> Path:
    """Write the digits into a folder, in random order and under names that do not tell what they are."""
    marker = folder / "README.txt"
    if marker.is_file():
        return folder
    make_folder(folder)
    train, _ = digits()
    order = np.random.default_rng(0).permutation(len(train))
    for number, index in enumerate(order):
        buffer = io.BytesIO()
        Image.fromarray(np.asarray(train.images[int(index)])[:, :, 0]).save(buffer, "PNG")
        (folder / f"digit-{number:04d}.png").write_bytes(buffer.getvalue())
    write_atomically(marker, b"Handwritten digits of scikit-learn, 8x8 pixels, for the demo of coldstream teach.\n")
    return folder
