"""The messages between coordinator and runner, versioned: msgpack structs in frames with a four-byte length.

One connection carries control (hello, orders, reports, heartbeats), another one logs, so that neither can hold up the
other. docs/decisions/0003 says why frames and not gRPC.
"""

from __future__ import annotations

import struct

from msgspec import Struct, msgpack

from phalanx.core.model.orders import AttemptKey, Disposition, Order, Phase, Report
from phalanx.core.model.resources import Capacity

VERSION = 3  # 2: gangs (rolls, ready, go), briefs by group; 3: lease generations, credentials, who leads
FRAME_MAX = 32 * 1024 * 1024
_LENGTH = struct.Struct(">I")


class WireError(ConnectionError):
    """Bytes that are not of this protocol."""


class HelloMessage(Struct, frozen=True, tag="hello"):
    version: int
    token: str
    node: str
    incarnation: str
    origin: str
    capacity: Capacity
    epoch: int  # the highest epoch that the runner has served
    held: list[tuple[AttemptKey, Phase]]
    address: str = ""  # where other nodes reach this one; empty if the runner does not know
    trouble: str = ""  # what keeps it from starting tasks, if anything


class Welcome(Struct, frozen=True, tag="welcome"):
    version: int
    epoch: int
    heartbeat_s: float
    self_fence_s: float
    generation: int = 0  # of the node's lease: heartbeats and reports must carry it
    credential: str = (
        ""  # the node's own, in exchange for a join token: the runner keeps it and uses it from now on
    )


class Rejected(Struct, frozen=True, tag="rejected"):
    """No session. `retry` says whether trying again later could help, `leader` where (a link, host:port)."""

    code: str
    message: str
    retry: bool
    leader: str = ""


class Orders(Struct, frozen=True, tag="orders"):
    epoch: int
    orders: list[Order]


class Reports(Struct, frozen=True, tag="reports"):
    epoch: int
    reports: list[Report]
    generation: int = 0


class Dispositions(Struct, frozen=True, tag="dispositions"):
    """The disposition of each report, and the current epoch and lease generation."""

    epoch: int
    items: list[tuple[AttemptKey, Disposition]]
    generation: int = 0


class Beat(Struct, frozen=True, tag="beat"):
    """`sent_at` is the runner's own clock; the lease counts from it, so that a slow network only shortens it."""

    epoch: int
    sent_at: float
    held: list[tuple[AttemptKey, Phase]]
    generation: int = 0
    trouble: str = ""  # what keeps the runner from starting tasks, if anything
    seen_at: float = 0.0  # `at` of the last acknowledgement on this connection
    starts_expire: bool = False  # an attempt that has not started within a lease of its arrival never will


class BeatAck(Struct, frozen=True, tag="beat_ack"):
    epoch: int
    sent_at: float
    at: float = 0.0  # by the coordinator's clock: whatever it sent before then comes before this


class LeavingMessage(Struct, frozen=True, tag="leaving"):
    """The runner stops in an orderly way, and leaves its tasks to the keeper. It may ask for a longer lease."""

    epoch: int
    sent_at: float
    generation: int
    keep_s: float = 0.0


class LeaveAck(Struct, frozen=True, tag="leave_ack"):
    """The departure is durable; the lease that began at `sent_at` is longer than usual by as much as was granted."""

    epoch: int
    sent_at: float
    keep_s: float


class LogHello(Struct, frozen=True, tag="log_hello"):
    version: int
    token: str
    node: str
    incarnation: str


class ReadLog(Struct, frozen=True, tag="read_log"):
    """Ask for a piece of a log; with `wait`, answer only when there is something new or the attempt has ended."""

    id: int
    key: AttemptKey
    stream: str
    offset: int | None
    lines: int | None
    limit: int
    wait: bool


class LogData(Struct, frozen=True, tag="log_data"):
    id: int
    offset: int
    data: bytes
    size: int
    ended: bool
    gap: int = 0  # bytes right before `offset` that were dropped to keep the log within its limit
    missing: bool = False  # there is no such file


class CancelRead(Struct, frozen=True, tag="cancel_read"):
    id: int


Message = (
    HelloMessage
    | Welcome
    | Rejected
    | Orders
    | Reports
    | Dispositions
    | Beat
    | BeatAck
    | LeavingMessage
    | LeaveAck
    | LogHello
    | ReadLog
    | LogData
    | CancelRead
)

_encoder = msgpack.Encoder()
_decoder: msgpack.Decoder[Message] = msgpack.Decoder(Message)


def pack(message: Message) -> bytes:
    """A message as one frame."""
    body = _encoder.encode(message)
    return _LENGTH.pack(len(body)) + body


_HTTP = int.from_bytes(b"HTTP", "big")  # how an HTTP response starts, read as the length of a frame


class Unpacker:
    """Bytes in, whole messages out. A frame too long or not understood raises WireError, which ends the connection."""

    def __init__(self, frame_max: int = FRAME_MAX) -> None:
        self._buffer = bytearray()
        self.frame_max = frame_max

    @property
    def pending(self) -> int:
        """Bytes of a frame that is not whole yet."""
        return len(self._buffer)

    def feed(self, data: bytes) -> list[Message]:
        self._buffer += data
        found: list[Message] = []
        at = 0
        while len(self._buffer) - at >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._buffer, at)
            if length == _HTTP:
                raise WireError(
                    "this is HTTP: this port is for clients (7433 by default), runners use another (7434)"
                )
            if length > self.frame_max:
                raise WireError(f"a frame of {length} bytes, at most {self.frame_max} are allowed")
            if len(self._buffer) - at - _LENGTH.size < length:
                break
            start = at + _LENGTH.size
            found.append(_decode(memoryview(self._buffer)[start : start + length]))
            at = start + length
        if at:
            del self._buffer[:at]
        return found


def _decode(frame: memoryview) -> Message:
    try:
        return _decoder.decode(frame)
    except ValueError as error:  # msgspec's errors are ValueErrors
        raise WireError(f"a frame that is not of this protocol: {error}") from error
    finally:
        frame.release()
