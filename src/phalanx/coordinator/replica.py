"""What a standby knows: the state as the log tells it, read on from time to time.

It is never written to but by the log, so it lags a moment behind and is never wrong. When its owner is elected it
becomes the state of the term. Who leads, and when to look, is left to `leadership.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from phalanx.clock import Clock
from phalanx.coordinator.collector import collector_still
from phalanx.coordinator.restore import replay, restore
from phalanx.coordinator.turn import Engine, Turn
from phalanx.core.cluster.events import BackoffsEnded
from phalanx.core.cluster.state import ClusterState, Timers
from phalanx.core.cluster.transitions import apply
from phalanx.core.model.plan import Policy
from phalanx.store.protocol import Batch, Loaded, Store

BATCHES_PER_LOOK = 500


class Replica:
    """An engine that takes no turns; None until the log was read, and after it was discarded."""

    def __init__(self, rules: Timers, policy: Policy) -> None:
        self.engine: Engine | None = None
        self.image_revision = 0  # of the image that the last whole reading began with
        self.read_at = float("-inf")  # when the end of the log was last seen
        self._rules = rules
        self._policy = policy
        self._reading = asyncio.Lock()

    def begin(self, loaded: Loaded, now: float) -> ClusterState:
        """Take all of what the store remembers."""
        with collector_still():
            self.engine = Engine(restore(loaded, self._rules), self._policy)
        self.image_revision = loaded.image_revision
        self.read_at = now
        return self.engine.state

    def forget(self) -> None:
        self.engine = None

    async def follow(self, store: Store, clock: Clock) -> AsyncIterator[tuple[Batch, Turn]]:
        """Read on to the end of the log. What each batch did is given as the turn it was, without answers."""
        async with self._reading:
            while (engine := self.engine) is not None:
                asked_at = clock.monotonic()
                batches = await store.since(engine.state.revision, BATCHES_PER_LOOK)
                for batch in batches:
                    events, effects = replay(engine.state, batch)
                    yield batch, Turn(events, effects, [], [], batch.revision)
                if len(batches) < BATCHES_PER_LOOK:
                    apply(engine.state, BackoffsEnded(at=clock.now()))
                    self.read_at = asked_at
                    return
                await asyncio.sleep(0)  # others want to be answered too
