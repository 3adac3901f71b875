"""The seam between clients and the way their calls travel: over HTTP, or straight into an app beside them.

An exchange carries one call and gives its answer. It raises Unavailable when nobody answers: with the reason
`Unreachable` if no connection came about, `Untrusted` if certificates rule it out, `Dropped` if one was cut,
`TimedOut` if nothing came in time, `NotHttp` if something else listens there.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any, Protocol

from phalanx.client.calls import SUBMIT, Call
from phalanx.errors import PhalanxError, Unavailable, Unconfirmed
from phalanx.tls import explain


class Answer(Protocol):
    """Header names are in lower case. Whoever has not read all `pieces` must `close`."""

    status: int
    headers: Mapping[str, str]

    def pieces(self) -> Iterator[bytes]: ...

    def close(self) -> None: ...


class Transport(Protocol):
    def send(self, call: Call[Any], token: str) -> Answer: ...

    def close(self) -> None: ...


class AsyncAnswer(Protocol):
    """The same, for those who wait with `await`."""

    status: int
    headers: Mapping[str, str]

    def pieces(self) -> AsyncIterator[bytes]: ...

    async def aclose(self) -> None: ...


class AsyncTransport(Protocol):
    async def send(self, call: Call[Any], token: str) -> AsyncAnswer: ...

    async def close(self) -> None: ...


class WholeAnswer:
    """An answer that has been read to its end."""

    def __init__(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.body = body

    def pieces(self) -> Iterator[bytes]:
        yield self.body

    def close(self) -> None:
        pass


async def read_whole(answer: AsyncAnswer) -> bytes:
    return b"".join([piece async for piece in answer.pieces()])


def unreachable(address: str, why: BaseException) -> Unavailable:
    """No connection came about, because nobody is there or because TLS did not prove who is."""
    said = explain(why)
    if said is not None and said.is_lasting:
        return Unavailable(f"cannot trust {address}: {said.text}", reason="Untrusted", hint=said.hint)
    if said is not None:
        return Unavailable(f"cannot reach {address}: {said.text}", reason="Unreachable", hint=said.hint)
    return Unavailable(
        f"cannot reach {address}: {why}",
        reason="Unreachable",
        hint="is the coordinator running? start one with: phalanx up",
    )


def dropped(address: str, why: object) -> Unavailable:
    said = explain(why) if isinstance(why, BaseException) else None
    if said is not None:
        return Unavailable(f"{address} cut the connection: {said.text}", reason="Dropped", hint=said.hint)
    return Unavailable(f"the connection to {address} was cut: {why}", reason="Dropped")


def not_http(address: str) -> Unavailable:
    """Somebody answered, but not as a server for clients does."""
    return Unavailable(
        f"what listens at {address} does not speak HTTP",
        reason="NotHttp",
        hint="is this the port for runners (7434 by default)? clients have another (7433)",
    )


def timed_out(address: str, after_s: float | None) -> Unavailable:
    return Unavailable(f"{address} gave no answer within {after_s or 0:g} s", reason="TimedOut")


def unconfirmed(call: Call[Any], error: PhalanxError) -> Unconfirmed:
    """The error of a change that was sent, and that may or may not have been accepted."""
    if call.request_id:
        what = f"request {call.request_id}"
        flag = f"--request-id {call.request_id}, " if call.path == SUBMIT else ""
        hint = (
            "`phalanx ps --all` shows whether it is there; given again under this request id"
            f" ({flag}in Python request_id=...) it is not done twice"
        )
    else:
        what = f"{call.method} {call.path}"
        hint = (
            "repeating it does no harm"
            if call.repeatable
            else "look whether it was done before you repeat it"
        )
    extra = error.extra | ({"request_id": call.request_id} if call.request_id else {})
    detail = f"{error.detail}; it is not known whether {what} was accepted"
    return Unconfirmed(detail, reason=error.reason, hint=hint, extra=extra)
