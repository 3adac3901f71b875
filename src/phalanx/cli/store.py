"""`phalanx store …`: check a cluster's state, migrate it, back it up.

These talk to the store itself, not to a coordinator, with the credentials of the coordinator's settings.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Coroutine, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from phalanx.cli.output import OutputOption, emit, fields, moment, note
from phalanx.cli.session import STORED, session
from phalanx.clock import SystemClock
from phalanx.core.model.amounts import plural
from phalanx.errors import BadRequest, Conflict, NotFound, PhalanxError, Unavailable
from phalanx.settings import CoordinatorSettings

if TYPE_CHECKING:
    from phalanx.store.address import StoreAddress
    from phalanx.store.check import Checked
    from phalanx.store.protocol import Store

T = TypeVar("T")
SHOW_EVERY = 500
Url = Annotated[str | None, typer.Argument(metavar="[URL]", show_default="coordinator.store")]
Force = Annotated[bool, typer.Option("--force", help="Replace an existing FILE.")]


def check(ctx: typer.Context, url: Url = None, output: OutputOption = None) -> int:
    """Check everything in a store: checksums, records, a replay of the log, and the invariants.

    Nothing is changed. The exit code is 1 if anything is damaged, 5 if there was never a cluster.
    """
    here = session(ctx)
    section = here.settings_of(*STORED).coordinator

    async def checked() -> Checked:
        from phalanx.store.check import check_store
        from phalanx.store.protocol import StoreDamaged

        place = place_of(url, section)
        try:
            async with reading(place, section) as store:
                return await check_store(store, str(place))
        except StoreDamaged as error:
            raise PhalanxError(str(error), reason="StoreDamaged", hint=error.hint) from error

    found = finish(checked())
    emit(found, here.output(output), [found.store], lambda _wide: _report(found))
    return 0 if found.is_good else 1


def migrate(
    ctx: typer.Context,
    source: Annotated[str, typer.Argument(metavar="FROM")],
    target: Annotated[str, typer.Argument(metavar="TO")],
    force: Annotated[
        bool, typer.Option("--force", help="Migrate even if a coordinator is active on FROM; its term ends.")
    ] = False,
    output: OutputOption = None,
) -> None:
    """Move a cluster's state from one store to an empty one.

    FROM is fenced off first and stays so; if this is interrupted, run it again. Then start coordinators with --store
    TO.
    """
    here = session(ctx)
    section = here.settings_of(*STORED).coordinator
    places = place_of(source, section), place_of(target, section)
    if places[0] == places[1]:
        raise BadRequest(f"FROM and TO are both {places[0]}")
    refuse_memory(*places)
    refuse_missing(places[0])

    async def moved() -> dict[str, Any]:
        from phalanx.store.copy import migrate

        async with writing(places[0], section) as old, writing(places[1], section) as new:
            names = str(places[0]), str(places[1])
            copied = await migrate(old, new, names, CopyProgress(), force=force)
        return {"from": names[0], "to": names[1], **_counts(copied)}

    told = finish(moved())
    emit(told, here.output(output), [told["to"]], lambda _wide: fields((k, v) for k, v in told.items()))


def backup(
    ctx: typer.Context,
    words: Annotated[list[str], typer.Argument(metavar="[URL] FILE")],
    force: Force = False,
    output: OutputOption = None,
) -> None:
    """Copy everything in a store into one file, also while a coordinator runs on it."""
    here = session(ctx)
    section = here.settings_of(*STORED).coordinator
    if len(words) > 2:
        raise BadRequest(f"{len(words)} arguments: expected [URL] FILE")
    place, path = place_of(words[0] if len(words) == 2 else None, section), Path(words[-1])

    async def kept() -> dict[str, Any]:
        from phalanx import __version__
        from phalanx.clock import SystemClock
        from phalanx.store.archive import write_archive
        from phalanx.store.contents import StoreContents

        async with reading(place, section) as store:
            contents = await StoreContents.read(store, str(place))
            now = SystemClock().now()
            end = await write_archive(path, contents, now, __version__, CopyProgress(), force=force)
        sizes = {"bytes": path.stat().st_size, "batches": end.batches, "ended_jobs": end.records}
        return {"file": str(path), "store": str(place), "revision": contents.head, **sizes}

    told = finish(kept())
    emit(told, here.output(output), [str(path)], lambda _wide: fields((k, v) for k, v in told.items()))


def restore(
    ctx: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE")],
    url: Annotated[str, typer.Argument(metavar="URL")],
    output: OutputOption = None,
) -> None:
    """Restore a backup into an empty store. Changes made after the backup are lost."""
    here = session(ctx)
    section = here.settings_of(*STORED).coordinator
    place = place_of(url, section)
    refuse_memory(place)

    async def filled() -> dict[str, Any]:
        from phalanx.store.archive import Archive
        from phalanx.store.copy import check_vacant, fill, first_epoch

        archive = Archive(file)
        now = SystemClock().now()
        note(f"{file}: backup of {moment(archive.made_at)}, made by version {archive.version}")
        async with writing(place, section) as store:
            await check_vacant(store, archive.name, str(place))
            epoch = first_epoch(archive.epoch, archive.made_at, now)
            copied = await fill(store, archive, epoch, CopyProgress(), restored_at=now)
        return {"from": str(file), "to": str(place), **_counts(copied)}

    told = finish(filled())
    emit(told, here.output(output), [str(place)], lambda _wide: fields((k, v) for k, v in told.items()))


def reopen(
    ctx: typer.Context,
    url: Annotated[str, typer.Argument(metavar="URL")],
    output: OutputOption = None,
) -> None:
    """Abandon a migration: let coordinators use the source store again."""
    here = session(ctx)
    section = here.settings_of(*STORED).coordinator
    place = place_of(url, section)
    refuse_missing(place)

    async def reopened() -> int:
        from phalanx.store.copy import reopen

        async with writing(place, section) as store:
            return await reopen(store, str(place))

    epoch = finish(reopened())
    told = {"store": str(place), "epoch": epoch}
    emit(told, here.output(output), [str(place)], lambda _wide: [f"{place} is usable again, epoch {epoch}"])


class CopyProgress:
    """How far it is, on one line of a terminal; a log gets a line now and then."""

    def __init__(self) -> None:
        self._doing = ""

    def __call__(self, doing: str, done: int) -> None:
        is_new, self._doing = doing != self._doing, doing
        if not is_new and done % SHOW_EVERY:
            return
        if sys.stderr.isatty():
            sys.stderr.write(f"\r\x1b[K{doing}: {done}")
            sys.stderr.flush()
        elif is_new:
            note(f"{doing} …")


def _report(found: Checked) -> Iterable[str]:
    yield from fields(
        [
            ("Store", found.store),
            ("Epoch", found.epoch),
            ("Active", found.leader or "nobody"),
            ("Revision", found.revision),
            ("Image", found.image_revision or "none"),
            (
                "Log",
                f"{plural(found.batches, 'batch').replace('batchs', 'batches')} after {found.log_begins_after}",
            ),
            ("Jobs", f"{found.jobs}, and {found.ended_jobs} in the history"),
            ("Nodes", found.nodes),
            ("State", "good" if found.is_good else "DAMAGED"),
        ]
    )
    for damage in found.damaged:
        yield f"damaged: {damage.source} {damage.key}"
    for damage in found.set_aside:
        yield f"set aside before: {damage.source} {damage.key}"
    for sentence in found.broken:
        yield f"does not hold: {sentence}"


def _counts(copied: Any) -> dict[str, Any]:
    return {
        "epoch": copied.epoch,
        "revision": copied.revision,
        "batches": copied.batches,
        "ended_jobs": copied.records,
    }


def place_of(url: str | None, section: CoordinatorSettings) -> StoreAddress:
    from phalanx.store.address import read_address

    return read_address(section.store if url is None else url, section.state_dir)


def refuse_memory(*places: StoreAddress) -> None:
    if any(place.kind == "memory" for place in places):
        raise BadRequest("memory: ends with its process, so it can be neither source nor target")


def refuse_missing(place: StoreAddress) -> None:
    """Opening a file would make it."""
    if place.path is not None and not place.path.is_file():
        raise Conflict(f"there is no store at {place.path}")


@asynccontextmanager
async def reading(place: StoreAddress, section: CoordinatorSettings) -> AsyncIterator[Store]:
    from phalanx.store.address import read_access
    from phalanx.store.open import open_to_read
    from phalanx.store.sqlite.file import is_blank

    if place.path is not None and is_blank(place.path):
        raise NotFound(f"there is no store at {place.path}", hint="is the address right?")
    async with _closed_after(await open_to_read(place, read_access(section))) as store:
        yield store


@asynccontextmanager
async def writing(place: StoreAddress, section: CoordinatorSettings) -> AsyncIterator[Store]:
    from phalanx.store.address import read_access
    from phalanx.store.open import open_at

    async with _closed_after(await open_at(place, read_access(section))) as store:
        yield store


@asynccontextmanager
async def _closed_after(store: Store) -> AsyncIterator[Store]:
    try:
        yield store
    finally:
        await store.close()


def finish(work: Coroutine[Any, Any, T]) -> T:
    """Wait for it; what a store raises becomes one of our errors."""
    from phalanx.store.protocol import StoreError

    try:
        return asyncio.run(work)
    except StoreError as error:
        raise Unavailable(str(error), reason="StoreUnavailable", hint=error.hint) from error
    finally:
        if sys.stderr.isatty():
            sys.stderr.write("\r\x1b[K")
