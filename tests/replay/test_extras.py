"""What a method stores beside an example: it stays with it, whatever happens to slots, and goes when it goes."""

import json

import numpy as np
import pytest

from coldstream.randomness import generator
from coldstream.replay import ReplayBuffer
from coldstream.replay.eviction import EVICTORS

SHAPE = (4, 4, 3)


def image(seed):
    return np.random.default_rng(seed).integers(0, 256, SHAPE, dtype=np.uint8)


def extra(seed):
    return np.random.default_rng(seed).normal(size=seed % 5).astype(np.float32)


def store(buffer, id, label=0, seed=None, **more):
    seed = id if seed is None else seed
    buffer.store(buffer.compress(image(seed)), label, id, extra=extra(seed), **more)


def all_extras(buffer):
    return buffer.extra_of(np.arange(len(buffer)))


def same(one, other):
    return (one is None and other is None) or (one is not None and other is not None and np.array_equal(one, other))


def test_in_the_order_of_the_slots_that_were_asked():
    buffer = ReplayBuffer(SHAPE)
    for id in range(6):
        store(buffer, id, seed=id + 10)
    buffer.store(buffer.compress(image(6)), 0, 6)
    slots = np.array([4, 0, 6, 4, 2])
    expected = [extra(14), extra(10), None, extra(14), extra(12)]
    assert all(map(same, buffer.extra_of(slots), expected))
    assert buffer.extra_of(np.array([], np.int64)) == []


def test_without_any_there_is_none():
    buffer = ReplayBuffer(SHAPE)
    buffer.store(buffer.compress(image(0)), 0, 0)
    assert all_extras(buffer) == [None]
    assert not any(name.startswith("extras") for name in buffer.state()[1])


def test_an_example_that_is_stored_again_has_the_new_one_or_none():
    buffer = ReplayBuffer(SHAPE)
    store(buffer, 7, seed=3)
    store(buffer, 7, seed=4)
    assert same(all_extras(buffer)[0], extra(4))
    store(buffer, 7, seed=2, held_out=True)  # goes to another slot
    assert same(all_extras(buffer)[0], extra(2))
    buffer.store(buffer.compress(image(5)), 0, 7)
    assert all_extras(buffer) == [None]
    assert buffer.extras == {}


@pytest.mark.parametrize("storage", ["memory", "disk"])
@pytest.mark.parametrize("policy", EVICTORS)
def test_a_stream_of_changes_against_a_dict(policy, storage):
    """Every slot has the extra of the image in it, by its pixels; consolidated entries have none."""
    buffer, known, rng = ReplayBuffer(SHAPE, capacity=12, evict=policy, storage=storage), {}, np.random.default_rng(0)
    moved = 0
    for step in range(300):
        ids = buffer.index.ids.view.tolist()
        chance = rng.random()
        if chance < 0.7 or not ids:
            again = bool(ids) and rng.random() < 0.2
            id = int(rng.choice(ids)) if again else step
            with_extra = rng.random() < 0.9
            known[image(step).tobytes()] = extra(step) if with_extra else None
            packed = buffer.compress(image(step))
            buffer.store(packed, step % 3, id, held_out=rng.random() < 0.1, extra=extra(step) if with_extra else None)
            buffer.evict(generator(0, step, "evict"))
        elif chance < 0.8:
            buffer.forget(int(rng.choice(ids)))
        elif chance < 0.9:
            buffer.relabel(int(rng.choice(ids)), int(rng.integers(3)))
        elif chance < 0.95:
            buffer.relabel_class(0, 1)
        else:
            buffer.release(int(rng.choice(ids)))
        after = buffer.index.ids.view.tolist()
        moved += any(id in ids and ids.index(id) != slot for slot, id in enumerate(after))
        slots = np.arange(len(buffer))
        for id, item, kept in zip(after, buffer.items(slots), buffer.extra_of(slots), strict=True):
            assert same(kept, None if id in buffer.blends else known[item.tobytes()])
        assert buffer.extras.keys() <= set(after)
    assert moved > 10
    assert bool(buffer.blends) == ("consolidate" in policy)


def test_a_merge_drops_both():
    buffer = ReplayBuffer(SHAPE)
    for id in range(3):
        store(buffer, id, seed=id + 6)
    buffer.merge(0, 1, image(9), 0.5)
    assert all(map(same, all_extras(buffer), [None, extra(8)]))
    assert [*buffer.extras] == [2]


@pytest.mark.parametrize("count", [1, 2, 40])
def test_saved_and_restored_bit_for_bit(count):
    first = ReplayBuffer(SHAPE, capacity=25, evict="uniform")
    for id in range(count):
        store(first, id, id % 3)
        first.evict(generator(0, id, "evict"))
    plain, arrays = first.state()
    plain, saved = json.loads(json.dumps(plain)), {name: array.copy() for name, array in arrays.items()}
    second = ReplayBuffer(SHAPE, capacity=25, evict="uniform")
    second.restore(plain, saved)
    for row in first.rows.get(np.arange(len(first))):
        second.rows.append(np.frombuffer(bytes(row), np.uint8))
    for kept, id in zip(all_extras(second), first.index.ids.view.tolist(), strict=True):
        assert kept.dtype == np.float32
        np.testing.assert_array_equal(kept, extra(id))

    for id in [*range(count, count + 30), 0, 1]:
        for buffer in (first, second):
            store(buffer, id, id % 3)
            buffer.evict(generator(0, id, "evict"))
    assert [*second.extras] == [*first.extras]
    for kept, id in zip(all_extras(second), first.index.ids.view.tolist(), strict=True):
        np.testing.assert_array_equal(kept, extra(id))
    ends = [buffer.state() for buffer in (first, second)]
    assert ends[0][0] == ends[1][0]
    assert ends[0][1].keys() == ends[1][1].keys()
    assert all(np.array_equal(ends[0][1][name], ends[1][1][name]) for name in ends[0][1])


def test_a_state_is_a_copy():
    buffer = ReplayBuffer(SHAPE)
    for id in (3, 4):
        store(buffer, id)
        _, arrays = buffer.state()
        before = arrays["extras.values"].copy()
        buffer.extras[id] += 1
        np.testing.assert_array_equal(arrays["extras.values"], before)
        buffer.extras[id] -= 1


def test_their_bytes_are_overhead_and_not_the_capacity():
    size = 4 * 4 * 3
    buffer, plain = ReplayBuffer(SHAPE, capacity=f"{10 * size} B"), ReplayBuffer(SHAPE, capacity=f"{10 * size} B")
    for id in range(10):
        buffer.store(buffer.compress(image(id)), 0, id, extra=np.zeros(id, np.float32))
        plain.store(plain.compress(image(id)), 0, id)
        buffer.evict(generator(0, id, "evict"))
    assert len(buffer) == 10
    assert buffer.nbytes == plain.nbytes == 10 * size
    assert buffer.overhead_bytes - plain.overhead_bytes == 4 * sum(range(10))
    buffer.forget(9)
    plain.forget(9)
    assert buffer.overhead_bytes - plain.overhead_bytes == 4 * sum(range(9))
