"""Small images back to full size, by a compiled kernel: the bits of torch's bilinear resize of bytes."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from coldstream import native
from coldstream.replay.packing import Bytes


def enlarge(images: Bytes, size: tuple[int, int]) -> Bytes:
    """Return (count, height, width, channels) at a `size` that is not smaller; needs compiled kernels."""
    count, height, width, channels = images.shape
    across, across_bits = _shares(width, size[1], channels)
    down, down_bits = _shares(height, size[0], 1)
    out = np.empty((count, *size, channels), np.uint8)
    native.call(
        "enlarge",
        *(np.ascontiguousarray(images), out, count, height, width * channels, size[0], size[1] * channels, channels),
        *(across, across_bits, down, down_bits, np.empty(height * size[1] * channels + 1, np.uint8)),
    )
    return out


@lru_cache(maxsize=64)
def _shares(side: int, larger: int, channels: int) -> tuple[NDArray[np.int32], int]:
    """Return, for each value of an enlarged line, its two source values and their weights, (4, values).

    Weights are multiples of 2**-bits, with the most bits at which the largest one fits 16, as in torch.
    """
    centre = (np.arange(larger) + 0.5) * (side / larger)
    first = np.maximum((centre - 0.5).astype(np.int64), 0)  # the last one whose centre is not after this one's
    second = np.minimum(first + 1, side - 1)
    near = np.maximum(0.0, 1 - np.abs(first + 0.5 - centre))
    far = np.where(second == first, 0.0, np.maximum(0.0, 1 - np.abs(second + 0.5 - centre)))
    near, far = near / (near + far), far / (near + far)
    bits = 0
    while bits < 22 and 0.5 + max(near.max(), far.max()) * (1 << (bits + 1)) < 1 << 15:
        bits += 1
    weights = [(0.5 + share * (1 << bits)).astype(np.int64) for share in (near, far)]
    places = [place[:, None] * channels + np.arange(channels) for place in (first, second)]
    table = [np.broadcast_to(part.reshape(larger, -1), (larger, channels)).ravel() for part in (*places, *weights)]
    return np.stack(table).astype(np.int32), bits
