"""Orders of a stream: each example once, the same whatever the storage, classes one after another."""

import numpy as np
import pytest

from coldstream.data import Dataset, digits
from coldstream.streams import make_stream


@pytest.fixture(scope="module")
def train():
    return digits()[0]


@pytest.mark.parametrize("ordering", ["class-incremental", "iid"])
def test_each_example_once_and_the_last_event_at_the_end(train, ordering):
    stream = make_stream(train, ordering, 3, 2)
    np.testing.assert_array_equal(np.sort(stream.order), np.arange(len(train)))
    assert stream.events[-1].step == len(train)
    assert len(stream.events) == 5


def test_classes_come_one_after_another_and_tests_are_on_those_seen(train):
    stream = make_stream(train, "class-incremental", 3, 3)
    labels = train.labels[stream.order]
    assert (np.diff(labels) != 0).sum() == 9
    for event in stream.events:
        assert set(labels[: event.step].tolist()) == set(event.classes)
    assert [len(event.classes) for event in stream.events] == [3, 6, 9, 10]


@pytest.mark.parametrize("ordering", ["class-incremental", "iid"])
def test_independent_of_how_the_data_is_stored(train, ordering):
    shuffled = np.random.default_rng(0).permutation(len(train))
    renamed = np.random.default_rng(1).permutation(10)
    other = Dataset(
        "other",
        train.images[shuffled],
        renamed[train.labels[shuffled]],
        tuple(train.names[i] for i in np.argsort(renamed)),
    )
    one, two = (make_stream(data, ordering, 5, 2) for data in (train, other))
    np.testing.assert_array_equal(train.images[one.order], other.images[two.order])
    names = [[data.names[c] for c in s.events[0].classes] for data, s in ((train, one), (other, two))]
    assert sorted(names[0]) == sorted(names[1])


def test_seeds(train):
    orders = [make_stream(train, "class-incremental", seed, 2).order for seed in (0, 0, 1)]
    np.testing.assert_array_equal(orders[0], orders[1])
    assert (orders[0] != orders[2]).any()


def test_class_order_is_uniform():
    images = np.arange(4, dtype=np.uint8).reshape(4, 1, 1, 1)
    data = Dataset("four", images, np.arange(4), ("a", "b", "c", "d"))
    firsts = np.bincount(
        [make_stream(data, "class-incremental", seed, 1).order[0] for seed in range(800)], minlength=4
    )
    assert ((firsts - 200) ** 2 / 200).sum() < 16.3  # chi-square with 3 degrees of freedom, p = 0.001


def test_digits_are_split_within_each_class():
    train, test = digits()
    assert len(train) + len(test) == 1797
    for label in range(10):
        share = (test.labels == label).sum() / ((train.labels == label).sum() + (test.labels == label).sum())
        assert share == pytest.approx(0.2, abs=0.01)
    assert train.images.dtype == np.uint8
    assert train.images.max() == 255
    together = {image.tobytes() for image in train.images} & {image.tobytes() for image in test.images}
    assert len(together) <= 2
