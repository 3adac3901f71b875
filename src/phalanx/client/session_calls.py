"""Commands and connections into running tasks, from Python: the calls, and the methods of the client that waits.

    done = client.exec("17", ["nvidia-smi"])
    print(done.exit_code, done.stdout.decode())

    with client.exec_session("17", ["python", "-i"], stdin=True) as session:
        session.write(b"print(6 * 7)\n")

What a session needs (asyncio, mostly) is imported when there is one: the command line must start fast.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, NamedTuple, Protocol, Self, runtime_checkable

import msgspec
from msgspec import Struct

from phalanx.api.schema.sessions import ExecRequest, ForwardRequest, InputRequest, SessionTicket
from phalanx.client.calls import Call, path_of
from phalanx.client.ids import AnyId
from phalanx.errors import Unavailable

OUTPUT_BYTES_MAX = 64 << 20


StreamName = Literal["stdout", "stderr"]


class SessionAccess(NamedTuple):
    """Where a session is opened, and as whom."""

    address: str
    tls: ssl.SSLContext | None
    token: str


@runtime_checkable
class HttpReach(Protocol):
    """A transport that knows where the leader was found, over HTTP."""

    def leads_at(self) -> tuple[str, ssl.SSLContext | None]: ...


def reach_of(exchange: object, token: str) -> SessionAccess:
    """Where sessions are opened by a client that has this transport."""
    if not isinstance(exchange, HttpReach):
        raise Unavailable(
            "sessions are opened over HTTP only",
            reason="SessionsNeedHttp",
            hint="give the client the REST address of the coordinator, http://HOST:PORT",
        )
    return SessionAccess(*exchange.leads_at(), token)


def open_exec(id: AnyId, request: ExecRequest) -> Call[SessionTicket]:
    body = msgspec.json.encode(request)
    return Call(method="POST", path=path_of("tasks", id, "exec"), answer=SessionTicket, body=body)


def open_forward(id: AnyId, request: ForwardRequest) -> Call[SessionTicket]:
    body = msgspec.json.encode(request)
    return Call(method="POST", path=path_of("tasks", id, "forward"), answer=SessionTicket, body=body)


def open_input(id: AnyId, attempt: int) -> Call[SessionTicket]:
    body = msgspec.json.encode(InputRequest(attempt=attempt))
    return Call(method="POST", path=path_of("tasks", id, "stdin"), answer=SessionTicket, body=body)


def exec_request(
    command: Sequence[str], *, tty: bool, stdin: bool, size: tuple[int, int], term: str, rank: int | None
) -> ExecRequest:
    if isinstance(command, str | bytes):
        raise TypeError(f"command = {command[:80]!r} is a text: expected a list of words")
    rows, columns = size
    return ExecRequest(
        command=list(command), tty=tty, stdin=stdin, rows=rows, columns=columns, term=term, rank=rank
    )


class ExecResult(Struct, frozen=True):
    """How a command beside a task ended, and what it wrote."""

    exit_code: int  # 128 and its number if a signal ended it
    stdout: bytes
    stderr: bytes
    task_ended: bool = False  # it was ended because its task has


class ExecSession:
    """A command that runs beside a task, or a connection to a port of it: read its output, write its input.

    `for stream, data in session` gives pieces until it has ended; then `exit_code` is known. One thread may write
    while another reads. A `with` block leaves it at its end, and a command that still runs is ended.
    """

    def __init__(self, access: SessionAccess, ticket: SessionTicket) -> None:
        from phalanx.client.session_connection import open_session
        from phalanx.client.sessions import SessionLoop

        self._loop = SessionLoop()
        try:
            self._session = self._loop.run(open_session(access, ticket))
        except BaseException:
            self._loop.close()
            raise
        self.task, self.attempt, self.node = ticket.task, ticket.attempt, ticket.node

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[tuple[StreamName, bytes]]:
        while (piece := self.read()) is not None:
            yield piece

    @property
    def exit_code(self) -> int | None:
        """The command's exit code; 128 and the number of the signal that ended it; None while it runs."""
        return self._session.exit_code

    def read(self) -> tuple[StreamName, bytes] | None:
        """The next piece of output and its stream; None when the command has ended. Raises what cut the session."""
        return self._loop.run(self._session.read())

    @property
    def is_over(self) -> bool:
        """Whether nothing more comes, and nothing that is written is taken."""
        return self._session.is_over

    def when_over(self, call: Callable[[], None]) -> None:
        """Call this, in another thread, when it is."""
        self._loop.call(lambda: self._session.when_over(call))

    def input_at(self) -> int:
        """Of the input of a task: the byte from which on it is to be given. Raises why there is none."""
        self._loop.run(self._session.started.wait())
        if self._session.is_over:
            self.wait()
        return self._session.input_at

    def wait(self) -> int:
        """Read and drop the rest of the output; returns the exit code."""
        return self._loop.run(self._session.wait())

    def write(self, data: bytes) -> None:
        """Give the command input; returns when it is on its way. What comes after its end is dropped."""
        self._loop.run(self._session.write(data))

    def end_input(self) -> None:
        """Say that there is no more input."""
        self._loop.run(self._session.end_input())

    def resize(self, rows: int, columns: int) -> None:
        """The size of the terminal has changed."""
        self._loop.run(self._session.resize(rows, columns))

    def signal(self, number: int) -> None:
        """Send a signal to the command's process group: HUP, INT, QUIT, USR1, USR2 or TERM."""
        self._loop.run(self._session.signal(number))

    def close(self) -> None:
        """Leave: a command that still runs is ended."""
        self._loop.run(self._session.close())
        self._loop.close()


