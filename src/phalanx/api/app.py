"""The REST app: an ASGI function round a `Commands`, and nothing between the server and the routes but it.

One request: look at its Host and Origin, find its row in the route table, name its user, ask whether the job is
theirs, decode its words, let the route answer, and write down what was changed or refused. Errors become problem+json
here; what nobody foresaw is logged under an id and told without its insides. The server (uvicorn, its sockets and its
limits) is wired elsewhere.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import nullcontext
from typing import Any

from phalanx.api.audit import NO_AUDIT, Audit, AuditLine
from phalanx.api.auth import Accepts, Guard
from phalanx.api.commands import Commands
from phalanx.api.documents import Nothing, read_document
from phalanx.api.openapi import openapi_document
from phalanx.api.queries import read_query
from phalanx.api.reply import Reply, Streamed, problem_reply
from phalanx.api.roles import forbidden
from phalanx.api.route import Limits, Route, Service
from phalanx.api.routes import choose, find_row
from phalanx.api.streams import while_connected
from phalanx.api.visit import CONNECTION, App, HungUp, Receive, Scope, Send, Visit
from phalanx.diary import diary
from phalanx.errors import BadRequest, Forbidden, NotFound, PhalanxError, Unauthorized

_log = diary("api")
STALE_S = 5.0
BEHIND = b"phalanx-behind"
TOKEN_SIGN = "phx_"  # noqa: S105 - what every token of ours begins with


def build_app(
    commands: Commands,
    tokens: Accepts,
    hosts: Iterable[str] = (),
    limits: Limits | None = None,
    audit: Audit = NO_AUDIT,
) -> App:
    """The app, for uvicorn or for a client in the same process. `hosts` are answered to besides loopback."""
    guard = Guard(tokens, hosts)
    service = Service(commands, tokens, limits or Limits(), openapi_document(), audit)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await _other_protocol(scope, receive, send)
            return
        visit = None
        try:
            visit = Visit(scope, receive)
            route = _admitted(guard, visit)
            if visit.identity.fingerprint and (connection := scope.get(CONNECTION)) is not None:
                connection.identify(visit)
        except PhalanxError as error:
            if visit is not None:
                _note(service, visit, None, error.status, error)
            await problem_reply(error, scope["path"]).send(send)
            return
        work = _serve(service, route, visit, send)
        await (while_connected(receive, work) if route.lasting else work)

    return app


def _admitted(guard: Guard, visit: Visit) -> Route:
    """The route of a visit that may have it. A stranger does not even learn which paths exist."""
    guard.check_site(visit)
    row, visit.id = find_row(visit.raw_path)
    route = row.get(visit.method) if row else None
    if route is None:
        guard.identify(visit)
    else:
        guard.admit(visit, route.permission, is_about_a_job=route.is_about_a_job)
    return choose(row, visit.method, visit.path)


async def _serve(service: Service, route: Route, visit: Visit, send: Send) -> None:
    try:
        reply = await _answer(service, route, visit)
    except HungUp:
        return
    try:
        await reply.send(send)
    except PhalanxError as error:  # on the way, where the format has no words for it: the connection is cut
        _log.info("a stream was cut", method=visit.method, path=visit.path, user=visit.user, why=str(error))


async def _answer(service: Service, route: Route, visit: Visit) -> Reply | Streamed[Any]:
    try:
        reply = await _carried_out(service, route, visit)
        if route.is_change:
            _note(service, visit, route, reply.status if isinstance(reply, Reply) else 200, None)
        return _dated(reply, service.commands.behind_s()) if isinstance(reply, Reply) else reply
    except HungUp:
        raise
    except PhalanxError as error:
        if route.is_change or isinstance(error, Unauthorized | Forbidden):
            _note(service, visit, route, error.status, error)
        if type(error) is not PhalanxError:
            return problem_reply(error, visit.path)
        return problem_reply(_unforeseen(visit), visit.path)
    except Exception:  # the one place: whatever a route did not foresee must still be answered
        if route.is_change:
            _note(service, visit, route, 500, None)
        return problem_reply(_unforeseen(visit), visit.path)


def _dated(reply: Reply, behind_s: float) -> Reply:
    """An answer of a standby that cannot read the log says how old it may be."""
    if behind_s >= STALE_S:
        reply.headers += ((BEHIND, b"%.0f" % min(behind_s, 1e9)),)
    return reply


async def _carried_out(service: Service, route: Route, visit: Visit) -> Reply | Streamed[Any]:
    if route.is_change or (visit.wants_leader and route.permission != "open"):
        service.commands.require_active()
    if route.is_about_a_job:
        await _check_owner(service, route, visit)
    if route.is_costly:
        return await _in_turn(service, route, visit)
    if route.method == "GET" and not route.lasting and route.permission != "open":
        with service.reads.taken(visit):
            return await _handled(service, route, visit)
    return await _handled(service, route, visit)


async def _in_turn(service: Service, route: Route, visit: Visit) -> Reply | Streamed[Any]:
    """What is costly. Its body comes first, so that whoever sends slowly takes no place from others meanwhile."""
    is_large = visit.is_large(service.limits.large_bytes)
    gate = service.large if is_large or route.is_heavy else service.turnstile
    with service.large_bodies.taken(visit) if is_large else nullcontext():
        await visit.body(service.limits.body_bytes)
        async with gate.passed(visit.user):
            return await _handled(service, route, visit)


async def _handled(service: Service, route: Route, visit: Visit) -> Reply | Streamed[Any]:
    visit.query = read_query(visit.query_string, route.query)
    if route.method in ("POST", "PUT"):
        visit.document = await _document(service, route, visit)
    return await route.handler(service, visit)


async def _check_owner(service: Service, route: Route, visit: Visit) -> None:
    """Refuse what is only allowed with one's own jobs, if this is another's; note whether its inside may be seen."""
    identity, permission = visit.identity, route.permission
    try:
        if "/" in visit.id:  # read once, so that what is checked here is what the route will change
            visit.id = await service.id_named(visit, visit.id)
        if identity.scope(permission) == "all" and identity.scope("inspect") == "all":
            visit.is_inspector = True
            return
        job, user = await service.commands.owner(visit.id)
    except (NotFound, BadRequest):
        if identity.role == "task":  # which may not even learn what there is
            raise forbidden(identity, permission) from None
        raise
    if not identity.may(permission, job, user):
        raise forbidden(
            identity, permission, "" if identity.role == "task" else f"do this with a job of {user}"
        )
    visit.is_inspector = identity.may("inspect", job, user)


def _note(
    service: Service, visit: Visit, route: Route | None, status: int, error: PhalanxError | None
) -> None:
    """Write down a change, or a refusal: who, from where, what, and how it went. Never a token, never a body."""
    if route is None and not isinstance(error, Unauthorized | Forbidden):
        return
    visit.request_id = visit.request_id or os.urandom(8).hex()
    who = visit.identity
    row, id = find_row(visit.raw_path)
    if not who.fingerprint or TOKEN_SIGN in id:  # nobody knows what a stranger puts into a path
        id = ""
    service.audit.note(
        AuditLine(
            name=who.name,
            role=who.role if who.fingerprint else "",
            fingerprint=who.fingerprint,
            where=visit.where,
            method=visit.method,
            route=next(iter(row.values())).path if row else "",
            id=id,
            status=status,
            reason=error.reason if error is not None else "",
            request_id=visit.request_id,
        )
    )


async def _document(service: Service, route: Route, visit: Visit) -> Any:
    body = await visit.body(service.limits.body_bytes)
    if len(body) > service.limits.large_bytes:
        await service.pace.turn()  # reading it takes milliseconds
    if not body and route.body is Nothing:
        return Nothing()
    visit.require_json()
    return read_document(body, route.body)


def _unforeseen(visit: Visit) -> PhalanxError:
    """Log the error that is being handled under an id, and tell only the id."""
    error_id = os.urandom(8).hex()
    path = visit.path if TOKEN_SIGN not in visit.path else "(hidden)"
    _log.exception("request failed", error_id=error_id, method=visit.method, path=path, user=visit.user)
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
