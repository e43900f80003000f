"""Orders of a stream: each example once, the same whatever the storage, classes one after another."""

import inspect
from dataclasses import replace
from itertools import groupby

import numpy as np
import pytest

from coldstream.data import Dataset, digits
from coldstream.streams import ORDERINGS, Event, make_stream, orderings


@pytest.fixture(scope="module")
def train():
    return digits()[0]


@pytest.mark.parametrize("ordering", ["class-incremental", "iid"])
def test_each_example_once_and_the_last_event_at_the_end(train, ordering):
    stream = make_stream(train, ordering, 3, **({"test_every": 2} if ordering == "class-incremental" else {}))
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
    one, two = (make_stream(data, ordering, 5) for data in (train, other))
    np.testing.assert_array_equal(train.images[one.order], other.images[two.order])
    names = [[data.names[c] for c in s.events[0].classes] for data, s in ((train, one), (other, two))]
    assert sorted(names[0]) == sorted(names[1])


def test_ids_are_identities_and_equal_images_have_their_own(build):
    rows = [("a", 0, 0, 0, 7), ("a", 0, 0, 1, 7), ("b", 1, 0, 0, 7), ("b", 1, 0, 1, 8)]
    data = build(rows, clips=False)
    seven, eight = data.identities()[0], data.identities()[3]
    stream = replace(make_stream(data, "iid", 0), order=np.array([3, 1, 2, 0]))
    assert stream.ids() == [eight, seven, f"{seven}#2", f"{seven}#3"]
    named = replace(data, keys=("x", "x", "x#2", "x"))
    assert replace(stream, dataset=named, order=np.arange(4)).ids() == ["x", "x#2", "x#2#2", "x#3"]
    order = np.array([2, 0, 3, 1])
    other = data.take(order)
    for ordering in ("iid", "class-iid", "class-incremental"):
        assert make_stream(data, ordering, 1).ids() == make_stream(other, ordering, 1).ids()


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


def test_core50_like_numbers(build, grid):
    rows = grid(classes=10, objects=5, sessions=8, frames=15)
    data = build(rows)
    ends = tuple(range(1200, 6001, 1200))
    for ordering in ("iid", "class-iid", "instance", "class-instance"):
        stream = make_stream(data, ordering, 3)
        assert stream.batches == ends
        tested = [10] * 5 if ordering in ("iid", "instance") else [2, 4, 6, 8, 10]
        assert [(event.step, len(event.classes)) for event in stream.events] == list(zip(ends, tested, strict=True))
        if "instance" in ordering:
            clips = [[rows[i][:3] for i in stream.order[end - 1200 : end]] for end in ends]
            assert [len(list(groupby(batch))) for batch in clips] == [80] * 5
        assert len(set(data.labels[stream.order[:1200]].tolist())) == (2 if "class" in ordering else 10)


def test_gtsrb_like_numbers(build, grid):
    data = build(grid(classes=43, objects=3, sessions=1, frames=2))
    for ordering in ("class-iid", "class-instance"):
        stream = make_stream(data, ordering, 0)
        assert stream.batches == (*range(12, 253, 12), 258)
        assert [len(event.classes) for event in stream.events] == [*range(2, 43, 2), 43]


@pytest.mark.parametrize("ordering", ORDERINGS)
def test_one_seed_one_stream(build, grid, ordering):
    data = build(grid(4, 2, 2, 2))
    streams = [make_stream(data, ordering, seed) for seed in (0, 0, 1, 2, 3)]
    np.testing.assert_array_equal(streams[0].order, streams[1].order)
    prints = [stream.fingerprint() for stream in streams]
    assert prints[0] == prints[1]
    assert len(set(prints)) == 4


def test_the_fingerprint_sees_every_part(build, grid):
    rows = grid(4, 2, 2, 2)
    data = build(rows)
    stream = make_stream(data, "class-incremental", 0, 2)
    first, *others = stream.events
    renamed = build([(f"the {row[0]}", *row[1:]) for row in rows])
    redrawn = build([(*row[:4], row[4] + 1) for row in rows])
    all_different = [
        stream,
        make_stream(data, "class-incremental", 0, 1),
        make_stream(data, "class-incremental", 1, 2),
        make_stream(data, "class-iid", 0),
        replace(stream, order=stream.order[::-1]),
        replace(stream, batches=stream.batches[1:]),
        replace(stream, events=tuple(others)),
        replace(stream, events=(Event(first.step, first.classes, "all"), *others)),
        replace(stream, events=(Event(first.step, first.classes[:1]), *others)),
        replace(stream, events=(Event(first.step - 1, first.classes), *others)),
        replace(stream, dataset=renamed),
        replace(stream, dataset=redrawn),
    ]
    assert len({one.fingerprint() for one in all_different}) == len(all_different)


