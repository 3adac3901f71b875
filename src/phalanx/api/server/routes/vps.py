"""The routes of VPSs: make, list, show, restart, stop. Connections to them are sessions, as those to every task."""

from __future__ import annotations

from phalanx.api.schema.vps import (
    NewVps,
    SnapshotRequest,
    SnapshotView,
    StoppedVps,
    VpsQuery,
    VpsRequest,
    VpsView,
)
from phalanx.api.server.messages import HttpRequest, Response, json_reply
from phalanx.api.server.route import Route, Service
from phalanx.api.server.routes.jobs import join_key


async def create(service: Service, http_request: HttpRequest) -> Response:
    request: VpsRequest = http_request.document
    join_key(request, http_request)
    made = await service.commands.create_vps(request, http_request.user, http_request.identity.role)
    http_request.made = [made.id]
    return json_reply(made, 201)


async def listed(service: Service, http_request: HttpRequest) -> Response:
    query: VpsQuery = http_request.query
    sees_all = http_request.identity.scope("operate") == "all"
    user = None if sees_all else http_request.user
    return json_reply(await service.commands.list_vps(user, ended=query.all))


async def show(service: Service, http_request: HttpRequest) -> Response:
    return json_reply(await service.commands.vps(http_request.id))


async def stop(service: Service, http_request: HttpRequest) -> Response:
    return json_reply(await service.commands.stop_vps(http_request.id))


async def restart(service: Service, http_request: HttpRequest) -> Response:
    return json_reply(await service.commands.restart_vps(http_request.id, http_request.user), 202)


async def snapshots(service: Service, http_request: HttpRequest) -> Response:
    return json_reply(await service.commands.vps_snapshots(http_request.id))


async def snapshot(service: Service, http_request: HttpRequest) -> Response:
    request: SnapshotRequest = http_request.document
    return json_reply(await service.commands.snapshot_vps(http_request.id, request.name), 201)


async def restore(service: Service, http_request: HttpRequest) -> Response:
    request: SnapshotRequest = http_request.document
    restored = await service.commands.restore_vps(http_request.id, request.name, http_request.user)
    return json_reply(restored, 202)


async def remove_snapshot(service: Service, http_request: HttpRequest) -> Response:
    request: SnapshotRequest = http_request.document
    return json_reply(await service.commands.remove_snapshot(http_request.id, request.name))


ROUTES = (
    Route(
        method="POST",
        path="/v1/vps",
        permission="submit",
        handler=create,
        summary="Make a VPS. A private key that is made with it is in this answer only.",
        answer=NewVps,
        status=201,
        body=VpsRequest,
        is_costly=True,
    ),
    Route(
        method="GET",
        path="/v1/vps",
        permission="submit",
        handler=listed,
        summary="List VPSs: your own, or all of them as operator.",
        answer=list[VpsView],
        query=VpsQuery,
    ),
    Route(
        method="GET",
        path="/v1/vps/{id}",
        permission="enter",
        handler=show,
        summary="One VPS: where it is, its port, its host key.",
        answer=VpsView,
        is_about_a_job=True,
    ),
    Route(
        method="POST",
        path="/v1/vps/{id}/stop",
        permission="control",
        handler=stop,
        summary="Stop a VPS for good, and remove its files.",
        answer=StoppedVps,
        is_about_a_job=True,
    ),
    Route(
        method="POST",
        path="/v1/vps/{id}/restart",
        permission="control",
        handler=restart,
        summary="Start a VPS anew on its node, with its files, keys and host key.",
        answer=VpsView,
        status=202,
        is_about_a_job=True,
    ),
    Route(
        method="GET",
        path="/v1/vps/{id}/snapshots",
        permission="enter",
        handler=snapshots,
        summary="The snapshots of a VPS in a container.",
        answer=list[SnapshotView],
        is_about_a_job=True,
    ),
    Route(
        method="POST",
        path="/v1/vps/{id}/snapshots",
        permission="enter",
        handler=snapshot,
        summary="Make an image of the container of a VPS, on its node.",
        answer=SnapshotView,
        status=201,
        body=SnapshotRequest,
        is_about_a_job=True,
        lasting=True,
    ),
    Route(
        method="POST",
        path="/v1/vps/{id}/restore",
        permission="control",
        handler=restore,
        summary="Start a VPS anew from one of its snapshots.",
        answer=VpsView,
        status=202,
        body=SnapshotRequest,
        is_about_a_job=True,
    ),
    Route(
        method="POST",
        path="/v1/vps/{id}/remove-snapshot",
        permission="control",
        handler=remove_snapshot,
        summary="Remove a snapshot that the VPS does not start from.",
        answer=list[SnapshotView],
        body=SnapshotRequest,
        is_about_a_job=True,
    ),
)
