"""Hugging Face sets: on the real package where it is installed (`uv run --with datasets`), and on a stand-in of the
part of its interface that is used, which always runs.
"""

import sys
import types
from pathlib import Path

import numpy as np
import pytest

from coldstream.data import LazyImages, MissingData, load_dataset
from coldstream.data.huggingface import read_splits


class Image:
    def __init__(self, decode=True):
        self.decode = decode


class ClassLabel:
    def __init__(self, names):
        self.names = names


class Value:
    pass


class Table:
    """What is used of `datasets.Dataset`."""

    def __init__(self, columns, features):
        self.columns, self.features = columns, features

    def __len__(self):
        return len(next(iter(self.columns.values())))

    def __getitem__(self, index):
        if isinstance(index, str):
            return self.columns[index]
        assert type(index) is int
        assert all(getattr(feature, "decode", False) is False for feature in self.features.values())
        return {name: column[index] for name, column in self.columns.items()}

    def select_columns(self, names):
        return Table({n: self.columns[n] for n in names}, {n: self.features[n] for n in names})

    def cast_column(self, name, feature):
        return Table(self.columns, self.features | {name: feature})


@pytest.fixture
def table(encoded, picture):
    def make(labels, first=0, image="image", label="label", size=8, **more):
        count = len(labels)
        images = [{"bytes": encoded(picture(first + i, size, 8)), "path": None} for i in range(count)]
        features = {image: Image(), label: ClassLabel(["cat", "dog"])} | {
            name: kind for name, (kind, _) in more.items()
        }
        return Table({image: images, label: labels} | {name: column for name, (_, column) in more.items()}, features)

    return make


def test_train_and_test(table, picture):
    train, test = read_splits("me/pets", {"train": table([1, 0, 1]), "test": table([0], 9), "extra": table([0])})
    assert (train.name, train.names, train.labels.tolist(), test.labels.tolist()) == (
        "me/pets",
        ("cat", "dog"),
        [1, 0, 1],
        [0],
    )
    assert (train.images == np.stack([picture(i) for i in range(3)])).all()
    assert train.keys == ("train/0", "train/1", "train/2")


def test_mixed_sizes_are_lazy_and_files_are_read(table, encoded, picture, tmp_path):
    mixed = table([1, 0, 1])
    mixed.columns["image"][1] = {"bytes": encoded(picture(5, 20)), "path": None}
    (tmp_path / "a.png").write_bytes(encoded(picture(6)))
    mixed.columns["image"][2] = {"bytes": None, "path": str(tmp_path / "a.png")}
    train, _ = read_splits("pets", {"train": mixed, "test": table([0])})
    assert not isinstance(train.images, np.ndarray | LazyImages)
    assert (train.take(np.array([2])).images[0] == picture(6)).all()
    mixed.columns["image"][2] = {"bytes": b"damaged", "path": None}
    with pytest.raises(ValueError, match="cannot decode image 2 of 'pets/train'"):
        train.images[2]


def test_split_where_test_labels_are_hidden(table):
    splits = {"train": table([0, 1]), "test": table([-1, -1]), "validation": table([1, -1, 0], 5)}
    _, test = read_splits("x", splits)
    assert test.keys == ("validation/0", "validation/2")
    train, test = read_splits("x", {"train": table([0] * 10 + [1] * 5)})
    assert (np.bincount(train.labels).tolist(), np.bincount(test.labels).tolist()) == ([8, 4], [2, 1])


def test_columns_are_guessed_or_chosen(table):
    coarse = {"coarse": (ClassLabel(["x"]), [0, 0])}
    splits = {part: table([0, 1], image="img", label="fine", **coarse) for part in ("train", "test")}
    with pytest.raises(
        ValueError, match=r"2 columns that can be the label; choose one as in hf:c\?label=COLUMN, of fine, coarse"
    ):
        read_splits("c", splits)
    assert read_splits("c", splits, label="fine")[0].names == ("cat", "dog")
    with pytest.raises(ValueError, match="unknown column of 'c' 'fin'; did you mean 'fine'"):
        read_splits("c", splits, label="fin")
    with pytest.raises(ValueError, match="unknown split of 'c' 'tset'; did you mean 'test'"):
        read_splits("c", splits, label="fine", test="tset")
    splits = {part: table([0, 1], **coarse) for part in ("train", "test")}
    assert read_splits("c", splits)[0].names == ("cat", "dog")  # one of several is called label


