"""The policy by compiled kernels, on images in main memory: the bits of the torch path, faster.

What does not depend on pixels is computed by the torch path, once per magnitude, and looked up by the kernels: the
source pixels of a warp, the entries of a fixed table. `kernels.c` computes what depends on pixels.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from coldstream import native
from coldstream.augment.crops import Crop, Flip, Part, rows_of
from coldstream.augment.ops import OPS, Floats, Ints, shares, source_pixels, table_of
from coldstream.augment.policies import AutoAugment, RandAugment

if TYPE_CHECKING:
    from coldstream.augment.mixing import Mixture

Bytes = NDArray[np.uint8]
Numbers = NDArray[np.float32]

_KINDS = ("Identity", "Warp", "Table", "Contrast", "AutoContrast", "Equalize", "Color", "Sharpness")
_WARPS = ("ShearX", "ShearY", "TranslateX", "TranslateY", "Rotate")
_NONE = np.empty(0, np.complex128), np.empty(0, np.intp)
_FIXED = ("Brightness", "Posterize", "Solarize", "Invert")


class _Operation(NamedTuple):
    """An operation with its magnitude, as the kernel takes it.

    `weight` and `rest` are the shares of the image and of what it is blended with. `kept` is the array at `address`.
    """

    kind: int
    address: int
    weight: float
    rest: float
    kept: NDArray[np.generic] | None


Stage = Crop | Flip | AutoAugment | RandAugment


def augment(images: Bytes, stages: tuple[Stage, ...], seed: int, step: int, part: Part | None) -> Bytes:
    """Crop, flip and change each image (N, height, width, channels) by itself."""
    count, height, width, channels = images.shape
    rows, of = rows_of(part, count)
    down = across = np.zeros(count, np.int64)
    mirrored = np.zeros(count, np.bool_)
    ops: Ints = np.zeros((0, count), np.int64)
    magnitudes: Floats = np.zeros((0, count))
    for stage in stages:
        if isinstance(stage, Crop):
            top, left = stage.draw(of, height, width, seed, step)
            down, across = top[rows] - stage.margin(height), left[rows] - stage.margin(width)
        elif isinstance(stage, Flip):
            mirrored = stage.draw(of, seed, step)[rows]
        else:
            all_ops, all_magnitudes = stage.draw(of, height, width, seed, step)
            ops, magnitudes = all_ops[:, rows], all_magnitudes[:, rows]
    # A batch has few distinct operations: look each one up once.
    pairs, which = np.unique(ops.ravel() + 1j * magnitudes.ravel(), return_inverse=True) if len(ops) else _NONE
    used = [_operation(int(pair.real), pair.imag, height, width, channels) for pair in pairs.tolist()]
    out = np.empty_like(images, order="C")
    native.call(
        "augment",
        *(np.ascontiguousarray(images), out, count, height, width, channels),
        *(np.ascontiguousarray(down), np.ascontiguousarray(across), np.ascontiguousarray(mirrored), len(ops)),
        np.array([operation.kind for operation in used], np.int32)[which],
        np.array([operation.address for operation in used], np.uintp)[which],
        np.array([operation.weight for operation in used], np.float32)[which],
        np.array([operation.rest for operation in used], np.float32)[which],
        np.empty(2 * height * width * channels, np.uint8),
    )
    return out


@lru_cache(maxsize=2048)
def _operation(op: int, magnitude: float, height: int, width: int, channels: int) -> _Operation:
    name = OPS[op]
    kept: NDArray[np.generic] | None = None
    if name in _WARPS:
        name, kept = "Warp", source_pixels(op, magnitude, height, width)
    elif name in _FIXED:
        name, kept = "Table", table_of(op, magnitude)
    elif (name == "Color" and channels == 1) or (name == "Sharpness" and min(height, width) <= 2):
        name = "Identity"
    weight, rest = (float(share.item()) for share in shares(np.array([magnitude])))
    return _Operation(_KINDS.index(name), 0 if kept is None else kept.ctypes.data, weight, rest, kept)


def normalise(
    images: Bytes, scale: Numbers, shift: Numbers, mixture: Mixture | None, out: Numbers, *, channels_last: bool
) -> None:
    """Normalise bytes to floats, mixed if a mixture is given.

    Parameters
    ----------
    images
        (N, height, width, channels), after augmentation.
    scale, shift
        A byte becomes byte * scale + shift of its channel.
    mixture
        As `coldstream.augment.mixing.Mixing` draws it.
    out, channels_last
        Where to write: (N, height, width, channels) with channels last, otherwise (N, channels, height, width).
    """
    count, height, width, channels = images.shape
    mixed: tuple[NDArray[np.generic] | None, ...] = (None, None, None)
    if mixture is not None:
        weight = np.where(mixture.cut, 1.0, mixture.kept).astype(np.float32)
        mixed = (np.ascontiguousarray(mixture.partner), weight, np.ascontiguousarray(mixture.box))
    native.call(
        "normalise",
        *(np.ascontiguousarray(images), out, count, height, width, channels),
        *(scale, shift, not channels_last, *mixed, np.empty(height * width * channels, np.float32)),
    )
