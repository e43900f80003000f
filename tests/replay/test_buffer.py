"""The whole buffer: capacity, editing by id, storage on disk, checkpoints and the memory it really takes."""

import json
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coldstream.randomness import generator
from coldstream.replay import Capacity, Codec, ReplayBuffer
from coldstream.replay.eviction import EVICTORS

SHAPE = (8, 12, 3)
RAW = 8 * 12 * 3
CODECS = ["raw", "quantize(5)", "resize(0.66)|quantize(6)", "jpeg(80)"]


def image(seed):
    """Noise in a random part of the image, so that JPEG files differ in length."""
    rng = np.random.default_rng(seed)
    out = np.full(SHAPE, rng.integers(256), np.uint8)
    part = int(rng.integers(0, 13))
    out[:, :part] = rng.integers(0, 256, (8, part, 3))
    return out


def store(buffer, id, label, seed=None, held_out=False):
    buffer.store(buffer.compress(image(id if seed is None else seed)), label, id, held_out=held_out)


def contents(buffer):
    """Return everything that can be asked about a buffer, slot by slot."""
    slots = np.arange(len(buffer))
    plain, arrays = buffer.state()
    got = buffer.rows.get(slots)
    return (
        json.loads(json.dumps(plain)),
        {name: array.tolist() for name, array in arrays.items()},
        [bytes(row) for row in got],
        buffer.items(slots).tolist(),
        buffer.targets(slots, 10).tolist(),
        buffer.nbytes,
    )


# Capacity.


@pytest.mark.parametrize(
    ("value", "size", "examples"),
    [
        (None, None, None),
        ("unlimited", None, None),
        ("30MB", 30_000_000, None),
        ("30mb", 30_000_000, None),
        (" 30 Mb ", 30_000_000, None),
        ("1.5GB", 1_500_000_000, None),
        ("0.5MB", 500_000, None),
        (".25KB", 250, None),
        ("1.001KB", 1001, None),
        ("8GiB", 8 * 2**30, None),
        ("2KiB", 2048, None),
        ("1.5MiB", 3 * 2**19, None),
        ("2TB", 2 * 10**12, None),
        ("1TiB", 2**40, None),
        ("4096B", 4096, None),
        ("1_000KB", 1_000_000, None),
        (2000, None, 2000),
        (1, None, 1),
        (2**60 + 1, None, 2**60 + 1),
        ("2000", None, 2000),
        ("2000 examples", None, 2000),
        ("1 example", None, 1),
        ("10_000 examples", None, 10_000),
    ],
)
def test_capacities(value, size, examples):
    assert Capacity.parse(value) == Capacity(bytes=size, examples=examples)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (0, "0 is smaller than one example"),
        (-5, "-5 is smaller than one example"),
        ("0MB", "'0MB' is smaller than one example"),
        ("-1MB", "'-1MB' is smaller than one example"),
        ("0.1B", "'0.1B' is smaller than one example"),
        ("1.5 examples", "not a whole number of examples"),
        ("30 parsecs", "unknown unit 'parsecs'"),
        ("30M", "unknown unit 'm'"),
        ("much", "'much' is not understood"),
        ("", "'' is not understood"),
        ("MB", "'MB' is not understood"),
        ("1.2.3MB", "is not understood"),
        ("1e6", "is not understood"),
        ("nan", "is not understood"),
        ("30MB 20MB", "is not understood"),
        (True, "not True"),
        (2.5, "not 2.5"),
        ([30], r"not \[30\]"),
    ],
)
def test_capacities_that_make_no_sense(value, message):
    with pytest.raises(ValueError, match=message):
        Capacity.parse(value)


