"""The REST app: an ASGI function round a `Commands`, and nothing between the server and the routes but it.

One request: look at its Host and Origin, find its row in the route table, name its user, ask whether the job is
theirs, decode its words, let the route answer, and write down what was changed or refused. Errors become problem+json
here; what nobody foresaw is logged under an id and told without its insides. The server (uvicorn, its sockets and its
limits) is wired elsewhere.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Coroutine, Iterable
from contextlib import nullcontext
from typing import Any
from urllib.parse import unquote

from phalanx.api.schema.documents import Nothing, read_document
from phalanx.api.schema.fields import shown
from phalanx.api.schema.queries import read_query
from phalanx.api.server.audit_lines import TOKEN_SIGN, audit_line
from phalanx.api.server.auth import Accepts, Guard, check_role, forbidden
from phalanx.api.server.commands import NO_AUDIT, Audit, Commands
from phalanx.api.server.limits import ServerLimits
from phalanx.api.server.messages import (
    CONNECTION,
    App,
    ClientDisconnected,
    HttpRequest,
    Receive,
    Reply,
    Response,
    Scope,
    Send,
    problem_reply,
)
from phalanx.api.server.openapi import openapi_document
from phalanx.api.server.page_access import NO_PAGE, PageAccess
from phalanx.api.server.passing_on import body_bytes_of, leader_for, passed_on
from phalanx.api.server.route import Route, Service, kind_of
from phalanx.api.server.routes.table import ROUTES
from phalanx.api.server.static_files import is_static
from phalanx.core.model.job import is_job_id, is_object
from phalanx.errors import (
    BadRequest,
    Forbidden,
    NotFound,
    PhalanxError,
    Unauthorized,
    WrongMethod,
)
from phalanx.logger import logger

_log = logger("api")
STALE_S = 5.0
BEHIND = b"phalanx-behind"
REST = "{path}"  # in a route: whatever follows, with its slashes
# Ids and names go no further than here unless they are plain: they end up in paths, stories and terminals.
_ID = re.compile(r"[0-9A-Za-z][0-9A-Za-z._-]{0,79}(?::[0-9A-Za-z._-]{1,63})?")  # a stage: WORKFLOW:STAGE
_NAMED = ("jobs", "tasks", "names")  # what may also be named as Kubernetes does, namespace%2Fname

Row = dict[str, Route]  # by method
_FLOWMESH = "/workers/"  # its own paths, which ours have behind /v1
_TABLE: dict[
    str, Row
] = {}  # paths have one shape, `/v1/NOUN/ID/VERB/REST`, so finding a row is one look in here
for _route in ROUTES:
    _TABLE.setdefault(_route.path, {})[_route.method] = _route
# What requests are counted by: `jobs` for /v1/jobs/{id}/cancel, `livez` for /livez. A refused one has no route.
_NOUNS = {path: path.removeprefix("/v1").split("/")[1] for path in _TABLE}
NO_ROUTE = "none"


def build_app(
    commands: Commands,
    tokens: Accepts,
    hosts: Iterable[str] = (),
    limits: ServerLimits | None = None,
    audit: Audit = NO_AUDIT,
    page: PageAccess = NO_PAGE,
) -> App:
    """The app, for uvicorn or for a client in the same process. `hosts` are answered to besides loopback."""
    guard = Guard(hosts)
    service = Service(commands, tokens, limits or ServerLimits(), openapi_document, audit, page)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await _other_protocol(scope, receive, send)
            return
        http_request = None
        try:
            http_request = HttpRequest(scope, receive)
            page.proxies.take_over(http_request)
            guard.check_origin(http_request.headers)
            if page.static is not None and is_static(http_request.path):
                reply = page.static.reply(http_request.method, http_request.path, http_request.headers)
                commands.count_request("ui", reply.status)
                await reply.send(send)
                return
            http_request.logins = page.logins
            try:
                route = _admitted(tokens, http_request)
            except Unauthorized:
                shows_something = http_request.headers.get(b"authorization") or http_request.cookie
                if not shows_something or not await commands.catch_up():
                    raise
                route = _admitted(tokens, http_request)  # a standby did not know a token that is a moment old
            if http_request.identity.login:
                page.proxies.check_same(http_request, page.vouchers)
            if http_request.identity.fingerprint and (connection := scope.get(CONNECTION)) is not None:
                connection.identify(http_request)
        except PhalanxError as error:
            if http_request is not None:
                _note(service, http_request, None, error.status, error)
            commands.count_request(NO_ROUTE, error.status)
            await problem_reply(error, scope["path"]).send(send)
            return
        leader = leader_for(service, route, http_request)
        if leader:
            work = _forward(service, route, http_request, leader, send)
        else:
            work = _serve(service, route, http_request, send)
        await (_while_connected(receive, work) if route.lasting else work)

    return app


async def _while_connected(receive: Receive, work: Coroutine[Any, Any, None]) -> None:
    """Run `work`, and cancel it as soon as the client hangs up."""
    working = asyncio.create_task(work)
    watching = asyncio.create_task(_hang_up(receive))
    try:
        await asyncio.wait((working, watching), return_when=asyncio.FIRST_COMPLETED)
    finally:
        ended = working.done()
        working.cancel()
        watching.cancel()
        await asyncio.gather(working, watching, return_exceptions=True)
    if ended:
        working.result()  # an error of the work goes on up, a hang-up is no error


async def _hang_up(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _admitted(tokens: Accepts, http_request: HttpRequest) -> Route:
    """The route of a request that may have it. A stranger does not even learn which paths exist."""
    row, http_request.id, http_request.rest = _find_row(http_request.raw_path, http_request.method)
    route = row.get(http_request.method) if row else None
    if route is None:
        http_request.identify(tokens)
        raise _no_route(row, http_request.method, http_request.path)
    if route.permission != "open":
        http_request.identify(tokens)
        check_role(http_request.identity, route.permission, is_about_a_job=route.is_about_a_job)
    return route


def _find_row(path: str, method: str) -> tuple[Row | None, str, str]:
    """The routes of a path by method, the id in it, and what follows its verb; no row if the path does not exist.

    `path` is as it was sent: what is quoted in it is not yet read, so that a slash may stand within an id. A word of
    ours may be a name, too: only POST of /v1/workflows/files is about files, GET is about the workflow of that name.
    """
    row = _TABLE.get(path)
    if row is not None and (method in row or method not in _with_id(path)):
        return row, "", ""
    if path.startswith(_FLOWMESH):
        path = "/v1" + path
    parts = path.split("/", 5)  # "", v1, noun, id, verb, the rest
    if len(parts) < 4:
        return None, "", ""
    id, parts[3] = unquote(parts[3]), "{id}"
    if not (_ID.fullmatch(id) or (parts[2] in _NAMED and is_object(id))):
        return None, "", ""
    rest = ""
    if len(parts) > 5:
        rest, parts[5] = unquote(parts[5], errors="surrogateescape"), REST
        if not rest:
            return None, "", ""
    return _TABLE.get("/".join(parts)), id, rest


def _with_id(path: str) -> Row:
    """The routes that a path has if its last word is a name."""
    return _TABLE.get(f"{path.rpartition('/')[0]}/{{id}}", {})


def _no_route(row: Row | None, method: str, path: str) -> NotFound | WrongMethod:
    if row is None:
        return NotFound(f"there is nothing at {shown(path)}", reason="RouteNotFound")
    allow = ", ".join(sorted(row))
    return WrongMethod(f"{shown(method)} is not possible here, only {allow}", extra={"allow": allow})


async def _forward(
    service: Service, route: Route, http_request: HttpRequest, leader: str, send: Send
) -> None:
    if not await passed_on(service, route, http_request, leader, _NOUNS[route.path], send):
        await _serve(service, route, http_request, send)


async def _serve(service: Service, route: Route, http_request: HttpRequest, send: Send) -> None:
    try:
        reply = await _answer(service, route, http_request)
    except ClientDisconnected:
        return
    service.commands.count_request(
        _NOUNS[route.path], reply.status if isinstance(reply, Response) else route.status
    )
    try:
        await reply.send(send)
    except PhalanxError as error:  # on the way, where the format has no words for it: the connection is cut
        _log.info(
            "a stream was cut",
            method=http_request.method,
            path=http_request.path,
            user=http_request.user,
            why=str(error),
        )


async def _answer(service: Service, route: Route, http_request: HttpRequest) -> Reply:
    try:
        reply = await _carried_out(service, route, http_request)
        if _is_change(route) and not route.is_traffic:
            _note(service, http_request, route, reply.status if isinstance(reply, Response) else 200, None)
        return _dated(reply, service.commands.behind_s()) if isinstance(reply, Response) else reply
    except ClientDisconnected:
        raise
    except PhalanxError as error:
        is_change = _is_change(route) and not route.is_traffic
        if is_change or isinstance(error, Unauthorized | Forbidden):
            _note(service, http_request, route, error.status, error)
        if type(error) is not PhalanxError:
            return problem_reply(_in_numbers(service, error), http_request.path)
        return problem_reply(_unforeseen(http_request), http_request.path)
    except Exception:  # the one place: whatever a route did not foresee must still be answered
        if _is_change(route):
            _note(service, http_request, route, 500, None)
        return problem_reply(_unforeseen(http_request), http_request.path)


def _in_numbers(service: Service, error: PhalanxError) -> PhalanxError:
    """The error with numbers for the ids in its sentences."""
    error.detail, error.hint = (service.commands.in_numbers(text) for text in (error.detail, error.hint))
    return error


def _dated(reply: Response, behind_s: float) -> Response:
    """An answer of a standby that cannot read the log says how old it may be."""
    if behind_s >= STALE_S:
        reply.headers += ((BEHIND, b"%.0f" % min(behind_s, 1e9)),)
    return reply


async def _carried_out(service: Service, route: Route, http_request: HttpRequest) -> Reply:
    if _is_change(route):
        service.commands.require_active()
    elif http_request.wants_leader and route.permission != "open":
        await service.commands.require_leader()
    if route.is_about_a_job:
        await _check_owner(service, route, http_request)
    if route.is_traffic and http_request.is_large(service.limits.large_bytes):
        with service.large_bodies.taken(http_request):
            return await _handled(service, route, http_request)
    if route.sees is not None and http_request.takes_shared:
        await http_request.body(service.limits.body_bytes)  # of which nobody else waits for the end
        with service.reads.taken(http_request):
            return await _shared(service, route, http_request)
    if route.is_costly:
        return await _in_turn(service, route, http_request)
    if route.method == "GET" and not route.lasting and route.permission != "open":
        with service.reads.taken(http_request):
            return await _handled(service, route, http_request)
    return await _handled(service, route, http_request)


async def _shared(service: Service, route: Route, http_request: HttpRequest) -> Response:
    """The answer that is made once for all who ask the same and may see the same of it."""
    assert route.sees is not None
    http_request.query = read_query(http_request.query_string, route.query)
    is_packed = b"gzip" in http_request.headers.get(b"accept-encoding", b"")
    asked = (route.path, http_request.id, http_request.query_string)
    carried_out = _in_turn if route.is_costly else _handled

    async def make() -> Response:
        reply = await carried_out(service, route, http_request)
        assert isinstance(reply, Response)
        return reply

    etag = http_request.headers.get(b"if-none-match", b"")
    return await service.shared.answer((*asked, is_packed, route.sees(http_request)), etag, make)


def _is_change(route: Route) -> bool:
    """Whether it changes anything, and so is written down with who did it."""
    return route.method != "GET" and route.permission != "read"


async def _in_turn(service: Service, route: Route, http_request: HttpRequest) -> Reply:
    """What is costly. Its body is read first, so that a slow sender occupies no place."""
    is_large = http_request.is_large(route.large_bytes or service.limits.large_bytes)
    gate = service.large if is_large or route.is_heavy else service.limit
    with service.large_bodies.taken(http_request) if is_large else nullcontext():
        await http_request.body(max(service.limits.body_bytes, route.body_bytes))
        async with gate.passed(http_request.user):
            return await _handled(service, route, http_request)


async def _handled(service: Service, route: Route, http_request: HttpRequest) -> Reply:
    http_request.query = read_query(http_request.query_string, route.query)
    if route.method in ("POST", "PUT", "PATCH"):
        http_request.document = await _document(service, route, http_request)
    return await route.handler(service, http_request)


async def _check_owner(service: Service, route: Route, http_request: HttpRequest) -> None:
    """Refuse what is only allowed with one's own jobs, if this is another's; note whether its inside may be seen."""
    identity, permission = http_request.identity, route.permission
    try:
        if not is_job_id(
            http_request.id[:26]
        ):  # once, so that what is checked here is what the route changes
            http_request.id = await service.id_named(http_request, http_request.id)
        if identity.scope(permission) == "all" and identity.scope("inspect") == "all":
            http_request.is_inspector = True
            return
        job, user = await service.commands.owner(http_request.id, kind=kind_of(http_request))
    except (NotFound, BadRequest):
        if identity.role == "task":  # which may not even learn what there is
            raise forbidden(identity, permission) from None
        raise
    if identity.role == "task" and await service.commands.is_of_same_workflow(identity.job, job):
        job = identity.job  # the stages of a workflow may read each other
    if not identity.may(permission, job, user):
        raise forbidden(identity, permission, whose="" if identity.role == "task" else user)
    http_request.is_inspector = identity.may("inspect", job, user)


def _note(
    service: Service, http_request: HttpRequest, route: Route | None, status: int, error: PhalanxError | None
) -> None:
    """Write down a change, or a refusal: who, from where, what, and how it went. Never a token, never a body."""
    if route is None and not isinstance(error, Unauthorized | Forbidden):
        return
    http_request.request_id = http_request.request_id or os.urandom(8).hex()
    # As it was named, whatever it was read as.
    row, id, _ = _find_row(http_request.raw_path, http_request.method)
    found = route or (next(iter(row.values())) if row else None)
    in_numbers = service.commands.in_numbers
    service.audit.note(audit_line(http_request, found, id, status, error, in_numbers))


async def _document(service: Service, route: Route, http_request: HttpRequest) -> Any:
    body = await http_request.body(body_bytes_of(service, route))
    if len(body) > service.limits.large_bytes:
        await service.slices.turn()  # reading it takes milliseconds
    if not body and route.body is Nothing:
        return Nothing()
    http_request.require_json()
    return read_document(body, route.body)


def _unforeseen(http_request: HttpRequest) -> PhalanxError:
    """Log the error that is being handled under an id, and tell only the id."""
    error_id = os.urandom(8).hex()
    path = http_request.path if TOKEN_SIGN not in http_request.path else "(hidden)"
    _log.exception(
        "request failed", error_id=error_id, method=http_request.method, path=path, user=http_request.user
    )
    return PhalanxError(
        f"something went wrong on our side; the coordinator's log tells more under {error_id}",
        reason="Internal",
        extra={"error_id": error_id},
    )


async def _other_protocol(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.close", "code": 1008})
    elif scope["type"] == "lifespan":
        while (message := await receive())["type"] != "lifespan.shutdown":
            await send({"type": f"{message['type']}.complete"})
        await send({"type": "lifespan.shutdown.complete"})
