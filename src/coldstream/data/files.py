"""Encoded images in a directory or a zip, read and decoded on access.

Nothing is extracted, so a path inside a zip cannot reach outside it. No more than `MAX_BYTES` of a
file is read or unpacked.
"""

from __future__ import annotations

import os
import threading
import zipfile
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import overload

import numpy as np
from numpy.typing import NDArray

from coldstream.data.dataset import Images, Pixels
from coldstream.images import as_array
from coldstream.limits import MAX_BYTES

EAGER_BYTES = 256_000_000
IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff")
# Other methods can expand one small block to gigabytes before a limit is checked.
_BOUNDED_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


class Files:
    """The files below a directory, by their paths with forward slashes. Hidden ones are left out."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @cached_property
    def names(self) -> list[str]:
        """All paths, sorted."""
        return sorted(name for name in self._walk() if _visible(name))

    def images(self) -> list[str]:
        """Return the paths with the suffix of an image."""
        return [name for name in self.names if name.lower().endswith(IMAGE_SUFFIXES)]

    def base(self, *needed: str) -> str | None:
        """Return the shortest folder ("" or "a/b/") that holds all these files, or None."""
        present = set(self.names)
        last = needed[-1]
        folders = [n.removesuffix(last) for n in self.names if n == last or n.endswith("/" + last)]
        return min((f for f in folders if all(f + other in present for other in needed)), key=len, default=None)

    def size(self, name: str) -> int:
        """Return how many bytes a file has."""
        if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
            raise ValueError(f"{name!r} is not a path inside {str(self.path)!r}")
        try:
            return (self.path / name).stat().st_size
        except OSError as error:
            raise ValueError(f"cannot read {self.where(name)}: {error.strerror or error}") from None

    def read(self, name: str) -> bytes:
        """Return a file's bytes, or a ValueError that names the file. No more than the limit is read."""
        size = self.size(name)
        data = self._read(name, min(size, MAX_BYTES) + 1) if size <= MAX_BYTES else b""
        if max(size, len(data)) > MAX_BYTES:
            raise ValueError(f"{self.where(name)} has {max(size, len(data)):,} bytes; the limit is {MAX_BYTES:,}")
        if len(data) != size:
            raise ValueError(f"cannot read {self.where(name)}: it has {len(data):,} bytes or more, not {size:,}")
        return data

    def text(self, name: str) -> list[str]:
        """Return the lines of a list, without those that are empty."""
        text = self.read(name).decode("utf-8", "replace")
        return [line.strip() for line in text.splitlines() if line.strip()]

    def where(self, name: str) -> str:
        """Return a file's full name for messages."""
        return repr(str(self.path / name))

    def _walk(self) -> Iterator[str]:
        seen = set()
        for folder, folders, names in os.walk(self.path, followlinks=True):
            real = os.path.realpath(folder)
            if real in seen:  # a link to a parent folder would never end
                folders.clear()
                continue
            seen.add(real)
            inside = Path(folder).relative_to(self.path)
            yield from ((inside / name).as_posix() for name in names if os.path.isfile(os.path.join(folder, name)))

    def _read(self, name: str, most: int) -> bytes:
        try:
            with open(self.path / name, "rb") as file:
                return file.read(most)
        except OSError as error:
            raise ValueError(f"cannot read {self.where(name)}: {error.strerror or error}") from None


