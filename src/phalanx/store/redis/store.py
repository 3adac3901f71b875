"""The store in Redis, for sites that already run it: one server, append-only file, `appendfsync always`.

Every write is one script that compares the epoch and the end of the log first (`scripts.py`). Redis itself may lose
what it acknowledged: when it is set up to answer before the disk, or when a replica takes over. The epoch or the log
then goes back below what this process has seen, and from then on it refuses to serve until an operator restarts it.
`server.py` decides whether a server may be used at all.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError
from redis.exceptions import TimeoutError as RedisTimeoutError

from phalanx.logger import logger
from phalanx.store.address import StoreAccess, StoreAddress
from phalanx.store.protocol import (
    Batch,
    Candidate,
    Fenced,
    History,
    Leader,
    Loaded,
    Pruned,
    Regressed,
    StoreError,
    moved,
)
from phalanx.store.record import Damage, sealed, sealed_batch, unsealed, unsealed_batch
from phalanx.store.redis import scripts
from phalanx.store.redis.server import check_server, client_of

log = logger("store")
IMAGES_KEPT = 2
RESTORE = "restore a backup into an empty store (`phalanx store restore`)"
PAGE = 200  # records of one answer, so that no script holds up the server for long


async def open_redis(place: StoreAddress, access: StoreAccess, *, read_only: bool = False) -> RedisStore:
    """Open the store at a place, if its server may be trusted with it."""
    client = client_of(place, access)
    store = RedisStore(client, place.prefix, read_only=read_only)
    try:
        with _translated(str(place)):
            await check_server(client, str(place))
        await store.begin()
    except BaseException:
        await store.close()
        raise
    return store


class RedisStore:
    """One coordinator's view of one prefix of a Redis server."""

    def __init__(self, client: Redis, prefix: str, *, read_only: bool = False) -> None:
        self._client = client
        self._name = f"redis {prefix}"
        self._read_only = read_only
        # The braces keep all keys together, should the server ever become part of a cluster.
        self._keys = [f"{{{prefix}}}:{name}" for name in scripts.NAMES]
        self._key = dict(zip(scripts.NAMES, self._keys, strict=True))
        self._seen = (0, 0)  # the highest epoch and revision that Redis ever returned
        self._head: int | None = None  # the end of the log when it was last read
        self._page_head = 0  # the end of the log when the last page was read

    async def begin(self) -> None:
        """Refuse a store of a newer version before anything in it is changed; mark a new one as ours."""
        *_, schema = await self._call(scripts.LAYOUT)
        if schema is None and not self._read_only:
            await self._call(scripts.BEGIN, scripts.SCHEMA)

    # Leadership.

    async def elect(self, candidate: Candidate, lease_s: float) -> Leader:
        epoch, _, name, address, link = await self._call(
            scripts.ELECT, candidate.name, candidate.address, candidate.link, _ms(lease_s)
        )
        leader = Leader(epoch, Candidate(name.decode(), address.decode(), link.decode()))
        if leader.candidate == candidate:
            self._head = None  # every earlier write is fenced off: the log ends where it ends now
        return leader

    async def renew(self, epoch: int, lease_s: float) -> None:
        await self._call(scripts.RENEW, epoch, _ms(lease_s))

    async def resign(self, epoch: int) -> None:
        await self._call(scripts.RESIGN, epoch)

    async def leader(self) -> Leader | None:
        epoch, _, name, address, link = await self._call(scripts.LEADER)
        return (
            None if name is None else Leader(epoch, Candidate(name.decode(), address.decode(), link.decode()))
        )

    async def open_term(self, at_least: int = 1) -> int:
        epoch: int = (await self._call(scripts.OPEN_TERM, at_least))[0]
        self._head = None
        return epoch

    async def confirm(self, epoch: int) -> None:
        await self._call(scripts.CONFIRM, epoch)

    # The log.

    async def load(self) -> Loaded:
        bad, tried = 0, -1
        while True:
            revision, image, bad_images = await self._newest_image()
            bad += bad_images
            try:
                batches = [_batch(at, record) async for at, record in self._records(revision, "")]
            except Pruned as error:
                if revision == tried:
                    raise StoreError(f"{self._name}: no image is good, and {error}: {RESTORE}") from error
                tried = revision  # the writer saved a newer image and dropped what we were about to read
                continue
            self._head = self._page_head
            return Loaded(image, revision, batches, bad)

    async def since(self, after: int, limit: int) -> list[Batch]:
        found: list[Batch] = []
        async for at, record in self._records(after, ""):
            found.append(_batch(at, record))
            if len(found) >= limit:
                break
        return found

    async def append(self, epoch: int, batch: Batch, history: list[History]) -> None:
        subjects = dict.fromkeys(batch.subjects)
        records = [part for each in history for part in (each.job, sealed(each.body), each.number)]
        head = "" if self._head is None else self._head
        await self._call(
            scripts.APPEND,
            *(epoch, head, batch.revision, sealed_batch(batch), len(subjects), *subjects, *records),
        )
        self._head = batch.revision
        self._seen = (self._seen[0], max(self._seen[1], batch.revision))

    async def save_image(self, epoch: int, revision: int, body: bytes) -> None:
        await self._call(scripts.SAVE_IMAGE, epoch, revision, sealed(body), IMAGES_KEPT)

    async def prune(self, epoch: int, before: int, keep_jobs: int) -> None:
        _, _, pruned, images, _ = await self._call(scripts.LAYOUT)
        await self._call(scripts.CONFIRM, epoch)
        covered = min(before, min(map(int, images), default=0))
        if covered > int(pruned):
            await self._prune_log(epoch, int(pruned), covered)
        left = 1
        while left > 0:
            *_, left = await self._call(scripts.PRUNE_JOBS, epoch, keep_jobs, PAGE)

    async def story(self, subject: str, after: int, limit: int) -> list[Batch]:
        found: list[Batch] = []
        async for at, record in self._records(after, subject):
            if batch := unsealed_batch(at, record):
                found.append(Batch(at, batch.body))
            if len(found) >= limit:
                break
        return found

    async def concerned(self, after: int, upto: int) -> list[str]:
        """Every subject has its own index: all of them are read, which takes time."""
        begin = self._key["about:"]
        with _translated(self._name):
            keys = [
                key
                async for key in self._client.scan_iter(match=f"{_literal(begin)}*", count=PAGE)
                if await self._client.zcount(key, f"({after}", upto)
            ]
        return sorted({key.decode().removeprefix(begin) for key in keys})

    async def set_aside(self, epoch: int, revisions: list[int]) -> None:
        await self.confirm(epoch)
        for revision in revisions:
            record = await self._get("log", str(revision))
            if record is not None and unsealed_batch(revision, record) is None:
                await self._call(scripts.SET_ASIDE, "log", revision, record)

    # Ended jobs.

    async def history(self, job: str) -> bytes | None:
        record = await self._get("history", job)
        return None if record is None else unsealed(record)

    async def past(self, before: str | None, limit: int, prefix: str = "") -> list[History]:
        found: list[History] = []
        while len(found) < limit:
            *_, jobs, records = await self._call(scripts.PAST, before or "", min(PAGE, limit), prefix)
            for job, record in zip(jobs, records, strict=True):
                if (body := unsealed(record)) is not None:
                    found.append(History(job.decode(), body))
            if not jobs:
                break
            before = jobs[-1].decode()
        return found[:limit]

    async def numbered(self, number: int) -> str | None:
        found: list[Any] = (await self._call(scripts.NUMBERED, number))[2:]
        return None if not found or found[0] is None else found[0].decode()

    async def keep_numbers(self, epoch: int, numbers: dict[int, str]) -> None:
        pairs = list(numbers.items())
        for at in range(0, max(1, len(pairs)), PAGE):
            page = [part for pair in pairs[at : at + PAGE] for part in pair]
            await self._call(scripts.KEEP_NUMBERS, epoch, *page)

    async def damaged(self) -> list[Damage]:
        """Every record that is not what was written, and what was set aside earlier. Reads everything."""
        found = []
        with _translated(self._name):
            for source, key in (("log", "log"), ("image", "images"), ("history", "history")):
                async for name, record in self._client.hscan_iter(self._key[key], count=PAGE):
                    read = unsealed_batch(0, record) if source == "log" else unsealed(record)
                    if read is None:
                        found.append(Damage(source, name.decode()))
            aside: list[Any] = await self._client.hkeys(self._key["quarantine"])
        for name in aside:
            source, _, key = name.decode().partition(":")
            found.append(Damage(source, key, set_aside=True))
        return sorted(found)

    async def close(self) -> None:
        with _translated(self._name):
            await self._client.aclose()

    # Calls and records.

    async def _call(self, script: str, *args: Any) -> list[Any]:
        """The answer of a script without its word: the epoch, where the log ends, and its values."""
        if self._read_only and script not in scripts.READS:
            raise StoreError(f"{self._name}: this store is open for reading only")
        with _translated(self._name):
            word, epoch, head, *rest = await self._client.register_script(script)(
                self._keys, [*self._seen, *args]
            )
        epoch, head = int(epoch), int(head)
        match word:
            case b"newer":
                raise StoreError(
                    f"{self._name} has schema {head}, this Phalanx reads schemas up to {scripts.SCHEMA}: "
                    "use a newer version"
                )
            case b"back":
                raise Regressed(
                    head,
                    self._seen[1],
                    f"{self._name} has lost what it acknowledged: it was at epoch {self._seen[0]}, revision "
                    f"{self._seen[1]} and now is at {epoch}, {head}; nothing is served until this coordinator is "
                    f"restarted (docs/operations/stores.md says what to do first)",
                )
            case b"fenced":
                raise Fenced(int(args[0]), epoch)
            case b"moved":
                raise moved(head, self._head or 0)
            case b"late":
                raise StoreError(
                    f"the log already ends at {head}, so a batch at {args[2]} cannot come after it"
                )
        self._seen = (max(self._seen[0], epoch), max(self._seen[1], head))
        return [epoch, head, *rest]

    async def _records(self, after: int, subject: str) -> AsyncIterator[tuple[int, bytes]]:
        """Records of the log above a revision, all or those about a subject, page by page."""
        while True:
            _, self._page_head, pruned, revisions, records = await self._call(
                scripts.PAGE, after, PAGE, subject
            )
            if not subject and after < int(pruned):
                raise Pruned(f"the log begins after revision {int(pruned)}")
            if not subject and after > self._page_head:
                *_, images, _ = await self._call(scripts.LAYOUT)
                if after > (end := max([self._page_head, *map(int, images)])):
                    raise Regressed(end, after)
            for revision, record in zip(revisions, records, strict=True):
                if (
                    record is not None or not subject
                ):  # a batch that was set aside may still be in the index of a subject
                    yield int(revision), record or b""
            if len(revisions) < PAGE:
                return
            after = int(revisions[-1])

    async def _newest_image(self) -> tuple[int, bytes | None, int]:
        bad = 0
        *_, images, _ = await self._call(scripts.LAYOUT)
        for revision in sorted(map(int, images), reverse=True):
            if (record := await self._get("images", str(revision))) is None:
                continue
            if (body := unsealed(record)) is not None:
                return revision, body, bad
            await self._set_aside("image", revision, record)
            bad += 1
        return 0, None, bad

    async def _get(self, name: str, field: str) -> bytes | None:
        with _translated(self._name):
            found = await self._client.hget(self._key[name], field)
        assert not isinstance(found, str)
        return found

    async def _prune_log(self, epoch: int, pruned: int, covered: int) -> None:
        done = False
        while not done:
            *_, revisions, records = await self._call(scripts.PAGE, pruned, PAGE, "")
            gone, about = list[int](), list[object]()
            for revision, record in zip(map(int, revisions), records, strict=True):
                if revision <= covered:
                    gone.append(revision)
                    batch = unsealed_batch(revision, record)
                    about += [part for name in batch.subjects for part in (name, revision)] if batch else []
            done = len(gone) < PAGE
            if gone:
                pruned = gone[-1]
                await self._call(scripts.PRUNE_LOG, epoch, pruned, len(gone), *gone, *about)

    async def _set_aside(self, source: str, key: int, record: bytes) -> None:
        """Set a damaged record aside, if possible: a server that cannot do so must not stop the start."""
        log.error("a damaged record is set aside", store=self._name, source=source, key=key)
        with suppress(StoreError):
            await self._call(scripts.SET_ASIDE, source, key, record)


def _batch(revision: int, record: bytes) -> Batch:
    return unsealed_batch(revision, record) or Batch(revision, b"", is_damaged=True)


def _literal(text: str) -> str:
    """A name as a pattern that matches only itself."""
    return "".join(f"\\{each}" if each in "*?[]\\" else each for each in text)


def _ms(lease_s: float) -> int:
    return max(1, round(lease_s * 1000))


@contextmanager
def _translated(name: str) -> Iterator[None]:
    try:
        yield
    except (RedisError, OSError) as error:
        is_away = isinstance(error, RedisConnectionError | RedisTimeoutError | OSError)
        hint = "is Redis up, and can the coordinator reach it?" if is_away else ""
        raise StoreError(f"{name}: {str(error) or type(error).__name__}", hint) from error