@pytest.mark.parametrize("policy", EVICTORS)
@pytest.mark.parametrize("codec", CODECS)
def test_bytes_are_never_over_capacity_after_evicting(codec, policy):
    capacity = 3000
    buffer = ReplayBuffer(SHAPE, codec=codec, capacity=f"{capacity}B", evict=policy)
    was_over = False
    for step in range(80):
        store(buffer, step % 60, step % 4, seed=step)  # the last twenty overwrite, with other bytes
        was_over |= buffer.nbytes > capacity
        buffer.evict(generator(0, step, "evict"))
        got = buffer.rows.get(np.arange(len(buffer)))
        assert buffer.nbytes == sum(map(len, got)) <= capacity
        assert len(buffer) == len(buffer.index) > 0
    assert was_over
    largest = buffer.codec.row_bytes or max(len(buffer.compress(image(seed))) for seed in range(80))
    if "consolidate" not in policy:
        assert buffer.nbytes > capacity - 2 * largest


@pytest.mark.parametrize("policy", EVICTORS)
def test_examples_are_never_over_capacity_after_evicting(policy):
    buffer = ReplayBuffer(SHAPE, capacity=7, evict=policy)
    for step in range(30):
        store(buffer, step, step % 4)
        buffer.evict(generator(0, step, "evict"))
        assert len(buffer) == min(step + 1, 7)
        assert buffer.nbytes == len(buffer) * RAW


def test_one_example_is_room_enough():
    buffer = ReplayBuffer(SHAPE, capacity=f"{RAW}B", evict="largest-class")
    for id in range(20):
        store(buffer, id, id % 2)
        buffer.evict(generator(0, id, "evict"))
        assert len(buffer) == 1


def test_unlimited_keeps_all_and_draws_nothing():
    buffer = ReplayBuffer(SHAPE, evict="uniform")
    rng = np.random.default_rng(0)
    before = rng.bit_generator.state
    for id in range(300):
        store(buffer, id, id % 3)
        buffer.evict(rng)
    assert len(buffer) == 300
    assert rng.bit_generator.state == before


def test_a_capacity_below_one_example_is_refused_at_once():
    ReplayBuffer(SHAPE, capacity=f"{RAW}B")
    with pytest.raises(ValueError, match=rf"capacity of {RAW - 1} bytes is smaller than one example \({RAW} bytes"):
        ReplayBuffer(SHAPE, capacity=f"{RAW - 1}B")
    with pytest.raises(ValueError, match="raise the capacity or compress more"):
        ReplayBuffer((17,), "float32", capacity="67B")


def test_an_item_is_compressed_to_be_checked_only_where_it_may_not_fit(monkeypatch):
    noise = np.random.default_rng(0).integers(0, 256, SHAPE, dtype=np.uint8)
    with pytest.raises(ValueError, match="smaller than one example"):
        ReplayBuffer(SHAPE, codec="jpeg(100)", capacity="700B").check(noise)
    monkeypatch.setattr(Codec, "encode", None)
    for capacity in ("1MB", 3, None):
        ReplayBuffer(SHAPE, codec="jpeg(100)", capacity=capacity).check(noise)


def test_a_jpeg_over_the_capacity_is_refused_when_it_is_compressed():
    buffer = ReplayBuffer(SHAPE, codec="jpeg", capacity="700B")
    plain = np.zeros(SHAPE, np.uint8)
    assert len(buffer.compress(plain)) <= 700
    noise = np.random.default_rng(0).integers(0, 256, SHAPE, dtype=np.uint8)
    with pytest.raises(ValueError, match=r"smaller than one example \(\d+ bytes with codec 'jpeg'\)"):
        buffer.compress(noise)
    assert len(buffer) == 0


def test_sizes_are_reported_apart():
    buffer = ReplayBuffer(SHAPE, codec="quantize(4)")
    for id in range(1000):
        store(buffer, id, 0, seed=0)
    assert buffer.nbytes == 1000 * RAW // 2
    assert 24_000 < buffer.overhead_bytes < 60_000


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"codec": "quantise(6)"}, "did you mean 'quantize'"),
        ({"capacity": "30 parsecs"}, "unknown unit"),
        ({"evict": "oldest"}, "unknown eviction policy 'oldest'"),
        ({"sample": "newest"}, "unknown sampling policy 'newest'"),
        ({"storage": "tape"}, "storage is 'memory', 'disk'"),
    ],
)
def test_wrong_settings_are_refused_at_once(setting, message):
    with pytest.raises(ValueError, match=message):
        ReplayBuffer(SHAPE, **setting)


# What is stored under an id.


