"""Whether the batches of a log follow each other without a hole.

A revision counts events, so what is missing leaves a gap. An empty batch settles the fate of tries whose answer was
lost, and leaves their numbers out; `LogSettled` says after which revision, so that nothing can hide behind it.
"""

from __future__ import annotations

from msgspec import MsgspecError

from phalanx.core.cluster.events import Event, decode
from phalanx.core.cluster.events_log import LogSettled
from phalanx.store.protocol import Batch, Loaded, LogHole


def missing_before(revision: int, batch: Batch, events: list[Event] | None) -> int | None:
    """Up to where events are missing between a revision and the end of the next batch; None if none is."""
    if events is None or batch.revision <= revision:
        return batch.revision
    if len(events) == 1 and isinstance(settled := events[0], LogSettled):
        return settled.after if settled.after > revision else None
    begins = batch.revision - len(events)
    return begins if events and begins != revision else None


def hole_in(loaded: Loaded) -> LogHole | None:
    """The first hole after the image, or None if the state can be told."""
    at = loaded.image_revision
    for batch in loaded.batches:
        if (upto := missing_before(at, batch, events_of(batch))) is not None:
            return LogHole(at, upto)
        at = batch.revision
    return None


def events_of(batch: Batch) -> list[Event] | None:
    """What a batch says; None if it is damaged, or cannot be read."""
    if batch.is_damaged:
        return None
    try:
        return decode(batch.body)
    except (MsgspecError, ValueError):
        return None
