"""The file of the embedded store: how it is opened, its tables, and how an older one is upgraded.

Every released schema can be read: what it lacks is added in one transaction. A newer one is refused untouched. Schema
3 comes with the first election, not with the opening: until then a coordinator of version 0.2 may lead.
"""

from __future__ import annotations

import errno
import math
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from threading import Event

from phalanx.store.protocol import LEFT_BEHIND, StoreDamaged, StoreError, StoreFull

# What SQLite reports for a damaged file.
DAMAGED = ("malformed", "not a database", "corrupt", "Could not decode", "encrypted")
# 1: an epoch and a log. 2: a leader with a lease, and a log whose beginning may be gone. 3: kinds of events that
# version 0.2 cannot read, and another table for the leader, so that its standbys do not lead.
SCHEMA = 3
CREATED = 2
WAL_TRIES, WAL_PAUSE_S = 100, 0.05
_FULL_CODES = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_SHMSIZE, sqlite3.SQLITE_IOERR_WRITE)
_DAMAGED_FILE = "the file is damaged: `phalanx store restore FILE URL` fills another one from a backup"
_CREATE = """
BEGIN IMMEDIATE;
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS office (
    one INTEGER PRIMARY KEY CHECK (one = 1), name TEXT NOT NULL, address TEXT NOT NULL, link TEXT NOT NULL,
    until REAL NOT NULL
);
CREATE TABLE IF NOT EXISTS log (revision INTEGER PRIMARY KEY, crc INTEGER NOT NULL, body BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS subject (name TEXT NOT NULL, revision INTEGER NOT NULL, PRIMARY KEY (name, revision))
    WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS image (revision INTEGER PRIMARY KEY, crc INTEGER NOT NULL, body BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS history (job TEXT PRIMARY KEY, crc INTEGER NOT NULL, body BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS quarantine (source TEXT NOT NULL, key TEXT NOT NULL, body BLOB);
INSERT OR IGNORE INTO meta VALUES ('epoch', 0), ('schema', 2), ('pruned', 0);
UPDATE meta SET value = 2 WHERE key = 'schema' AND value < 2; -- another coordinator may have raised it since we looked
COMMIT;
"""


_LEADER = """
CREATE TABLE IF NOT EXISTS leader (
    one INTEGER PRIMARY KEY CHECK (one = 1), name TEXT NOT NULL, address TEXT NOT NULL, link TEXT NOT NULL,
    until REAL NOT NULL
)
"""

_NUMBER = "CREATE TABLE IF NOT EXISTS number (number INTEGER PRIMARY KEY, job TEXT NOT NULL UNIQUE)"


def raise_schema(db: sqlite3.Connection) -> None:
    """From now on only versions that read all we write may use the file. Part of the caller's transaction."""
    db.execute(_LEADER)
    db.execute(_NUMBER)
    left = (LEFT_BEHIND.name, LEFT_BEHIND.address, LEFT_BEHIND.link, math.inf)
    db.execute("INSERT OR REPLACE INTO office VALUES (1, ?, ?, ?, ?)", left)
    db.execute("UPDATE meta SET value = ? WHERE key = 'schema'", (SCHEMA,))


def open_file(path: Path, *, durable: bool) -> sqlite3.Connection:
    """Open the file, created if there is none; only its owner may read it."""
    with translated(path):
        if str(path) != ":memory:":
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        db = sqlite3.connect(path, isolation_level=None, timeout=5.0)
        found = _check_schema(db, path)
        _use_wal(db)
        # FULL waits for the disk at each commit. The simulator crashes processes without crashing the machine.
        db.execute(f"PRAGMA synchronous={'FULL' if durable else 'OFF'}")
        if (
            found < CREATED
        ):  # nothing is written without need: the disk may be full, and the contents can still be read
            db.executescript(_CREATE)
        return db


def _use_wal(db: sqlite3.Connection) -> None:
    """Several coordinators may open a new file at once, and SQLite does not wait for a lock at this one change."""
    for _ in range(WAL_TRIES - 1):
        try:
            db.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error):
                raise
        Event().wait(WAL_PAUSE_S)
    db.execute("PRAGMA journal_mode=WAL")


def open_file_to_read(path: Path) -> sqlite3.Connection:
    """Open the file to read while others may write it."""
    if not path.is_file():
        raise StoreError(f"there is no store at {path}")
    with translated(path):
        db = sqlite3.connect(
            f"{path.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None, timeout=5.0
        )
        found = _check_schema(db, path)
        if found < CREATED:
            raise StoreError(
                f"{path} has schema {found}: a coordinator of this version makes it {CREATED} at its start"
            )
        return db


def is_blank(path: Path) -> bool:
    """Whether there is no file, or one without any contents."""
    if not path.is_file():
        return True
    with translated(path), closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as db:
        return _check_schema(db, path) == 0


def _check_schema(db: sqlite3.Connection, path: Path) -> int:
    """Refuse a file of a newer version before anything in it is changed; 0 is a new one."""
    if not db.execute("SELECT COUNT(*) FROM sqlite_master WHERE name = 'meta'").fetchone()[0]:
        return 0
    row = db.execute("SELECT value FROM meta WHERE key = 'schema'").fetchone()
    if row is None or not isinstance(row[0], int):
        raise StoreDamaged(f"{path}: the record 'schema' of table meta is damaged", hint=_DAMAGED_FILE)
    return check_schema(int(row[0]), path)


def check_schema(found: int, path: Path) -> int:
    """Raise StoreError if a newer version uses the file."""
    if found > SCHEMA:
        raise StoreError(
            f"{path} has schema {found}, this Phalanx reads schemas up to {SCHEMA}: use a newer version"
        )
    return found


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """Translates SQLite's errors."""
    try:
        yield
    except UnicodeDecodeError as error:  # SQLite's own message contains the damaged text
        raise StoreDamaged(f"{path}: {error.object!r}", _DAMAGED_FILE) from error
    except (sqlite3.Error, OSError) as error:
        if any(word in str(error) for word in DAMAGED):
            raise StoreDamaged(f"{path}: {error}", _DAMAGED_FILE) from error
        text = f"{path}: {error} (is the disk full or the folder read-only?)"
        kind = StoreFull if _is_full(error) else StoreError
        raise kind(text, hint="free some space or make the state folder writable") from error


def _is_full(error: Exception) -> bool:
    """Whether there is no space. SQLite reports a shared-memory file that cannot grow as a disk error."""
    if isinstance(error, OSError):
        return error.errno in (errno.ENOSPC, errno.EDQUOT)
    return getattr(error, "sqlite_errorcode", 0) in _FULL_CODES
