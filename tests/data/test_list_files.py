"""CUB-200-2011 and MIT Indoor Scenes in their official layouts, and as image folders."""

import pytest

import layouts
from coldstream.data import cub200, load_dataset, mit_scenes


@pytest.fixture
def birds(tmp_path, picture):
    names = [(2, "L_1.jpg"), (1, "B_1.jpg"), (1, "B_2.jpg"), (10, "R_1.jpg"), (10, "R_2.jpg")]
    images = [(*name, i % 2 == 0, picture(i, 6 + i, 7)) for i, name in enumerate(names)]
    return layouts.cub200(tmp_path, {1: "001.Black", 2: "002.Laysan", 10: "010.Red"}, images)


def test_cub_by_hand(birds, tmp_path):
    train, test = load_dataset("cub200", tmp_path)
    assert train.name == "cub200"
    assert train.names == test.names == ("001.Black", "002.Laysan", "010.Red")
    assert train.keys == ("images/002.Laysan/L_1.jpg", "images/001.Black/B_2.jpg", "images/010.Red/R_2.jpg")
    assert (train.labels.tolist(), test.labels.tolist()) == ([1, 0, 2], [0, 2])
    assert [image.shape for image in test.images] == [(7, 7, 3), (9, 7, 3)]


def test_cub_zipped(birds, zipped, tmp_path):
    packed = cub200(zipped(birds, tmp_path / "birds.zip", top="CUB_200_2011/"))
    for one, other in zip(cub200(birds), packed, strict=True):
        assert one.keys == other.keys
        assert one.fingerprint() == other.fingerprint()


def test_cub_as_image_folder(pets, zipped, tmp_path):
    zipped(pets, tmp_path / "cub200_128.zip")
    train, test = load_dataset("cub200", tmp_path)
    assert (train.name, len(train), len(test)) == ("cub200", 5, 3)


def test_cub_not_whole(birds):
    (birds / "images/010.Red/R_2.jpg").unlink()
    with pytest.raises(ValueError, match="1 listed images.*'images/010.Red/R_2.jpg'"):
        cub200(birds)
    (birds / "image_class_labels.txt").write_text("1 2\n2 1\n3 7\n4 10\n5 10\n")
    with pytest.raises(ValueError, match="image_class_labels.txt.*image 3"):
        cub200(birds)
    (birds / "classes.txt").write_text("1 001.Black\nx\n")
    with pytest.raises(ValueError, match="classes.txt.*got 'x'"):
        cub200(birds)


@pytest.fixture
def rooms(tmp_path, picture):
    paths = ["bar/a.jpg", "bar/b.jpg", "church_inside/a.jpg", "church_inside/b c.jpg", "church_inside/unlisted.jpg"]
    images = {path: picture(i, 5, 6 + i) for i, path in enumerate(paths)}
    train, test = "church_inside/b c.jpg\r\nbar/a.jpg\r\n\r\n", "bar/b.jpg\nchurch_inside/a.jpg"
    return layouts.mit_scenes(tmp_path, images, train, test)


def test_scenes_by_hand(rooms, tmp_path, zipped):
    train, test = load_dataset("mit-scenes", tmp_path)
    assert (train.name, train.names) == ("mit-scenes", ("bar", "church_inside"))
    assert train.keys == ("Images/bar/a.jpg", "Images/church_inside/b c.jpg")
    assert test.keys == ("Images/bar/b.jpg", "Images/church_inside/a.jpg")
    assert (train.labels.tolist(), test.labels.tolist()) == ([0, 1], [0, 1])
    packed = mit_scenes(zipped(rooms, tmp_path / "rooms.zip", top="x/"))
    assert [part.fingerprint() for part in packed] == [train.fingerprint(), test.fingerprint()]


def test_a_list_cannot_lead_outside(rooms, tree, picture):
    tree(rooms.parent, {"secret/x.jpg": picture(1)})
    (rooms / "TrainImages.txt").write_text("../../secret/x.jpg\n")
    with pytest.raises(ValueError, match="listed images are not in"):
        mit_scenes(rooms)


def test_scenes_as_image_folder(pets):
    assert len(mit_scenes(pets)[0]) == 5
