"""The routes of browsers that log in: a ticket for a token, a cookie for a ticket, and the end of a login."""

from __future__ import annotations

from phalanx.api.schema.logins import (
    LoginRecord,
    LoginTicketRequest,
    LoginTicketView,
    LoginView,
    OpenLoginRequest,
)
from phalanx.api.server.auth import GRANTS, Identity
from phalanx.api.server.logins import (
    OPEN_A_LOGIN,
    cookie_name,
    csrf_of,
    next_ticket_of,
    set_cookie,
)
from phalanx.api.server.messages import HttpRequest, Response, json_reply
from phalanx.api.server.proxies import VOUCHER
from phalanx.api.server.route import Route, Service
from phalanx.core.model.login import IDLE_S
from phalanx.errors import Conflict, NotFound, Unauthorized


async def make_ticket(service: Service, http_request: HttpRequest) -> Response:
    request: LoginTicketRequest = http_request.document
    request.check()
    ticket, within_s = await service.commands.make_login_ticket(request.coordinators, http_request.identity)
    return json_reply(LoginTicketView(ticket=ticket, expires_in_s=within_s), 201)


async def open_login(service: Service, http_request: HttpRequest) -> Response:
    """The cookie is in a header of the answer, and what the page has to know is in its body."""
    request: OpenLoginRequest = http_request.document
    if request.ticket:
        cookie = await service.commands.open_login(request.ticket)
    else:
        cookie = await _vouched(service, http_request)
    identity = service.logins.accepts_login(cookie) if service.logins is not None else None
    if identity is None:  # its token was revoked at this very moment
        raise Unauthorized("the login has ended already", reason="LoginEnded", hint=OPEN_A_LOGIN)
    http_request.identity, http_request.what = identity, f"login {identity.login}"
    reply = json_reply(await _view(service, identity, cookie), 201)
    expires_at = identity.expires_at or 0.0
    span_s = expires_at - service.clock.now()
    reply.headers += (set_cookie(_cookie_name(http_request), cookie, span_s),)
    return reply


async def current(service: Service, http_request: HttpRequest) -> Response:
    _require_login(http_request)
    return json_reply(await _view(service, http_request.identity, http_request.token))


async def log_out(service: Service, http_request: HttpRequest) -> Response:
    _require_login(http_request)
    identity = http_request.identity
    http_request.what = f"login {identity.login}"
    reply = json_reply(await service.commands.end_login(identity.login, identity))
    reply.headers += (set_cookie(_cookie_name(http_request), "", 0.0),)
    return reply


async def listed(service: Service, http_request: HttpRequest) -> Response:
    found = await service.commands.logins()
    return json_reply([each for each in found if _is_theirs(http_request.identity, each)])


async def end(service: Service, http_request: HttpRequest) -> Response:
    found = [each for each in await service.commands.logins() if each.id == http_request.id]
    if not found or not _is_theirs(http_request.identity, found[0]):  # others' are not even said to exist
        raise NotFound(f"no login {http_request.id!r}: it has ended", reason="LoginNotFound")
    return json_reply(await service.commands.end_login(http_request.id, http_request.identity))


async def _vouched(service: Service, http_request: HttpRequest) -> str:
    user = service.proxies.user_of(http_request)
    if user is None and service.vouchers is not None and (said := http_request.headers.get(VOUCHER)):
        user = service.vouchers.vouched(said.decode("latin-1"))
    if user is None:
        raise Unauthorized("a ticket is needed", reason="TicketNeeded", hint=OPEN_A_LOGIN)
    return await service.commands.vouch_login(user.name, user.role)


async def _view(service: Service, identity: Identity, cookie: str) -> LoginView:
    known = [each for each in await service.commands.logins() if each.id == identity.login]
    return LoginView(
        id=identity.login,
        name=identity.name,
        role=identity.role,
        csrf=csrf_of(cookie),
        next_ticket=next_ticket_of(cookie),
        expires_at=identity.expires_at or 0.0,
        idle_s=IDLE_S,
        may={str(permission): str(scope) for permission, scope in GRANTS[identity.role].items()},
        coordinators=known[0].coordinators if known else [],
    )


def _cookie_name(http_request: HttpRequest) -> str:
    return cookie_name(http_request.headers.get(b"host", b""), is_secure=http_request.is_secure)


def _require_login(http_request: HttpRequest) -> None:
    if not http_request.identity.login:
        raise Conflict(
            "this request came with a token, not with the cookie of a login",
            reason="NoLogin",
            hint=OPEN_A_LOGIN,
        )


def _is_theirs(identity: Identity, login: LoginRecord) -> bool:
    return identity.scope("grant") == "all" or login.name == identity.name


ROUTES = (
    Route(
        method="POST",
        path="/v1/logins/tickets",
        permission="browse",
        handler=make_ticket,
        summary="Ask for a ticket with which a browser logs in, once, within a minute, at any coordinator.",
        answer=LoginTicketView,
        status=201,
        body=LoginTicketRequest,
    ),
    Route(
        method="POST",
        path="/v1/logins",
        permission="open",
        handler=open_login,
        summary="Log a browser in with a ticket; the cookie is in the answer's Set-Cookie.",
        answer=LoginView,
        status=201,
        body=OpenLoginRequest,
    ),
    Route(
        method="GET",
        path="/v1/logins",
        permission="browse",
        handler=listed,
        summary="List the browsers that are logged in: your own, or all of them as admin.",
        answer=list[LoginRecord],
    ),
    Route(
        method="GET",
        path="/v1/logins/current",
        permission="browse",
        handler=current,
        summary="The login of this browser, with the CSRF token and the ticket for the next coordinator.",
        answer=LoginView,
    ),
    Route(
        method="DELETE",
        path="/v1/logins/current",
        permission="browse",
        handler=log_out,
        summary="Log this browser out.",
        answer=LoginRecord,
    ),
    Route(
        method="DELETE",
        path="/v1/logins/{id}",
        permission="browse",
        handler=end,
        summary="Log another browser out: one of your own, or any as admin.",
        answer=LoginRecord,
    ),
)
