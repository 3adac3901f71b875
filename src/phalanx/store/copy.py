"""Copies contents into an empty store, and moves a cluster from one store to another.

While a store is being filled, a migration's name holds its leadership, so no coordinator starts on half of a state. An
interrupted copy can be started again: batches continue where they ended, everything else is written again. Nothing
counts as copied until it was read back.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

from msgspec import Struct

from phalanx.core.cluster.events import encode
from phalanx.core.cluster.number_events import NumbersSkipped, skipped_to
from phalanx.errors import Conflict, NotFound
from phalanx.store.chain import hole_in
from phalanx.store.check import replayed
from phalanx.store.contents import Contents, StoreContents
from phalanx.store.protocol import Batch, Candidate, History, Leader, Store, StoreError

FILLING = "filled-from:"
MIGRATED = "migrated-to:"
FOREVER_S = 10 * 365 * 86_400.0
EPOCH_LEAP = 100  # an old store may issue a few more while it is being left
RESTORE_LEAP = 1_000_000  # epochs that a cluster may have seen since the backup was made
TERMS_PER_S = 10  # more than coordinators that are restarted all the time can open
RECORDS_PER_BATCH = 64
RECORD_BYTES_PER_BATCH = 512 << 10  # etcd takes small requests only
_NOTHING = encode([])
_TRIES = 20
ReportProgress = Callable[[str, int], None]  # what is being done, and how many of it


class Copied(Struct, frozen=True):
    """What a copy consists of."""

    epoch: int
    revision: int
    batches: int
    records: int


async def migrate(
    source: Store, target: Store, names: tuple[str, str], report: ReportProgress, *, force: bool
) -> Copied:
    """Move everything from one store to another, and leave the first fenced off for good."""
    source_name, target_name = names
    left = Candidate(f"{MIGRATED}{target_name}")
    if await is_empty(source):
        raise NotFound(f"there is nothing in {source_name}", hint="is the address right?")
    _refuse_taken(await source.leader(), left, source_name, force=force)
    if (hole := hole_in(await source.load())) is not None:
        raise Conflict(f"{source_name}: {hole}", hint=hole.hint)
    await check_vacant(target, source_name, target_name)
    await _take(source, left)
    contents = await StoreContents.read(source, source_name)
    report("epoch", contents.epoch)
    return await fill(target, contents, contents.epoch + EPOCH_LEAP, report)


async def check_vacant(target: Store, source_name: str, target_name: str) -> None:
    """Refuse a store that is in use; the remains of an interrupted copy from the same source are not."""
    leader = await target.leader()
    if leader is not None and leader.candidate.name == FILLING + source_name:
        return
    if leader is not None:
        raise Conflict(f"{leader.candidate.name} leads on {target_name}: expected an empty store")
    if not await is_empty(target):
        raise Conflict(
            f"{target_name} is not empty",
            hint="name another file or prefix: an existing cluster is never overwritten",
        )


async def is_empty(store: Store) -> bool:
    loaded = await store.load()
    return loaded.image is None and not loaded.batches and not await store.past(None, 1)


async def reopen(store: Store, name: str) -> int:
    """Remove the fence that a migration left, so that coordinators may use a store again."""
    leader = await store.leader()
    if leader is None or not leader.candidate.name.startswith((MIGRATED, FILLING)):
        raise Conflict(f"no migration has fenced off {name}")
    return await store.open_term()


def first_epoch(backed_up: int, made_at: float, now: float) -> int:
    """Where the epochs of a restored cluster begin: above all that nodes have seen since the backup was made.

    Also above those of a cluster that was restored from the same backup before.
    """
    return backed_up + RESTORE_LEAP + int(max(0.0, now - made_at) * TERMS_PER_S)


async def fill(
    target: Store,
    contents: Contents,
    epoch_min: int,
    report: ReportProgress,
    *,
    restored_at: float | None = None,
) -> Copied:
    """Write contents into a store that `check_vacant` allowed, read them back, and leave it without a leader.

    `restored_at`: they are a backup, so numbers that may have been given after it are skipped.
    """
    epoch = await _take(target, Candidate(FILLING + contents.name), epoch_min)
    loaded = await target.load()
    head = max(loaded.image_revision, *(batch.revision for batch in loaded.batches), 0)
    batches = await _copy_batches(target, epoch, contents, head, report)
    head, records = await _copy_records(target, epoch, contents, max(head, contents.head), report)
    if contents.image is not None:
        await target.save_image(epoch, contents.image_revision, contents.image)
        await target.prune(epoch, contents.begin, records)
    await verify(target, contents, report)
    if restored_at is not None:
        head = await _skip_numbers(target, epoch, restored_at)
    await target.resign(epoch)
    return Copied(epoch, head, batches, records)


async def verify(target: Store, contents: Contents, report: ReportProgress) -> None:
    """Raise StoreError unless a store holds all of the contents, byte for byte."""
    found = await StoreContents.read(target, "the copy")
    if (found.image_revision, found.image) != (contents.image_revision, contents.image):
        raise StoreError(f"the image at {contents.image_revision} did not come back as it was written")
    kept = found.batches()
    checked = 0
    async for batch in contents.batches():
        async for copy in kept:
            if copy.revision >= batch.revision:
                break
        else:
            raise StoreError(f"the batch at {batch.revision} is missing from the copy")
        if (copy.revision, copy.body, set(copy.subjects)) != (
            batch.revision,
            batch.body,
            set(batch.subjects),
        ):
            raise StoreError(f"the batch at {batch.revision} did not come back as it was written")
        checked += 1
        report("verified", checked)
    await _verify_records(found, contents, checked, report)


async def _verify_records(found: Contents, contents: Contents, checked: int, report: ReportProgress) -> None:
    kept = found.records()
    async for record in contents.records():
        copy = await anext(kept, None)
        if copy != record:
            raise StoreError(f"the record of job {record.job} did not come back as it was written")
        checked += 1
        report("verified", checked)


async def _copy_batches(
    target: Store, epoch: int, contents: Contents, head: int, report: ReportProgress
) -> int:
    """Copy the batches after `head`. An empty batch, itself pruned, marks the beginning of a pruned log."""
    copied = 0
    if contents.begin > head:
        await target.append(epoch, Batch(contents.begin, _NOTHING), [])
    async for batch in contents.batches():
        copied += 1
        if batch.revision > head:
            await target.append(epoch, batch, [])
        report("batches", copied)
    return copied


async def _copy_records(
    target: Store, epoch: int, contents: Contents, head: int, report: ReportProgress
) -> tuple[int, int]:
    """Copy ended jobs with empty batches after the last one; returns the new end of the log and the number of jobs."""
    copied, size = 0, 0
    chunk: list[History] = []
    revisions = count(head + 1)
    async for record in contents.records():
        if len(chunk) >= RECORDS_PER_BATCH or (chunk and size + len(record.body) > RECORD_BYTES_PER_BATCH):
            head = next(revisions)
            await target.append(epoch, Batch(head, _NOTHING), chunk)
            chunk, size = [], 0
        chunk.append(record)
        size += len(record.body)
        copied += 1
        report("ended jobs", copied)
    if chunk:
        head = next(revisions)
        await target.append(epoch, Batch(head, _NOTHING), chunk)
    return head, copied


async def _skip_numbers(target: Store, epoch: int, now: float) -> int:
    """Give no number again that was given after the backup was made; returns the new end of the log."""
    loaded = await target.load()
    state, _ = replayed(loaded)
    head = max(loaded.image_revision, *(batch.revision for batch in loaded.batches), 0) + 1
    event = NumbersSkipped(at=now, cause="restore", upto=skipped_to(state.arrivals))
    await target.append(epoch, Batch(head, encode([event])), [])
    return head


async def _take(store: Store, candidate: Candidate, at_least: int = 1) -> int:
    """Take the leadership for good. A coordinator may be quicker between the two steps, but not always."""
    for _ in range(_TRIES):
        await store.open_term(at_least)
        leader = await store.elect(candidate, FOREVER_S)
        if leader.candidate == candidate:
            return leader.epoch
    raise Conflict("coordinators keep taking the leadership", hint="stop them first")


def _refuse_taken(leader: Leader | None, left: Candidate, name: str, *, force: bool) -> None:
    if leader is None or leader.candidate.name == left.name:
        return
    if leader.candidate.name.startswith(MIGRATED):
        raise Conflict(f"{name} was {leader.candidate.name.replace('-', ' ', 1)} before; continue from there")
    if not force:
        raise Conflict(
            f"coordinator {leader.candidate.name} is active on {name}",
            hint="stop it first, or give --force to end its term",
        )
