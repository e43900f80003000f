"""The journal: append-only, chained, idempotent, and as before where nothing could be written."""

import itertools
import sqlite3
import threading

import pytest

from coldstream.serve import journal
from coldstream.serve.journal import CannotWrite, Journal, JournalError, read, verify


@pytest.fixture
def path(tmp_path):
    return tmp_path / journal.FILE


def write(path, count):
    log = Journal(path)
    for number in range(count):
        log.append("label", {"image": f"{number:032x}", "label": "é" * number}, key=f"key {number}")
    log.close()


def test_events_come_back_in_order(path):
    write(path, 5)
    events = [*read(path)]
    assert [event.seq for event in events] == [1, 2, 3, 4, 5]
    assert events[3].body == {"image": f"{3:032x}", "label": "ééé"}
    assert [event.seq for event in read(path, 2, 4)] == [3, 4]
    log = Journal(path)
    assert (log.seq, log.checksum) == (5, events[-1].checksum)
    assert log.append("skip", {}).seq == 6
    log.close()
    assert verify(path) == 6


def test_every_commit_is_synced(path):
    log = Journal(path)
    assert log._connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert log._connection.execute("PRAGMA synchronous").fetchone() == (2,)  # FULL
    log.close()


def test_a_key_gives_one_event(path):
    log = Journal(path)
    first = log.append("label", {"a": 1}, key="k")
    assert log.append("label", {"a": 2}, key="k") == first
    assert log.find("k") == first
    assert log.find("other") is None
    assert log.seq == 1
    log.close()


def test_a_hundred_concurrent_retries_give_one_event(path):
    log, barrier, seqs = Journal(path), threading.Barrier(100), []

    def retry():
        barrier.wait()
        seqs.append(log.append("label", {"a": 1}, key="k").seq)

    threads = [threading.Thread(target=retry) for _ in range(100)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seqs == [1] * 100
    assert sum(1 for _ in log.events()) == 1
    log.close()


@pytest.mark.parametrize("statement", ["UPDATE events SET body = '{}'", "DELETE FROM events WHERE seq = 2"])
def test_events_are_neither_changed_nor_removed(path, statement):
    write(path, 3)
    with pytest.raises(sqlite3.IntegrityError, match="never"):
        sqlite3.connect(path).execute(statement)


COLUMNS = ("seq", "time", "who", "kind", "key", "body", "checksum")
VALUES = {"seq": 77, "time": 1.5, "who": "x", "kind": "skip", "key": "x", "body": "{}", "checksum": b"0" * 32}


@pytest.mark.parametrize(("row", "column"), [*itertools.product([1, 3, 5], COLUMNS)])
def test_a_changed_event_is_detected(path, row, column):
    write(path, 5)
    connection = sqlite3.connect(path)
    connection.execute("DROP TRIGGER never_changed")
    connection.execute(f"UPDATE events SET {column} = ? WHERE seq = ?", (VALUES[column], row))
    connection.commit()
    connection.close()
    with pytest.raises(JournalError, match="damaged|lacks"):
        verify(path)


@pytest.mark.parametrize("seqs", [(1,), (3,), (2, 3)])
def test_a_missing_event_is_detected(path, seqs):
    write(path, 5)
    connection = sqlite3.connect(path)
    connection.execute("DROP TRIGGER never_removed")
    connection.executemany("DELETE FROM events WHERE seq = ?", [(seq,) for seq in seqs])
    connection.commit()
    connection.close()
    with pytest.raises(JournalError, match=f"lacks event {seqs[0]}"):
        verify(path)


def test_two_exchanged_events_are_detected(path):
    write(path, 5)
    connection = sqlite3.connect(path)
    connection.execute("DROP TRIGGER never_changed")
    for old, new in ((2, 99), (3, 2), (99, 3)):
        connection.execute("UPDATE events SET seq = ? WHERE seq = ?", (new, old))
    connection.commit()
    connection.close()
    with pytest.raises(JournalError, match="event 2 .* damaged"):
        verify(path)


@pytest.mark.parametrize("data", [b"", b"not a database, but long enough to be one" * 100, b"SQLite format 3\0" * 99])
def test_another_file_is_refused(path, data):
    path.write_bytes(data)
    with pytest.raises(JournalError):
        verify(path)


def test_a_database_of_another_program_is_refused(path):
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE things (a)")
    connection.close()
    with pytest.raises(JournalError, match="not a journal"):
        Journal(path)


def test_a_newer_format_is_refused(path):
    write(path, 1)
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 9")
    connection.close()
    with pytest.raises(JournalError, match="format 9"):
        Journal(path)


def test_a_full_disk_leaves_all_as_before_and_passes(path):
    log = Journal(path)
    for number in range(20):
        log.append("label", {"number": number})
    (pages,) = log._connection.execute("PRAGMA page_count").fetchone()
    log._connection.execute(f"PRAGMA max_page_count = {pages}")
    written = _append_until_full(log, 20)
    assert log.seq == written
    log._connection.execute("PRAGMA max_page_count = 1000000")
    assert log.append("label", {}).seq == written + 1
    log.close()
    assert verify(path) == written + 1


def _append_until_full(log, written):
    while True:
        try:
            log.append("label", {"text": "x" * 500})
        except CannotWrite:
            return written
        written += 1