class SessionCalls:
    """The methods of `Client` that are about sessions."""

    def _ask(self, call: Call[Any]) -> Any:
        raise NotImplementedError

    def session_access(self) -> SessionAccess:
        """Where a session is opened, and as whom; for programs that open it themselves."""
        raise NotImplementedError

    def exec(
        self,
        task: AnyId,
        command: Sequence[str],
        *,
        input: bytes = b"",  # noqa: A002 - as subprocess.run has it
        rank: int | None = None,
        output_bytes_max: int = OUTPUT_BYTES_MAX,
    ) -> ExecResult:
        """Run a command beside a running task, and return what it wrote and its exit code."""
        from phalanx.client.sessions import run_to_the_end

        request = exec_request(command, tty=False, stdin=bool(input), size=(0, 0), term="", rank=rank)
        ticket = self.exec_ticket(task, request)
        return run_to_the_end(self.session_access(), ticket, input, output_bytes_max)

    def exec_session(
        self,
        task: AnyId,
        command: Sequence[str] = (),
        *,
        tty: bool = False,
        stdin: bool = False,
        size: tuple[int, int] = (0, 0),
        term: str = "",
        rank: int | None = None,
    ) -> ExecSession:
        """The same, with its streams as they come; without a command, the task's shell."""
        request = exec_request(command, tty=tty, stdin=stdin, size=size, term=term, rank=rank)
        ticket = self.exec_ticket(task, request)
        return ExecSession(self.session_access(), ticket)

    def forward_session(self, task: AnyId, port: int, *, rank: int | None = None) -> ExecSession:
        """A connection to a TCP port of a running task: input goes there, `stdout` comes from there."""
        ticket = self.forward_ticket(task, ForwardRequest(port=port, rank=rank))
        return ExecSession(self.session_access(), ticket)

    def stdin_session(self, task: AnyId, attempt: int) -> ExecSession:
        """The standard input of an attempt whose job was submitted with `stdin`: write it, from `input_at` on, and end
        it. It is over when the task has all of it, or reads no more."""
        ticket: SessionTicket = self._ask(open_input(task, attempt))
        return ExecSession(self.session_access(), ticket)

    def exec_ticket(self, task: AnyId, request: ExecRequest) -> SessionTicket:
        """The right to open one session; for programs that open it themselves."""
        found: SessionTicket = self._ask(open_exec(task, request))
        return found

    def forward_ticket(self, task: AnyId, request: ForwardRequest) -> SessionTicket:
        """The right to open one connection; for programs that open it themselves."""
        found: SessionTicket = self._ask(open_forward(task, request))
        return found
