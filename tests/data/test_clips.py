"""Clips and strips: GTSRB tracks, CORe50, and CIFAR-100 with one strip per class."""

import numpy as np
import pytest

import layouts
from coldstream.data import LazyImages, core50, files, gtsrb, load_dataset
from coldstream.data.clips import cifar100_strips


@pytest.fixture
def tracks(tmp_path, tree, picture):
    """Class 00 has tracks 0, 1, 3 and 7, class 01 tracks 0 to 2, class 02 one; four frames of 6x6 each."""
    content = {f"00/track{t:05d}.webp": picture(t, 24, 6) for t in (0, 1, 3, 7)}
    content |= {f"01/track{t:05d}.webp": picture(10 + t, 24, 6) for t in range(3)}
    content |= {"02/track00000.webp": picture(20, 24, 6), "meta.json": "{}"}
    return tree(tmp_path / "gtsrb", content)


def test_gtsrb_by_hand(tracks, picture):
    train, test = gtsrb(tracks)
    assert train.names == test.names == ("00", "01", "02")
    assert test.labels.tolist() == [0] * 4 + [1] * 4
    assert test.objects.tolist() == [2] * 4 + [6] * 4  # the third track of a class, whatever its number
    assert train.objects.tolist() == [n for n in (0, 1, 3, 4, 5, 7) for _ in range(4)]
    assert train.frames.tolist() == [0, 1, 2, 3] * 6
    assert set(train.sessions.tolist()) == {0}
    assert (test.images[:4] == picture(3, 24, 6).reshape(4, 6, 6, 3)).all()
    assert (train.images[-4:] == picture(20, 24, 6).reshape(4, 6, 6, 3)).all()


def test_gtsrb_zip_is_directory(tracks, zipped, tmp_path):
    packed = zipped(tracks, tmp_path / "gtsrb_tracks.zip", top="inside/")
    for one, other in zip(gtsrb(tracks), gtsrb(packed), strict=True):
        assert one.fingerprint() == other.fingerprint()
        assert (one.objects == other.objects).all()
    with pytest.raises(ValueError, match="several of gtsrb"):
        load_dataset("gtsrb", tmp_path)
    packed.unlink()
    assert len(load_dataset("gtsrb", tmp_path)[0]) == 24


def test_gtsrb_refused(tmp_path, tree, picture):
    with pytest.raises(ValueError, match="no tracks"):
        gtsrb(tree(tmp_path / "a", {"x.webp": picture(0)}))
    with pytest.raises(ValueError, match="track00000.webp.*no multiple of its width 6"):
        gtsrb(tree(tmp_path / "b", {"00/track00000.webp": picture(0, 25, 6)}))


def show(session, number, frame):
    """A frame whose first pixel tells which it is."""
    pixels = np.full((4, 4, 3), 9, np.uint8)
    pixels[0, 0] = (session, number, frame)
    return pixels


@pytest.fixture
def filmed(tmp_path):
    """Sessions 1, 3, 10 and 11 with objects 1, 5, 6 and 50: 45 frames each."""
    folder = layouts.core50(tmp_path, (1, 3, 10, 11), (1, 5, 6, 50), 45, show)
    (folder / layouts.core50_frame(11, 6, 20)).unlink()  # missing, as some are in the real set
    return folder


def test_core50_by_hand(filmed):
    train, test = core50(filmed)
    assert (len(train), len(test)) == (2 * 4 * 3, 2 * 4 * 3)
    assert (set(train.sessions.tolist()), set(test.sessions.tolist())) == ({1, 11}, {3, 10})
    assert train.objects.tolist() == [n for n in (1, 5, 6, 50) for _ in range(3)] * 2
    assert [train.names[label] for label in train.labels[:12:3]] == [
        "plug_adapter", "plug_adapter", "mobile_phone", "remote_control",
    ]  # fmt: skip
    assert train.frames.tolist() == [0, 1, 2] * 8
    shown = train.images[:, 0, 0].tolist()
    assert shown[:3] == [[1, 1, 0], [1, 1, 20], [1, 1, 40]]
    gap = (train.sessions == 11) & (train.objects == 6)
    assert train.images[gap][:, 0, 0, 2].tolist() == [0, 21, 41]  # by place in the clip, not by number
    assert train.keys[1] == "s1/o1/C_01_01_020.png"


def test_core50_fifteen_a_clip(tmp_path, tree, encoded):
    tiny = encoded(np.zeros((1, 1, 3), np.uint8))
    train, test = core50(tree(tmp_path, {layouts.core50_frame(2, 7, frame): tiny for frame in range(301)}))
    assert (len(train), len(test)) == (15, 0)
    assert [int(key[-7:-4]) for key in train.keys] == list(range(0, 300, 20))


def test_core50_zip_is_directory_and_large_is_lazy(filmed, zipped, tmp_path, monkeypatch):
    packed = zipped(filmed, tmp_path / "core50_128x128.zip", top="core50_128x128/")
    eager = core50(filmed)
    for one, other in zip(eager, core50(packed), strict=True):
        assert one.fingerprint() == other.fingerprint()
    monkeypatch.setattr(files, "EAGER_BYTES", 100)
    for one, other in zip(eager, core50(packed), strict=True):
        assert isinstance(other.images, LazyImages)
        assert one.identities() == other.identities()
        assert (one.images == np.stack(list(other.images))).all()


def test_core50_refused(tmp_path, tree, picture):
    with pytest.raises(ValueError, match="no frames"):
        core50(tree(tmp_path / "a", {"x.png": picture(0)}))
    with pytest.raises(ValueError, match="object o51 of session s1"):
        core50(tree(tmp_path / "b", {layouts.core50_frame(1, 51, 0): picture(0)}))


def test_cifar100_strips(tmp_path, tree, zipped, picture):
    content = {"train/00_apple.webp": picture(0, 12, 4), "train/01_aquarium_fish.webp": picture(1, 8, 4)}
    content |= {
        "test/00_apple.webp": picture(2, 4, 4),
        "test/01_aquarium_fish.webp": picture(3, 4, 4),
        "meta.json": "{}",
    }
    folder = tree(tmp_path / "c", content)
    train, test = load_dataset("cifar100", zipped(folder, tmp_path / "cifar100.zip").parent)
    assert (train.name, train.names) == ("cifar100", ("apple", "aquarium_fish"))
    assert (train.labels.tolist(), test.labels.tolist()) == ([0, 0, 0, 1, 1], [0, 1])
    assert (train.images[:3] == picture(0, 12, 4).reshape(3, 4, 4, 3)).all()
    assert cifar100_strips(folder)[0].fingerprint() == train.fingerprint()
    (folder / "test/01_aquarium_fish.webp").unlink()
    with pytest.raises(ValueError, match="of the same classes"):
        cifar100_strips(folder)
