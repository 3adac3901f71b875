"""The embedded store: one SQLite file in WAL mode, every commit on the disk before it is answered.

The epoch is compared in the same transaction that writes, so a replaced coordinator can write nothing. Every
record carries a checksum; a damaged one is set aside in `quarantine` and the rest is read. Calls run on the
caller's thread: a commit takes half a millisecond and inputs gather meanwhile (docs/decisions/0004).
"""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from phalanx.clock import SystemClock
from phalanx.store.protocol import (
    Batch,
    Candidate,
    Fenced,
    History,
    Leader,
    Loaded,
    Moved,
    Pruned,
    StoreError,
)

SCHEMA = 2  # 2: an office with a lease, and a log whose beginning may be gone
IMAGES_KEPT = 2
_CREATE = """
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
UPDATE meta SET value = 2 WHERE key = 'schema';
"""
_TAKE_OFFICE = "INSERT OR REPLACE INTO office VALUES (1, ?, ?, ?, ?)"
_SUBJECTS = "SELECT revision, name FROM subject WHERE revision > ? AND revision <= ? ORDER BY revision, name"
_DROP_OLD_IMAGES = (
    "DELETE FROM image WHERE revision NOT IN (SELECT revision FROM image ORDER BY revision DESC LIMIT ?)"
)
_DROP_RECORD = {
    "log": "DELETE FROM log WHERE revision = ?",
    "image": "DELETE FROM image WHERE revision = ?",
}


