"""`phalanx store repair`: what is wrong with a store, what each way on would cost, and the one that was chosen.

Without a choice nothing is changed. A coordinator that refused to serve goes on by itself when one was made.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any

import typer
from msgspec import Struct

from phalanx.cli.output import OutputOption, emit, fields, note
from phalanx.cli.session import STORED, session
from phalanx.cli.store import Url, finish, place_of, reading, refuse_memory, writing
from phalanx.core.model.amounts import plural
from phalanx.errors import BadRequest, Conflict, NotFound
from phalanx.settings import CoordinatorSettings

if TYPE_CHECKING:
    from phalanx.store.address import StoreAddress
    from phalanx.store.repair import Choice, DamageSurvey, Repaired
    from phalanx.store.verified import Seen

NAMED_MAX = 20  # of each kind, in a table; -o json has all of them


class RepairReport(Struct, frozen=True):
    """What was found, and how it compares with what the coordinator of this state folder has seen of this store."""

    survey: DamageSurvey
    seen_epoch: int
    seen_revision: int
    has_lost: bool


def repair(
    ctx: typer.Context,
    url: Url = None,
    hold: Annotated[
        bool,
        typer.Option(
            "--hold", help="Continue with what can be read; affected jobs are held until `phalanx release`."
        ),
    ] = False,
    to_image: Annotated[
        bool,
        typer.Option("--to-image", help="Roll back to the newest image and the intact records after it."),
    ] = False,
    accept_loss: Annotated[
        bool, typer.Option("--accept-loss", help="Continue with a store that has lost records seen before.")
    ] = False,
    yes: Annotated[
        bool, typer.Option("--yes", help="Confirm the loss of data by --to-image or --accept-loss.")
    ] = False,
    output: OutputOption = None,
) -> int:
    """Report damage in a store and the jobs affected, and apply the repair you choose.

    Without a choice nothing is changed, and the exit code is 1 if one is needed. The first choice is a backup, if there
    is one: `phalanx store restore FILE URL`.
    """
    here = session(ctx)
    section = here.settings_of(*STORED).coordinator
    place = place_of(url, section)
    refuse_memory(place)
    if hold + to_image + accept_loss > 1:
        raise BadRequest("one choice at a time: --hold, --to-image or --accept-loss")
    found = finish(_looked(place, section))
    if not (hold or to_image or accept_loss):
        emit(found, here.output(output), [str(place)], lambda _wide: _lines(found))
        return 0 if found.survey.is_good and not found.has_lost else 1
    if accept_loss:
        told = finish(_accepted(place, section, found, yes=yes))
    else:
        told = _chosen(finish(_repaired(place, section, found, "hold" if hold else "to-image", yes=yes)))
    emit(told, here.output(output), [str(place)], lambda _wide: fields(told.items()))
    return 0


async def _looked(place: StoreAddress, section: CoordinatorSettings) -> RepairReport:
    from phalanx.store.repair import DamageSurvey, survey
    from phalanx.store.sqlite.file import is_blank

    seen = _seen(place, section)
    if place.path is not None and is_blank(place.path):
        if not seen.epoch:
            raise NotFound(f"there is no store at {place.path}", hint="is the address right?")
        found = DamageSurvey(str(place), 0, None, 0, [], [], [], [], [])
    else:
        async with reading(place, section) as store:
            found = await survey(store, str(place))
    has_lost = (found.epoch, found.revision) < (seen.epoch, seen.revision)
    return RepairReport(found, seen.epoch, seen.revision, has_lost)


async def _repaired(
    place: StoreAddress, section: CoordinatorSettings, found: RepairReport, choice: Choice, *, yes: bool
) -> Repaired:
    from phalanx.clock import SystemClock
    from phalanx.store.repair import repair

    if choice == "to-image" and not yes:
        for line in _cost(found.survey):
            note(line)
        raise Conflict(
            "rolling back loses what was written since", hint="give --yes as well, or --hold instead"
        )
    async with writing(place, section) as store:
        return await repair(store, str(place), choice, SystemClock().now())


async def _accepted(
    place: StoreAddress, section: CoordinatorSettings, found: RepairReport, *, yes: bool
) -> dict[str, Any]:
    """An epoch above all that was seen: runners obey it, and the coordinator believes the store again."""
    if not found.has_lost:
        raise Conflict(f"{place} has everything that was seen before: there is no loss to accept")
    if found.survey.leader is not None:
        raise Conflict(f"coordinator {found.survey.leader} is active on {place}", hint="stop it first")
    if not yes:
        raise Conflict(
            _loss(found), hint="restore a backup if there is one; --yes goes on without what is gone"
        )
    async with writing(place, section) as store:
        epoch = await store.open_term(found.seen_epoch + 1)
    return {"store": str(place), "epoch": epoch, "revision": found.survey.revision}


def _chosen(done: Repaired) -> dict[str, Any]:
    return {
        "store": done.store,
        "choice": done.choice,
        "epoch": done.epoch,
        "revision": done.revision,
        "held": done.held,
        "set_aside": done.set_aside,
    }


def _seen(place: StoreAddress, section: CoordinatorSettings) -> Seen:
    from phalanx.store.verified import EpochsSeen

    return EpochsSeen(section.state_dir, place).highest


def _lines(found: RepairReport) -> Iterable[str]:
    survey = found.survey
    yield from fields(
        [
            ("Store", survey.store),
            ("Epoch", survey.epoch),
            ("Active", survey.leader or "nobody"),
            ("Revision", survey.revision),
        ]
    )
    if found.has_lost:
        yield _loss(found)
        yield "  phalanx store restore FILE URL      fills an empty store from a backup"
        yield "  phalanx store repair --accept-loss  goes on with what is left"
    for hole in survey.holes:
        index = "the index names its jobs" if hole.is_named else "their jobs are unknown"
        yield f"Damaged or missing: revisions {hole.after + 1} to {hole.upto}; {index}"
    if survey.holes:
        yield from _choices(survey)
    elif not found.has_lost:
        yield "The log has no hole: nothing to repair."


def _choices(survey: DamageSurvey) -> Iterable[str]:
    yield "Choose:"
    yield "  phalanx store restore FILE URL    into an empty store: what happened since the backup is forgotten"
    count = plural(len(survey.concerned), "job")
    yield f"  phalanx store repair --hold       keeps what can be read; {count} may have ended and would be held"
    yield from _named("would be held", [each.job for each in survey.concerned])
    yield from _named("cannot be read any more", survey.gone)
    yield "  phalanx store repair --to-image   goes back to before the damage"
    yield from _cost(survey)
    yield "Tokens revoked, quotas and nodes changed in what is missing: look at them again in either case."


def _cost(survey: DamageSurvey) -> Iterable[str]:
    yield from _named("accepted since, would be forgotten", survey.forgotten)
    yield from _named("ended since, would run again", survey.again)


def _named(what: str, jobs: list[str]) -> Iterable[str]:
    if jobs:
        more = f" and {len(jobs) - NAMED_MAX} more (-o json)" if len(jobs) > NAMED_MAX else ""
        yield f"    {plural(len(jobs), 'job')} {what}: {' '.join(jobs[:NAMED_MAX])}{more}"


def _loss(found: RepairReport) -> str:
    return (
        f"The store is at epoch {found.survey.epoch}, revision {found.survey.revision}, and was seen at epoch "
        f"{found.seen_epoch}, revision {found.seen_revision}: what came after is lost."
    )
