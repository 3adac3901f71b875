"""The routes of sessions: ask for one, with a ticket as the answer, and open it on a connection that changes protocol.

The connection then carries frames (`api/schema/session_frames.py`) between client and runner. They are passed on one
by one, each when the last was taken, so that a slow side holds up the other and nothing piles up here. While that goes
on, the token is looked at again, silence is noticed, and a session in which nothing happens is ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Union

from phalanx.api.schema.queries import NoQuery
from phalanx.api.schema.session_frames import (
    DATA,
    FROM_CLIENT,
    FROM_TASK,
    LAST,
    FrameError,
    FrameKind,
    pack_error,
    pack_frame,
    read_frame,
)
from phalanx.api.schema.sessions import UPGRADE, ExecRequest, ForwardRequest, InputRequest, SessionTicket
from phalanx.api.server.limits import Place
from phalanx.api.server.messages import Header, HttpRequest, Response, Send, SwitchedResponse, json_reply
from phalanx.api.server.route import Route, Service, is_still_good
from phalanx.duplex import Duplex
from phalanx.errors import BadRequest, Forbidden, PhalanxError, Unauthorized, Unavailable
from phalanx.logger import logger

if TYPE_CHECKING:
    from phalanx.api.server.web_socket import WebSocketEnd

_log = logger("api")
WORDS_SHOWN_MAX = 200
SILENT_S = 60.0
CLOSE_S = 10.0  # for the last frames to be taken
TICKET = b"phalanx-ticket"
TICKET_WITHIN_S = 10.0
WEB_SOCKET = "websocket"
SessionEnd = Union[Duplex, "WebSocketEnd"]  # the client's connection
_ACTIONS = frozenset({FrameKind.RESIZE, FrameKind.SIGNAL, FrameKind.STDIN_END}) | DATA


async def open_exec(service: Service, http_request: HttpRequest) -> Response:
    request: ExecRequest = http_request.document
    http_request.what = shown_command(request.command) if request.command else "(shell)"
    reply = await service.commands.open_exec(http_request.id, request, http_request.user)
    return json_reply(reply, 201)


async def open_forward(service: Service, http_request: HttpRequest) -> Response:
    request: ForwardRequest = http_request.document
    http_request.what = f"port {request.port}"
    reply = await service.commands.open_forward(http_request.id, request, http_request.user)
    return json_reply(reply, 201)


async def open_input(service: Service, http_request: HttpRequest) -> Response:
    request: InputRequest = http_request.document
    http_request.what = f"standard input of attempt {request.attempt}"
    reply = await service.commands.open_input(http_request.id, request, http_request.user)
    return json_reply(reply, 201)


async def join(service: Service, http_request: HttpRequest) -> Response | SwitchedResponse:
    """The connection becomes that of the session, if it asks for that and its ticket is good."""
    asked = http_request.headers.get(b"upgrade", b"").decode("latin-1").lower()
    if asked == WEB_SOCKET and http_request.connection is not None:
        return _join_by_web_socket(service, http_request)
    if asked != UPGRADE or http_request.connection is None:
        raise BadRequest(
            f"a session is opened on a connection that changes protocol: send 'Upgrade: {UPGRADE}' and"
            " 'Connection: Upgrade'",
            reason="UpgradeRequired",
        )
    service.commands.require_active()
    ticket = http_request.headers.get(TICKET, b"").decode("latin-1")
    place = service.sessions.take(http_request)
    try:
        task = await service.commands.join_session(http_request.id, ticket, http_request.user)
    except BaseException:
        service.sessions.give(place)
        raise
    return OpenSessionResponse(service, http_request, task, place)


def _join_by_web_socket(service: Service, http_request: HttpRequest) -> SwitchedResponse:
    """A browser, whose ticket is its first message: it cannot send headers. Its page must be our own."""
    from phalanx.api.server.web_socket import accept_header

    if b"origin" not in http_request.headers:  # whose it is was looked at for every request that has one
        raise Forbidden("a WebSocket is opened by a page, which has an Origin", reason="OriginNotAllowed")
    service.commands.require_active()
    accept = accept_header(http_request.headers)
    return WebSocketSessionResponse(service, http_request, service.sessions.take(http_request), accept)


def shown_command(words: Iterable[str]) -> str:
    """A command as it is written to the audit: the program and the names of its options, no values."""
    program, *rest = words
    shown = [program[:80]]
    for word in rest:
        option = (
            word.partition("=")[0] if word.startswith("--") else word[:2] if word.startswith("-") else "…"
        )
        if option != shown[-1] or option != "…":
            shown.append(option[:40])
    return "".join(each if each.isprintable() else "?" for each in " ".join(shown))[:WORDS_SHOWN_MAX]


class OpenSessionResponse(SwitchedResponse):
    """A session, from the change of protocol to its end."""

    def __init__(self, service: Service, http_request: HttpRequest, task: Duplex, place: Place) -> None:
        self._service = service
        self._request = http_request
        self._task = task
        self._place = place
        self._moved_at = 0.0

    async def send(self, send: Send) -> None:
        assert self._request.connection is not None
        await self.pass_on(self._request.connection.switch(UPGRADE))

    async def pass_on(self, client: SessionEnd | None) -> None:
        """Until the session is over; without a client it is at once."""
        try:
            if client is not None:
                await self._passed_on(client)
        finally:
            self._service.sessions.give(self._place)
            self._task.close()
            for end in (self._task, *([] if client is None else [client])):
                asyncio.get_running_loop().call_later(CLOSE_S, end.abort)

    async def _passed_on(self, client: SessionEnd) -> None:
        last: PhalanxError | None
        try:
            last = await self._until_the_end(client)
        except asyncio.CancelledError:
            last = _stopping()
            raise
        finally:
            if last is not None:
                _log.info(
                    "a session was ended", id=self._request.id, user=self._request.user, why=last.reason
                )
                with suppress(ConnectionError):
                    client.put(pack_error(last))
            client.close()

    async def _until_the_end(self, client: SessionEnd) -> PhalanxError | None:
        """Pass frames on; what to tell the client at the end, unless that was passed on as well."""
        self._moved_at = asyncio.get_running_loop().time()
        up = asyncio.create_task(self._copy(client, self._task, FROM_CLIENT))
        down = asyncio.create_task(self._copy(self._task, client, FROM_TASK))
        watching = asyncio.create_task(self._watch(client))
        stopping = asyncio.ensure_future(client.stopping.wait())
        everything = {up, down, watching, stopping}
        try:
            await asyncio.wait(everything, return_when=asyncio.FIRST_COMPLETED)
            if down.done():
                return _told(down, self._node_away())
            last = (
                watching.result() if watching.done() else _stopping() if stopping.done() else _told(up, None)
            )
            if last is None or isinstance(last, Unauthorized):  # the client is gone, and not the way to it
                with suppress(ConnectionError):
                    self._task.put(pack_frame(FrameKind.HANG_UP))
            return last
        finally:
            for each in everything:
                each.cancel()
            await asyncio.gather(*everything, return_exceptions=True)

    def _node_away(self) -> PhalanxError:
        """Why the connection of a runner was lost: a coordinator that no longer leads closes them itself."""
        try:
            self._service.commands.require_active()
        except PhalanxError:
            return _stopping()
        return Unavailable(
            "the connection to the node was lost", reason="NodeAway", hint="phalanx nodes shows it"
        )

    async def _copy(self, source: SessionEnd, sink: SessionEnd, allowed: frozenset[FrameKind]) -> None:
        """Until the last frame of a session has been passed on; raises what is wrong before."""
        loop = asyncio.get_running_loop()
        while True:
            kind, content = await read_frame(source, allowed)
            if kind is FrameKind.PING:
                continue
            if kind in _ACTIONS:
                self._moved_at = loop.time()
            await sink.write(pack_frame(kind, content))
            if kind in LAST:
                return
            pause_s = self._service.session_bytes.pause_s(self._request.user, len(content), loop.time())
            if pause_s:
                await asyncio.sleep(pause_s)

    async def _watch(self, client: SessionEnd) -> PhalanxError | None:
        """At every beat: whether both sides are there, the token is good, and anything happens."""
        limits, loop, ping = self._service.limits, asyncio.get_running_loop(), pack_frame(FrameKind.PING)
        while True:
            await asyncio.sleep(min(limits.beat_s, limits.session_idle_s))
            now = loop.time()
            if not is_still_good(self._service, self._request):
                return Unauthorized("the token of this session is no longer accepted")
            if now - self._moved_at >= limits.session_idle_s:
                return _idle(limits.session_idle_s)
            if self._task.is_silent(now, SILENT_S):
                return Unavailable("the node does not answer any more", reason="NodeAway")
            if client.is_silent(now, SILENT_S):
                return None
            with suppress(ConnectionError):
                client.put(ping)
                self._task.put(ping)


class WebSocketSessionResponse(SwitchedResponse):
    """A session of a browser: its ticket comes first, over the WebSocket, and errors are told there as well."""

    def __init__(self, service: Service, http_request: HttpRequest, place: Place, accept: Header) -> None:
        self._service = service
        self._request = http_request
        self._place = place
        self._accept = accept

    async def send(self, send: Send) -> None:
        from phalanx.api.server.web_socket import WebSocketEnd

        assert self._request.connection is not None
        raw = self._request.connection.switch(WEB_SOCKET, self._accept)
        if raw is None:
            self._service.sessions.give(self._place)
            return
        client = WebSocketEnd(raw)
        try:
            task = await self._task(client)
        except PhalanxError as error:
            self._service.sessions.give(self._place)
            with suppress(ConnectionError):
                client.put(pack_error(error))
            client.close()
            asyncio.get_running_loop().call_later(CLOSE_S, client.abort)
            return
        except BaseException:
            self._service.sessions.give(self._place)
            client.abort()
            raise
        await OpenSessionResponse(self._service, self._request, task, self._place).pass_on(client)

    async def _task(self, client: WebSocketEnd) -> Duplex:
        """The runner's connection, for the ticket that comes first."""
        try:
            ticket = await client.first_message(TICKET_WITHIN_S)
        except FrameError as error:
            raise BadRequest(str(error), reason="BadFrame") from None
        return await self._service.commands.join_session(self._request.id, ticket, self._request.user)


