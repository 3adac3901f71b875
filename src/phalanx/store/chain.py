"""Whether the batches of a log follow each other without a gap.

A revision counts events, so missing ones leave a gap. An empty batch decides about writes whose answer was lost, and
skips their numbers; `LogSettled` records after which revision, so that no missing batch is mistaken for a skipped one.
"""

from __future__ import annotations

from msgspec import MsgspecError

from phalanx.core.cluster.events import Event, LogSettled, decode
from phalanx.store.protocol import Batch, Loaded, LogHole


def missing_before(revision: int, batch: Batch, events: list[Event] | None) -> int | None:
    """The revision up to which events are missing between `revision` and the end of the next batch; None if none is."""
    if events is None or batch.revision <= revision:
        return batch.revision
    if len(events) == 1 and isinstance(settled := events[0], LogSettled):
        return settled.after if settled.after > revision else None
    begins = batch.revision - len(events)
    return begins if events and begins != revision else None


def hole_in(loaded: Loaded) -> LogHole | None:
    """The first gap after the image, or None if the state can be computed."""
    at = loaded.image_revision
    for batch in loaded.batches:
        if (upto := missing_before(at, batch, events_of(batch))) is not None:
            return LogHole(at, upto)
        at = batch.revision
    return None


def events_of(batch: Batch) -> list[Event] | None:
    """The events of a batch; None if it is damaged, or cannot be read."""
    if batch.is_damaged:
        return None
    try:
        return decode(batch.body)
    except (MsgspecError, ValueError):
        return None
