"""Row stores against a plain Python list in which the last element fills every hole."""

import mmap
import os
import re
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coldstream.replay import rows as rows_module
from coldstream.replay.rows import BlobFile, BlobRows, FixedRows, _joined, open_rows

BIG = 90_000  # a block of such rows grows three rows at a time
STORES = {
    "fixed in memory": (lambda folder: FixedRows(5), 5),
    "fixed on disk": (lambda folder: FixedRows(5, folder), 5),
    "big in memory": (lambda folder: FixedRows(BIG), BIG),
    "big on disk": (lambda folder: FixedRows(BIG, folder), BIG),
    "blobs in memory": (lambda folder: BlobRows(), None),
    "blobs in a file": (BlobFile, None),
}


class Pair:
    """A store and its model, changed together."""

    def __init__(self, store):
        self.store, self.model = store, []

    def append(self, row):
        self.store.append(np.frombuffer(row, np.uint8))
        self.model.append(row)

    def replace(self, index, row):
        self.store.replace(index, np.frombuffer(row, np.uint8))
        self.model[index] = row

    def remove(self, index):
        self.store.remove(index)
        self.model[index] = self.model[-1]
        self.model.pop()

    def read(self, rows):
        return [bytes(row) for row in self.store.get(np.array(rows, np.int64))]

    def check(self):
        assert self.store.nbytes == sum(map(len, self.model))
        assert self.read(range(len(self.model))) == self.model
        backwards = list(range(len(self.model)))[::-2]
        assert self.read(backwards) == [self.model[row] for row in backwards]


def row_of(seed, length):
    return np.random.default_rng(seed).integers(0, 256, length, dtype=np.uint8).tobytes()


operations = st.lists(
    st.tuples(st.sampled_from("aaarx"), st.integers(0, 2**32 - 1), st.integers(0, 60)), min_size=1, max_size=40
)


def change(pair, what, number, row):
    if what == "a" or not pair.model:
        pair.append(row)
    elif what == "r":
        pair.replace(number % len(pair.model), row)
    else:
        pair.remove(number % len(pair.model))


@pytest.mark.parametrize("name", STORES)
@settings(max_examples=40, deadline=None)
@given(steps=operations)
def test_any_sequence_of_changes(name, steps, tmp_path_factory):
    make, length = STORES[name]
    pair = Pair(make(tmp_path_factory.getbasetemp()))
    for what, number, size in steps:
        change(pair, what, number, row_of(number, length or size))
    pair.check()


@pytest.mark.parametrize("name", STORES)
def test_long_runs(name, tmp_path):
    make, length = STORES[name]
    pair = Pair(make(tmp_path))
    rng = np.random.default_rng(7)
    for step in range(1500 if length != BIG else 150):
        row = row_of(step, length or int(rng.integers(0, 3000)))
        index = int(rng.integers(max(1, len(pair.model))))
        what = rng.choice(["append", "replace", "remove"], p=[0.45, 0.3, 0.25])
        if what == "append" or not pair.model:
            pair.append(row)
        elif what == "replace":
            pair.replace(index, row)
        else:
            pair.remove(index)
        if step % 50 == 0:
            pair.check()
    pair.check()
    while pair.model:
        pair.remove(0)
    pair.check()
    pair.append(row_of(1, length or 10))
    pair.check()


@pytest.mark.parametrize("name", STORES)
def test_what_was_read_does_not_change_with_the_store(name, tmp_path):
    make, length = STORES[name]
    pair = Pair(make(tmp_path))
    rows = [row_of(seed, length or 9) for seed in range(3)]
    for row in rows:
        pair.append(row)
    got = pair.store.get(np.array([0, 1, 2]))
    pair.replace(0, row_of(9, length or 9))
    pair.remove(1)
    for seed in range(20):
        pair.append(row_of(seed, length or 9))
    assert [bytes(row) for row in got] == rows


