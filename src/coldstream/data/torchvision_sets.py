"""Sets for which torchvision has a loader. torchvision is imported on first use."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from coldstream.data.dataset import Dataset, Pixels
from coldstream.data.files import Files, LazyImages, in_memory_if_small
from coldstream.data.sources import MissingData
from coldstream.limits import MAX_BYTES


def fashion_mnist(path: Path) -> tuple[Dataset, Dataset]:
    """Return Fashion-MNIST from torchvision's `FashionMNIST/raw/`; `path` is one of the files in it."""
    from torchvision.datasets import FashionMNIST

    with _explained(path.parent):
        train, test = (FashionMNIST(path.parents[2], train=train) for train in (True, False))
    return (
        _grey(train.data.numpy(), train.targets.numpy(), train.classes),
        _grey(test.data.numpy(), test.targets.numpy(), test.classes),
    )


def fashion_mnist_packed(path: Path) -> tuple[Dataset, Dataset]:
    """Return Fashion-MNIST from the four `.gz` files as published; `path` is one of them."""
    from torchvision.datasets import FashionMNIST

    sets = []
    for part in ("train", "t10k"):
        images = _read_idx(path.parent / f"{part}-images-idx3-ubyte.gz", 3)
        sets.append(_grey(images, _read_idx(path.parent / f"{part}-labels-idx1-ubyte.gz", 1), FashionMNIST.classes))
    return sets[0], sets[1]


def cifar10(path: Path) -> tuple[Dataset, Dataset]:
    """Return CIFAR-10 from the official `cifar-10-batches-py/`."""
    return _cifar("CIFAR10", path)


def cifar100(path: Path) -> tuple[Dataset, Dataset]:
    """Return CIFAR-100, its 100 fine classes, from the official `cifar-100-python/`."""
    return _cifar("CIFAR100", path)


def flowers102(path: Path) -> tuple[Dataset, Dataset]:
    """Return Flowers-102 from the official files in `flowers-102/`: train and val together are for training."""
    from torchvision.datasets import Flowers102

    with _explained(path):
        train, val, test = (Flowers102(path.parent, part, loader=str) for part in ("train", "val", "test"))
    names = tuple(Flowers102.classes)
    return _files(path, "flowers102", [train, val], names), _files(path, "flowers102", [test], names)


def fgvc_aircraft(path: Path) -> tuple[Dataset, Dataset]:
    """Return FGVC-Aircraft, its 100 variants, from the official `fgvc-aircraft-2013b/`: trainval and test."""
    from torchvision.datasets import FGVCAircraft

    with _explained(path):
        train, test = (FGVCAircraft(path.parent, part, loader=str) for part in ("trainval", "test"))
    names = tuple(train.classes)
    return _files(path, "fgvc-aircraft", [train], names), _files(path, "fgvc-aircraft", [test], names)


def fetch(name: str, root: Path) -> None:
    """Download a set of torchvision below `root`; `name` is the name of its class."""
    from torchvision import datasets

    root.mkdir(parents=True, exist_ok=True)
    getattr(datasets, name)(root, download=True)


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        yield
    except (RuntimeError, OSError, EOFError, LookupError, ValueError, AssertionError, zlib.error) as error:
        raise MissingData(
            f"{str(path)!r} is damaged or incomplete ({error}); delete it and download it again"
        ) from error


def _cifar(name: str, path: Path) -> tuple[Dataset, Dataset]:
    from torchvision import datasets

    with _explained(path):
        train, test = (getattr(datasets, name)(path.parent, train=train) for train in (True, False))
    return _cifar_part(name, train), _cifar_part(name, test)


def _cifar_part(name: str, part: Any) -> Dataset:
    images = np.ascontiguousarray(part.data, np.uint8)
    return Dataset(name.lower(), images, np.array(part.targets, np.int64), tuple(part.classes))


def _grey(images: Pixels, labels: Pixels, names: list[str]) -> Dataset:
    return Dataset("fashion-mnist", images[..., None], labels.astype(np.int64), tuple(names))


def _files(path: Path, name: str, parts: list[Any], names: tuple[str, ...]) -> Dataset:
    """Read torchvision's list of files, whose `loader` was told to return the path instead of decoding."""
    examples = [part[index] for part in parts for index in range(len(part))]
    keys = [Path(file).relative_to(path).as_posix() for file, _ in examples]
    labels = np.array([label for _, label in examples], np.int64)
    return Dataset(name, in_memory_if_small(LazyImages(Files(path), keys)), labels, names, keys=tuple(keys))


def _read_idx(path: Path, dimensions: int) -> Pixels:
    with _explained(path), gzip.open(path) as file:
        data = file.read(MAX_BYTES)
    start = 4 * (1 + dimensions)
    header = np.frombuffer(data[:start].ljust(start, b"\0"), ">i4")
    if header[0] != 0x0800 + dimensions or header[1:].min() < 0:
        raise MissingData(f"{str(path)!r} is not an IDX file of {dimensions} dimensions")
    pixels = np.frombuffer(data[start:], np.uint8)
    if len(pixels) != int(np.prod(header[1:].astype(np.int64))):
        raise MissingData(f"{str(path)!r} is cut or damaged: {len(pixels):,} bytes of {header[1:].tolist()}")
    return pixels.reshape(header[1:]).copy()
