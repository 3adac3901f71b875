"""The routes of what is declared: job files applied whole, quotas of queues, and the layers of the network."""

from __future__ import annotations

from phalanx.api.applied import ApplyReply, ApplyRequest
from phalanx.api.fields import check_name
from phalanx.api.layers import TopologyReply, TopologySpec
from phalanx.api.quotas import QueueView, QuotaSpec
from phalanx.api.reply import Reply, json_reply
from phalanx.api.route import Route, Service
from phalanx.api.routes_jobs import join_key
from phalanx.api.visit import Visit


async def apply(service: Service, visit: Visit) -> Reply:
    request: ApplyRequest = visit.document
    join_key(request, visit)
    if request.topology is not None or request.quotas:
        visit.require("declare")
    return json_reply(await service.commands.apply(request, visit.user, visit.identity.priority_max), 202)


async def queues(service: Service, _visit: Visit) -> Reply:
    return json_reply(await service.commands.queues())


async def queue(service: Service, visit: Visit) -> Reply:
    return json_reply(await service.commands.queue(visit.id))


async def set_quota(service: Service, visit: Visit) -> Reply:
    check_name("queue", visit.id)
    return json_reply(await service.commands.set_quota(visit.id, visit.document, visit.user))


async def unset_quota(service: Service, visit: Visit) -> Reply:
    return json_reply(await service.commands.set_quota(visit.id, None, visit.user))


async def set_topology(service: Service, visit: Visit) -> Reply:
    return json_reply(await service.commands.set_topology(visit.document, visit.user))


ROUTES = (
    Route(
        method="POST",
        path="/v1/apply",
        permission="submit",
        handler=apply,
        summary="Submit jobs with groups, and declare layers and quotas: all of it, or nothing.",
        answer=ApplyReply,
        status=202,
        body=ApplyRequest,
        header="Idempotency-Key",
    ),
    Route(
        method="GET",
        path="/v1/queues",
        permission="read",
        handler=queues,
        summary="All queues: what each may hold, what it holds, and how many wait.",
        answer=list[QueueView],
    ),
    Route(
        method="GET",
        path="/v1/queues/{id}",
        permission="read",
        handler=queue,
        summary="One queue.",
        answer=QueueView,
    ),
    Route(
        method="PUT",
        path="/v1/queues/{id}",
        permission="declare",
        handler=set_quota,
        summary="Declare a queue: what its tasks may hold, and its priorities. What they hold beyond it they keep.",
        answer=QueueView,
        body=QuotaSpec,
    ),
    Route(
        method="DELETE",
        path="/v1/queues/{id}",
        permission="declare",
        handler=unset_quota,
        summary="Forget a queue: its limits end, and nobody submits there any longer. What waits there goes on.",
        answer=QueueView,
    ),
    Route(
        method="PUT",
        path="/v1/topology",
        permission="declare",
        handler=set_topology,
        summary="Declare the layers of the network. What runs stays where it is.",
        answer=TopologyReply,
        body=TopologySpec,
    ),
)
