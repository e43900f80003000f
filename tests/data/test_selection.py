"""`select` is a pure function of what the examples are."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coldstream.data import Dataset, digits, select
from coldstream.data.selection import split_fifth

NAMES = ("pear", "fig", "apple", "kiwi", "date")


def make(labels, offset=0, keyed=False):
    images = np.arange(offset, offset + len(labels), dtype=np.uint32).view(np.uint8).reshape(-1, 1, 4, 1)
    keys = tuple(f"{i + offset}.png" for i in range(len(labels))) if keyed else None
    return Dataset("fruit", images, np.array(labels, np.int64), NAMES, keys=keys)


label_lists = st.lists(st.integers(0, 4), min_size=1, max_size=40)
limits = st.none() | st.integers(1, 6)


@given(label_lists, label_lists, st.data(), limits, limits, st.booleans())
def test_properties(train_labels, test_labels, data, per_class, test_per_class, keyed):
    train, test = make(train_labels, 0, keyed), make(test_labels, 1000, keyed)
    used = sorted({NAMES[label] for label in train_labels + test_labels})
    classes = data.draw(st.none() | st.integers(1, len(used)) | st.lists(st.sampled_from(used), min_size=1))
    shuffled = train.take(np.array(data.draw(st.permutations(range(len(train))))))
    options = {"classes": classes, "per_class": per_class, "test_per_class": test_per_class}
    small, small_test = select(train, test, **options)

    assert select(shuffled, test, **options)[0].fingerprint() == small.fingerprint()
    wanted = set(used if classes is None else used[:classes] if isinstance(classes, int) else classes)
    assert small.names == small_test.names == tuple(name for name in NAMES if name in wanted)
    for before, after, limit in ((train, small, per_class), (test, small_test, test_per_class)):
        for name in wanted:
            had = (before.labels == NAMES.index(name)).sum()
            has = (after.labels == after.names.index(name)).sum()
            assert has == (had if limit is None else min(had, limit))
        # each example keeps its class, and they keep their order
        had = {mark: NAMES[label] for mark, label in zip(before.identities(), before.labels, strict=True)}
        marks = after.identities()
        assert [had[mark] for mark in marks] == [after.names[label] for label in after.labels]
        assert marks == [mark for mark in had if mark in set(marks)]


def test_more_contain_fewer():
    train, test = digits()
    few, more = (set(select(train, test, per_class=n)[0].identities()) for n in (7, 8))
    assert few < more


def test_clips_keep_the_order_of_frames():
    frames = np.tile(np.arange(10), 2)
    labels, images = np.zeros(20, int), np.arange(20, dtype=np.uint8).reshape(20, 1, 1, 1)
    clips = Dataset("clips", images, labels, ("a",), np.repeat([1, 2], 10), np.zeros(20, int), frames)
    part, _ = select(clips, clips, per_class=11)
    assert len(part) == 11
    for number in (1, 2):
        assert (np.diff(part.frames[part.objects == number]) > 0).all()
    # equal pixels are told apart by the clip
    same = Dataset("same", images * 0, labels, ("a",), clips.objects, clips.sessions, frames)
    for order in (np.arange(20), np.arange(20)[::-1]):
        part, _ = select(same.take(order), same, per_class=3)
        assert sorted(zip(part.objects.tolist(), part.frames.tolist(), strict=True)) == [(1, 0), (1, 1), (1, 2)]


@given(st.lists(st.integers(4, 12), min_size=1, max_size=4), st.integers(1, 3), limits)
def test_validation(sizes, validation, per_class):
    """The number asked for of each class, none of them trained on, the same ones however the set is stored."""
    train = make(np.repeat(np.arange(len(sizes)), sizes).tolist())
    part, held = select(train, make([0], 1000), validation=validation, per_class=per_class)
    assert np.bincount(held.labels).tolist() == [validation] * len(sizes)
    left = [size - validation for size in sizes]
    assert np.bincount(part.labels).tolist() == [n if per_class is None else min(n, per_class) for n in left]
    assert not {*part.identities()} & {*held.identities()}
    assert {*held.identities()} < {*train.identities()}
    backwards = select(train.take(np.arange(len(train))[::-1]), train, validation=validation)[1]
    assert {*backwards.identities()} == {*held.identities()}


def test_validation_leaves_the_first_ones_to_train_on():
    train, test = digits()
    few = select(train, test, per_class=20)[0]
    assert select(train, test, per_class=20, validation=30)[0].fingerprint() == few.fingerprint()


def test_validation_holds_out_whole_clips():
    labels, objects = np.repeat([0, 1], 12), np.tile(np.repeat([1, 2, 3], 4), 2)
    images = np.arange(24, dtype=np.uint8).reshape(24, 1, 1, 1)
    clips = Dataset("clips", images, labels, ("a", "b"), objects, np.zeros(24, int), np.tile(np.arange(4), 6))
    part, held = select(clips, clips, validation=5)
    for label in (0, 1):
        trained, tested = (set(one.objects[one.labels == label].tolist()) for one in (part, held))
        assert (len(trained), len(tested), trained & tested) == (1, 2, set())


def test_names_that_one_set_does_not_have():
    train = Dataset("a", np.zeros((2, 1, 1, 1), np.uint8), np.array([0, 1]), ("x", "y"))
    test = Dataset("a", np.zeros((2, 1, 1, 1), np.uint8), np.array([0, 1]), ("z", "x"))
    small, small_test = select(train, test, classes=["x", "z"])
    assert small.names == small_test.names == ("x", "z")
    assert (small.labels.tolist(), small_test.labels.tolist()) == ([0], [1, 0])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"classes": ["appel"]}, "unknown class of 'fruit' 'appel'; did you mean 'apple'"),
        ({"classes": 6}, "between 1 and the 5 of 'fruit', got 6"),
        ({"classes": 0}, "between 1"),
        ({"classes": "apple"}, "a list of at least one name"),
        ({"classes": []}, "a list of at least one name"),
        ({"per_class": 0}, "per_class must be at least 1"),
        ({"test_per_class": -1}, "test_per_class must be at least 1"),
        ({"validation": 0}, "validation must be at least 1"),
        ({"validation": 1}, "class 'pear' of 'fruit' has 1 training examples, and some must be left"),
    ],
)
def test_refused(options, message):
    both = make([0, 1, 2, 3, 4])
    with pytest.raises(ValueError, match=message):
        select(both, both, **options)


@given(st.permutations(range(23)))
def test_split_fifth(order):
    labels = np.array([0] * 14 + [1] * 5 + [2] * 4)
    marks = [f"{i}.png" for i in range(23)]
    train, test = split_fifth(labels, marks)
    assert np.bincount(labels[test], minlength=3).tolist() == [2, 1, 0]
    assert sorted([*train, *test]) == list(range(23))
    _, again = split_fifth(labels[order], [marks[i] for i in order])
    assert {order[i] for i in again} == set(test.tolist())
