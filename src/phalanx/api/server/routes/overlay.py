"""The routes of the overlay network's addresses: reserve, release, list, and what is free on each node."""

from __future__ import annotations

from phalanx.api.schema.overlay import (
    AddressesQuery,
    AddressesView,
    NewReservation,
    ReservationView,
    ReserveRequest,
    check_reserve,
)
from phalanx.api.server.messages import HttpRequest, Response, json_reply
from phalanx.api.server.route import Route, Service


async def reserve(service: Service, http_request: HttpRequest) -> Response:
    request = check_reserve(http_request.document)
    made = await service.commands.reserve_address(http_request.id, request, http_request.user)
    return json_reply(made, 201)


async def reservations(service: Service, http_request: HttpRequest) -> Response:
    found = await service.commands.reservations()
    sees_all = http_request.identity.scope("operate") == "all"
    return json_reply([each for each in found if sees_all or each.user == http_request.user])


async def release_reservation(service: Service, http_request: HttpRequest) -> Response:
    is_operator = http_request.identity.scope("operate") == "all"
    return json_reply(
        await service.commands.release_reservation(http_request.id, http_request.user, is_operator)
    )


async def addresses(service: Service, http_request: HttpRequest) -> Response:
    query: AddressesQuery = http_request.query
    return json_reply(await service.commands.addresses(query.limit))


async def node_addresses(service: Service, http_request: HttpRequest) -> Response:
    query: AddressesQuery = http_request.query
    return json_reply(await service.commands.node_addresses(http_request.id, query.limit))


ROUTES = (
    Route(
        method="POST",
        path="/v1/nodes/{id}/reserve",
        permission="submit",
        handler=reserve,
        summary="Reserve an address of a node in the overlay network. Its token is in this answer only.",
        answer=NewReservation,
        status=201,
        body=ReserveRequest,
    ),
    Route(
        method="GET",
        path="/v1/reservations",
        permission="submit",
        handler=reservations,
        summary="List reservations of addresses: your own, or all of them as operator.",
        answer=list[ReservationView],
    ),
    Route(
        method="POST",
        path="/v1/reservations/{id}/release",
        permission="submit",
        handler=release_reservation,
        summary="Give a reservation back that no task has used.",
        answer=ReservationView,
    ),
    Route(
        method="GET",
        path="/v1/addresses",
        permission="read",
        handler=addresses,
        summary="The addresses of every node in the overlay network: its block, and what of it is free.",
        answer=list[AddressesView],
        query=AddressesQuery,
    ),
    Route(
        method="GET",
        path="/v1/addresses/{id}",
        permission="read",
        handler=node_addresses,
        summary="The addresses of one node.",
        answer=AddressesView,
        query=AddressesQuery,
    ),
)
