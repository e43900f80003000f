"""Check images of any kind and size, vectors and ids, and convert them to one form."""

from __future__ import annotations

import hashlib
import os
import sys
import warnings
from collections.abc import Mapping, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coldstream import images
from coldstream.data.files import open_files
from coldstream.labels import MAX_TEXT, shown

Image = Any
"""A uint8 HWC array, a PIL image, a CHW tensor, or a file as bytes or as a Path; of any size."""
Id = int | str
_AUTO_SIDE = 64


@dataclass
class Inputs:
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
    _warned: bool = False

    def admit(self, item: Any, shape: tuple[int, ...] | None, *, test: bool = False) -> NDArray[Any]:
        """Return an item at the network's `shape`, or raise a ValueError; with None the item decides the shape.

        Decoding may take a second: a learner calls this before it takes its lock.
        """
        if self.items == "vectors":
            return self._vector(item, shape)
        zoom = self.zoom if test else 1.0
        channels = shape[2] if shape else self.channels
        size = (shape[0], shape[1]) if shape else self.size
        grey = channels == 1 and self.channels is None and not self._warned
        picture = images.as_array(
            item, None if grey else channels, min_side=round(max(size) / zoom) if size else None
        )
        if grey:
            self._warn_of(picture)
            picture = images.as_array(picture, channels)
        if size is None:
            height, width = picture.shape[:2]
            size = (height, width) if max(height, width) <= _AUTO_SIDE else (_AUTO_SIDE, _AUTO_SIDE)
        return images.fit(picture, size, zoom)

    def _warn_of(self, picture: images.Pixels) -> None:
        """Warn, once, of colours that a learner does not see because its first image had none."""
        if images.has_colour(picture):
            self._warned = True
            warn(
                "this image has colours, and the learner sees it in grey, as its first image was; to learn from "
                "colours begin a learner with channels=3, or with channels=1 if grey is meant"
            )

    @staticmethod
    def _vector(vector: Any, shape: tuple[int, ...] | None) -> NDArray[np.float32]:
        try:
            array = np.asarray(vector)
        except Exception as error:  # ragged lists, tensors without values or with gradient
            raise ValueError(f"expected a vector of numbers: {error}") from error
        if array.ndim != 1 or not len(array) or array.dtype.kind not in "fiu":
            raise ValueError(f"expected a vector of numbers, got {array.dtype} of shape {array.shape}")
        if shape is not None and array.shape != shape:
            raise ValueError(f"expected a vector of {shape[0]} numbers, got {len(array)}")
        with np.errstate(over="ignore"):
            array = array.astype(np.float32)
        if not np.isfinite(array).all():
            raise ValueError("the vector has NaN or infinite values (as float32)")
        return array


def several(items: Any) -> Any:
    """Return a sequence of images or vectors; an iterator is read once, a single image is refused.

    A path of a folder stands for the images in it and below, in the order of their names.
    """
    if isinstance(items, os.PathLike) and os.path.isdir(items):
        files = open_files(Path(items))
        return [files.path / name for name in files.images()]
    shape = tuple(getattr(items, "shape", ()))
    if len(shape) == 3 and (shape[2] if isinstance(items, np.ndarray) else shape[0]) in (1, 3, 4):
        # Its rows would be taken for grey images.
        raise ValueError(f"expected several images, got one of shape {shape}; use the method that ends in _one")
    if isinstance(items, (str, bytes, bytearray, memoryview, os.PathLike)):
        raise ValueError(
            f"expected several images, got one {type(items).__name__}: {shown(items)}; pass a list of images, each "
            "an array, a PIL image, the bytes of a file or its pathlib.Path, or the pathlib.Path of a folder"
        )
    try:
        given = iter(items)
    except TypeError:
        given = None
    if given is None or isinstance(items, (Mapping, Set)):
        raise ValueError(f"expected several images in a list or an array, got {type(items).__name__}: {shown(items)}")
    return items if hasattr(items, "__len__") else list(given)


def as_list(name: str, values: Any) -> list[Any]:
    """Return labels or ids as a list; refuse what cannot be iterated over."""
    try:
        return list(values)
    except TypeError:
        raise ValueError(f"{name} has a value for each image, not {shown(values)}") from None


def warn(message: str) -> None:
    """Warn with the place in the user's code that called the package."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).startswith("coldstream."):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, stacklevel=level)


def check_id(id: object, limit: int = 1 << 62) -> Id:
    """Return an id in its plain form: a str, or a whole number from 0 to below `limit`."""
    if isinstance(id, str):
        if len(id) > MAX_TEXT:
            raise ValueError(f"an id has at most {MAX_TEXT:,} characters, not {len(id):,}: {shown(id)}")
        return str(id)
    if isinstance(id, bool) or not isinstance(id, (int, np.integer)) or not 0 <= id < limit:
        raise ValueError(
            f"an id is a whole number from 0 to below 2**{limit.bit_length() - 1} or a str, not {shown(id)}"
        )
    return int(id)


def id_key(id: Id) -> int:
    """Return the number under which a buffer knows an id: itself, or for a str its hash, below zero."""
    if isinstance(id, int):
        return id
    digest = hashlib.blake2b(id.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return -1 - (int.from_bytes(digest, "little") >> 1)


def whole(name: str, value: Any, least: int, most: int = (1 << 63) - 1) -> int:
    """Return a whole number from `least` to `most`, or refuse it."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
        raise ValueError(f"{name} is a whole number from {least}, not {shown(value)}")
    if value > most:
        raise ValueError(f"{name} is at most {most:,}, not {shown(value)}")
    return int(value)


def sides(size: Any) -> tuple[int, int] | None:
    """Return (height, width) for one side or two."""
    if size is None:
        return None
    pair = (size, size) if isinstance(size, (int, np.integer)) else size
    if not isinstance(pair, (tuple, list)) or len(pair) != 2:
        raise ValueError(f"size is one side or (height, width), not {shown(size)}")
    return whole("size", pair[0], 1), whole("size", pair[1], 1)
