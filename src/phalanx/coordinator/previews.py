"""What would happen, asked of the state as it stands: plans that are never carried out, and the map.

The pass is made within one step of the loop, on the live columns, and leaves them as they were.
"""

from __future__ import annotations

from phalanx.api.roles import PRIORITY_OF_USERS
from phalanx.api.schema_plan import PlanReply, PlanRequest, TopologyView
from phalanx.coordinator.declarations import Declarations
from phalanx.coordinator.refusals import unwelcome
from phalanx.core.cluster import admission
from phalanx.core.model.job import Job
from phalanx.preview.online import plan_online
from phalanx.preview.topology import topology_view


class Previews(Declarations):
    """Questions about what would be."""

    async def plan(self, request: PlanRequest, user: str, priority_max: int = PRIORITY_OF_USERS) -> PlanReply:
        await self._pace.turn()
        heart, now = self._loop.heart, self._clock.now()

        def check(job: Job) -> None:
            """What would be refused at once is refused here, too."""
            if (no := admission.unwelcome(heart.state, job, priority_max)) is not None:
                raise unwelcome(no)

        retries = self._default_retries
        return plan_online(heart.state, request, heart.policy, now, user=user, retries=retries, check=check)

    async def topology(self) -> TopologyView:
        await self._pace.turn()
        return topology_view(self._loop.state)
