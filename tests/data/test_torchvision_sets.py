"""Sets that torchvision reads, in their real binary formats but small.

torchvision compares the checksums of CIFAR's and Flowers-102's files with those of the official ones, which it keeps
as class attributes; there the tests put the sums of their small files. Fashion-MNIST and FGVC-Aircraft have no such
check when read.
"""

import gzip
import hashlib
import pickle
import struct

import numpy as np
import pytest

from coldstream.data import LazyImages, MissingData, load_dataset
from coldstream.data.clips import cifar100_strips

datasets = pytest.importorskip("torchvision.datasets")


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


def cifar_batch(labels, seed, key):
    pixels = np.random.default_rng(seed).integers(0, 256, (len(labels), 3072), np.uint8)
    return pickle.dumps({"data": pixels, key: labels}), pixels.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)


def let_pass(monkeypatch, kind, content):
    """Give torchvision the checksums of small files for those of the official ones."""

    def sums(names):
        return [[name, hashlib.md5(content[name]).hexdigest()] for name in names]

    monkeypatch.setattr(kind, "train_list", sums([name for name, _ in kind.train_list]))
    monkeypatch.setattr(kind, "test_list", sums([name for name, _ in kind.test_list]))
    meta = kind.meta["filename"]
    monkeypatch.setattr(kind, "meta", kind.meta | {"md5": hashlib.md5(content[meta]).hexdigest()})


def test_cifar10(tmp_path, tree, monkeypatch):
    batches = {f"data_batch_{i}": cifar_batch([i, 0], i, "labels") for i in range(1, 6)}
    batches["test_batch"] = cifar_batch([9], 9, "labels")
    content = {name: data for name, (data, _) in batches.items()}
    content["batches.meta"] = pickle.dumps({"label_names": [f"class{i}" for i in range(10)]})
    let_pass(monkeypatch, datasets.CIFAR10, content)
    tree(tmp_path / "cifar-10-batches-py", content)
    train, test = load_dataset("cifar10", tmp_path)
    assert train.labels.tolist() == [1, 0, 2, 0, 3, 0, 4, 0, 5, 0]
    assert (train.images[2:4] == batches["data_batch_2"][1]).all()
    assert (test.labels.tolist(), test.names[9]) == ([9], "class9")


def test_cifar100_and_its_strips_are_one(tmp_path, tree, monkeypatch):
    train_file, pixels = cifar_batch([1, 0, 1], 1, "fine_labels")
    test_file, test_pixels = cifar_batch([1, 0], 2, "fine_labels")
    meta = pickle.dumps({"fine_label_names": ["apple", "bear"], "coarse_label_names": ["x"]})
    content = {"train": train_file, "test": test_file, "meta": meta}
    let_pass(monkeypatch, datasets.CIFAR100, content)
    tree(tmp_path / "cifar-100-python", content)
    train, test = load_dataset("cifar100", tmp_path)
    assert (train.images == pixels).all()
    assert (train.labels.tolist(), train.names) == ([1, 0, 1], ("apple", "bear"))
    strips = {"train/00_apple.webp": pixels[1], "train/01_bear.webp": np.concatenate([pixels[0], pixels[2]])}
    strips |= {"test/00_apple.webp": test_pixels[1], "test/01_bear.webp": test_pixels[0]}
    other = cifar100_strips(tree(tmp_path / "strips", strips))
    assert [part.fingerprint() for part in other] == [train.fingerprint(), test.fingerprint()]


def test_a_wrong_checksum_is_told(tmp_path, tree):
    tree(tmp_path / "cifar-100-python", {"train": b"x", "test": b"y", "meta": b"z"})
    with pytest.raises(MissingData, match="cifar-100-python.*damaged or not complete.*get it again"):
        load_dataset("cifar100", tmp_path)


def test_flowers(tmp_path, tree, picture, monkeypatch):
    scipy_io = pytest.importorskip("scipy.io")
    base = tree(tmp_path / "flowers-102", {f"jpg/image_{i:05d}.jpg": picture(i, 4 + i) for i in range(1, 7)})
    scipy_io.savemat(base / "imagelabels.mat", {"labels": np.array([[1, 1, 2, 2, 102, 1]])})
    scipy_io.savemat(base / "setid.mat", {"trnid": [[3, 1]], "valid": [[5, 2]], "tstid": [[4, 6]]})
    sums = {
        key: (name, hashlib.md5((base / name).read_bytes()).hexdigest() if name.endswith("mat") else md5)
        for key, (name, md5) in datasets.Flowers102._file_dict.items()
    }
    monkeypatch.setattr(datasets.Flowers102, "_file_dict", sums)
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


def test_aircraft(tmp_path, tree, picture):
    content = {f"images/{i:07d}.jpg": picture(i, 4 + i) for i in range(4)}
    content["variants.txt"] = "707-320\nA300B4\n"
    content["images_variant_trainval.txt"] = "0000002 A300B4\n0000000 707-320\n"
    content["images_variant_test.txt"] = "0000001 A300B4\n0000003 A300B4\n"
    base = tree(tmp_path / "fgvc-aircraft-2013b/data", content)
    train, test = load_dataset("fgvc-aircraft", tmp_path)
    assert (train.names, train.labels.tolist(), test.labels.tolist()) == (("707-320", "A300B4"), [1, 0], [1, 1])
    assert [len(image) for image in train.images] == [6, 4]
    assert train.keys[0] == "data/images/0000002.jpg"
    (base / "variants.txt").unlink()
    with pytest.raises(MissingData, match="not complete"):
        load_dataset("fgvc-aircraft", tmp_path)


def test_imagenet_layout(tmp_path, tree, picture):
    content = {f"train/n0144{c}/n0144{c}_{i}.JPEG": picture(i, 5 + i) for c in (0, 3) for i in range(2)}
    content |= {"val/n01440/ILSVRC2012_val_00000001.JPEG": picture(7), "ILSVRC2012_devkit_t12.tar.gz": b"x"}
    tree(tmp_path / "imagenet", content)
    train, test = load_dataset("imagenet", tmp_path)
    assert (train.name, len(train), len(test), train.names) == ("imagenet", 4, 1, ("n01440", "n01443"))
