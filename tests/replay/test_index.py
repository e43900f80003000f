"""The index against a dict, with ids chosen to collide."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coldstream.replay.index import Index
from coldstream.replay.sampling import SAMPLERS

GOLDEN = 0x9E3779B97F4A7C15
INVERSE = pow(GOLDEN, -1, 1 << 64)


def id_with_home(home, which):
    """Return an id whose bucket is `home` in a table of any size: 2**32 of them share each home."""
    id = ((home << 32 | which) * INVERSE) % (1 << 64)
    assert ((id * GOLDEN) % (1 << 64)) >> 32 == home
    return id - (1 << 64) if id >= 1 << 63 else id


# The last buckets of any table, whose probes run past its end, and the first, which they then meet.
COLLIDING = [id_with_home(home, which) for home in (0xFFFFFFFF, 0xFFFFFFFE, 0, 1) for which in range(15)]
EXTREME = [0, 1, -1, 2**62, -(2**62), 2**63 - 1, -(2**63), 2**32, -(2**32)]
ids = st.one_of(st.sampled_from(COLLIDING), st.sampled_from(EXTREME), st.integers(-(2**63), 2**63 - 1))


class Pair:
    """An index and its model {id: [label, held_out, serial, times]}, changed together."""

    def __init__(self):
        self.index, self.model, self.serial = Index(), {}, 0

    def append(self, id, label, held_out=False):
        self.index.append(id, label, held_out)
        self.serial += 1
        self.model[id] = [label, held_out, self.serial, 0]

    def remove(self, id):
        self.index.remove(self.index.find(id))
        del self.model[id]

    def relabel(self, id, label):
        self.index.relabel(self.index.find(id), label)
        self.model[id][0] = label

    def renew(self, id):
        self.index.renew(self.index.find(id))
        self.serial += 1
        self.model[id][2:] = [self.serial, 0]

    def count(self, id):
        self.index.times[self.index.find(id)] += 1
        self.model[id][3] += 1

    def any(self, number):
        return list(self.model)[number % len(self.model)]

    def check(self, absent=()):
        index, model = self.index, self.model
        assert len(index) == len(model)
        assert sorted(index.ids.view.tolist()) == sorted(model)
        for slot, id in enumerate(index.ids.view.tolist()):
            assert index.find(id) == slot
            assert [index.labels[slot], index.is_held_out(slot), index.serials[slot], index.times[slot]] == model[id]
        for id in absent:
            assert id in model or index.find(id) is None
        assert index.held_out == sum(held_out for _, held_out, *_ in model.values())
        assert index.next_serial == self.serial
        assert len(index.members) == len(index.sizes)
        for label, slots in enumerate(index.members):
            held = slots.view.tolist()
            expected = [id for id, (stored, held_out, *_) in model.items() if stored == label and not held_out]
            assert sorted(index.ids[slot] for slot in held) == sorted(expected)
            assert index.sizes[label] == len(held)
            assert [index.places[slot] for slot in held] == list(range(len(held)))
        assert int(index.sizes.view.sum()) == len(model) - index.held_out
        assert np.count_nonzero(index.table._table) == len(model)


steps = st.lists(
    st.tuples(st.sampled_from("aaaaxxlnt"), ids, st.integers(0, 5), st.booleans(), st.integers(0, 10**6)), max_size=80
)


def apply(pair, step):
    what, id, label, held_out, number = step
    if what == "a" and id not in pair.model:
        pair.append(id, label, held_out)
    elif pair.model:
        old = pair.any(number)
        if what == "x":
            pair.remove(old)
        elif what == "l":
            pair.relabel(old, label)
        elif what == "t":
            pair.count(old)
        else:
            pair.renew(old)


@settings(max_examples=200, deadline=None)
@given(steps)
def test_any_sequence_of_changes(sequence):
    pair = Pair()
    for step in sequence:
        apply(pair, step)
    pair.check(absent=COLLIDING + EXTREME)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.integers(0, len(COLLIDING) - 1)), max_size=150))
def test_ids_that_all_collide(sequence):
    pair = Pair()
    for add, number in sequence:
        id = COLLIDING[number]
        if add and id not in pair.model:
            pair.append(id, 0)
        elif not add and id in pair.model:
            pair.remove(id)
    pair.check(absent=COLLIDING)


@settings(max_examples=60, deadline=None)
@given(steps, steps)
def test_a_restored_index_goes_on_as_the_first_would_have(before, after):
    pair = Pair()
    for step in before:
        apply(pair, step)
    twin = Pair()
    state = {name: array.copy() for name, array in pair.index.state().items()}
    twin.index.restore(state, pair.index.next_serial)
    twin.model, twin.serial = {id: list(entry) for id, entry in pair.model.items()}, pair.serial
    twin.check(absent=COLLIDING)
    for step in after:
        apply(pair, step)
        apply(twin, step)
    twin.check(absent=COLLIDING)
    for name, array in pair.index.state().items():
        np.testing.assert_array_equal(array, twin.index.state()[name])
    for ours, theirs in zip(pair.index.members, twin.index.members, strict=False):
        np.testing.assert_array_equal(ours.view, theirs.view)
    for sample in SAMPLERS.values():
        drawn = [sample(each.index, 3, np.random.default_rng(0)).tolist() for each in (pair, twin)]
        assert drawn[0] == drawn[1]


def test_state_is_a_copy():
    index = Index()
    index.append(5, 0)
    state = index.state()
    index.relabel(0, 3)
    index.renew(0)
    assert state["labels"].tolist() == [0]
    assert state["serials"].tolist() == [1]


def test_thousands_of_rows_come_and_go():
    pair, rng = Pair(), np.random.default_rng(0)
    numbers = rng.integers(-(2**63), 2**63 - 1, 30_000).tolist()
    order = []
    for step, id in enumerate(numbers):
        pair.append(id, step % 7, held_out=step % 11 == 0)
        order.append(id)
        if len(order) > 3_000:
            at = int(rng.integers(len(order)))
            order[at], order[-1] = order[-1], order[at]
            pair.remove(order.pop())
        if step % 10_000 == 9_999:
            pair.check(absent=numbers[:step])
    # Removals leave no gravestones: after ten times its size in them the table is no fuller and no larger.
    table = pair.index.table._table
    assert len(table) == 8_192
    while order:
        pair.remove(order.pop())
    pair.check(absent=numbers)
    assert not table.any()


def test_the_table_is_found_again_in_few_probes():
    index = Index()
    for id in range(0, 4_000_000, 1000):  # regular ids, as those of every thousandth example are
        index.append(id, 0)
    table = index.table
    probes = [(table._bucket(id) - table._home(id)) % len(table._table) for id in index.ids.view.tolist()]
    assert np.mean(probes) < 2
    assert max(probes) < 60


def test_bookkeeping_takes_about_forty_bytes_a_row():
    index = Index()
    for id in range(20_000):
        index.append(id, id % 100)
    assert index.nbytes / 20_000 < 45


@pytest.mark.parametrize("held_out", [False, True])
def test_serials_tell_which_rows_changed(held_out):
    index = Index()
    for id in range(4):
        index.append(id, 0, held_out)
    before = index.serials.view.tolist()
    index.relabel(1, 2)
    assert index.serials.view.tolist() == before
    index.renew(2)
    assert index.serials[2] > max(before)
    index.remove(0)
    assert index.ids.view.tolist() == [3, 1, 2]
    assert index.serials.view.tolist()[:2] == [before[3], before[1]]
    index.append(9, 0)
    assert len(set(index.serials.view.tolist())) == 4
    assert index.serials[3] > index.serials[2]
