"""Sets that torchvision reads, in their real binary formats but small.

Those whose checksums torchvision compares are made to pass (see `layouts`); Fashion-MNIST and FGVC-Aircraft have no
such check when read.
"""

import gzip
import struct

import numpy as np
import pytest

import layouts
from coldstream.data import LazyImages, MissingData, load_dataset
from coldstream.data.clips import cifar100_strips

pytest.importorskip("torchvision")


def idx(array):
    header = struct.pack(f">{1 + array.ndim}i", 0x0800 + array.ndim, *array.shape)
    return header + array.astype(np.uint8).tobytes()


@pytest.fixture
def fashion():
    rng = np.random.default_rng(0)
    parts = {}
    for part, count in (("train", 6), ("t10k", 3)):
        parts[f"{part}-images-idx3-ubyte"] = rng.integers(0, 256, (count, 28, 28), np.uint8)
        parts[f"{part}-labels-idx1-ubyte"] = rng.integers(0, 10, count, np.uint8)
    return parts


def test_fashion_mnist(tmp_path, tree, fashion):
    tree(tmp_path / "raw/FashionMNIST/raw", {name: idx(array) for name, array in fashion.items()})
    tree(tmp_path / "gz/FashionMNIST/raw", {f"{n}.gz": gzip.compress(idx(array)) for n, array in fashion.items()})
    tree(tmp_path / "deb/fashion-mnist", {f"{n}.gz": gzip.compress(idx(array)) for n, array in fashion.items()})
    for kind in ("raw", "gz", "deb"):
        train, test = load_dataset("fashion-mnist", tmp_path / kind)
        assert (train.images[..., 0] == fashion["train-images-idx3-ubyte"]).all()
        assert (test.labels == fashion["t10k-labels-idx1-ubyte"]).all()
        assert (train.labels.dtype, train.images.shape, len(test)) == (np.int64, (6, 28, 28, 1), 3)
        assert (train.names[0], len(train.names)) == ("T-shirt/top", 10)


@pytest.mark.parametrize("damage", [lambda b: b[:-1], lambda b: b[:3], lambda b: b"\0\0\x08\x01" + b[4:]])
def test_fashion_mnist_damaged(tmp_path, tree, fashion, damage):
    content = {f"{name}.gz": gzip.compress(idx(array)) for name, array in fashion.items()}
    content["t10k-images-idx3-ubyte.gz"] = gzip.compress(damage(idx(fashion["t10k-images-idx3-ubyte"])))
    tree(tmp_path / "fashion-mnist", content)
    with pytest.raises(MissingData, match="t10k-images-idx3-ubyte.gz"):
        load_dataset("fashion-mnist", tmp_path)
    (tmp_path / "fashion-mnist/t10k-images-idx3-ubyte.gz").write_bytes(b"not gzip")
    with pytest.raises(MissingData, match="t10k-images-idx3-ubyte.gz.*damaged"):
        load_dataset("fashion-mnist", tmp_path)


def test_cifar10(tmp_path, monkeypatch):
    labels = {**{f"data_batch_{i}": [i, 0] for i in range(1, 6)}, "test_batch": [9]}
    pixels = layouts.cifar10(tmp_path, monkeypatch, labels, [f"class{i}" for i in range(10)])
    train, test = load_dataset("cifar10", tmp_path)
    assert train.labels.tolist() == [1, 0, 2, 0, 3, 0, 4, 0, 5, 0]
    assert (train.images[2:4] == pixels["data_batch_2"]).all()
    assert (test.labels.tolist(), test.names[9]) == ([9], "class9")


def test_cifar100_and_its_strips_are_one(tmp_path, tree, monkeypatch):
    labels = {"train": [1, 0, 1], "test": [1, 0]}
    pixels, test_pixels = layouts.cifar100(tmp_path, monkeypatch, labels, ["apple", "bear"]).values()
    train, test = load_dataset("cifar100", tmp_path)
    assert (train.images == pixels).all()
    assert (train.labels.tolist(), train.names) == ([1, 0, 1], ("apple", "bear"))
    strips = {"train/00_apple.webp": pixels[1], "train/01_bear.webp": np.concatenate([pixels[0], pixels[2]])}
    strips |= {"test/00_apple.webp": test_pixels[1], "test/01_bear.webp": test_pixels[0]}
    other = cifar100_strips(tree(tmp_path / "strips", strips))
    assert [part.fingerprint() for part in other] == [train.fingerprint(), test.fingerprint()]


def test_a_wrong_checksum_is_told(tmp_path, tree):
    tree(tmp_path / "cifar-100-python", {"train": b"x", "test": b"y", "meta": b"z"})
    with pytest.raises(MissingData, match="cifar-100-python.*damaged or incomplete.*download it again"):
        load_dataset("cifar100", tmp_path)


def test_flowers(tmp_path, picture, monkeypatch):
    pytest.importorskip("scipy.io")
    pictures = [picture(i, 4 + i) for i in range(1, 7)]
    layouts.flowers102(tmp_path, monkeypatch, [1, 1, 2, 2, 102, 1], pictures, [3, 1], [5, 2], [4, 6])
    train, test = load_dataset("flowers102", tmp_path)
    assert [key[-9:-4] for key in train.keys] == ["00003", "00001", "00005", "00002"]
    assert (train.labels.tolist(), test.labels.tolist()) == ([1, 0, 101, 0], [1, 0])
    assert (train.names[0], train.names[101], len(train.names)) == ("pink primrose", "blackberry lily", 102)
    assert isinstance(train.images, LazyImages)
    assert [len(image) for image in train.images] == [7, 5, 9, 6]
    assert train.keys[0] == "jpg/image_00003.jpg"


def test_flowers_as_image_folder(tmp_path, pets, zipped):
    zipped(pets, tmp_path / "flowers102_128.zip")
    train, test = load_dataset("flowers102", tmp_path)
    assert (train.name, len(train), len(test)) == ("flowers102", 5, 3)


def test_aircraft(tmp_path, picture):
    pictures = [picture(i, 4 + i) for i in range(4)]
    both = [(2, "A300B4"), (0, "707-320")], [(1, "A300B4"), (3, "A300B4")]
    base = layouts.fgvc_aircraft(tmp_path, ["707-320", "A300B4"], pictures, *both)
    train, test = load_dataset("fgvc-aircraft", tmp_path)
    assert (train.names, train.labels.tolist(), test.labels.tolist()) == (("707-320", "A300B4"), [1, 0], [1, 1])
    assert [len(image) for image in train.images] == [6, 4]
    assert train.keys[0] == "data/images/0000002.jpg"
    (base / "variants.txt").unlink()
    with pytest.raises(MissingData, match="incomplete"):
        load_dataset("fgvc-aircraft", tmp_path)


def test_imagenet_layout(tmp_path, picture):
    train = {name: [picture(i, 5 + i) for i in range(2)] for name in ("n01440", "n01443")}
    layouts.imagenet(tmp_path, train, {"n01440": [picture(7)]})
    train, test = load_dataset("imagenet", tmp_path)
    assert (train.name, len(train), len(test), train.names) == ("imagenet", 4, 1, ("n01440", "n01443"))
