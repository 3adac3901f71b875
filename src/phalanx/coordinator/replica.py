"""What a standby knows: the state as the log tells it, read on from time to time.

It is never written to but by the log, so it lags a moment behind and is never wrong. When its owner wins the office it
becomes the state of the term. Who holds the office, and when to look, is left to `member.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from phalanx.clock import Clock
from phalanx.coordinator.collector import collector_still
from phalanx.coordinator.heart import Heart, Turn, replay, restore
from phalanx.core.cluster.state import ClusterState, Rules
from phalanx.core.cluster.view import wake
from phalanx.core.model.plan import Policy
from phalanx.store.protocol import Batch, Loaded, Store

BATCHES_PER_LOOK = 500


class Replica:
    """A heart that never beats by itself; None until the log was read, and after it was thrown away."""

    def __init__(self, rules: Rules, policy: Policy) -> None:
        self.heart: Heart | None = None
        self.image_revision = 0  # of the image that the last whole reading began with
        self.read_at = float("-inf")  # when the end of the log was last seen
        self._rules = rules
        self._policy = policy
        self._reading = asyncio.Lock()

    def begin(self, loaded: Loaded, now: float) -> ClusterState:
        """Take all of what the store remembers."""
        with collector_still():
            self.heart = Heart(restore(loaded, self._rules), self._policy)
        self.image_revision = loaded.image_revision
        self.read_at = now
        return self.heart.state

    def forget(self) -> None:
        self.heart = None

    async def follow(self, store: Store, clock: Clock) -> AsyncIterator[tuple[Batch, Turn]]:
        """Read on to the end of the log. What each batch did is given as the turn it was, without answers."""
        async with self._reading:
            while (heart := self.heart) is not None:
                asked_at = clock.monotonic()
                batches = await store.since(heart.state.revision, BATCHES_PER_LOOK)
                for batch in batches:
                    events, effects = replay(heart.state, batch)
                    yield batch, Turn(events, effects, [], [], batch.revision)
                if len(batches) < BATCHES_PER_LOOK:
                    wake(heart.state, clock.now())
                    self.read_at = asked_at
                    return
                await asyncio.sleep(0)  # others want to be answered too
