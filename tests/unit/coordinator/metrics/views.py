"""A coordinator that only shows a state."""

from __future__ import annotations

from phalanx.api.schema.cluster import CoordinatorView
from phalanx.coordinator.turn import Engine
from phalanx.core.cluster.decision import Answer
from phalanx.core.cluster.inputs import Input
from phalanx.core.cluster.state import ClusterState


class FakeRequests:
    def __init__(self, state: ClusterState) -> None:
        self.state = state
        self.engine = Engine(state)

    async def ask(self, inputs: list[Input]) -> list[Answer | None]:
        raise NotImplementedError

    def require_active(self) -> None: ...

    async def require_leader(self) -> None: ...

    def require_lease(self) -> None: ...

    async def ready(self) -> None: ...

    async def catch_up(self) -> bool:
        return False

    def behind_s(self) -> float:
        return 0.0

    def view(self) -> CoordinatorView:
        return CoordinatorView("a", "Active")
