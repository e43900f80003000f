"""The images of a project, by id: files of a folder where they are, and uploads stored by their content.

An id is the beginning of the SHA-256 of the file's bytes: the same image under two names is one image, and a file
that was changed since is detected.
"""

from __future__ import annotations

import errno
import hashlib
import io
import os
import threading
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from coldstream.checkpoint import make_folder, sync_folder, write_atomically
from coldstream.data.files import open_files
from coldstream.images import Pixels, as_array, fit
from coldstream.limits import MAX_BYTES, NETWORK_PIXELS, pixel_limit
from coldstream.serve.journal import CannotWrite

FOLDER = "images"
_ID_LENGTH = 32
_BATCH = 500
"""Images named by one event."""
_SIDES = {"full": 1600, "thumb": 192}
"""The longest side of an image as it is shown."""
_SHOWN_BYTES = 64_000_000
_SIZED_BYTES = 256_000_000


class Unreadable(ValueError):
    """An image whose file is missing, changed or damaged."""


def image_id(data: bytes) -> str:
    """Return the id of an image with these bytes."""
    return hashlib.sha256(data).hexdigest()[:_ID_LENGTH]


class Cache:
    """The values used last, up to a number of bytes; threads may share it."""

    def __init__(self, limit: int) -> None:
        self._limit, self._size = limit, 0
        self._values: OrderedDict[Any, tuple[Any, int]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Any) -> Any:
        with self._lock:
            if key not in self._values:
                return None
            self._values.move_to_end(key)
            return self._values[key][0]

    def put(self, key: Any, value: Any, size: int) -> None:
        with self._lock:
            if key in self._values:
                self._size -= self._values.pop(key)[1]
            self._values[key] = value, size
            self._size += size
            while self._size > self._limit and self._values:
                self._size -= self._values.popitem(last=False)[1][1]


class Images:
    """Reads, checks and stores the images of one project.

    Parameters
    ----------
    project
        The project's folder, in which uploads are stored.
    source
        The folder whose images are referenced in place, if there is one.
    """

    def __init__(self, project: Path, source: Path | None) -> None:
        self._uploads = project / FOLDER
        self.source = source
        self._shown = Cache(_SHOWN_BYTES)
        self._sized = Cache(_SIZED_BYTES)

    def scan(self, known: dict[str, tuple[int, int]]) -> Iterator[list[dict[str, Any]]]:
        """Yield the images of the source folder that are not known by path, size and time, a batch at a time."""
        if self.source is None:
            return
        files, batch = open_files(self.source), list[dict[str, Any]]()
        for name in files.images():
            try:
                status = (self.source / name).stat()
                stamp = status.st_size, status.st_mtime_ns
                if known.get(name) == stamp or status.st_size > MAX_BYTES:
                    continue
                id = image_id(files.read(name))
                name.encode()
            except (OSError, ValueError):
                continue  # not an image that can be shown; the next scan looks again
            batch.append({"id": id, "path": name, "name": name, "bytes": stamp[0], "time": stamp[1]})
            if len(batch) == _BATCH:
                yield batch
                batch = []
        if batch:
            yield batch

    def store(self, data: bytes, name: str) -> dict[str, Any]:
        """Check an uploaded image and store it; return what the journal says of it, once its bytes are on disk."""
        self.decode(data)
        id = image_id(data)
        path = self._upload(id)
        try:
            if not path.is_file() or path.read_bytes() != data:
                make_folder(path.parent)
                write_atomically(path, data)
            else:
                sync_folder(path.parent)
        except OSError as error:
            raise CannotWrite(
                error.errno or errno.EIO,
                f"the image was not stored, because {str(self._uploads)!r} cannot be written ({error.strerror}); "
                "free some space on the disk and try again",
            ) from error
        return {"id": id, "path": None, "name": name, "bytes": len(data)}

    def read(self, id: str, path: str | None) -> bytes:
        """Return the bytes of an image; they are those that its id was made of."""
        place = self._upload(id) if path is None else self._inside(path)
        try:
            if place.stat().st_size > MAX_BYTES:
                raise Unreadable(f"{str(place)!r} has more than {MAX_BYTES:,} bytes")
            data = place.read_bytes()
        except OSError as error:
            raise Unreadable(f"cannot read {str(place)!r}: {error.strerror}; put the file back") from None
        if image_id(data) != id:
            raise Unreadable(f"{str(place)!r} has changed since it was added; put the earlier file back")
        return data

    def sized(self, id: str, path: str | None, shape: tuple[int, ...]) -> Pixels:
        """Return an image at the network's size, as the learner itself would bring it there."""
        key = id, shape
        pixels: Pixels | None = self._sized.get(key)
        if pixels is None:
            pixels = sized(self.read(id, path), shape)
            self._sized.put(key, pixels, pixels.nbytes + 200)
        return pixels

    def shown(self, id: str, path: str | None, size: str) -> tuple[bytes, str]:
        """Return an image encoded anew for a browser, and its media type."""
        key = id, size
        answer: tuple[bytes, str] | None = self._shown.get(key)
        if answer is None:
            answer = _encoded(self.decode(self.read(id, path)), _SIDES[size])
            self._shown.put(key, answer, len(answer[0]))
        return answer

    @staticmethod
    def decode(data: bytes) -> Pixels:
        """Return the pixels of an image's bytes; what is wrong with them is an `Unreadable`."""
        with pixel_limit(NETWORK_PIXELS):
            try:
                return as_array(data)
            except ValueError as error:
                raise Unreadable(str(error)) from None

    def _upload(self, id: str) -> Path:
        return self._uploads / id[:2] / id

    def _inside(self, path: str) -> Path:
        if self.source is None:
            raise Unreadable(f"the folder of {path!r} is not known: start with `coldstream teach FOLDER`")
        place = self.source / path
        if os.path.isabs(path) or ".." in Path(path).parts:
            raise Unreadable(f"{path!r} is not a path inside {str(self.source)!r}")
        return place


