"""The one type: what `take` carries, and what identities and fingerprints depend on."""

import hashlib
from dataclasses import replace

import numpy as np
import pytest

from coldstream.data import Dataset, LazyImages, folder
from coldstream.data.files import Files


@pytest.fixture
def clips():
    images = np.arange(6 * 12, dtype=np.uint8).reshape(6, 2, 2, 3)
    numbers = [np.array(column) for column in ([1, 1, 1, 2, 2, 2], [0, 0, 1, 0, 0, 0], [0, 1, 0, 0, 1, 2])]
    return Dataset("clips", images, np.array([0, 0, 0, 1, 1, 1]), ("a", "b"), *numbers)


class Counting:
    """A sequence that is no list, and counts how often it is asked."""

    asked = 0

    def __len__(self):
        return 4

    def __getitem__(self, index):
        if not 0 <= index < 4:
            raise IndexError(index)
        self.asked += 1
        return np.full((1, 1, 3), index, np.uint8)


def test_take_carries_everything(clips):
    keyed = replace(clips, keys=tuple("uvwxyz"))
    part = keyed.take(np.array([5, 0, 2]))
    assert part.labels.tolist() == [1, 0, 0]
    assert (part.images == clips.images[[5, 0, 2]]).all()
    assert [c.tolist() for c in (part.objects, part.sessions, part.frames)] == [[2, 1, 1], [0, 0, 1], [2, 0, 0]]
    assert part.keys == ("z", "u", "w")
    assert keyed.take(clips.labels == 1).keys == ("x", "y", "z")
    assert keyed.take(np.array([-1])).keys == ("z",)
    assert len(keyed.take(np.array([], int))) == 0


def test_take_asks_for_no_image():
    base = Counting()
    dataset = Dataset("lazy", base, np.zeros(4, int), ("a",))
    part = dataset.take(np.array([3, 1, 0])).take(np.array([2, 0]))
    assert base.asked == 0
    assert [int(image[0, 0, 0]) for image in part.images] == [0, 3]
    assert base.asked == 2
    assert [int(image[0, 0, 0]) for image in part.images[1:]] == [3]


def test_take_of_files_decodes_nothing(tmp_path, tree):
    files = Files(tree(tmp_path, {"a.png": b"not an image", "b.png": b"nor this"}))
    dataset = Dataset("broken", LazyImages(files, ["a.png", "b.png"]), np.zeros(2, int), ("a",), keys=("a", "b"))
    part = dataset.take(np.array([1]))
    assert isinstance(part.images, LazyImages)
    assert part.identities() == ["b"]
    with pytest.raises(ValueError, match="b.png"):
        part.images[0]


def test_identities_are_pixels_or_keys(clips):
    image = clips.images[0]
    assert clips.identities()[0] == hashlib.sha256(b"(2, 2, 3)" + image.tobytes()).hexdigest()
    assert replace(clips, keys=tuple("uvwxyz")).identities() == list("uvwxyz")
    as_list = replace(clips, images=list(clips.images))
    assert as_list.identities() == clips.identities()


@pytest.mark.parametrize("keys", [None, tuple("uvwxyz")])
def test_fingerprint_sees_what_and_not_where(clips, keys):
    clips = replace(clips, keys=keys)
    order = np.array([3, 1, 5, 0, 2, 4])
    assert clips.take(order).fingerprint() == clips.fingerprint()
    renumbered = replace(clips, labels=1 - clips.labels, names=("b", "a"))
    assert renumbered.fingerprint() == clips.fingerprint()
    pixel = clips.images.copy()
    pixel[4, 1, 1, 2] ^= 1
    label = clips.labels.copy()
    label[4] = 0
    other = [replace(clips, images=pixel), replace(clips, labels=label), replace(clips, names=("a", "c"))]
    assert len({clips.fingerprint(), clips.take(order[:5]).fingerprint(), *(o.fingerprint() for o in other)}) == 5


def test_fingerprint_of_files_sees_one_edited_in_place(tmp_path, tree, picture):
    content = {f"{label}/{i}.png": picture(i, 4 + i) for label in "ab" for i in range(5)}
    before = folder(tree(tmp_path / "set", content))[0]
    assert isinstance(before.images, LazyImages)
    mark = before.fingerprint()
    content["a/0.png"] = content["a/1.png"] = content["b/0.png"] = content["b/1.png"] = picture(9, 20)
    after = folder(tree(tmp_path / "set", content))[0]
    assert before.identities() == after.identities()
    assert after.fingerprint() != mark


def test_lengths_are_checked(clips):
    for change in ({"objects": np.zeros(5, int)}, {"keys": ("a",)}, {"labels": np.zeros(5, int)}):
        with pytest.raises(ValueError, match="clips.*6"):
            replace(clips, **{"labels": clips.labels, **change})
    with pytest.raises(ValueError, match="indices into its 2 names"):
        replace(clips, labels=clips.labels + 1)
