"""Checks a store: every checksum, every record decoded, the log replayed, and the invariants of the state.

Nothing is changed, so a store may be checked while a coordinator runs on it.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from msgspec import MsgspecError, Struct

from phalanx.core.cluster.events import Event
from phalanx.core.cluster.image import decode_job, decode_state
from phalanx.core.cluster.invariants import check
from phalanx.core.cluster.state import ClusterState, Timers
from phalanx.core.cluster.transitions import apply
from phalanx.core.cluster.workflow_image import decode_workflow, is_workflow
from phalanx.errors import NotFound
from phalanx.store.chain import events_of, missing_before
from phalanx.store.contents import StoreContents
from phalanx.store.protocol import Batch, Loaded, Store
from phalanx.store.record import Damage
from phalanx.store.salvage import IMPOSSIBLE


class Checked(Struct, frozen=True):
    """What was found. `damaged` and `broken` are empty if all is well; `set_aside` was lost earlier."""

    store: str
    epoch: int
    leader: str | None
    revision: int
    image_revision: int
    log_begins_after: int
    batches: int
    events: int
    jobs: int
    nodes: int
    ended_jobs: int
    damaged: list[Damage]
    set_aside: list[Damage]
    broken: list[str]

    @property
    def is_good(self) -> bool:
        return not self.damaged and not self.broken


@runtime_checkable
class Inspected(Protocol):
    """A store that can name its damaged records."""

    async def damaged(self) -> list[Damage]:
        """Every record that is not what was written, and what was set aside earlier. Changes nothing."""
        ...


async def check_store(store: Store, name: str) -> Checked:
    """Read everything in a store."""
    found = set(await store.damaged() if isinstance(store, Inspected) else ())
    contents = await StoreContents.read(store, name)
    if not contents.epoch and not contents.head:
        raise NotFound(f"there is no cluster in {name}", hint="is the address right, its prefix too?")
    batches, events = 0, 0
    chain = Chain(contents.image_revision, contents.begin)
    async for batch in contents.everything():
        batches += 1
        decoded = events_of(batch)
        if decoded is None:
            found.add(Damage("log", str(batch.revision)))
        chain.follow(batch, decoded)
        events += len(decoded or ())
    ended = 0
    async for record in contents.records():
        ended += 1
        if not _is_job(record.body):
            found.add(Damage("history", record.job))
    state, broken = replayed(contents.loaded)
    leader = await store.leader()
    return Checked(
        store=name,
        epoch=contents.epoch,
        leader=None if leader is None else leader.candidate.name,
        revision=contents.head,
        image_revision=contents.image_revision,
        log_begins_after=contents.begin,
        batches=batches,
        events=events,
        jobs=len(state.jobs),
        nodes=len(state.nodes),
        ended_jobs=ended,
        damaged=sorted(each for each in found if not each.set_aside),
        set_aside=sorted(each for each in found if each.set_aside),
        # A story of which a part was set aside has a gap, which is reported already; the state does not need it.
        broken=[*chain.holes, *([] if found else chain.gaps), *broken],
    )


class Chain:
    """Whether each batch follows the one before. What an image covers is missing from stories, not from the state."""

    def __init__(self, covered: int = 0, begin: int | None = None) -> None:
        self.holes: list[str] = []
        self.gaps: list[str] = []
        self._covered = covered
        self._at = begin  # where the batch before ended, if known

    def follow(self, batch: Batch, events: list[Event] | None) -> None:
        """The next batch; `events` is None if it cannot be read, which is reported elsewhere."""
        if events is not None and self._at is not None:
            upto = missing_before(self._at, batch, events)
            if upto is not None:
                lost = f"{upto - self._at} events before revision {batch.revision} are missing"
                (self.holes if upto > self._covered else self.gaps).append(f"the log has a hole: {lost}")
        self._at = None if events is None else batch.revision


def _is_job(body: bytes) -> bool:
    try:
        if is_workflow(body):
            decode_workflow(body)
        else:
            decode_job(body)
    except (MsgspecError, ValueError):
        return False
    return True


def replayed(loaded: Loaded) -> tuple[ClusterState, list[str]]:
    """The state that a coordinator would start with, and every invariant that it breaks."""
    state = ClusterState(Timers())
    at = loaded.image_revision
    try:
        if loaded.image is not None:
            state = decode_state(loaded.image, Timers())
        for batch in loaded.batches:
            at = batch.revision
            for event in events_of(batch) or ():
                apply(state, event)
        return state, check(state)
    except IMPOSSIBLE as error:
        return state, [f"the log cannot be replayed at revision {at}: {type(error).__name__}: {error}"]
