"""The operations of AutoAugment and RandAugment, on a batch in which every row has its own.

Rows are grouped by how an operation works, each group is computed at once with one parameter per row, and the
results are put back in place; no loop runs over images. Three observations keep the groups few:

* shears, translations and rotations are one affine map that differs only in its six numbers;
* an operation that sees one pixel at a time (Brightness, Contrast, Posterize, Solarize, AutoContrast, Equalize,
  Invert) is a table of 256 entries for each image, or each channel, so that all of them share one lookup;
* only Color (which mixes channels) and Sharpness (which mixes neighbours) need arithmetic on every pixel.

Agreement with torchvision's functional operations on uint8 tensors (nearest interpolation, fill 0): the same
bits on the CPU, with two exceptions. A pixel whose source lies exactly half-way between two pixels may take the
other one where the matrix product of the machine at hand fuses multiplication and addition; and the mean in
Contrast is exact here, while torchvision's is rounded for images of more than 65,793 pixels, which can move a
pixel by one level.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

OPS: tuple[str, ...] = (
    "Identity",
    "ShearX",
    "ShearY",
    "TranslateX",
    "TranslateY",
    "Rotate",
    "Brightness",
    "Color",
    "Contrast",
    "Sharpness",
    "Posterize",
    "Solarize",
    "AutoContrast",
    "Equalize",
    "Invert",
)
OP_ID: dict[str, int] = {name: position for position, name in enumerate(OPS)}


def apply_ops(images: Tensor, ops: Ints, magnitudes: Floats) -> Tensor:
    """Apply to each image its own operation with its own magnitude.

    Parameters
    ----------
    images : Tensor
        uint8 images (N, C, H, W) with C = 1 or 3; not modified.
    ops : ndarray of int, shape (N,)
        The position in `OPS` of each row's operation.
    magnitudes : ndarray of float64, shape (N,)
        As in torchvision: the slope of a shear, pixels of a translation (fractions are cut off), degrees of a
        rotation, the bits that Posterize keeps, the threshold of Solarize; Brightness, Color, Contrast and
        Sharpness blend by ``1 + magnitude``. The rest ignore it. The array lives on the host, where it was
        drawn, whatever the device of the images.

    Returns
    -------
    Tensor
        uint8 images of the same shape; the input itself if every operation is Identity.

    Examples
    --------
    >>> images = torch.full((2, 1, 1, 1), 200, dtype=torch.uint8)
    >>> apply_ops(images, np.array([OP_ID["Invert"], OP_ID["Posterize"]]), np.array([0.0, 1.0])).flatten()
    tensor([ 55, 128], dtype=torch.uint8)
    """
    order = np.argsort(_KIND[ops] * len(OPS) + ops, kind="stable")
    ops, magnitudes = ops[order], magnitudes[order]
    starts = np.searchsorted(_KIND[ops], np.arange(1, len(_KERNELS) + 2)).tolist()
    if starts[0] == len(ops):
        return images
    grouped = images.index_select(0, _to(order, images.device))
    pieces = [grouped[: starts[0]]]
    for kernel, start, end in zip(_KERNELS, starts[:-1], starts[1:], strict=True):
        if start < end:
            pieces.append(kernel(grouped[start:end], ops[start:end], magnitudes[start:end]))
    return torch.cat(pieces).index_select(0, _to(np.argsort(order), images.device))


def _warp(images: Tensor, ops: Ints, magnitudes: Floats) -> Tensor:
    """Shear, translate or rotate each image, by the nearest pixel and with zeros outside."""
    return to_uint8(_warped(images.to(torch.float32), ops, magnitudes))


def _warped(images: Tensor, ops: Ints, magnitudes: Floats) -> Tensor:
    height, width = images.shape[-2:]
    matrices = torch.from_numpy(_source_matrices(ops, magnitudes, height, width)).to(images.device)
    x_part, y_part, shift = matrices[..., None, None].unbind(2)
    x, y = _about_centre(width, images.device), _about_centre(height, images.device)
    # This order of additions is that of a plain matrix product; another one rounds ties differently.
    grid = (x * x_part + y[:, None] * y_part).add_(shift).permute(0, 2, 3, 1)
    return functional.grid_sample(images, grid, mode="nearest", padding_mode="zeros", align_corners=False)


def source_pixels(op: int, magnitude: float, height: int, width: int) -> NDArray[np.int32]:
    """Return which pixel of an image each pixel of the warped one comes from, counted row by row; -1 for none."""
    numbered = torch.arange(1, height * width + 1, dtype=torch.float32, device="cpu").view(1, 1, height, width)
    return _warped(numbered, np.array([op]), np.array([magnitude])).to(torch.int32).sub_(1).flatten().numpy()


def table_of(op: int, magnitude: float) -> NDArray[np.uint8]:
    """Return the 256 entries of an operation whose table does not depend on the image."""
    nothing = torch.zeros((1, 1, 1, 1), dtype=torch.uint8, device="cpu")
    table = _TABLES[OPS[op]](nothing, np.array([magnitude]))
    return table.expand(1, 1, 256).reshape(256).numpy()


@lru_cache(maxsize=16)
def _about_centre(side: int, device: torch.device) -> Tensor:
    return torch.arange(side, dtype=torch.float32, device=device) - (side / 2 - 0.5)


def _source_matrices(ops: Ints, magnitudes: Floats, height: int, width: int) -> NDArray[np.float32]:
    """Return the maps (n, 2, 3) from pixels about the centre to source coordinates in half image sides."""

    def only(name: str) -> Floats:
        return np.where(ops == OP_ID[name], magnitudes, 0.0)

    angle = np.radians(-only("Rotate"))
    # A shear is given as a slope but defined as an angle; the way there and back costs a bit that decides ties.
    slope_x = np.tan(np.radians(np.degrees(np.arctan(only("ShearX")))))
    slope_y = np.tan(np.radians(np.degrees(np.arctan(only("ShearY")))))
    corner_x, corner_y = -width / 2, -height / 2  # shears keep the top left corner in place
    matrices = np.empty((len(ops), 2, 3))
    matrices[:, 0, 0] = matrices[:, 1, 1] = np.cos(angle)
    matrices[:, 0, 1] = np.sin(angle) + slope_x
    matrices[:, 1, 0] = slope_y - np.sin(angle)
    matrices[:, 0, 2] = (-corner_x - slope_x * corner_y) + corner_x - np.trunc(only("TranslateX"))
    matrices[:, 1, 2] = (-corner_y - slope_y * corner_x) + corner_y - np.trunc(only("TranslateY"))
    half = np.array([[0.5 * width], [0.5 * height]], dtype=np.float32)
    scaled: NDArray[np.float32] = matrices.astype(np.float32) / half
    return scaled


def _look_up(images: Tensor, ops: Ints, magnitudes: Floats) -> Tensor:
    """Replace every pixel by an entry of its image's or channel's table; `ops` is sorted."""
    count, channels = images.shape[:2]
    tables = images.new_empty((count, channels, 256))
    names, starts = np.unique(ops, return_index=True)
    bounds = [*starts.tolist(), count]
    for op, start, end in zip(names.tolist(), bounds[:-1], bounds[1:], strict=True):
        tables[start:end] = _TABLES[OPS[op]](images[start:end], magnitudes[start:end])
    levels = images.reshape(count * channels, -1).to(torch.int64)
    return tables.view(count * channels, 256).gather(1, levels).view(images.shape)


def _brightness(images: Tensor, magnitudes: Floats) -> Tensor:
    weight, _ = _both(shares(magnitudes), images.device)
    return _pixels(weight * _levels(images.device))


def _contrast(images: Tensor, magnitudes: Floats) -> Tensor:
    weight, rest = _both(shares(magnitudes), images.device)
    # A sum of integers does not depend on the order of its terms, and float32 holds it up to 65,793 pixels.
    total = _gray(images).sum(dim=(1, 2, 3)).to(torch.float32)
    mean = total / (images.shape[-2] * images.shape[-1])
    return _pixels(weight * _levels(images.device) + rest * mean[:, None, None])


def _posterize(images: Tensor, magnitudes: Floats) -> Tensor:
    masks = -(1 << (8 - magnitudes.astype(np.int64))) & 0xFF
    return _levels(images.device) & _to(masks.astype(np.uint8)[:, None, None], images.device)


def _solarize(images: Tensor, magnitudes: Floats) -> Tensor:
    levels = _levels(images.device)
    thresholds = _to(magnitudes.astype(np.float32)[:, None, None], images.device)
    return torch.where(levels >= thresholds, 255 - levels, levels)


def _autocontrast(images: Tensor, magnitudes: Floats) -> Tensor:
    low, high = images.flatten(2).amin(2, keepdim=True), images.flatten(2).amax(2, keepdim=True)
    flat = low == high
    low = low.masked_fill(flat, 0)
    span = high.masked_fill(flat, 255) - low
    scale = (255 / span.to(torch.float32)).masked_fill_(flat, 1)
    return _pixels((_levels(images.device).to(torch.float32) - low) * scale)


def _equalize(images: Tensor, magnitudes: Floats) -> Tensor:
    count, channels = images.shape[:2]
    pixels = images.shape[-2] * images.shape[-1]
    first = torch.arange(0, 256 * count * channels, 256, device=images.device)
    bins = images.reshape(count * channels, -1).to(torch.int64) + first[:, None]
    histogram = torch.bincount(bins.flatten(), minlength=256 * count * channels).view(count, channels, 256)
    highest = images.flatten(2).amax(dim=2, keepdim=True).to(torch.int64)
    step = (pixels - histogram.gather(2, highest)) // 255
    below = histogram.cumsum(2) - histogram  # how many pixels are darker than each level
    table = (below + step // 2) // step.clamp(min=1)
    # Too few pixels to spread over 255 steps: the image stays as it is.
    return torch.where(step == 0, _levels(images.device), table.clamp_(max=255).to(torch.uint8))


def _invert(images: Tensor, magnitudes: Floats) -> Tensor:
    return 255 - _levels(images.device)


def _color(images: Tensor, ops: Ints, magnitudes: Floats) -> Tensor:
    """Blend each image with its grey version; a grey image has no colour to change."""
    if images.shape[1] == 1:
        return images
    weight, rest = _both(shares(magnitudes[:, None]), images.device)
    return _pixels(weight * images + rest * _gray(images))


def _sharpen(images: Tensor, ops: Ints, magnitudes: Floats) -> Tensor:
    """Blend each image with a smoothed version of itself, whose border is not smoothed."""
    if min(images.shape[-2:]) <= 2:
        return images
    weight, rest = _both(shares(magnitudes[:, None]), images.device)
    sharp = images.to(torch.float32)
    smooth = sharp.clone()
    inner = smooth[..., 1:-1, 1:-1]
    columns = sharp[..., :-2, :] + sharp[..., 1:-1, :] + sharp[..., 2:, :]
    # Neighbours weigh 1 and the centre 5; a thirteenth of an integer is never close to a half.
    total = columns[..., :-2] + columns[..., 1:-1] + columns[..., 2:] + 4 * inner
    inner.copy_(total.mul_(1 / 13).round_())
    return _pixels(weight * sharp + rest * smooth)


def _gray(images: Tensor) -> Tensor:
    """Return the luma of each image as uint8 (N, 1, H, W)."""
    if images.shape[1] == 1:
        return images
    red, green, blue = images.to(torch.float32).unbind(1)
    return to_uint8(0.2989 * red + 0.587 * green + 0.114 * blue)[:, None]


def shares(magnitudes: Floats) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return the weights of the image and of what it is blended with, rounded only after the subtraction."""
    weight = 1.0 + magnitudes[..., None, None]
    return weight.astype(np.float32), (1.0 - weight).astype(np.float32)