class ZipFiles(Files):
    """The files in a zip. Each process opens it once."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._handle: _OpenZip | None = None

    def __reduce__(self) -> tuple[type[ZipFiles], tuple[Path]]:
        return ZipFiles, (self.path,)

    def size(self, name: str) -> int:
        """Return how many bytes a member has when unpacked."""
        return self._info(name).file_size

    def _walk(self) -> Iterator[str]:
        return iter({info.filename for info in self._open().zip.infolist() if info.filename and not info.is_dir()})

    def _info(self, name: str) -> zipfile.ZipInfo:
        try:
            return self._open().zip.getinfo(name)
        except KeyError:
            raise ValueError(f"there is no {name!r} in {str(self.path)!r}") from None

    def _read(self, name: str, most: int) -> bytes:
        info, handle = self._info(name), self._open()
        if info.compress_type not in _BOUNDED_METHODS:
            raise ValueError(
                f"{self.where(name)} uses an unsupported compression; pack the zip again with stored or deflate"
            )
        try:
            # Without a number `read` unpacks up to 2 GB at once, whatever size the header gives.
            with handle.lock, handle.zip.open(info) as member:
                return member.read(most)
        except Exception as error:  # a damaged zip raises whatever it meets
            raise ValueError(f"cannot read {self.where(name)}: {str(error) or type(error).__name__}") from error

    def _open(self) -> _OpenZip:
        handle = self._handle
        # After a fork both processes would share one file position, and a lock that nobody can release.
        if handle is None or handle.process != os.getpid():
            handle = self._handle = _OpenZip(self.path)
        return handle


class _OpenZip:
    def __init__(self, path: Path) -> None:
        self.process = os.getpid()
        self.lock = threading.Lock()
        try:
            self.zip = zipfile.ZipFile(path)
        except Exception as error:  # NotImplementedError, struct.error, UnicodeDecodeError, ...
            raise ValueError(f"cannot read {str(path)!r} as a zip: {error}") from None


def open_files(path: Path) -> Files:
    """Return the files below a directory or in a zip."""
    if path.is_dir():
        return Files(path)
    if path.is_file() and zipfile.is_zipfile(path):
        return ZipFiles(path)
    raise ValueError(f"expected a directory or a zip, got {str(path)!r}")


class LazyImages(Sequence[Pixels]):
    """Images that are decoded on access.

    Parameters
    ----------
    files
        Where they are.
    members
        Their paths there, in order.
    """

    def __init__(self, files: Files, members: Sequence[str]) -> None:
        self.files = files
        self.members = list(members)

    def __len__(self) -> int:
        return len(self.members)

    @overload
    def __getitem__(self, index: int) -> Pixels: ...
    @overload
    def __getitem__(self, index: slice) -> LazyImages: ...
    def __getitem__(self, index: int | slice) -> Pixels | LazyImages:
        if isinstance(index, slice):
            return LazyImages(self.files, self.members[index])
        return decode(self.files, self.members[index])

    def take(self, indices: NDArray[np.int64]) -> LazyImages:
        """Return the images at `indices`, without decoding any."""
        return LazyImages(self.files, [self.members[i] for i in np.arange(len(self))[indices]])

    def sizes(self) -> list[int]:
        """Return the bytes that each encoded file has, without reading any."""
        return [self.files.size(name) for name in self.members]


def decode(files: Files, name: str) -> Pixels:
    """Return a file's pixels as uint8 (H, W, 3), or a ValueError that names the file."""
    try:
        return as_array(files.read(name), channels=3)
    except ValueError as error:
        message = str(error)
        raise ValueError(message if name in message else f"cannot decode {files.where(name)}: {message}") from error


def in_memory_if_small(images: Sequence[Pixels]) -> Images:
    """Decode all images into one array if they have one size and take at most `EAGER_BYTES`; else leave them.

    The size is estimated from the first image, so that no more of a large set is decoded.
    """
    if not len(images):
        return np.zeros((0, 1, 1, 3), np.uint8)
    first = images[0]
    if first.nbytes * len(images) > EAGER_BYTES:
        return images
    pixels = np.empty((len(images), *first.shape), np.uint8)
    for index, image in enumerate(images):
        if image.shape != first.shape:
            return images
        pixels[index] = image
    return pixels


def _visible(name: str) -> bool:
    parts = name.split("/")
    return parts[0] != "__MACOSX" and not any(part.startswith(".") and part != ".." for part in parts)
