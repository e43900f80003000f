"""The journal: what happened to a project, in order, each event on disk before anyone is told of it.

An SQLite file in WAL mode with synchronous=FULL. Events are only ever appended. Each has a checksum over itself and
the checksum before it, so that a changed, missing or reordered event is detected. Everything else of a project
(records, learner, answers) is a function of the journal and of the images it names.
"""

from __future__ import annotations

import errno
import hashlib
import json
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coldstream.checkpoint import sync_folder

FILE = "journal.sqlite3"
_APPLICATION = 0x43535452
"""SQLite's application id of a journal: "CSTR"."""
_VERSION = 1
_START = b"\0" * 32
_MAX_KEY = 200
_SCHEMA = """
CREATE TABLE events (
    seq INTEGER PRIMARY KEY,
    time REAL NOT NULL,
    who TEXT NOT NULL,
    kind TEXT NOT NULL,
    key TEXT UNIQUE,
    body TEXT NOT NULL,
    checksum BLOB NOT NULL
);
CREATE TRIGGER never_changed BEFORE UPDATE ON events BEGIN SELECT RAISE(ABORT, 'events are never changed'); END;
CREATE TRIGGER never_removed BEFORE DELETE ON events BEGIN SELECT RAISE(ABORT, 'events are never removed'); END;
"""
_COLUMNS = "seq, time, who, kind, key, body, checksum"


class JournalError(ValueError):
    """A journal that is missing, damaged, or not a journal."""


