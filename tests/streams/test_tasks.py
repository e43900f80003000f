"""Tasks one after another: each in the order it has alone, tested with all tasks before it."""

from dataclasses import replace

import numpy as np
import pytest

from coldstream.data import Dataset
from coldstream.streams import Event, TaskStream, make_stream, make_task_stream


def rows(first, names, per_class=4):
    """Examples of some classes that show numbers from `first` on, a class after another."""
    return [(name, 0, 0, 0, first + i) for i, name in enumerate(n for n in names for _ in range(per_class))]


@pytest.fixture
def pets(build):
    return build(rows(0, ("cat", "dog", "eel")), clips=False)


@pytest.fixture
def plants(build):
    return build(rows(50, ("oak", "ivy"), per_class=5), clips=False)


@pytest.mark.parametrize("ordering", ["class-incremental", "iid", "class-iid"])
def test_a_task_comes_as_it_comes_alone(pets, plants, ordering):
    for seed in range(5):
        alone = make_stream(plants, ordering, seed)
        for others in ({"first": pets}, {"first": pets, "second": pets.take(np.arange(5))}):
            stream = make_task_stream({**others, "mine": plants}, ordering, seed)
            np.testing.assert_array_equal(stream.parts["mine"].order, alone.order)
    orders = {tuple(make_task_stream({"a": pets}, ordering, seed).parts["a"].order) for seed in range(5)}
    assert len(orders) > 1


def test_examples_in_turn(pets, plants):
    stream = make_task_stream({"pets": pets, "plants": plants}, "class-incremental", 3)
    assert len(stream) == 22
    assert (stream.starts, stream.ends) == ({"pets": 0, "plants": 12}, {"pets": 12, "plants": 22})
    examples = [stream.example(step) for step in range(22)]
    assert [task for _, _, task in examples] == ["pets"] * 12 + ["plants"] * 10
    numbers = [int(image.reshape(-1)[0]) for image, _, _ in examples]
    assert sorted(numbers) == [*range(12), *range(50, 60)]
    names = {
        **dict.fromkeys(range(4), "cat"),
        **dict.fromkeys(range(4, 8), "dog"),
        **dict.fromkeys(range(8, 12), "eel"),
    }
    names |= {**dict.fromkeys(range(50, 55), "oak"), **dict.fromkeys(range(55, 60), "ivy")}
    assert [label for _, label, _ in examples] == [names[number] for number in numbers]


def test_every_task_so_far_is_tested_when_one_ends(pets, plants):
    tasks = {"pets": pets, "plants": plants, "more": pets}
    stream = make_task_stream(tasks, "class-incremental", 0)
    assert [(event.step, event.task) for event in stream.events] == [
        *[(12, "pets"), (22, "pets"), (22, "plants")],
        *[(34, "pets"), (34, "plants"), (34, "more")],
    ]
    assert stream.batches == (12, 22, 34)
    for event in stream.events:
        assert sorted(event.classes) == list(range(len(tasks[event.task].names)))


def test_tests_within_a_task(pets, plants):
    stream = make_task_stream({"pets": pets, "plants": plants}, "class-incremental", 0, test_every=1)
    order = [
        list(dict.fromkeys(data.labels[part.order].tolist()))
        for data, part in ((pets, stream.parts["pets"]), (plants, stream.parts["plants"]))
    ]
    assert stream.events == (
        Event(4, tuple(order[0][:1]), task="pets"),
        Event(8, tuple(order[0][:2]), task="pets"),
        Event(12, tuple(order[0]), task="pets"),
        Event(17, tuple(order[0]), task="pets"),
        Event(17, tuple(order[1][:1]), task="plants"),
        Event(22, tuple(order[0]), task="pets"),
        Event(22, tuple(order[1]), task="plants"),
    )
    assert stream.batches == (4, 8, 12, 17, 22)
    shuffled = make_task_stream({"pets": pets, "plants": plants}, "iid", 0, batches=2)
    assert shuffled.batches == (6, 12, 17, 22)
    assert [event.scope for event in shuffled.events] == ["all"] * 6


def test_ids_differ_between_tasks_of_the_same_images(pets):
    stream = make_task_stream({"one": pets, "two": pets}, "iid", 0)
    ids = stream.ids()
    assert ids[:12] == stream.parts["one"].ids()
    assert len(set(ids)) == 24
    marks = stream.parts["two"].identities()
    assert ids[12:] == [f"{mark}#2" for mark in marks]


def test_without_tasks_it_is_the_stream_it_was(pets):
    for ordering, options in (("class-incremental", {"test_every": 2}), ("iid", {}), ("class-iid", {})):
        alone = make_stream(pets, ordering, 4, **options)
        stream = make_task_stream({None: pets}, ordering, 4, **options)
        assert (stream.events, stream.batches, stream.ids()) == (alone.events, alone.batches, alone.ids())
        assert stream.fingerprint() == alone.fingerprint()
        assert stream.tasks == []
        for step, index in enumerate(alone.order):
            image, label, task = stream.example(step)
            assert (image.tobytes(), label, task) == (
                pets.images[index].tobytes(),
                pets.names[pets.labels[index]],
                None,
            )


def test_fingerprints_tell_what_differs(pets, plants):
    def mark(tasks, **options):
        return make_task_stream(tasks, "class-incremental", 0, **options).fingerprint()

    both = {"pets": pets, "plants": plants}
    different = [
        mark(both),
        mark({"plants": plants, "pets": pets}),
        mark({"pets": plants, "plants": pets}),
        mark({"pets": pets, "trees": plants}),
        mark({"pets": pets}),
        mark({None: pets}),
        mark(both, test_every=1),
    ]
    assert len(set(different)) == len(different)
    stored = np.random.default_rng(0).permutation(len(pets))
    assert mark({"pets": pets.take(stored), "plants": plants}) == mark(both)
    late = make_task_stream(both, "class-incremental", 0)
    other = replace(late.parts["plants"], order=late.parts["plants"].order[::-1])
    assert TaskStream({**late.parts, "plants": other}).fingerprint() != mark(both)


def test_images_of_different_kinds_side_by_side(pets):
    tall = Dataset("tall", np.zeros((4, 9, 2, 1), np.uint8), np.array([0, 0, 1, 1]), ("cat", "x"), keys=tuple("abcd"))
    stream = make_task_stream({"pets": pets, "tall": tall}, "iid", 0)
    assert [stream.example(step)[0].shape for step in (0, 11, 12, 15)] == [(1, 2, 3)] * 2 + [(9, 2, 1)] * 2


@pytest.mark.parametrize(
    ("tasks", "options", "message"),
    [
        ({}, {}, "no task"),
        ({None: 1, "pets": 1}, {}, "not both"),
        ({"pets": 1}, {"class_order": ["cat", "dog", "eel"]}, "classes of one data set"),
        ({"pets": 1}, {"batches": 2}, "does not use batches"),
    ],
)
def test_what_is_refused(pets, tasks, options, message):
    with pytest.raises(ValueError, match=message):
        make_task_stream(dict.fromkeys(tasks, pets), "class-incremental", 0, **options)
