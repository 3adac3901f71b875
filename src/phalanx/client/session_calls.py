"""Commands and connections into running tasks, from Python: the calls, and the methods of the client that waits.

    done = client.exec("17", ["nvidia-smi"])
    print(done.exit_code, done.stdout.decode())

    with client.exec_session("17", ["python", "-i"], stdin=True) as session:
        session.write(b"print(6 * 7)\n")

What a session needs (asyncio, mostly) is imported when there is one: the command line must start fast.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

import msgspec

from phalanx.api.schema.sessions import ExecRequest, ForwardRequest, SessionTicket
from phalanx.client.calls import Call, path_of
from phalanx.errors import Unavailable

if TYPE_CHECKING:
    import ssl

    from phalanx.client.sessions import ExecResult, ExecSession

OUTPUT_BYTES_MAX = 64 << 20


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


def open_exec(id: str, request: ExecRequest) -> Call[SessionTicket]:
    body = msgspec.json.encode(request)
    return Call(method="POST", path=path_of("tasks", id, "exec"), answer=SessionTicket, body=body)


def open_forward(id: str, request: ForwardRequest) -> Call[SessionTicket]:
    body = msgspec.json.encode(request)
    return Call(method="POST", path=path_of("tasks", id, "forward"), answer=SessionTicket, body=body)


def exec_request(
    command: Sequence[str], *, tty: bool, stdin: bool, size: tuple[int, int], term: str, rank: int | None
) -> ExecRequest:
    if isinstance(command, str | bytes):
        raise TypeError(f"command = {command[:80]!r} is a text: expected a list of words")
    rows, columns = size
    return ExecRequest(
        command=list(command), tty=tty, stdin=stdin, rows=rows, columns=columns, term=term, rank=rank
    )


class SessionCalls:
    """The methods of `Client` that are about sessions."""

    def _ask(self, call: Call[Any]) -> Any:
        raise NotImplementedError

    def _session_access(self) -> SessionAccess:
        raise NotImplementedError

    def exec(
        self,
        task: str,
        command: Sequence[str],
        *,
        input: bytes = b"",
        rank: int | None = None,
        output_bytes_max: int = OUTPUT_BYTES_MAX,
    ) -> ExecResult:
        """Run a command beside a running task, and return what it wrote and its exit code."""
        request = exec_request(command, tty=False, stdin=bool(input), size=(0, 0), term="", rank=rank)
        from phalanx.client.sessions import run_to_the_end

        ticket = self.exec_ticket(task, request)
        return run_to_the_end(self._session_access(), ticket, input, output_bytes_max)

    def exec_session(
        self,
        task: str,
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
        return _session(self._session_access, self.exec_ticket(task, request))

    def forward_session(self, task: str, port: int, *, rank: int | None = None) -> ExecSession:
        """A connection to a TCP port of a running task: input goes there, `stdout` comes from there."""
        ticket = self.forward_ticket(task, ForwardRequest(port=port, rank=rank))
        return _session(self._session_access, ticket)

    def exec_ticket(self, task: str, request: ExecRequest) -> SessionTicket:
        """The right to open one session; for programs that open it themselves."""
        found: SessionTicket = self._ask(open_exec(task, request))
        return found

    def forward_ticket(self, task: str, request: ForwardRequest) -> SessionTicket:
        """The right to open one connection; for programs that open it themselves."""
        found: SessionTicket = self._ask(open_forward(task, request))
        return found

    def session_access(self) -> SessionAccess:
        """Where a session is opened, and as whom; for programs that open it themselves."""
        return self._session_access()


def _session(access: Callable[[], SessionAccess], ticket: SessionTicket) -> ExecSession:
    from phalanx.client.sessions import ExecSession

    return ExecSession(access, ticket)
