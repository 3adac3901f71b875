"""One session as a client has it: the connection to the coordinator, changed to frames, with its streams. For asyncio.

A piece of output is read when the last one was taken; input is written as the command takes it. Which coordinator to
ask, and with which token, is decided by the client.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from http.client import HTTPException, parse_headers
from io import BytesIO
from typing import Self
from urllib.parse import urlsplit

from phalanx.api.schema.documents import read_problem
from phalanx.api.schema.session_frames import (
    BEAT_S,
    DATA,
    FROM_TASK,
    LAST,
    PIECE_BYTES,
    WINDOW_BYTES,
    ExitFrame,
    FrameError,
    FrameKind,
    pack_frame,
    pack_size,
    read_end,
    read_frame,
    read_window,
)
from phalanx.api.schema.sessions import UPGRADE, SessionTicket
from phalanx.client.http import dropped, not_http, timed_out, unreachable
from phalanx.client.session_calls import SessionAccess, StreamName
from phalanx.duplex import Duplex
from phalanx.errors import PhalanxError, Unavailable

CONNECT_S = 10.0
ANSWER_S = 30.0
SILENT_S = 60.0  # the coordinator shows a sign of life every 15 s
HEAD_BYTES_MAX = 64 * 1024
BODY_BYTES_MAX = 64 * 1024  # of an error; no more is held at once

_NAMES: dict[FrameKind, StreamName] = {FrameKind.STDOUT: "stdout", FrameKind.STDERR: "stderr"}


class AsyncExecSession:
    """A command that runs beside a task, or a connection to a port of it: read its output, write its input.

    `async for stream, data in session` gives pieces until it has ended; then `exit_code` is known. Read while you
    write more than a little, as with any pipe.
    """

    def __init__(self, connection: Duplex, address: str, ticket: SessionTicket) -> None:
        self.task = ticket.task
        self.attempt = ticket.attempt
        self.node = ticket.node
        self.exit: ExitFrame | None = None
        self._connection = connection
        self._address = address
        self._window = WINDOW_BYTES
        self._opened = asyncio.Event()
        self._pieces: asyncio.Queue[tuple[StreamName, bytes] | None] = asyncio.Queue(4)
        self._error: Exception | None = None
        self._is_over = False
        self.started = asyncio.Event()
        self.input_at = 0  # of the input of a task: the byte from which on it is to be given
        self._receiving = asyncio.create_task(self._receive())
        self._beating = asyncio.create_task(connection.beat(pack_frame(FrameKind.PING), BEAT_S))

    @property
    def exit_code(self) -> int | None:
        """The command's exit code; 128 and the number of the signal that ended it; None while it runs."""
        return None if self.exit is None else self.exit.code

    def __aiter__(self) -> AsyncExecSession:
        return self

    async def __anext__(self) -> tuple[StreamName, bytes]:
        piece = await self.read()
        if piece is None:
            raise StopAsyncIteration
        return piece

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def read(self) -> tuple[StreamName, bytes] | None:
        """The next piece of output and its stream; None when the command has ended. Raises what cut the session."""
        piece = None if self._is_over and self._pieces.empty() else await self._pieces.get()
        if piece is None:
            self._is_over = True
            if self._error is not None:
                raise self._error
        return piece

    @property
    def is_over(self) -> bool:
        """Whether nothing more comes, and nothing that is written is taken."""
        return self._receiving.done()

    def when_over(self, call: Callable[[], None]) -> None:
        """Call this, on the event loop, when it is."""
        self._receiving.add_done_callback(lambda _: call())

    async def wait(self) -> int:
        """Read and drop the rest of the output; returns the exit code."""
        while await self.read() is not None:
            pass
        return self.exit.code if self.exit is not None else 0

    async def write(self, data: bytes) -> None:
        """Give the command input; returns when it is on its way. What comes after its end is dropped."""
        view = memoryview(data)
        while view and not self._receiving.done():
            if not self._window:
                self._opened.clear()
                await asyncio.wait(
                    {self._receiving, asyncio.ensure_future(self._opened.wait())},
                    return_when=asyncio.FIRST_COMPLETED,
                )
                continue
            piece = bytes(view[: min(PIECE_BYTES, self._window)])
            self._window -= len(piece)
            view = view[len(piece) :]
            if not await self._sent(pack_frame(FrameKind.STDIN, piece)):
                return

    async def end_input(self) -> None:
        """Say that there is no more input."""
        await self._sent(pack_frame(FrameKind.STDIN_END))

    async def resize(self, rows: int, columns: int) -> None:
        """The size of the terminal has changed."""
        await self._sent(pack_size(rows, columns))

    async def signal(self, number: int) -> None:
        """Send a signal to the command's process group: HUP, INT, QUIT, USR1, USR2 or TERM."""
        await self._sent(pack_frame(FrameKind.SIGNAL, bytes([number])))

    async def close(self) -> None:
        """Leave: a command that still runs is ended."""
        for task in (self._receiving, self._beating):
            task.cancel()
        await asyncio.gather(self._receiving, self._beating, return_exceptions=True)
        self._connection.abort()

    async def _sent(self, frame: bytes) -> bool:
        try:
            await self._connection.write(frame)
        except ConnectionError:
            return False
        return True

    async def _receive(self) -> None:
        try:
            while self.exit is None:
                async with asyncio.timeout(SILENT_S):
                    kind, content = await read_frame(self._connection, FROM_TASK)
                await self._take(kind, content)
        except TimeoutError:
            self._error = timed_out(self._address, SILENT_S)
        except FrameError as error:
            self._error = Unavailable(f"{self._address} sent what is not a frame: {error}", reason="BadFrame")
        except (ConnectionError, EOFError):
            self._error = cut(self._address)
        except PhalanxError as error:
            self._error = error
        finally:
            self.started.set()
            self._opened.set()
        await self._pieces.put(None)

    async def _take(self, kind: FrameKind, content: bytes) -> None:
        if kind in DATA:
            await self._pieces.put((_NAMES[kind], content))
        elif kind is FrameKind.WINDOW:
            self._window = min(WINDOW_BYTES, self._window + read_window(content))
            self._opened.set()
        elif kind is FrameKind.STARTED:
            self.input_at = int.from_bytes(content[:8], "big")
            self.started.set()
        elif kind is FrameKind.STDOUT_END:
            await self._pieces.put(("stdout", b""))
        elif kind in LAST:
            self.exit = read_end(kind, content)