class SqliteStore:
    """A store in one file, for one machine."""

    def __init__(self, path: Path, *, durable: bool = True, now: Callable[[], float] | None = None) -> None:
        self._path = path
        # Wall time: it is the same for all processes of the machine, and goes on over a reboot. A jump of it may end
        # an office too early or too late; the epoch keeps either from doing harm.
        self._now = now or SystemClock().now
        self._head: int | None = None  # where the log ended when we last looked
        with _translated(path):
            self._db = sqlite3.connect(path, isolation_level=None, timeout=5.0)
            self._check_schema()
            self._db.execute("PRAGMA journal_mode=WAL")
            # FULL waits for the disk at each commit. The simulator crashes us without crashing the machine.
            self._db.execute(f"PRAGMA synchronous={'FULL' if durable else 'OFF'}")
            self._db.executescript(_CREATE)

    async def elect(self, candidate: Candidate, lease_s: float) -> Leader:
        with self._transaction():
            holder, now = self._holder(), self._now()
            if holder is None or holder.name == candidate.name:
                until = now + lease_s
                self._db.execute(_TAKE_OFFICE, (candidate.name, candidate.address, candidate.link, until))
                self._db.execute("UPDATE meta SET value = value + 1 WHERE key = 'epoch'")
                holder = candidate
            return Leader(self._epoch(), holder)

    async def renew(self, epoch: int, lease_s: float) -> None:
        with self._transaction():
            self._check_epoch(epoch)
            self._db.execute("UPDATE office SET until = ?", (self._now() + lease_s,))

    async def resign(self, epoch: int) -> None:
        with self._transaction():
            if epoch == self._epoch():
                self._db.execute("DELETE FROM office")

    async def leader(self) -> Leader | None:
        with _translated(self._path):
            holder = self._holder()
            return None if holder is None else Leader(self._epoch(), holder)

    async def open_term(self, at_least: int = 1) -> int:
        with self._transaction():
            self._db.execute("UPDATE meta SET value = MAX(value + 1, ?) WHERE key = 'epoch'", (at_least,))
            self._db.execute("DELETE FROM office")
            return self._epoch()

    async def load(self) -> Loaded:
        with _translated(self._path):
            revision, image, bad = self._newest_image()
            batches: list[Batch] = []
            rows = self._db.execute(
                "SELECT revision, crc, body FROM log WHERE revision > ? ORDER BY revision", (revision,)
            )
            for at, crc, body in rows.fetchall():
                if crc == zlib.crc32(body):
                    batches.append(Batch(at, body))
                else:
                    bad += self._quarantine("log", at, body)
            self._head = self._newest()
            return Loaded(image, revision, batches, bad)

    async def append(self, epoch: int, batch: Batch, history: list[History]) -> None:
        with self._transaction():
            self._check_epoch(epoch)
            if self._head is not None and self._head != (newest := self._newest()):
                raise Moved(f"the log ends at {newest}, not at {self._head}")
            crc = zlib.crc32(batch.body)
            self._db.execute("INSERT INTO log VALUES (?, ?, ?)", (batch.revision, crc, batch.body))
            subjects = [(name, batch.revision) for name in batch.subjects]
            self._db.executemany("INSERT OR IGNORE INTO subject VALUES (?, ?)", subjects)
            records = [(record.job, zlib.crc32(record.body), record.body) for record in history]
            if records:
                self._db.executemany("INSERT OR REPLACE INTO history VALUES (?, ?, ?)", records)
        self._head = batch.revision

    async def since(self, after: int, limit: int) -> list[Batch]:
        with _translated(self._path):
            if after < (pruned := self._meta("pruned")):
                raise Pruned(f"the log begins after revision {pruned}")
            rows = self._db.execute(
                "SELECT revision, crc, body FROM log WHERE revision > ? ORDER BY revision LIMIT ?",
                (after, limit),
            ).fetchall()
            subjects: dict[int, list[str]] = {}
            last = rows[-1][0] if rows else after
            for revision, name in self._db.execute(_SUBJECTS, (after, last)):
                subjects.setdefault(revision, []).append(name)
        return [
            Batch(revision, body, tuple(subjects.get(revision, ())))
            for revision, crc, body in rows
            if crc == zlib.crc32(body)
        ]

    async def prune(self, epoch: int, before: int, keep_jobs: int) -> None:
        with self._transaction():
            self._check_epoch(epoch)
            image = self._db.execute("SELECT COALESCE(MIN(revision), 0) FROM image").fetchone()[0]
            (last,) = self._db.execute(
                "SELECT MAX(revision) FROM log WHERE revision <= ?", (min(before, image),)
            ).fetchone()
            if last is not None:
                self._db.execute("DELETE FROM log WHERE revision <= ?", (last,))
                self._db.execute("DELETE FROM subject WHERE revision <= ?", (last,))
                self._db.execute("UPDATE meta SET value = ? WHERE key = 'pruned'", (last,))
            self._db.execute(
                "DELETE FROM history WHERE job IN (SELECT job FROM history ORDER BY job DESC LIMIT -1 OFFSET ?)",
                (keep_jobs,),
            )

    async def confirm(self, epoch: int) -> None:
        with _translated(self._path):
            self._check_epoch(epoch)

    async def save_image(self, epoch: int, revision: int, body: bytes) -> None:
        with self._transaction():
            self._check_epoch(epoch)
            self._db.execute(
                "INSERT OR REPLACE INTO image VALUES (?, ?, ?)", (revision, zlib.crc32(body), body)
            )
            self._db.execute(_DROP_OLD_IMAGES, (IMAGES_KEPT,))

    async def story(self, subject: str, after: int, limit: int) -> list[Batch]:
        query = (
            "SELECT log.revision, log.crc, log.body FROM subject JOIN log ON log.revision = subject.revision "
            "WHERE subject.name = ? AND subject.revision > ? ORDER BY subject.revision LIMIT ?"
        )
        with _translated(self._path):
            rows = self._db.execute(query, (subject, after, limit)).fetchall()
        return [Batch(revision, body) for revision, crc, body in rows if crc == zlib.crc32(body)]

    async def history(self, job: str) -> bytes | None:
        with _translated(self._path):
            row = self._db.execute("SELECT crc, body FROM history WHERE job = ?", (job,)).fetchone()
        return bytes(row[1]) if row and row[0] == zlib.crc32(row[1]) else None

    async def past(self, before: str | None, limit: int, prefix: str = "") -> list[History]:
        query = "SELECT job, crc, body FROM history WHERE job < ? AND job >= ? AND job < ? ORDER BY job DESC LIMIT ?"
        with _translated(self._path):
            rows = self._db.execute(query, (before or "~", prefix, prefix + "~", limit)).fetchall()
        return [History(job, body) for job, crc, body in rows if crc == zlib.crc32(body)]

    async def close(self) -> None:
        with _translated(self._path):
            self._db.close()

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with _translated(self._path):
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise

    def _meta(self, key: str) -> int:
        return int(self._db.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()[0])

    def _epoch(self) -> int:
        return self._meta("epoch")

    def _newest(self) -> int:
        (newest,) = self._db.execute("SELECT MAX(revision) FROM log").fetchone()
        return self._meta("pruned") if newest is None else int(newest)

    def _holder(self) -> Candidate | None:
        row = self._db.execute(
            "SELECT name, address, link FROM office WHERE until > ?", (self._now(),)
        ).fetchone()
        return None if row is None else Candidate(*row)

    def _check_epoch(self, epoch: int) -> None:
        current = self._epoch()
        if epoch != current:
            raise Fenced(epoch, current)

    def _check_schema(self) -> None:
        """Refuse a file of a newer version before anything in it is changed."""
        tables = "SELECT COUNT(*) FROM sqlite_master WHERE name = 'meta'"
        found = self._meta("schema") if self._db.execute(tables).fetchone()[0] else 0
        if found > SCHEMA:
            raise StoreError(
                f"{self._path} has schema {found}, this Phalanx reads schemas up to {SCHEMA}: use a newer version"
            )

    def _newest_image(self) -> tuple[int, bytes | None, int]:
        bad = 0
        for revision, crc, body in self._db.execute(
            "SELECT revision, crc, body FROM image ORDER BY revision DESC"
        ).fetchall():
            if crc == zlib.crc32(body):
                return revision, body, bad
            bad += self._quarantine("image", revision, body)
        return 0, None, bad

    def _quarantine(self, source: str, key: int, body: bytes) -> int:
        """Set a damaged record aside. A disk too full to do so must not stop the start."""
        try:
            with self._transaction():
                self._db.execute("INSERT INTO quarantine VALUES (?, ?, ?)", (source, str(key), body))
                self._db.execute(_DROP_RECORD[source], (key,))
        except StoreError:
            return 1
        return 1


@contextmanager
def _translated(path: Path) -> Iterator[None]:
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        raise StoreError(f"{path}: {error} (is the disk full or the folder read-only?)") from error
