"""The state that a store remembers: an image, and the batches of the log after it."""

from __future__ import annotations

from phalanx.core.cluster.apply.nodes import carry_on
from phalanx.core.cluster.decision import Effect
from phalanx.core.cluster.events import Event, LogRepaired
from phalanx.core.cluster.image import decode_state
from phalanx.core.cluster.state import ClusterState, Timers
from phalanx.core.cluster.transitions import apply_batch
from phalanx.store.chain import events_of, missing_before
from phalanx.store.protocol import Batch, Fenced, Loaded, LogHole, Pruned

NAMED_MAX = 20  # jobs that are named where there may be thousands


def restore(loaded: Loaded, rules: Timers) -> ClusterState:
    """The state that the store remembers; LogHole if a part of it cannot be told."""
    state = ClusterState(rules) if loaded.image is None else decode_state(loaded.image, rules)
    for batch in loaded.batches:
        try:
            replay(state, batch)
        except Pruned as error:  # a repair goes on from its image, and that is not here
            raise hole(state, state.revision, batch.revision) from error
    return state


def replay(state: ClusterState, batch: Batch) -> tuple[list[Event], list[Effect]]:
    """What a batch of the log says, done to the state. The effects were carried out by the coordinator that wrote it.

    A damaged batch, or one before which others are missing, changes nothing and raises LogHole. One that a repair
    wrote raises Pruned: what the operator chose stands in an image, and the state begins anew from that.
    """
    events = events_of(batch)
    missing = missing_before(state.revision, batch, events)
    if events is None or missing is not None:
        raise hole(state, state.revision, missing or batch.revision)
    if events and type(events[0]) is LogRepaired:
        raise Pruned(f"the log was repaired at revision {batch.revision}")
    return events, apply_batch(state, events, batch.revision)


def hole(state: ClusterState, after: int, upto: int) -> LogHole:
    """What is missing after this state may be about every job that has not ended in it."""
    unfinished = [id for id, job in state.jobs.items() if not job.is_over]
    return LogHole(after, upto, unfinished[:NAMED_MAX], len(unfinished))


def read_back(former: ClusterState, loaded: Loaded, now: float) -> ClusterState:
    """The state that the store remembers, after a turn that could not be kept. The term goes on.

    Another coordinator may have begun a term meanwhile: then this one is over, and must not take the other's
    epoch for its own.
    """
    state = restore(loaded, former.rules)
    if state.epoch != former.epoch:
        raise Fenced(former.epoch, state.epoch)
    carry_on(state, former, now)
    return state