def exact(seed, codec):
    buffer = ReplayBuffer(SHAPE, codec=codec)
    store(buffer, 0, 0, seed=seed)
    return buffer.items(np.array([0]))[0]


changes = st.lists(
    st.tuples(
        st.sampled_from(["store", "store", "store", "held", "relabel", "forget", "merge class"]),
        st.sampled_from([0, 1, 2, 3, 4, 5, 6, -1, -(2**63), 2**62]),
        st.integers(0, 4),
        st.integers(0, 30),
    ),
    max_size=40,
)


@pytest.mark.parametrize("codec", CODECS)
@settings(max_examples=40, deadline=None)
@given(changes)
def test_any_edits_against_a_dict(codec, sequence):
    buffer, model = ReplayBuffer(SHAPE, codec=codec), {}
    for what, id, label, seed in sequence:
        if what in ("store", "held"):
            store(buffer, id, label, seed, held_out=what == "held")
            model[id] = [label, seed, what == "held"]
        elif what == "relabel":
            assert buffer.relabel(id, label) == (id in model)
            if id in model:
                model[id][0] = label
        elif what == "forget":
            assert buffer.forget(id) == (model.pop(id, None) is not None)
        else:
            new = seed % 5
            buffer.relabel_class(label, new)
            for entry in model.values():
                entry[0] = new if entry[0] == label else entry[0]
        assert buffer.label_of(id) == (model[id][0] if id in model else None)
    assert len(buffer) == len(model)
    items = buffer.items(np.arange(len(buffer)))
    targets = buffer.targets(np.arange(len(buffer)), 5)
    for id, (label, seed, held_out) in model.items():
        slot = buffer.index.find(id)
        assert buffer.index.ids[slot] == id
        assert buffer.index.is_held_out(slot) == held_out
        assert targets[slot].tolist() == np.eye(5)[label].tolist()
        np.testing.assert_array_equal(items[slot], exact(seed, codec))
    in_training = [label for label, _, held_out in model.values() if not held_out]
    sizes = np.bincount(in_training, minlength=len(buffer.index.sizes)) if in_training else 0
    np.testing.assert_array_equal(buffer.index.sizes.view, sizes)
    assert buffer.nbytes == sum(map(len, buffer.rows.get(np.arange(len(buffer)))))


def test_the_same_id_overwrites_with_another_label():
    buffer = ReplayBuffer(SHAPE)
    for id in range(3):
        store(buffer, id, id)
    serial = buffer.index.serials[1]
    store(buffer, 1, 2, seed=50)
    assert len(buffer) == 3
    assert buffer.nbytes == 3 * RAW
    assert buffer.label_of(1) == 2
    assert buffer.index.serials[1] > serial
    assert buffer.index.sizes.view.tolist() == [1, 0, 2]
    np.testing.assert_array_equal(buffer.items(np.array([1]))[0], image(50))
    np.testing.assert_array_equal(buffer.items(np.array([0, 2])), [image(0), image(2)])


@pytest.mark.parametrize("id", [0, 1])
def test_storing_a_source_of_a_merged_entry_again_replaces_the_entry(id):
    # Its share cannot be taken out of the blend, and it must not be there twice.
    buffer = ReplayBuffer(SHAPE)
    for each in range(3):
        store(buffer, each, each)
    buffer.merge(0, 1, image(9), 0.5)
    store(buffer, id, 4, seed=60)
    assert sorted(buffer.index.ids.view.tolist()) == [id, 2]
    assert [buffer.label_of(each) for each in (id, 1 - id, 2)] == [4, None, 2]
    assert buffer.blends == {}
    assert buffer.blended == {}
    slot = buffer.index.find(id)
    np.testing.assert_array_equal(buffer.items(np.array([slot]))[0], image(60))
    np.testing.assert_array_equal(buffer.targets(np.array([slot]), 5), [np.eye(5)[4]])


