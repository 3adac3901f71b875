"""Commands and connections into running tasks, from Python: the methods of both clients, and the session that waits.

    done = client.exec("17", ["nvidia-smi"])
    print(done.exit_code, done.stdout.decode())

    with client.exec_session("17", ["python", "-i"], stdin=True) as session:
        session.write(b"print(6 * 7)\\n")

`client/session_connection.py` has the session itself, for asyncio.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future
from typing import Any, Self, TypeVar

from phalanx.api.schema.sessions import ExecRequest, ForwardRequest, SessionTicket
from phalanx.client.access import ClientToken
from phalanx.client.calls import Call
from phalanx.client.http import AsyncTransport
from phalanx.client.ids import AnyId
from phalanx.client.session_calls import (
    OUTPUT_BYTES_MAX,
    ExecResult,
    SessionAccess,
    StreamName,
    exec_request,
    open_exec,
    open_forward,
    open_input,
    reach_of,
)
from phalanx.client.session_connection import AsyncExecSession, open_session
from phalanx.errors import TooLarge

T = TypeVar("T")


async def collected(session: AsyncExecSession, given: bytes, output_bytes_max: int) -> ExecResult:
    """Give a command its input and collect what it writes."""
    found: dict[StreamName, list[bytes]] = {"stdout": [], "stderr": []}
    size = 0

    async def feed() -> None:
        await session.write(given)
        await session.end_input()

    feeding = asyncio.create_task(feed())
    try:
        async for stream, piece in session:
            size += len(piece)
            if size > output_bytes_max:
                raise TooLarge(
                    f"the command wrote more than {output_bytes_max} bytes",
                    hint="give a larger output_bytes_max, or read it piece by piece with exec_session",
                )
            found[stream].append(piece)
    finally:
        feeding.cancel()
        await asyncio.gather(feeding, return_exceptions=True)
        await session.close()
    assert session.exit is not None
    out, err = (b"".join(found[name]) for name in ("stdout", "stderr"))
    return ExecResult(session.exit.code, out, err, session.exit.task_ended)


class AsyncSessionCalls:
    """The methods of `AsyncClient` that are about sessions."""

    _exchange: AsyncTransport
    _token: ClientToken

    async def _ask(self, call: Call[Any]) -> Any:
        raise NotImplementedError

    def session_access(self) -> SessionAccess:
        """Where a session is opened, and as whom; for programs that open it themselves."""
        return reach_of(self._exchange, self._token.value)

    async def exec(
        self,
        task: AnyId,
        command: Sequence[str],
        *,
        input: bytes = b"",  # noqa: A002 - as subprocess.run has it
        rank: int | None = None,
        output_bytes_max: int = OUTPUT_BYTES_MAX,
    ) -> ExecResult:
        """Run a command beside a running task, and return what it wrote and its exit code."""
        session = await self.exec_session(task, command, stdin=bool(input), rank=rank)
        return await collected(session, input, output_bytes_max)

    async def exec_session(
        self,
        task: AnyId,
        command: Sequence[str] = (),
        *,
        tty: bool = False,
        stdin: bool = False,
        size: tuple[int, int] = (0, 0),
        term: str = "",
        rank: int | None = None,
    ) -> AsyncExecSession:
        """The same, with its streams as they come; without a command, the task's shell."""
        request = exec_request(command, tty=tty, stdin=stdin, size=size, term=term, rank=rank)
        ticket = await self.exec_ticket(task, request)
        return await open_session(self.session_access(), ticket)

    async def forward_session(self, task: AnyId, port: int, *, rank: int | None = None) -> AsyncExecSession:
        """A connection to a TCP port of a running task: input goes there, `stdout` comes from there."""
        ticket = await self.forward_ticket(task, ForwardRequest(port=port, rank=rank))
        return await open_session(self.session_access(), ticket)

    async def stdin_session(self, task: AnyId, attempt: int) -> AsyncExecSession:
        """The standard input of an attempt whose job was submitted with `stdin`: write it, from `input_at` on, once it
        has `started`, and end it. It is over when the task has all of it, or reads no more."""
        ticket: SessionTicket = await self._ask(open_input(task, attempt))
        return await open_session(self.session_access(), ticket)

    async def exec_ticket(self, task: AnyId, request: ExecRequest) -> SessionTicket:
        """The right to open one session; for programs that open it themselves."""
        found: SessionTicket = await self._ask(open_exec(task, request))
        return found

    async def forward_ticket(self, task: AnyId, request: ForwardRequest) -> SessionTicket:
        """The right to open one connection; for programs that open it themselves."""
        found: SessionTicket = await self._ask(open_forward(task, request))
        return found


class SessionLoop:
    """An event loop in a thread of its own, for as long as a session of the client that waits lasts."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="phalanx-session", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Wait for `work`; an interrupt while waiting cancels it."""
        future: Future[T] = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        finally:
            future.cancel()

    def call(self, effect: Callable[[], None]) -> None:
        """Do this in the thread of the loop."""
        self._loop.call_soon_threadsafe(effect)

    def close(self) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()


def run_to_the_end(
    access: SessionAccess, ticket: SessionTicket, given: bytes, output_bytes_max: int
) -> ExecResult:
    """A session of a command, from its beginning to its end."""

    async def run() -> ExecResult:
        return await collected(await open_session(access, ticket), given, output_bytes_max)

    with SessionLoop() as loop:
        return loop.run(run())