def cut(address: str) -> Unavailable:
    return Unavailable(
        f"the connection to {address} was cut, so the session is over",
        reason="SessionCut",
        hint="its command was ended; the task itself goes on: `phalanx show` says how it is",
    )


async def open_session(access: SessionAccess, ticket: SessionTicket) -> AsyncExecSession:
    """Open the session of a ticket, at the coordinator that gave it."""
    parts = urlsplit(access.address)
    connection = await _connected(access, parts.hostname or "", parts.port)
    try:
        async with asyncio.timeout(ANSWER_S):
            await connection.write(_request(access, ticket, parts.netloc))
            status, length = await _answer_head(connection, access.address)
            if status == 101:
                return AsyncExecSession(connection, access.address, ticket)
            body = await connection.read_exactly(length)
    except TimeoutError:
        connection.abort()
        raise timed_out(access.address, ANSWER_S) from None
    except (ConnectionError, EOFError) as error:
        connection.abort()
        raise dropped(access.address, str(error) or "it hung up") from None
    except BaseException:
        connection.abort()
        raise
    connection.abort()
    raise read_problem(status, body)


async def _connected(access: SessionAccess, host: str, port: int | None) -> Duplex:
    is_secure = access.address.startswith("https://")
    tls = (access.tls or ssl.create_default_context()) if is_secure else None
    try:
        async with asyncio.timeout(CONNECT_S):
            transport, connection = await asyncio.get_running_loop().create_connection(
                Duplex, host, port or (443 if is_secure else 80), ssl=tls
            )
    except TimeoutError as error:
        raise unreachable(access.address, error) from None
    except OSError as error:
        raise unreachable(access.address, error) from None
    if (sock := transport.get_extra_info("socket")) is not None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    return connection


def _request(access: SessionAccess, ticket: SessionTicket, host: str) -> bytes:
    head = (
        f"GET /v1/sessions/{ticket.session} HTTP/1.1",
        f"Host: {host}",
        f"Authorization: Bearer {access.token}",
        f"Phalanx-Ticket: {ticket.ticket}",
        "Connection: Upgrade",
        f"Upgrade: {UPGRADE}",
    )
    return ("\r\n".join(head) + "\r\n\r\n").encode("latin-1")


async def _answer_head(connection: Duplex, address: str) -> tuple[int, int]:
    """The status of the answer, and the length of its body. Nothing behind the head is read."""
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        head += await connection.read_exactly(1)
        if len(head) > HEAD_BYTES_MAX:
            raise not_http(address)
    line, _, fields = head.partition(b"\r\n")
    words = line.split()
    try:
        if not words[0].startswith(b"HTTP/1."):
            raise not_http(address)
        length = int(parse_headers(BytesIO(fields)).get("content-length") or 0)
        return int(words[1]), min(length, BODY_BYTES_MAX)
    except (IndexError, ValueError, HTTPException):
        raise not_http(address) from None
