"""The REST app: an ASGI function round a `Commands`, and nothing between the server and the routes but it.

One request: look at its Host and Origin, find its row in the route table, name its user, decode its words,
let the route answer. Errors become problem+json here; what nobody foresaw is logged under an id and told
without its insides. The server (uvicorn, its sockets and its limits) is wired elsewhere.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from phalanx.api.auth import Guard, Tokens
from phalanx.api.commands import Commands
from phalanx.api.documents import Nothing, read_document
from phalanx.api.openapi import openapi_document
from phalanx.api.queries import read_query
from phalanx.api.reply import Reply, Streamed, problem_reply
from phalanx.api.route import Limits, Route, Service
from phalanx.api.routes import choose, find_row
from phalanx.api.streams import while_connected
from phalanx.api.visit import App, HungUp, Receive, Scope, Send, Visit
from phalanx.diary import diary
from phalanx.errors import PhalanxError

_log = diary("api")


def build_app(
    commands: Commands, tokens: Tokens, hosts: Iterable[str] = (), limits: Limits | None = None
) -> App:
    """The app, for uvicorn or for a client in the same process. `hosts` are answered to besides loopback."""
    guard = Guard(tokens, hosts)
    service = Service(commands, tokens, limits or Limits(), openapi_document())

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await _other_protocol(scope, receive, send)
            return
        try:
            visit = Visit(scope, receive)
            route = _admitted(guard, visit)
        except PhalanxError as error:
            await problem_reply(error, scope["path"]).send(send)
            return
        work = _serve(service, route, visit, send)
        await (while_connected(receive, work) if route.lasting else work)

    return app


def _admitted(guard: Guard, visit: Visit) -> Route:
    """The route of a visit that may have it. A stranger does not even learn which paths exist."""
    guard.check_site(visit)
    row, visit.id = find_row(visit.path)
    route = row.get(visit.method) if row else None
    guard.admit(visit, route.permission if route else "read")
    return choose(row, visit.method, visit.path)


async def _serve(service: Service, route: Route, visit: Visit, send: Send) -> None:
    try:
        reply = await _answer(service, route, visit)
    except HungUp:
        return
    await reply.send(send)


async def _answer(service: Service, route: Route, visit: Visit) -> Reply | Streamed[Any]:
    try:
        visit.query = read_query(visit.query_string, route.query)
        if route.method in ("POST", "PUT"):
            visit.document = await _document(service, route, visit)
        return await route.handler(service, visit)
    except HungUp:
        raise
    except PhalanxError as error:
        if type(error) is not PhalanxError:
            return problem_reply(error, visit.path)
        return problem_reply(_unforeseen(visit), visit.path)
    except Exception:  # the one place: whatever a route did not foresee must still be answered
        return problem_reply(_unforeseen(visit), visit.path)


async def _document(service: Service, route: Route, visit: Visit) -> Any:
    body = await visit.body(service.limits.body_bytes)
    if not body and route.body is Nothing:
        return Nothing()
    visit.require_json()
    return read_document(body, route.body)


def _unforeseen(visit: Visit) -> PhalanxError:
    """Log the error that is being handled under an id, and tell only the id."""
    error_id = os.urandom(8).hex()
    _log.exception("request failed", error_id=error_id, method=visit.method, path=visit.path, user=visit.user)
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