def sized(data: bytes, shape: tuple[int, ...]) -> Pixels:
    """Return encoded bytes as pixels of a network's input shape (height, width, channels)."""
    size = shape[0], shape[1]
    with pixel_limit(NETWORK_PIXELS):
        try:
            return fit(as_array(data, shape[2], min_side=max(size)), size)
        except ValueError as error:
            raise Unreadable(str(error)) from None


def _encoded(pixels: Pixels, side: int) -> tuple[bytes, str]:
    picture = Image.fromarray(pixels if pixels.shape[2] == 3 else pixels[:, :, 0])
    largest = max(picture.size)
    if largest > side:
        scale = side / largest
        size = max(1, round(picture.width * scale)), max(1, round(picture.height * scale))
        picture = picture.resize(size, Image.Resampling.LANCZOS)
    buffer = io.BytesIO()
    if max(pixels.shape[:2]) <= 128:  # small ones as they are: a person looks at each pixel
        picture.save(buffer, "PNG")
        return buffer.getvalue(), "image/png"
    picture.save(buffer, "JPEG", quality=88)
    return buffer.getvalue(), "image/jpeg"


def shape_for(samples: list[Pixels]) -> tuple[int, int, int] | None:
    """Return the input shape that fits a sample of a project's images: (height, width, channels); None of none.

    Their own size if they all have it and it is at most 64 pixels a side, else 64x64; grey if no sample has colour.
    """
    if not samples:
        return None
    sizes = {pixels.shape[:2] for pixels in samples}
    height, width = next(iter(sizes)) if len(sizes) == 1 and max(next(iter(sizes))) <= 64 else (64, 64)
    colour = any(
        pixels.shape[2] == 3 and bool((np.ptp(pixels.astype(np.int16), axis=2) > 0).any()) for pixels in samples
    )
    return height, width, 3 if colour else 1