def test_editing_what_was_evicted_or_never_there_says_so():
    buffer = ReplayBuffer(SHAPE, capacity=3, evict="uniform")
    for id in range(10):
        store(buffer, id, 0)
        buffer.evict(generator(0, id, "evict"))
    there = set(buffer.index.ids.view.tolist())
    before = contents(buffer)
    for id in [*sorted(set(range(10)) - there), 99, -7]:
        assert not buffer.relabel(id, 1)
        assert not buffer.forget(id)
        assert buffer.label_of(id) is None
    assert contents(buffer) == before
    kept = there.pop()
    assert buffer.relabel(kept, 1)
    assert buffer.label_of(kept) == 1
    assert buffer.forget(kept)
    assert not buffer.forget(kept)
    assert len(buffer) == 2


def test_merging_classes_can_change_which_class_leads_a_merged_entry():
    buffer = ReplayBuffer(SHAPE)
    for id in range(3):
        store(buffer, id, id)
    buffer.merge(1, 2, image(8), 0.5)
    buffer.merge(0, buffer.index.find(1), image(9), 0.4)
    assert buffer.index.labels[0] == 0
    np.testing.assert_allclose(buffer.targets(np.array([0]), 3), [[0.4, 0.3, 0.3]], rtol=1e-6)
    buffer.relabel_class(2, 1)
    np.testing.assert_allclose(buffer.targets(np.array([0]), 3), [[0.4, 0.6, 0]], rtol=1e-6)
    assert buffer.index.labels[0] == 1
    assert buffer.index.sizes.view.tolist() == [0, 1, 0]
    assert [buffer.label_of(id) for id in range(3)] == [0, 1, 1]


def test_targets_follow_the_rows_asked_for():
    buffer = ReplayBuffer(SHAPE)
    for id, label in enumerate([3, 0, 2]):
        store(buffer, id, label)
    targets = buffer.targets(np.array([2, 0, 2]), 5)
    assert targets.dtype == np.float32
    np.testing.assert_array_equal(targets, np.eye(5)[[2, 3, 2]])
    assert buffer.targets(np.empty(0, np.int64), 5).shape == (0, 5)
    assert buffer.items(np.empty(0, np.int64)).shape == (0, *SHAPE)
    buffer.merge(0, 1, image(9), 0.75)
    np.testing.assert_array_equal(buffer.targets(np.array([1, 0]), 5), [np.eye(5)[2], [0.25, 0, 0, 0.75, 0]])


def test_held_out_examples_are_stored_but_not_sampled():
    buffer = ReplayBuffer(SHAPE)
    for id in range(10):
        store(buffer, id, 0, held_out=id % 2 == 0)
    assert len(buffer) == 10
    slots = buffer.sample(10, np.random.default_rng(0))
    assert sorted(buffer.index.ids.view[slots].tolist()) == [1, 3, 5, 7, 9]
    store(buffer, 1, 0, held_out=True)
    store(buffer, 0, 0)
    assert len(buffer) == 10
    slots = buffer.sample(10, np.random.default_rng(0))
    assert sorted(buffer.index.ids.view[slots].tolist()) == [0, 3, 5, 7, 9]


# The same stream on disk, and in two halves.


def stream(buffer, start, stop):
    """Store, evict, edit and draw as a learner would; return all slots drawn."""
    drawn = []
    for step in range(start, stop):
        drawn.append(buffer.sample(4, generator(1, step, "sample")).tolist())
        rng = np.random.default_rng(step)
        id = int(rng.integers(step + 1)) if step % 7 == 0 else step
        store(buffer, id, int(rng.integers(5)), seed=step, held_out=step % 29 == 0)
        buffer.evict(generator(1, step, "evict"))
        if step % 5 == 0:
            buffer.relabel(int(rng.integers(step + 1)), int(rng.integers(5)))
        if step % 11 == 0:
            buffer.forget(int(rng.integers(step + 1)))
        if step % 50 == 49:
            buffer.relabel_class(4, 2)
    return drawn


def make(codec, policy, sample="uniform", storage="memory"):
    return ReplayBuffer(SHAPE, codec=codec, capacity="8KB", evict=policy, sample=sample, storage=storage)