def _both(pair: tuple[NDArray[np.float32], NDArray[np.float32]], device: torch.device) -> tuple[Tensor, Tensor]:
    return _to(pair[0], device), _to(pair[1], device)


def _pixels(values: Tensor) -> Tensor:
    return to_uint8(values.clamp_(0, 255))


def to_uint8(values: Tensor) -> Tensor:
    """Truncate floats in [0, 255] to bytes, via int32: direct conversion takes twice as long."""
    return values.to(torch.int32).to(torch.uint8)


@lru_cache(maxsize=8)
def _levels(device: torch.device) -> Tensor:
    return torch.arange(256, dtype=torch.uint8, device=device)


def _to(values: NDArray[np.generic], device: torch.device) -> Tensor:
    return torch.from_numpy(values).to(device)


_TABLES: dict[str, Callable[[Tensor, Floats], Tensor]] = {
    "Brightness": _brightness,
    "Contrast": _contrast,
    "Posterize": _posterize,
    "Solarize": _solarize,
    "AutoContrast": _autocontrast,
    "Equalize": _equalize,
    "Invert": _invert,
}
_KERNELS: tuple[Callable[[Tensor, Ints, Floats], Tensor], ...] = (_warp, _look_up, _color, _sharpen)
_KIND = np.array([{"Identity": 0, "Color": 3, "Sharpness": 4}.get(name, 2 if name in _TABLES else 1) for name in OPS])