@pytest.mark.parametrize("name", STORES)
@settings(max_examples=40, deadline=None)
@given(count=st.integers(1, 30), chosen=st.sets(st.integers(0, 29)), steps=operations, pace=st.integers(1, 9))
def test_frozen_rows_stay_as_they_were(name, count, chosen, steps, pace, tmp_path_factory):
    """Whatever happens to the store between two pieces that are read."""
    make, length = STORES[name]
    pair = Pair(make(tmp_path_factory.getbasetemp()))
    for seed in range(count):
        pair.append(row_of(seed, length or seed))
    wanted = [row for row in sorted(chosen, key=lambda row: row_of(row, 4)) if row < count]
    model = list(pair.model)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rows_module, "_PIECE", 2 * (length or 1))
        frozen = pair.store.freeze(np.array(wanted, np.int64))
        assert frozen.lengths.tolist() == [len(model[row]) for row in wanted]
        pieces = frozen.read(0, len(wanted))
        got = []
        for i, (what, number, size) in enumerate(steps):
            if i % pace == 0:
                got.append(bytes(next(pieces, b"")))
            change(pair, what, number, row_of(number, length or size))
        got += [bytes(piece) for piece in pieces]
        frozen.close()
    assert b"".join(got) == b"".join(model[row] for row in wanted)
    pair.check()


def test_frozen_rows_of_a_file_that_is_rewritten(tmp_path):
    pair = Pair(BlobFile(tmp_path))
    for seed in range(8):
        pair.append(row_of(seed, 300_000))
    before, size = list(pair.model), file_size(pair.store)
    frozen = pair.store.freeze(np.arange(8))
    while file_size(pair.store) >= size:
        size = file_size(pair.store)
        pair.replace(size % 8, row_of(size, 300_000))
    assert [bytes(piece) for piece in frozen.read(2, 6)] == before[2:6]
    frozen.close()
    pair.check()


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 9))))
def test_joined_ranges(ranges):
    first, length = np.array([*zip(*ranges, strict=True)] or [[], []], np.int64)
    joined = list(_joined(first, first + length))
    pages = {page for begin, more in ranges for page in range(begin, begin + more + 1)}
    assert [page for begin, end in joined for page in range(begin, end + 1)] == sorted(pages)
    assert all(begin > end + 1 for (_, end), (begin, _) in pairwise(joined))


@pytest.mark.parametrize("name", ["fixed on disk", "big on disk", "blobs in a file"])
def test_the_disk_hears_of_the_pages_of_the_rows_that_come(name, tmp_path, monkeypatch):
    make, length = STORES[name]
    pair, asked = Pair(make(tmp_path)), []
    for seed in range(60):
        pair.append(row_of(seed, length or 700 + seed))
    where = getattr(pair.store, "_where", None) or [(row * length, length) for row in range(60)]
    monkeypatch.setattr(os, "posix_fadvise", lambda file, *rest: asked.append((file, *rest)), raising=False)
    rows = [50, 3, 4, 17]
    pair.store.prefetch(np.array(rows))
    told = {page for _, start, size, _ in asked for page in range(start, start + size, mmap.PAGESIZE)}
    bytes_ = {byte for row in rows for byte in range(where[row][0], sum(where[row]))}
    assert told == {byte - byte % mmap.PAGESIZE for byte in bytes_}
    assert {(file, advice) for file, _, _, advice in asked} == {(pair.store._file.fileno(), os.POSIX_FADV_WILLNEED)}
    asked.clear()
    pair.store.prefetch(np.array([], np.int64))
    for store in (FixedRows(4), BlobRows()):
        store.append(np.zeros(4, np.uint8))
        store.prefetch(np.array([0]))
    assert asked == []


def test_a_block_is_at_most_a_percent_larger_than_its_rows():
    store, row = FixedRows(1521), np.zeros(1521, np.uint8)
    for _ in range(30_000):
        store.append(row)
    assert store.nbytes == 30_000 * 1521
    assert store._block.nbytes <= 1.01 * store.nbytes


