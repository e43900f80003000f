"""A team's own folder, in every shape that is accepted."""

import numpy as np
import pytest

from coldstream.data import LazyImages, folder, load_dataset


def described(pair):
    return [[(part.names[label], key) for label, key in zip(part.labels, part.keys, strict=True)] for part in pair]


def test_train_and_test(pets, picture):
    train, test = folder(pets)
    assert described((train, test)) == [
        [("cat", f"train/cat/{i}.png") for i in range(3)] + [("dog", f"train/dog/{i}.png") for i in range(2)],
        [("cat", "test/cat/0.png"), ("cat", "test/cat/1.png"), ("dog", "test/dog/0.png")],
    ]
    assert (train.name, train.names, train.labels.dtype) == ("pets", ("cat", "dog"), np.int64)
    assert (train.images == np.stack([picture(i) for i in (0, 1, 2, 10, 11)])).all()


@pytest.mark.parametrize("top", ["", "pets/", "a/b/"])
def test_zip_is_directory(pets, zipped, tmp_path, top):
    packed = folder(zipped(pets, tmp_path / "pets.zip", top))
    for one, other in zip(folder(pets), packed, strict=True):
        assert one.fingerprint() == other.fingerprint()
        assert (one.name, one.keys, one.labels.tolist()) == (other.name, other.keys, other.labels.tolist())
        assert (one.images == other.images).all()


@pytest.mark.parametrize("name", ["val", "valid", "validation", "Test", "VAL"])
def test_other_names_of_the_test_part(pets, name):
    (pets / "test").rename(pets / name)
    train, test = folder(pets)
    assert (len(train), len(test)) == (5, 3)
    assert test.keys[0] == f"{name}/cat/0.png"


def test_test_goes_before_val(pets, tree, picture):
    tree(pets, {"val/cat/9.png": picture(9)})
    assert len(folder(pets)[1]) == 3


@pytest.mark.parametrize("prefix", ["", "train/", "around/", "around/train/"])
def test_without_a_test_part_every_fifth(tmp_path, tree, picture, prefix):
    content = {f"{prefix}{label}/deep/{i}.png": picture(i) for label in ("cat", "dog") for i in range(11)}
    content |= {f"{prefix}few/{i}.png": picture(i) for i in range(4)}
    train, test = folder(tree(tmp_path / "x", content))
    assert train.names == test.names == ("cat", "dog", "few")
    assert np.bincount(train.labels).tolist() == [9, 9, 4]
    assert np.bincount(test.labels, minlength=3).tolist() == [2, 2, 0]
    assert not set(train.keys) & set(test.keys)
    again = folder(tmp_path / "x")
    assert described(again) == described((train, test))


def test_one_class_is_not_looked_through(tmp_path, tree, picture):
    train, _ = folder(tree(tmp_path / "x", {f"cat/{i}.png": picture(i) for i in range(5)}))
    assert train.names == ("cat",)


def test_classes_of_the_test_part_only(pets, tree, picture):
    tree(pets, {"test/ant/0.png": picture(40)})
    train, test = folder(pets)
    assert train.names == test.names == ("ant", "cat", "dog")
    assert set(train.labels.tolist()) == {1, 2}


def test_mixed_sizes_and_kinds_stay_in_their_files(tmp_path, tree, picture):
    content = {
        f"{label}/{i}.{kind}": picture(i, 5 + i, 9)
        for i, kind in enumerate(("png", "webp", "bmp", "PNG", "jpg"))
        for label in "ab"
    }
    train, test = folder(tree(tmp_path / "x", content | {"notes.txt": "hello", "a/list.csv": "1,2"}))
    assert (len(train), len(test)) == (8, 2)
    assert isinstance(train.images, LazyImages)
    for key, image in zip(train.keys, train.images, strict=True):
        if not key.endswith("jpg"):
            assert (image == content[key]).all()


def test_a_damaged_image_is_named(pets, encoded, picture):
    (pets / "train/dog/1.png").write_bytes(encoded(picture(1))[:60])
    with pytest.raises(ValueError, match="train/dog/1.png"):
        folder(pets)
    (pets / "train/cat/0.png").write_bytes(encoded(picture(1, 30, 30)))  # no longer one size: found when asked for
    train, _ = folder(pets)
    with pytest.raises(ValueError, match="train/dog/1.png"):
        train.images[4]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"notes.txt": "hello"}, "there are no images in"),
        (
            {"train/1.png": 1, "train/cat/2.png": 2},
            "train/1.png.*not inside the folder of a class; expected train/<class>/<image>",
        ),
        ({"1.png": 1, "cat/2.png": 2}, "1.png.*not inside the folder of a class; expected <class>/<image>"),
    ],
)
def test_not_an_image_folder(tmp_path, tree, picture, content, message):
    content = {name: picture(value) if isinstance(value, int) else value for name, value in content.items()}
    with pytest.raises(ValueError, match=message):
        folder(tree(tmp_path / "x", content))


def test_by_name(pets, zipped, tmp_path, monkeypatch):
    packed = zipped(pets, tmp_path / "packed.zip")
    for name in (str(pets), f"folder:{pets}", str(packed), f"folder:{packed}"):
        train, test = load_dataset(name)
        assert (len(train), len(test)) == (5, 3)
    assert train.name == "packed"
    monkeypatch.chdir(tmp_path)
    assert len(load_dataset("pets")[0]) == 5