@pytest.mark.parametrize("policy", EVICTORS)
@pytest.mark.parametrize("codec", CODECS)
def test_disk_and_memory_hold_the_same_bits(codec, policy, tmp_path):
    memory, disk = make(codec, policy), make(codec, policy, storage=f"disk:{tmp_path}")
    assert stream(memory, 0, 150) == stream(disk, 0, 150)
    assert contents(memory) == contents(disk)
    assert len(memory) > 5


@pytest.mark.parametrize("storage", ["memory", "disk"])
@pytest.mark.parametrize("policy", EVICTORS)
@pytest.mark.parametrize("codec", ["quantize(5)", "jpeg(80)"])
def test_a_restored_buffer_goes_on_as_the_first_would_have(codec, policy, storage):
    first = make(codec, policy, "class-balanced", storage)
    stream(first, 0, 80)
    plain, arrays = first.state()
    rows = [np.frombuffer(bytes(row), np.uint8) for row in first.rows.get(np.arange(len(first)))]
    second = make(codec, policy, "class-balanced", storage)
    second.restore(json.loads(json.dumps(plain)), {name: array.copy() for name, array in arrays.items()})
    for row in rows:
        second.rows.append(row)
    assert contents(second) == contents(first)
    assert second.blended == first.blended
    assert stream(second, 80, 160) == stream(first, 80, 160)
    assert contents(second) == contents(first)
    if "consolidate" in policy:
        assert first.blends


@pytest.mark.parametrize("policy", [name for name in EVICTORS if "consolidate" in name])
def test_soft_labels_are_restored_bit_for_bit(policy):
    # A NumPy number and the Python number that JSON makes of it round differently when added to a float32.
    for seed in range(20):
        first, second = (ReplayBuffer(SHAPE, capacity=3, evict=policy) for _ in range(2))
        for id in range(25):
            store(first, id, id % 3)
            first.evict(generator(seed, id, "evict"))
        plain, arrays = first.state()
        second.restore(json.loads(json.dumps(plain)), arrays)
        np.testing.assert_array_equal(first.targets(np.arange(3), 3), second.targets(np.arange(3), 3))


def test_an_empty_buffer_is_restored_empty():
    plain, arrays = ReplayBuffer(SHAPE).state()
    buffer = ReplayBuffer(SHAPE)
    buffer.restore(json.loads(json.dumps(plain)), arrays)
    assert len(buffer) == 0
    assert stream(buffer, 0, 20) == stream(ReplayBuffer(SHAPE), 0, 20)


def test_one_seed_one_stream_another_seed_another():
    streams = []
    for seed in (0, 0, 1):
        buffer = make("raw", "uniform")
        for step in range(100):
            store(buffer, step, step % 3)
            buffer.evict(generator(seed, step, "evict"))
        streams.append(buffer.index.ids.view.tolist())
    assert streams[0] == streams[1] != streams[2]


# What it really takes.

MEASURE = """
import gc, sys
import numpy as np, psutil
from coldstream.replay import ReplayBuffer

def fill(count):
    buffer = ReplayBuffer((32, 32, 3), codec="resize(0.66)|quantize(6)", capacity="10GB", evict="uniform")
    packed = buffer.compress(np.zeros((32, 32, 3), np.uint8)).copy()
    rng = np.random.default_rng(0)
    for id in range(count):
        packed[id % 1521] = id % 251
        buffer.store(packed, id % 100, 1_000_000_000 + 7 * id)
        buffer.evict(rng)
    return buffer

def used():
    # Not USS: that counts pages of libraries too, until another process happens to load the same ones.
    gc.collect()
    memory = psutil.Process().memory_info()
    return memory.rss - memory.shared

fill(1000)
before = used()
buffer = fill(100_000)
print(used() - before, buffer.nbytes, buffer.overhead_bytes)
"""


def test_a_hundred_thousand_examples_take_what_they_say():
    pytest.importorskip("psutil")
    run = subprocess.run([sys.executable, "-c", MEASURE], capture_output=True, text=True, check=True, timeout=120)
    grown, stored, overhead = map(int, run.stdout.split())
    assert stored == 100_000 * 1521
    # Ids, labels and indexes are in it: a Python dict of the ids would alone be over the 5%.
    assert stored < grown < 1.05 * stored
    assert overhead < 0.04 * stored