class CannotWrite(OSError):
    """The journal, or an image, could not be written: the disk is full or failing. Nothing was changed."""


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened."""

    seq: int
    time: float
    who: str
    kind: str
    key: str | None
    body: dict[str, Any]
    checksum: bytes


class Journal:
    """The journal of one project; the caller holds the lock of its folder."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self.seq = 0
        self.checksum = _START
        new = not path.exists()
        self._connection = _connect(path)
        try:
            if new or not self._connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
                self._create()
            _check_kind(self._connection, path)
            self._read_last()
        except sqlite3.DatabaseError as error:
            self._connection.close()
            raise _unreadable(path, error) from error
        except BaseException:
            self._connection.close()
            raise

    def append(self, kind: str, body: dict[str, Any], *, who: str = "person", key: str | None = None) -> Event:
        """Write an event and return it once it is on disk; a key that is there already returns its first event."""
        if key is not None and not 0 < len(key) <= _MAX_KEY:
            raise ValueError(f"a request key has 1 to {_MAX_KEY} characters, not {len(key)}")
        text = json.dumps(body, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        with self._lock:
            if key is not None and (earlier := self._find(key)) is not None:
                return earlier
            seq, now = self.seq + 1, time.time()
            checksum = _checksum(self.checksum, seq, now, who, kind, key, text)
            try:
                self._connection.execute("BEGIN IMMEDIATE")
                self._connection.execute(
                    f"INSERT INTO events ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?)",
                    (seq, now, who, kind, key, text, checksum),
                )
                self._connection.execute("COMMIT")
            except sqlite3.Error as error:
                self._take_back()
                raise _cannot_write(self.path, error) from error
            self.seq, self.checksum = seq, checksum
        return Event(seq, now, who, kind, key, json.loads(text), checksum)

    def find(self, key: str) -> Event | None:
        """Return the event that was written under a request key."""
        with self._lock:
            return self._find(key)

    def event(self, seq: int) -> Event | None:
        """Return the event with a sequence number."""
        with self._lock:
            row = self._connection.execute(f"SELECT {_COLUMNS} FROM events WHERE seq = ?", (seq,)).fetchone()
        return None if row is None else _event(row, self.path)

    def checksum_of(self, seq: int) -> bytes:
        """Return the checksum of an event that is there."""
        event = self.event(seq)
        if event is None:
            raise JournalError(f"{str(self.path)!r} has no event {seq}")
        return event.checksum

    def events(self, after: int = 0) -> Iterator[Event]:
        """Yield all events after a sequence number up to the last one now, in order, each checked."""
        return read(self.path, after, self.seq)

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._connection.close()

    def _create(self) -> None:
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.executescript(
            f"BEGIN; {_SCHEMA} PRAGMA application_id = {_APPLICATION}; PRAGMA user_version = {_VERSION}; COMMIT;"
        )
        sync_folder(self.path.parent)

    def _find(self, key: str) -> Event | None:
        row = self._connection.execute(f"SELECT {_COLUMNS} FROM events WHERE key = ?", (key,)).fetchone()
        return None if row is None else _event(row, self.path)

    def _read_last(self) -> None:
        row = self._connection.execute("SELECT seq, checksum FROM events ORDER BY seq DESC LIMIT 1").fetchone()
        self.seq, self.checksum = row or (0, _START)

    def _take_back(self) -> None:
        """End a transaction that failed, and see where the journal stands."""
        with suppress(sqlite3.Error):
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        with suppress(sqlite3.Error):
            self._read_last()


def read(path: Path, after: int = 0, until: int | None = None) -> Iterator[Event]:
    """Yield the events of a journal in order; raise a JournalError at the first one that is damaged."""
    connection = _connect(path, read_only=True)
    try:
        _check_kind(connection, path)
        before = _START
        if after:
            row = connection.execute("SELECT checksum FROM events WHERE seq = ?", (after,)).fetchone()
            if row is None:
                raise JournalError(f"{str(path)!r} has no event {after}")
            before = row[0]
        expected = after
        query = f"SELECT {_COLUMNS} FROM events WHERE seq > ? ORDER BY seq"
        for row in connection.execute(query, (after,)):
            if until is not None and row[0] > until:
                break
            expected += 1
            if row[0] != expected:
                raise JournalError(f"{str(path)!r} lacks event {expected}")
            if row[6] != _checksum(before, *row[:6]):
                raise JournalError(f"event {expected} of {str(path)!r} is damaged: its checksum is wrong")
            before = row[6]
            yield _event(row, path)
    except sqlite3.DatabaseError as error:
        raise _unreadable(path, error) from error
    finally:
        connection.close()


def verify(path: Path) -> int:
    """Check a whole journal, the file and each event; return the number of events."""
    if not path.is_file():
        raise JournalError(f"there is no journal {str(path)!r}")
    connection = _connect(path, read_only=True)
    try:
        (answer,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
        if answer != "ok":
            raise JournalError(f"{str(path)!r} is damaged: {answer}")
    except sqlite3.DatabaseError as error:
        raise _unreadable(path, error) from error
    finally:
        connection.close()
    return sum(1 for _ in read(path))


def _connect(path: Path, *, read_only: bool = False) -> sqlite3.Connection:
    try:
        # Also who only reads opens it for writing: a journal that was not closed is recovered on opening.
        mode = "rw" if read_only else "rwc"
        uri = f"{path.absolute().as_uri()}?mode={mode}"
        connection = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False, timeout=10)
    except sqlite3.Error as error:
        raise _unreadable(path, error) from error
    try:
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA trusted_schema = OFF")
        if read_only:
            connection.execute("PRAGMA query_only = ON")
    except sqlite3.Error as error:
        connection.close()
        raise _unreadable(path, error) from error
    return connection


def _check_kind(connection: sqlite3.Connection, path: Path) -> None:
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if application != _APPLICATION:
        raise JournalError(f"{str(path)!r} is not a journal of this program")
    if version != _VERSION:
        raise JournalError(f"{str(path)!r} has format {version}; this version of the program reads format {_VERSION}")


def _checksum(before: bytes, seq: int, time: float, who: str, kind: str, key: str | None, body: str) -> bytes:
    text = json.dumps([seq, time, who, kind, key, body], ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(before + text.encode("utf-8", "surrogatepass")).digest()


def _event(row: tuple[Any, ...], path: Path) -> Event:
    seq, time, who, kind, key, body, checksum = row
    try:
        plain = json.loads(body)
    except (ValueError, RecursionError):
        plain = None
    if not isinstance(plain, dict):
        raise JournalError(f"event {seq} of {str(path)!r} is damaged: its body is not a JSON object")
    return Event(seq, time, who, kind, key, plain, checksum)


def _unreadable(path: Path, error: sqlite3.Error) -> JournalError:
    return JournalError(f"cannot read the journal {str(path)!r}: {error}")


def _cannot_write(path: Path, error: sqlite3.Error) -> CannotWrite:
    return CannotWrite(
        errno.ENOSPC,
        f"nothing was changed, because {str(path)!r} cannot be written ({error}); free some space on the disk and "
        "try again",
    )
