"""Every ordering of every small data set, against a plain count by hand."""

from itertools import groupby, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coldstream.streams import ORDERINGS, draw_class_order, make_stream

SEEDS = st.integers(0, 2**63)
CLASS_ORDERINGS = [name for name, ordering in ORDERINGS.items() if "class_order" in ordering.options]


@st.composite
def rows(draw):
    """Classes of different sizes; clips of different lengths; images, and whole rows, that come twice."""
    names = draw(st.lists(st.text("abAB 01é#", min_size=1, max_size=3), min_size=1, max_size=6, unique=True))
    keys = st.tuples(st.integers(0, 3), st.integers(-1, 2))
    frames = st.lists(st.integers(0, 9), min_size=1, max_size=4)
    shows = st.integers(0, 20)
    return [
        (name, *key, frame, draw(shows))
        for name in names
        for key, clip in draw(st.dictionaries(keys, frames, min_size=1, max_size=5)).items()
        for frame in clip
    ]


def streamed(stream, rows):
    """Return the rows as they come, batch by batch."""
    cuts = [0, *stream.batches]
    return [[rows[i] for i in stream.order[a:b]] for a, b in pairwise(cuts)]


def runs(batch, key):
    return [name for name, _ in groupby(batch, key=key)]


def in_groups(names, size):
    groups = []
    for name in names:
        if not groups or len(groups[-1]) == size:
            groups.append([])
        groups[-1].append(name)
    return groups


@pytest.mark.parametrize("ordering", ORDERINGS)
@settings(max_examples=40, deadline=None, derandomize=True)
@given(rows=rows(), seed=SEEDS)
def test_each_example_once_in_batches_that_cover(build, ordering, rows, seed):
    stream = make_stream(build(rows), ordering, seed)
    assert stream.order.dtype == np.int64
    assert sorted(stream.order.tolist()) == list(range(len(rows)))
    assert stream.batches[-1] == len(rows)
    assert all(a < b for a, b in zip((0, *stream.batches), stream.batches, strict=False))
    assert [event.step for event in stream.events] == list(stream.batches)


@pytest.mark.parametrize("ordering", CLASS_ORDERINGS)
@settings(max_examples=40, deadline=None, derandomize=True)
@given(rows=rows(), seed=SEEDS, size=st.integers(1, 7), reverse=st.booleans())
def test_batches_of_classes_by_hand(build, ordering, rows, seed, size, reverse):
    data = build(rows)
    option = {"test_every" if ordering == "class-incremental" else "classes_per_batch": size}
    order = draw_class_order(data, seed)[:: -1 if reverse else 1]
    stream = make_stream(data, ordering, seed, **option, class_order=order)
    groups = in_groups(order, size)
    assert len(stream.batches) == len(groups)
    done, seen = 0, []
    for batch, end, event, group in zip(streamed(stream, rows), stream.batches, stream.events, groups, strict=True):
        assert sorted(batch) == sorted(row for row in rows if row[0] in group)
        done += len(batch)
        seen += group
        assert (end, event.step, event.scope) == (done, done, "seen")
        assert [data.names[label] for label in event.classes] == seen
        if ordering == "class-incremental":
            assert runs(batch, key=lambda row: row[0]) == group
    if not reverse:
        drawn = make_stream(data, ordering, seed, **option)
        assert drawn.fingerprint() == stream.fingerprint()
        np.testing.assert_array_equal(drawn.order, stream.order)


@pytest.mark.parametrize("ordering", ["iid", "instance"])
@settings(max_examples=40, deadline=None, derandomize=True)
@given(rows=rows(), seed=SEEDS, batches=st.none() | st.integers(1, 8))
def test_equal_batches_by_hand(build, ordering, rows, seed, batches):
    data = build(rows)
    piece = (lambda row: row[:3]) if ordering == "instance" else (lambda row: object())
    pieces = len({row[:3] for row in rows}) if ordering == "instance" else len(rows)
    if batches is not None and batches > pieces:
        with pytest.raises(ValueError, match=f"{pieces} (clips|examples) of 'rows' cannot fill {batches} batches"):
            make_stream(data, ordering, seed, batches=batches)
        return
    stream = make_stream(data, ordering, seed, batches=batches)
    sizes = [len(runs(batch, piece)) for batch in streamed(stream, rows)]
    assert len(sizes) == (batches or min(5, pieces))
    assert sum(sizes) == pieces
    assert max(sizes) - min(sizes) <= 1
    for event in stream.events:
        assert event.scope == "all"
        assert [data.names[label] for label in event.classes] == sorted({row[0] for row in rows})


@pytest.mark.parametrize("ordering", ["instance", "class-instance"])
@settings(max_examples=40, deadline=None, derandomize=True)
@given(rows=rows(), seed=SEEDS)
def test_clips_stay_whole_with_frames_in_order(build, ordering, rows, seed):
    batches = streamed(make_stream(build(rows), ordering, seed), rows)
    clips = [(number, key) for number, batch in enumerate(batches) for key in runs(batch, lambda row: row[:3])]
    assert sorted(key for _, key in clips) == sorted({row[:3] for row in rows})
    for batch in batches:
        for _, clip in groupby(batch, key=lambda row: row[:3]):
            frames = [row[3] for row in clip]
            assert frames == sorted(frames)


@pytest.mark.parametrize("ordering", ORDERINGS)
@settings(max_examples=40, deadline=None, derandomize=True)
@given(rows=rows(), seed=SEEDS, data=st.data())
def test_independent_of_how_the_data_is_stored(build, ordering, rows, seed, data):
    stored = build(rows)
    moved = data.draw(st.permutations(rows))
    names = data.draw(st.permutations([*stored.names, "a class without examples"]))
    other = build(moved, names)
    one, two = make_stream(stored, ordering, seed), make_stream(other, ordering, seed)
    assert streamed(one, rows) == streamed(two, moved)
    for a, b in zip(one.events, two.events, strict=True):
        assert (a.step, a.scope) == (b.step, b.scope)
        assert [stored.names[label] for label in a.classes] == [other.names[label] for label in b.classes]
    assert one.batches == two.batches
    assert one.fingerprint() == two.fingerprint()


@settings(max_examples=40, deadline=None, derandomize=True)
@given(rows=rows(), seed=SEEDS)
def test_class_orderings_of_one_seed_take_the_classes_alike(build, rows, seed):
    data = build(rows)
    order = draw_class_order(data, seed)
    for ordering in CLASS_ORDERINGS:
        last = make_stream(data, ordering, seed).events[-1]
        assert [data.names[label] for label in last.classes] == order
