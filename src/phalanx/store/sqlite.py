"""The embedded store: one SQLite file in WAL mode, every commit on the disk before it is answered.

The epoch is compared in the same transaction that writes, so a replaced coordinator can write nothing. Every
record carries a checksum; a damaged one is set aside in `quarantine` and the rest is read. Calls run on the
caller's thread: a commit takes half a millisecond and inputs gather meanwhile (docs/decisions/0004).
"""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from phalanx.store.protocol import Batch, Fenced, History, Loaded, StoreError

SCHEMA = 1
IMAGES_KEPT = 2
_CREATE = """
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS log (revision INTEGER PRIMARY KEY, crc INTEGER NOT NULL, body BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS subject (name TEXT NOT NULL, revision INTEGER NOT NULL, PRIMARY KEY (name, revision))
    WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS image (revision INTEGER PRIMARY KEY, crc INTEGER NOT NULL, body BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS history (job TEXT PRIMARY KEY, crc INTEGER NOT NULL, body BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS quarantine (source TEXT NOT NULL, key TEXT NOT NULL, body BLOB);
INSERT OR IGNORE INTO meta VALUES ('epoch', 0), ('schema', 1);
"""
_DROP_OLD_IMAGES = (
    "DELETE FROM image WHERE revision NOT IN (SELECT revision FROM image ORDER BY revision DESC LIMIT ?)"
)
_DROP_RECORD = {
    "log": "DELETE FROM log WHERE revision = ?",
    "image": "DELETE FROM image WHERE revision = ?",
}


class SqliteStore:
    """A store in one file, for one machine."""

    def __init__(self, path: Path, *, durable: bool = True) -> None:
        self._path = path
        with _translated(path):
            self._db = sqlite3.connect(path, isolation_level=None, timeout=5.0)
            self._db.execute("PRAGMA journal_mode=WAL")
            # FULL waits for the disk at each commit. The simulator crashes us without crashing the machine.
            self._db.execute(f"PRAGMA synchronous={'FULL' if durable else 'OFF'}")
            self._db.executescript(_CREATE)
            self._check_schema()

    async def open_term(self) -> int:
        with self._transaction():
            self._db.execute("UPDATE meta SET value = value + 1 WHERE key = 'epoch'")
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
            return Loaded(image, revision, batches, bad)

    async def append(self, epoch: int, batch: Batch, history: list[History]) -> None:
        with self._transaction():
            self._check_epoch(epoch)
            crc = zlib.crc32(batch.body)
            self._db.execute("INSERT INTO log VALUES (?, ?, ?)", (batch.revision, crc, batch.body))
            subjects = [(name, batch.revision) for name in batch.subjects]
            self._db.executemany("INSERT OR IGNORE INTO subject VALUES (?, ?)", subjects)
            records = [(record.job, zlib.crc32(record.body), record.body) for record in history]
            if records:
                self._db.executemany("INSERT OR REPLACE INTO history VALUES (?, ?, ?)", records)

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

    def _epoch(self) -> int:
        return int(self._db.execute("SELECT value FROM meta WHERE key = 'epoch'").fetchone()[0])

    def _check_epoch(self, epoch: int) -> None:
        current = self._epoch()
        if epoch != current:
            raise Fenced(epoch, current)

    def _check_schema(self) -> None:
        found = int(self._db.execute("SELECT value FROM meta WHERE key = 'schema'").fetchone()[0])
        if found != SCHEMA:
            raise StoreError(
                f"{self._path} has schema {found}, this Phalanx reads schema {SCHEMA}: use a matching version"
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
