"""The routes of what is declared, and of what would happen: job files applied whole, quotas, layers, plans, the map."""

from __future__ import annotations

from phalanx.api.schema.apply import (
    ApplyReply,
    ApplyRequest,
    PlanFilesRequest,
    PlanReply,
    PlanRequest,
    TopologyView,
)
from phalanx.api.schema.cluster import TopologyReply, TopologySpec
from phalanx.api.schema.fields import check_name
from phalanx.api.schema.queues import QueueView, QuotaSpec
from phalanx.api.server.messages import HttpRequest, Response, json_reply
from phalanx.api.server.route import Route, Service
from phalanx.api.server.routes.jobs import join_key


async def apply(service: Service, http_request: HttpRequest) -> Response:
    request: ApplyRequest = http_request.document
    join_key(request, http_request)
    if request.topology is not None or request.quotas:
        http_request.require("declare")
    reply = await service.commands.apply(request, http_request.user, http_request.identity.role)
    http_request.made = [job.id for job in reply.jobs if not job.unchanged]
    return json_reply(reply, 202)


async def queues(service: Service, _http_request: HttpRequest) -> Response:
    return json_reply(await service.commands.queues())


async def queue(service: Service, http_request: HttpRequest) -> Response:
    return json_reply(await service.commands.queue(http_request.id))


async def set_quota(service: Service, http_request: HttpRequest) -> Response:
    check_name("queue", http_request.id)
    return json_reply(
        await service.commands.set_quota(http_request.id, http_request.document, http_request.user)
    )


async def unset_quota(service: Service, http_request: HttpRequest) -> Response:
    return json_reply(await service.commands.set_quota(http_request.id, None, http_request.user))


async def set_topology(service: Service, http_request: HttpRequest) -> Response:
    return json_reply(await service.commands.set_topology(http_request.document, http_request.user))


async def plan(service: Service, http_request: HttpRequest) -> Response:
    request: PlanRequest = http_request.document
    return json_reply(
        await service.commands.plan(
            request, http_request.user, http_request.identity.role, http_request.identity.asker
        )
    )


async def plan_files(service: Service, http_request: HttpRequest) -> Response:
    request: PlanFilesRequest = http_request.document
    identity = http_request.identity
    return json_reply(
        await service.commands.plan_files(request, http_request.user, identity.role, identity.asker)
    )


async def plan_job(service: Service, http_request: HttpRequest) -> Response:
    return json_reply(await service.commands.plan_job(http_request.id, http_request.identity.asker))


async def topology(service: Service, _http_request: HttpRequest) -> Response:
    return json_reply(await service.commands.topology())


ROUTES = (
    Route(
        method="POST",
        path="/v1/apply",
        permission="submit",
        handler=apply,
        summary="Submit jobs and declare topology layers and quotas: all of it, or nothing.",
        answer=ApplyReply,
        status=202,
        body=ApplyRequest,
        header="Idempotency-Key",
        is_costly=True,
    ),
    Route(
        method="GET",
        path="/v1/queues",
        permission="read",
        handler=queues,
        summary="List queues: quota, usage and number of waiting jobs.",
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
        summary="Create a queue or set its quota and highest priority. Running tasks beyond the quota continue.",
        answer=QueueView,
        body=QuotaSpec,
    ),
    Route(
        method="DELETE",
        path="/v1/queues/{id}",
        permission="declare",
        handler=unset_quota,
        summary="Remove a queue and its quota: new submits to it are rejected. Jobs waiting in it stay.",
        answer=QueueView,
    ),
    Route(
        method="PUT",
        path="/v1/topology",
        permission="declare",
        handler=set_topology,
        summary="Set the topology's layers. Running tasks stay where they are.",
        answer=TopologyReply,
        body=TopologySpec,
    ),
    Route(
        method="POST",
        path="/v1/plan",
        permission="read",
        handler=plan,
        summary="Plan jobs without submitting them: where they would be placed, or why they would wait.",
        answer=PlanReply,
        body=PlanRequest,
        is_costly=True,
        is_heavy=True,
    ),
    Route(
        method="GET",
        path="/v1/jobs/{id}/plan",
        permission="read",
        handler=plan_job,
        summary="Where the next pass would place the waiting tasks of a job, or why they go on waiting.",
        answer=PlanReply,
        is_about_a_job=True,
        is_costly=True,
        is_heavy=True,
    ),
    Route(
        method="POST",
        path="/v1/plan/files",
        permission="read",
        handler=plan_files,
        summary="Plan the jobs of job files or manifests, given as text; nothing is submitted.",
        answer=PlanReply,
        body=PlanFilesRequest,
        is_costly=True,
        is_heavy=True,
    ),
    Route(
        method="GET",
        path="/v1/topology",
        permission="read",
        handler=topology,
        summary="The topology tree: domains, free resources, and which tasks run where.",
        answer=TopologyView,
    ),
)