def file_size(store):
    return os.fstat(store._file.fileno()).st_size


def test_a_blob_file_is_rewritten_and_stays_small(tmp_path):
    pair = Pair(BlobFile(tmp_path))
    rng = np.random.default_rng(3)
    for seed in range(40):
        pair.append(row_of(seed, int(rng.integers(1, 30_000))))
    written, shrunk, before = pair.store.nbytes, 0, file_size(pair.store)
    for step in range(600):
        row = row_of(step, int(rng.integers(1, 30_000)))
        if step % 3:
            pair.replace(int(rng.integers(40)), row)
        else:
            pair.remove(int(rng.integers(40)))
            pair.append(row)
        written += len(row)
        now = file_size(pair.store)
        assert now <= 2 * (pair.store.nbytes + 30_000) + (1 << 20)
        if now < before:
            shrunk += 1
            pair.check()
        before = now
    pair.check()
    assert shrunk >= 2
    assert written > 3 * file_size(pair.store)


def test_scratch_files_have_no_name(tmp_path):
    for store in (FixedRows(4, tmp_path), BlobFile(tmp_path)):
        store.append(np.arange(4, dtype=np.uint8))
    assert list(tmp_path.iterdir()) == []


def test_scratch_files_are_closed_with_their_store(tmp_path):
    descriptors = f"/proc/{os.getpid()}/fd"
    if not os.path.isdir(descriptors):
        pytest.skip("counts open files where Linux lists them")
    before = len(os.listdir(descriptors))
    for make in (lambda: FixedRows(4, tmp_path), lambda: BlobFile(tmp_path)):
        for _ in range(5):
            make().append(np.zeros(4, np.uint8))
    rewritten = BlobFile(tmp_path)
    rewritten.append(np.zeros(700_000, np.uint8))
    for _ in range(10):
        rewritten.replace(0, np.zeros(700_000, np.uint8))
    del rewritten
    assert len(os.listdir(descriptors)) == before


def test_a_full_disk_is_an_error_and_changes_nothing(tmp_path):
    resource = pytest.importorskip("resource")
    pair = Pair(BlobFile(tmp_path))
    for seed in range(3):
        pair.append(row_of(seed, 1000))
    unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (3500, unlimited[1]))
    try:
        with pytest.raises(OSError, match="no room left"):
            pair.store.append(np.ones(1000, np.uint8))
        with pytest.raises(OSError, match="no room left"):
            pair.store.replace(1, np.ones(2000, np.uint8))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
    pair.check()
    pair.append(row_of(9, 1000))
    pair.check()


@pytest.mark.parametrize(
    ("row_bytes", "storage", "kind"),
    [
        (7, "memory", FixedRows),
        (7, "disk", FixedRows),
        (None, "memory", BlobRows),
        (None, "disk", BlobFile),
    ],
)
def test_the_store_for_a_setting(row_bytes, storage, kind):
    store = open_rows(row_bytes, storage)
    assert type(store) is kind
    assert (getattr(store, "_file", None) is not None) == (storage == "disk")


def test_a_folder_of_ones_own(tmp_path):
    for row_bytes in (7, None):
        store = open_rows(row_bytes, f"disk:{tmp_path}")
        assert os.fstat(store._file.fileno()).st_dev == os.stat(tmp_path).st_dev
    with pytest.raises(ValueError, match=re.escape(f"{str(tmp_path / 'none')!r} does not exist")):
        open_rows(7, f"disk:{tmp_path / 'none'}")


@pytest.mark.parametrize("storage", ["ram", "", "memory:/tmp", "Disk", "disc:/tmp"])
def test_storage_that_does_not_exist(storage):
    with pytest.raises(ValueError, match="storage is 'memory', 'disk' or 'disk:FOLDER', not"):
        open_rows(7, storage)
