"""Requests of pages that a standby passes on to the leader; how they get there is left to `Forwards`."""

from __future__ import annotations

from contextlib import nullcontext

from phalanx.api.server.messages import ClientDisconnected, HttpRequest, Send, problem_reply
from phalanx.api.server.proxies import VOUCHER
from phalanx.api.server.route import Route, Service
from phalanx.errors import NotActive, PhalanxError, Unavailable

OPEN_BODY_BYTES = 4096  # of a request without a token


def leader_for(service: Service, route: Route, http_request: HttpRequest) -> str:
    """Where a page's request is passed on to, for this is a standby; empty: it is answered here."""
    is_of_page = bool(http_request.identity.login) or (route.path, route.method) == ("/v1/logins", "POST")
    return _leader_of(service) if service.forwards is not None and is_of_page else ""


def _leader_of(service: Service) -> str:
    """The address of another that leads; empty if there is none, or we lead."""
    try:
        service.commands.require_active()
    except NotActive as error:
        leader = error.extra.get("leader")
        return leader if isinstance(leader, str) else ""
    return ""


async def passed_on(
    service: Service, route: Route, http_request: HttpRequest, leader: str, noun: str, send: Send
) -> bool:
    """Whether the leader has answered, or none can; otherwise what may be a little old is to be answered here."""
    assert service.forwards is not None

    def is_leader() -> bool:
        return _leader_of(service) == leader

    try:
        if route.permission == "open":  # strangers share one user: whoever sends slowly occupies no place
            await http_request.body(body_bytes_of(service, route))
        is_large = http_request.is_large(service.limits.large_bytes)
        with (
            service.waits.taken(http_request),
            service.large_bodies.taken(http_request) if is_large else nullcontext(),
        ):
            body = await http_request.body(body_bytes_of(service, route))
            user = service.proxies.user_of(http_request)
            if user is not None and service.vouchers is not None:
                http_request.headers[VOUCHER] = service.vouchers.voucher(user).encode()
            reply = await service.forwards.forward(http_request, leader, body, is_leader)
            service.commands.count_request(noun, getattr(reply, "status", 200))
            await reply.send(send)
    except ClientDisconnected:
        return True
    except PhalanxError as error:
        if isinstance(error, Unavailable) and route.method == "GET" and not route.lasting:
            return False
        await problem_reply(error, http_request.path).send(send)
    return True


def body_bytes_of(service: Service, route: Route) -> int:
    if route.permission == "open":
        return OPEN_BODY_BYTES
    return max(service.limits.body_bytes, route.body_bytes)
