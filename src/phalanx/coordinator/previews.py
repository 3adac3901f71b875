"""What would happen, asked of the state as it stands: plans that are never carried out, and the map.

The pass is made within one step of the loop, on the live columns, and leaves them as they were.
"""

from __future__ import annotations

from msgspec import structs

from phalanx.api.schema.apply import PlanReply, PlanRequest, TopologyView
from phalanx.api.server.auth import PRIORITY_OF_USERS
from phalanx.coordinator.declarations import Declarations
from phalanx.coordinator.refusals import refusal, unwelcome
from phalanx.core.cluster.decide import jobs
from phalanx.core.cluster.decide.applied_objects import applied_before
from phalanx.core.cluster.decision import Refused, Unchanged
from phalanx.core.cluster.view import snapshot
from phalanx.core.model.job import Job
from phalanx.preview.online import plan_online
from phalanx.preview.topology import topology_view


class Previews(Declarations):
    """Questions about what would be."""

    async def plan(self, request: PlanRequest, user: str, priority_max: int = PRIORITY_OF_USERS) -> PlanReply:
        await self._slices.turn()
        engine, now = self._loop.engine, self._clock.now()

        def check(job: Job) -> None:
            """What would be refused at once is refused here, too; a gang with more members is not refused."""
            known = applied_before(engine.state, job)
            if isinstance(known, Unchanged):
                there.append(
                    f"{job.object_name or job.name} is job {known.job} already: it would not be started again"
                )
            if isinstance(known, Refused) and known.reason.code != "Amended":
                raise refusal(known, job.object_name or job.name)
            if (no := jobs.unwelcome(engine.state, job, priority_max)) is not None:
                raise unwelcome(no)

        retries = self._default_retries
        there: list[str] = []
        seen = snapshot(engine.state, now, engine.memory)
        reply = plan_online(
            engine.state, request, engine.policy, seen, user=user, retries=retries, check=check
        )
        return structs.replace(reply, warnings=[*reply.warnings, *there])

    async def topology(self) -> TopologyView:
        await self._slices.turn()
        return topology_view(self._loop.state)