def test_labels_without_names(table):
    splits = {part: table([0, 0, 0], label="kind", number=(Value(), [10, 2, 2])) for part in ("train", "test")}
    train, _ = read_splits("c", splits, label="number")
    assert (train.names, train.labels.tolist()) == (("2", "10"), [1, 0, 0])


@pytest.fixture
def package(monkeypatch, table):
    """The stand-in in place of the package: what is loaded by name can be saved and found again."""
    saved, loaded = {}, []

    class Splits(dict):
        def save_to_disk(self, path):
            Path(path).mkdir()
            (Path(path) / "dataset_dict.json").write_text("{}")
            saved["me"] = self

    def load(name, config=None):
        loaded.append((name, config))
        if name == "me/none":
            raise KeyError("no such set")
        return Splits(train=table([0, 1]), test=table([1]))

    def load_from_disk(path):
        if not (Path(path) / "dataset_dict.json").exists():
            raise FileNotFoundError(f"{path} is neither")
        return saved["me"]

    fake = types.SimpleNamespace(load_dataset=load, load_from_disk=load_from_disk)
    monkeypatch.setitem(sys.modules, "datasets", fake)
    return loaded


def test_by_name(package, tmp_path):
    with pytest.raises(MissingData, match="'hf:me/pets' is not here: looked for .*me--pets.*download=True"):
        load_dataset("hf:me/pets", tmp_path)
    assert package == []
    train, test = load_dataset("hf:me/pets?config=full&label=label", tmp_path, download=True)
    assert (len(train), len(test), package) == (2, 1, [("me/pets", "full")])
    load_dataset("hf:me/pets?config=full", tmp_path)
    assert len(package) == 1  # read from the copy
    assert [path.name for path in (tmp_path / "huggingface").iterdir()] == ["me--pets--full"]
    with pytest.raises(MissingData, match="'hf:me/none' could not be downloaded: 'no such set'"):
        load_dataset("hf:me/none", tmp_path, download=True)
    with pytest.raises(ValueError, match="unknown option 'lable'; did you mean 'label'"):
        load_dataset("hf:me/pets?lable=x", tmp_path)
    with pytest.raises(MissingData, match="not a folder that save_to_disk wrote"):
        load_dataset(f"hf:{tmp_path}", tmp_path)


def test_without_the_package(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(MissingData, match="pip install datasets"):
        load_dataset("hf:me/pets", tmp_path, download=True)


def test_the_real_package(tmp_path, picture, encoded, monkeypatch):
    datasets = pytest.importorskip("datasets")
    kinds = datasets.Features({"img": datasets.Image(), "kind": datasets.ClassLabel(names=["cat", "dog"])})

    def make(labels, first):
        images = [{"bytes": encoded(picture(first + i, 8 + i % 2)), "path": None} for i in range(len(labels))]
        return datasets.Dataset.from_dict({"img": images, "kind": labels}, features=kinds)

    splits = datasets.DatasetDict(train=make([1, 0, 1], 0), test=make([0], 5))
    splits.save_to_disk(tmp_path / "pets")
    train, test = load_dataset(f"hf:{tmp_path / 'pets'}")
    assert (train.names, train.labels.tolist(), test.labels.tolist()) == (("cat", "dog"), [1, 0, 1], [0])
    for i, image in enumerate(train.images):
        assert (image == picture(i, 8 + i % 2)).all()
    assert (test.images[0] == picture(5, 8)).all()
    part = train.take(np.array([2, 0]))
    assert (part.images[1] == picture(0, 8)).all()
    make([0] * 5 + [1] * 5, 0).save_to_disk(tmp_path / "single")
    assert [len(half) for half in load_dataset(f"hf:{tmp_path / 'single'}")] == [8, 2]
    # Only the network is left out: what it gives is saved once, and found again without it.
    monkeypatch.setattr(datasets, "load_dataset", lambda name, config: splits)
    fresh = load_dataset("hf:me/pets", tmp_path / "root", download=True)
    monkeypatch.setattr(datasets, "load_dataset", None)
    again = load_dataset("hf:me/pets", tmp_path / "root")
    assert [part.identities() for part in again] == [part.identities() for part in fresh]
    assert (again[0].images[2] == picture(2, 8)).all()
