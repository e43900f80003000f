"""What comes in: images of any kind and size, vectors, and ids, checked and brought to one form."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from coldstream import images

Image = Any
"""A uint8 HWC array, a PIL image, a CHW tensor, or encoded bytes; of any size."""
Id = int | str
_AUTO_SIDE = 64


@dataclass
class Intake:
    """Brings every item to one shape: the one given, or that of the first item.

    Parameters
    ----------
    items
        ``images`` or ``vectors``.
    size
        (height, width) of the network's input. None: that of the first image where it is at most 64 pixels a
        side, else 64x64 (a photograph is not learned whole).
    channels
        1 for grey, 3 for colour, None for what the first image has.
    zoom
        For predictions: the share of the scaled image's side that the centre crop keeps (ImageNet: 0.875).
    """

    items: str
    size: tuple[int, int] | None
    channels: int | None
    zoom: float

    def __post_init__(self) -> None:
        if self.items not in ("images", "vectors"):
            raise ValueError(f"items is 'images' or 'vectors', not {self.items!r}")
        if self.channels not in (None, 1, 3):
            raise ValueError(f"channels is 1 (grey), 3 (colour) or None (as the first image), not {self.channels!r}")
        if isinstance(self.zoom, bool) or not isinstance(self.zoom, (int, float)) or not 0 < self.zoom <= 1:
            raise ValueError(f"zoom is above 0 and at most 1, not {self.zoom!r}")

    def admit(self, item: Any, shape: tuple[int, ...] | None, *, test: bool = False) -> NDArray[Any]:
        """Return an item at the network's `shape` (None: to be decided by it), or say what is wrong with it."""
        if self.items == "vectors":
            return self._vector(item, shape)
        zoom = self.zoom if test else 1.0
        channels = shape[2] if shape else self.channels
        size = (shape[0], shape[1]) if shape else self.size
        picture = images.as_array(item, channels, min_side=round(max(size) / zoom) if size else None)
        if size is None:
            height, width = picture.shape[:2]
            size = (height, width) if max(height, width) <= _AUTO_SIDE else (_AUTO_SIDE, _AUTO_SIDE)
        return images.fit(picture, size, zoom)

    @staticmethod
    def _vector(vector: Any, shape: tuple[int, ...] | None) -> NDArray[np.float32]:
        array = np.asarray(vector)
        if array.ndim != 1 or not len(array) or array.dtype.kind not in "fiu":
            raise ValueError(f"expected a vector of numbers, got {array.dtype} of shape {array.shape}")
        if shape is not None and array.shape != shape:
            raise ValueError(f"expected a vector of {shape[0]} numbers, got {len(array)}")
        with np.errstate(over="ignore"):
            array = array.astype(np.float32)
        if not np.isfinite(array).all():
            raise ValueError("the vector has NaN or infinite values (as float32)")
        return array


def check_id(id: object, limit: int = 1 << 62) -> Id:
    """Return an id in its plain form: a str, or a whole number from 0."""
    if isinstance(id, str):
        return str(id)
    if isinstance(id, bool) or not isinstance(id, (int, np.integer)) or not 0 <= id < limit:
        raise ValueError(f"an id is a whole number from 0 or a str, not {id!r}")
    return int(id)


def id_key(id: Id) -> int:
    """Return the number under which a buffer knows an id: itself, or for a str its hash, below zero."""
    if isinstance(id, int):
        return id
    digest = hashlib.blake2b(id.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return -1 - (int.from_bytes(digest, "little") >> 1)


def whole(name: str, value: Any, least: int) -> int:
    """Return a whole number not below `least`, or refuse it."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
        raise ValueError(f"{name} is a whole number from {least}, not {value!r}")
    return int(value)


def sides(size: Any) -> tuple[int, int] | None:
    """Return (height, width) for one side or two."""
    if size is None:
        return None
    pair = (size, size) if isinstance(size, (int, np.integer)) else size
    if not isinstance(pair, (tuple, list)) or len(pair) != 2:
        raise ValueError(f"size is one side or (height, width), not {size!r}")
    return whole("size", pair[0], 1), whole("size", pair[1], 1)


def plain(value: Any) -> Any:
    """Return a setting as JSON can keep it: NumPy's numbers and arrays, paths and devices in plain form."""
    if isinstance(value, (np.generic, np.ndarray)):
        return value.tolist()
    if isinstance(value, (tuple, list)):
        return [plain(part) for part in value]
    return str(value) if isinstance(value, (Path, torch.device)) else value
