"""What REST's commands need of the coordinator behind them: reads of the state, and inputs to decide."""

from __future__ import annotations

from typing import Protocol

from phalanx.api.schema.cluster import CoordinatorView
from phalanx.coordinator.turn import Engine
from phalanx.core.cluster.decision import Answer
from phalanx.core.cluster.inputs import Input
from phalanx.core.cluster.state import ClusterState


class Requests(Protocol):
    """Reads of the state, and inputs to decide: a `Leadership`, active or not."""

    @property
    def state(self) -> ClusterState: ...

    @property
    def engine(self) -> Engine: ...

    async def ask(self, inputs: list[Input]) -> list[Answer | None]:
        """Have inputs decided, and wait until that is durable; NotActive on a standby."""
        ...

    def require_active(self) -> None:
        """Raise NotActive unless this coordinator accepts changes."""
        ...

    async def require_leader(self) -> None:
        """Raise NotActive if another may lead, which one that was paused cannot know by itself."""
        ...

    def require_lease(self) -> None:
        """Raise NotActive unless this one is active, surely so by its clock."""
        ...

    async def ready(self) -> None:
        """Raise Unavailable unless the whole way to the store and back works."""
        ...

    async def catch_up(self) -> bool:
        """A standby reads the log to its end, the active one waits for its store. False if nothing can be new."""
        ...

    def behind_s(self) -> float:
        """How old may be what this one knows: 0 for the active one."""
        ...

    def view(self) -> CoordinatorView: ...