def test_the_fingerprint_knows_where_a_name_ends():
    images = np.zeros((2, 1, 1, 1), np.uint8)
    one, two = (
        make_stream(Dataset("files", images, np.array([0, 0]), ("a",), keys=keys), "iid", 0)
        for keys in (("1", "a2"), ("1a", "2"))
    )
    assert replace(one, order=np.arange(2)).fingerprint() != replace(two, order=np.arange(2)).fingerprint()


@pytest.mark.parametrize("ordering", ["class-iid", "class-instance"])
def test_classes_of_one_batch_have_no_order_in_it(build, grid, ordering):
    data = build(grid(2, 2, 2, 2))
    one, two = (make_stream(data, ordering, 0, class_order=order) for order in (data.names, data.names[::-1]))
    np.testing.assert_array_equal(one.order, two.order)


class Unread:
    """Images that must not be read: an order needs only their identities."""

    def __len__(self):
        return 6

    def __getitem__(self, index):
        raise AssertionError("an image was read")


@pytest.mark.parametrize("ordering", ["class-incremental", "iid", "class-iid"])
def test_identities_are_enough(ordering):
    keys = ("a/2", "a/0", "a/1", "b/0", "b/2", "b/1")
    data = Dataset("files", Unread(), np.array([0, 0, 0, 1, 1, 1]), ("a", "b"), keys=keys)
    stream = make_stream(data, ordering, 0)
    assert sorted(stream.order) == list(range(6))
    assert stream.fingerprint()


@pytest.mark.parametrize("ordering", ["instance", "class-instance"])
def test_sets_without_clips(build, grid, ordering):
    whole = r"has no objects and no sessions and no frames to make them of; it can be ordered .*, iid, class-iid$"
    with pytest.raises(ValueError, match=whole):
        make_stream(build(grid(2, 1, 1, 2), clips=False), ordering, 0)
    partly = replace(build(grid(2, 1, 1, 2)), sessions=None)
    with pytest.raises(ValueError, match="data set 'rows' has no sessions to make them of"):
        make_stream(partly, ordering, 0)


def test_objects_of_one_number_in_two_classes_are_two(build):
    rows = [(name, 1, 1, frame, frame) for name in "ab" for frame in range(3)]
    for seed in range(5):
        order = make_stream(build(rows), "instance", seed).order.tolist()
        assert order in ([0, 1, 2, 3, 4, 5], [3, 4, 5, 0, 1, 2])


def test_orderings_state_the_options_they_take():
    for name, ordering in ORDERINGS.items():
        function = getattr(orderings, name.replace("-", "_"))
        assert (*inspect.signature(function).parameters,) == ("dataset", "seed", *ordering.options)


OPTIONS = {"test_every": 2, "batches": 2, "classes_per_batch": 1, "class_order": ["class 00", "class 01"]}


@pytest.mark.parametrize("ordering", ORDERINGS)
@pytest.mark.parametrize("option", OPTIONS)
def test_options_that_an_ordering_does_not_use_are_refused(build, grid, ordering, option):
    data = build(grid(2, 1, 2, 2))
    if option in ORDERINGS[ordering].options:
        assert make_stream(data, ordering, 0, **{option: OPTIONS[option]})
    else:
        with pytest.raises(ValueError, match=f"ordering '{ordering}' does not use {option}; it takes "):
            make_stream(data, ordering, 0, **{option: OPTIONS[option]})


@pytest.mark.parametrize("wrong", [0, -1, 2.0, True, "2"])
@pytest.mark.parametrize(
    ("ordering", "option"),
    [("class-incremental", "test_every"), ("iid", "batches"), ("class-instance", "classes_per_batch")],
)
def test_options_are_whole_numbers(build, grid, ordering, option, wrong):
    with pytest.raises(ValueError, match=f"{option} must be a whole number of at least 1, got {wrong!r}"):
        make_stream(build(grid(2, 1, 2, 2)), ordering, 0, **{option: wrong})


def test_wrong_names_and_data(build, grid):
    with pytest.raises(ValueError, match="unknown ordering 'class-idd'; did you mean 'class-iid'?"):
        make_stream(build(grid(2, 1, 1, 1)), "class-idd", 0)
    with pytest.raises(ValueError, match="'rows' has no examples to stream"):
        make_stream(build([], ["a"]), "iid", 0)
    with pytest.raises(ValueError, match="several classes of one name: a"):
        make_stream(Dataset("twice", np.zeros((2, 1, 1, 1), np.uint8), np.array([0, 1]), ("a", "a")), "iid", 0)