def _told(copying: asyncio.Task[None], otherwise: PhalanxError | None) -> PhalanxError | None:
    """Why one direction has ended: nothing more is to be said, or a connection was lost, or it sent no frames."""
    error = copying.exception()
    if error is None:
        return None
    if isinstance(error, FrameError):
        return BadRequest(str(error), reason="BadFrame")
    return otherwise


def _stopping() -> Unavailable:
    return Unavailable(
        "the coordinator stops or no longer leads, so the session ends",
        reason="Stopping",
        hint="open it again",
    )


def _idle(seconds: float) -> Unavailable:
    return Unavailable(
        f"nothing happened in this session for {seconds:g} s, so it was ended",
        reason="SessionIdle",
        hint="coordinator.session_idle_s says how long that may be",
    )


ROUTES = (
    Route(
        method="POST",
        path="/v1/tasks/{id}/exec",
        permission="enter",
        handler=open_exec,
        summary="Ask to run a command beside a running task; the answer is a ticket for one session.",
        answer=SessionTicket,
        status=201,
        body=ExecRequest,
        is_about_a_job=True,
    ),
    Route(
        method="POST",
        path="/v1/tasks/{id}/forward",
        permission="enter",
        handler=open_forward,
        summary="Ask for a connection to a TCP port of a running task; the answer is a ticket for one session.",
        answer=SessionTicket,
        status=201,
        body=ForwardRequest,
        is_about_a_job=True,
    ),
    Route(
        method="POST",
        path="/v1/tasks/{id}/stdin",
        permission="enter",
        handler=open_input,
        summary="Ask to give a running task its standard input; the answer is a ticket for one session.",
        answer=SessionTicket,
        status=201,
        body=InputRequest,
        is_about_a_job=True,
    ),
    Route(
        method="GET",
        path="/v1/sessions/{id}",
        permission="enter",
        handler=join,
        summary="Open a session with its ticket (Phalanx-Ticket); the connection then carries its frames.",
        answer=None,
        status=101,
        query=NoQuery,
        header="Phalanx-Ticket",
        media="application/octet-stream",
    ),
)
