"""The embedded store: one SQLite file in WAL mode, every commit on the disk before it is answered.

The epoch is compared in the same transaction that writes, so a replaced coordinator can write nothing. Every record
carries a checksum: a damaged image is set aside in `quarantine` and an older one is read, a damaged batch is returned
as damaged. A damaged page may hold any value of any type, so values are checked before they are used. Calls run on the
caller's thread: a commit takes half a millisecond and inputs gather meanwhile (docs/decisions/0004).
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from phalanx.clock import SystemClock
from phalanx.logger import logger
from phalanx.store.protocol import (
    Batch,
    Candidate,
    Fenced,
    History,
    Leader,
    Loaded,
    Pruned,
    Regressed,
    StoreDamaged,
    StoreError,
    moved,
)
from phalanx.store.record import Damage
from phalanx.store.sqlite.file import (
    SCHEMA,
    check_schema,
    open_file,
    open_file_to_read,
    raise_schema,
    translated,
)

log = logger("store")
IMAGES_KEPT = 2
RESTORE = "restore a backup into an empty store (`phalanx store restore`)"
_TAKE_LEADERSHIP = "INSERT OR REPLACE INTO leader VALUES (1, ?, ?, ?, ?)"
_HOLDER = "SELECT name, address, link FROM leader WHERE until > ?"
_HOLDER_BEFORE = "SELECT name, address, link FROM office WHERE until > ?"  # the schema was raised
_CONCERNED = "SELECT DISTINCT name FROM subject WHERE revision > ? AND revision <= ? ORDER BY name"
_SUBJECTS = "SELECT revision, name FROM subject WHERE revision > ? AND revision <= ? ORDER BY revision, name"
_NEWEST_IMAGE = "SELECT COALESCE(MAX(revision), 0) FROM image"
_DROP_OLD_IMAGES = (
    "DELETE FROM image WHERE revision NOT IN (SELECT revision FROM image ORDER BY revision DESC LIMIT ?)"
)
_DROP_RECORD = {
    "log": "DELETE FROM log WHERE revision = ?",
    "image": "DELETE FROM image WHERE revision = ?",
}
_DROP_OLD = (
    "DELETE FROM number WHERE job IN (SELECT job FROM history ORDER BY job DESC LIMIT -1 OFFSET ?)",
    "DELETE FROM history WHERE job IN (SELECT job FROM history ORDER BY job DESC LIMIT -1 OFFSET ?)",
)
_KEEP_NUMBER = "INSERT OR REPLACE INTO number VALUES (?, ?)"
_HAS_NUMBERS = "SELECT COUNT(*) FROM sqlite_master WHERE name = 'number'"
_ALL_RECORDS = {
    "log": "SELECT revision, crc, body FROM log",
    "image": "SELECT revision, crc, body FROM image",
    "history": "SELECT job, crc, body FROM history",
}


class SqliteStore:
    """A store in one file, for one machine."""

    def __init__(
        self,
        path: Path,
        *,
        durable: bool = True,
        read_only: bool = False,
        now: Callable[[], float] | None = None,
    ) -> None:
        self._path = path
        self._read_only = read_only
        # Wall time: it is the same for all processes of the machine, and continues over a reboot. A jump of it may end
        # a lease too early or too late; the epoch keeps either from doing harm.
        self._now = now or SystemClock().now
        self._head: int | None = None  # the end of the log when it was last read
        self._db = open_file_to_read(path) if read_only else open_file(path, durable=durable)

    async def elect(self, candidate: Candidate, lease_s: float) -> Leader:
        with self._transaction():
            holder, now = self._holder(), self._now()
            if holder is None or holder.name == candidate.name:
                until = now + lease_s
                raise_schema(self._db)
                self._db.execute(_TAKE_LEADERSHIP, (candidate.name, candidate.address, candidate.link, until))
                self._db.execute("UPDATE meta SET value = value + 1 WHERE key = 'epoch'")
                holder = candidate
                self._head = None  # every earlier write is fenced off: the log ends where it ends now
            return Leader(self._epoch(), holder)

    async def renew(self, epoch: int, lease_s: float) -> None:
        with self._transaction():
            self._check_epoch(epoch)
            kept = self._db.execute("UPDATE leader SET until = ?", (self._now() + lease_s,))
            if not kept.rowcount:  # we resigned
                raise Fenced(epoch, epoch)

    async def resign(self, epoch: int) -> None:
        with self._transaction():
            if epoch == self._epoch():
                self._db.execute("DELETE FROM leader")

    async def leader(self) -> Leader | None:
        with self._snapshot():  # the schema says in which table the leader is
            holder = self._holder()
            return None if holder is None else Leader(self._epoch(), holder)

    async def open_term(self, at_least: int = 1) -> int:
        with self._transaction():
            self._schema()
            raise_schema(self._db)
            self._db.execute("UPDATE meta SET value = MAX(value + 1, ?) WHERE key = 'epoch'", (at_least,))
            self._db.execute("DELETE FROM leader")
            self._head = None
            return self._epoch()

    async def load(self) -> Loaded:
        with self._snapshot():
            revision, image, damaged = self._newest_image()
            if image is None and (pruned := self._meta("pruned")):
                raise StoreError(
                    f"{self._path}: no image is good, and the log begins after {pruned}: {RESTORE}"
                )
            rows = self._db.execute(
                "SELECT revision, crc, body FROM log WHERE revision > ? ORDER BY revision", (revision,)
            )
            batches = [_batch(*row) for row in rows]
        self._set_aside(damaged)
        with translated(self._path):
            self._head = self._newest()
        return Loaded(image, revision, batches, len(damaged))

    async def append(self, epoch: int, batch: Batch, history: list[History]) -> None:
        with self._transaction():
            self._check_epoch(epoch)
            newest = self._newest()
            if self._head not in (None, newest):
                raise moved(newest, self._head)
            if batch.revision <= newest:
                raise StoreError(
                    f"the log already ends at {newest}, so {batch.revision} cannot come after it"
                )
            crc = zlib.crc32(batch.body)
            self._db.execute("INSERT INTO log VALUES (?, ?, ?)", (batch.revision, crc, batch.body))
            subjects = [(name, batch.revision) for name in batch.subjects]
            self._db.executemany("INSERT OR IGNORE INTO subject VALUES (?, ?)", subjects)
            records = [(record.job, zlib.crc32(record.body), record.body) for record in history]
            if records:
                self._db.executemany("INSERT OR REPLACE INTO history VALUES (?, ?, ?)", records)
                numbers = [(record.number, record.job) for record in history if record.number]
                self._db.executemany(_KEEP_NUMBER, numbers)
        self._head = batch.revision

    async def since(self, after: int, limit: int) -> list[Batch]:
        with self._snapshot():
            if after < (pruned := self._meta("pruned")):
                raise Pruned(f"the log begins after revision {pruned}")
            if after > (end := max(self._newest(), self._db.execute(_NEWEST_IMAGE).fetchone()[0])):
                raise Regressed(end, after)
            rows = self._db.execute(
                "SELECT revision, crc, body FROM log WHERE revision > ? ORDER BY revision LIMIT ?",
                (after, limit),
            ).fetchall()
            subjects: dict[int, list[str]] = {}
            last = rows[-1][0] if rows else after
            for revision, name in self._db.execute(_SUBJECTS, (after, last)):
                subjects.setdefault(revision, []).append(name)
        return [_batch(at, crc, body, tuple(subjects.get(at, ()))) for at, crc, body in rows]

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
            for statement in _DROP_OLD:
                self._db.execute(statement, (keep_jobs,))

    async def confirm(self, epoch: int) -> None:
        with translated(self._path):
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
        with translated(self._path):
            rows = self._db.execute(query, (subject, after, limit)).fetchall()
        return [Batch(revision, body) for revision, crc, body in rows if _is_good(crc, body)]

    async def concerned(self, after: int, upto: int) -> list[str]:
        with translated(self._path):
            return [str(name) for (name,) in self._db.execute(_CONCERNED, (after, upto))]

    async def set_aside(self, epoch: int, revisions: list[int]) -> None:
        with self._transaction():
            self._check_epoch(epoch)
            for revision in revisions:
                row = self._db.execute("SELECT crc, body FROM log WHERE revision = ?", (revision,)).fetchone()
                if row is not None and not _is_good(*row):
                    self._move_aside("log", revision, row[1])

    async def history(self, job: str) -> bytes | None:
        with translated(self._path):
            row = self._db.execute("SELECT crc, body FROM history WHERE job = ?", (job,)).fetchone()
        return bytes(row[1]) if row and _is_good(*row) else None

    async def past(self, before: str | None, limit: int, prefix: str = "") -> list[History]:
        query = "SELECT job, crc, body FROM history WHERE job < ? AND job >= ? AND job < ? ORDER BY job DESC LIMIT ?"
        with translated(self._path):
            rows = self._db.execute(query, (before or "~", prefix, prefix + "~", limit)).fetchall()
        return [History(job, body) for job, crc, body in rows if isinstance(job, str) and _is_good(crc, body)]

    async def numbered(self, number: int) -> str | None:
        with translated(self._path):
            if not self._db.execute(_HAS_NUMBERS).fetchone()[0]:  # it comes with the first election
                return None
            row = self._db.execute("SELECT job FROM number WHERE number = ?", (number,)).fetchone()
        return row[0] if row and isinstance(row[0], str) else None

    async def keep_numbers(self, epoch: int, numbers: dict[int, str]) -> None:
        with self._transaction():
            self._check_epoch(epoch)
            self._db.executemany(_KEEP_NUMBER, list(numbers.items()))

    async def close(self) -> None:
        with translated(self._path):
            self._db.close()

    async def damaged(self) -> list[Damage]:
        """Every record that is not what was written, and what was set aside earlier. Reads everything."""
        with self._snapshot():
            found = [
                Damage(source, str(key))
                for source, query in _ALL_RECORDS.items()
                for key, crc, body in self._db.execute(query)
                if not _is_good(crc, body)
            ]
            aside = self._db.execute("SELECT source, key FROM quarantine").fetchall()
        return sorted([*found, *(Damage(str(source), str(key), set_aside=True) for source, key in aside)])

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        yield from self._between("BEGIN IMMEDIATE")

    @contextmanager
    def _snapshot(self) -> Iterator[None]:
        """Several reads of one state, whatever others write meanwhile."""
        yield from self._between("BEGIN")

    def _between(self, begin: str) -> Iterator[None]:
        with translated(self._path):
            self._db.execute(begin)
            try:
                yield
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise

    def _meta(self, key: str) -> int:
        row = self._db.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
        if row is None or not isinstance(row[0], int):
            raise StoreDamaged(f"{self._path}: the record {key!r} of table meta is damaged: {RESTORE}")
        return int(row[0])

    def _schema(self) -> int:
        """The schema of the file: a newer version may have raised it while we had the file open."""
        return check_schema(self._meta("schema"), self._path)

    def _epoch(self) -> int:
        return self._meta("epoch")

    def _newest(self) -> int:
        (newest,) = self._db.execute("SELECT MAX(revision) FROM log").fetchone()
        return self._meta("pruned") if newest is None else int(newest)

    def _holder(self) -> Candidate | None:
        query = _HOLDER if self._schema() == SCHEMA else _HOLDER_BEFORE
        row = self._db.execute(query, (self._now(),)).fetchone()
        if row is None or not all(isinstance(each, str) for each in row):
            return None  # a damaged record counts as no leader: the epoch keeps two from writing
        return Candidate(*row)

    def _check_epoch(self, epoch: int) -> None:
        current = self._epoch()
        if epoch != current:
            raise Fenced(epoch, current)

    def _newest_image(self) -> tuple[int, bytes | None, list[tuple[str, int, bytes]]]:
        damaged: list[tuple[str, int, bytes]] = []
        for revision, crc, body in self._db.execute(
            "SELECT revision, crc, body FROM image ORDER BY revision DESC"
        ):
            if _is_good(crc, body):
                return revision, body, damaged
            damaged.append(("image", revision, body))
        return 0, None, damaged

    def _set_aside(self, damaged: list[tuple[str, int, bytes]]) -> None:
        """Set damaged records aside, by name. A disk too full to do so must not stop the start."""
        for source, key, _ in damaged:
            log.error("a damaged record is set aside", store=str(self._path), source=source, key=key)
        if not damaged or self._read_only:
            return
        with suppress(StoreError), self._transaction():
            for source, key, body in damaged:
                self._move_aside(source, key, body)

    def _move_aside(self, source: str, key: int, body: object) -> None:
        self._db.execute("INSERT INTO quarantine VALUES (?, ?, ?)", (source, str(key), body))
        self._db.execute(_DROP_RECORD[source], (key,))


def _is_good(crc: object, body: object) -> bool:
    """Whether a record is what was written. A damaged page may give anything, of any type."""
    return isinstance(body, bytes) and crc == zlib.crc32(body)


def _batch(revision: int, crc: object, body: bytes, subjects: tuple[str, ...] = ()) -> Batch:
    return Batch(revision, body, subjects) if _is_good(crc, body) else Batch(revision, b"", subjects, True)
