"""The messages between coordinator and runner, versioned: msgpack structs in frames with a four-byte length.

One connection carries control (hello, orders, reports, heartbeats), another one logs and files, so that neither can
hold up the other (docs/decisions/0003 says why frames). Either way, what a runner says has limits (`why_wrong`).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator

from msgspec import Struct, msgpack, structs

from phalanx.core.model.files import FileKind
from phalanx.core.model.health import NodeHealth
from phalanx.core.model.orders import (
    AttemptKey,
    Disposition,
    Ended,
    Order,
    Phase,
    Report,
    Started,
)
from phalanx.core.model.resources import DEVICES_MAX, Capacity
from phalanx.link.claims import (
    BYTES_MAX,
    TIME_MAX,
    WORD_MAX,
    wrong_capacity,
    wrong_count,
    wrong_texts,
    wrong_times,
)
from phalanx.link.exits import DIGEST, wrong_exit
from phalanx.link.overlay import OverlayMap
from phalanx.link.preparing import wrong_preparing
from phalanx.link.session_messages import SessionMessage
from phalanx.link.usage import IdleDevice, ReadUsage, UsageData, wrong_idle, wrong_samples
from phalanx.link.vps import AskSnapshots, SnapshotsTold, wrong_snapshots

VERSION = 3  # 2: gangs (rolls, ready, go), briefs by group; 3: lease generations, credentials, who leads
FRAME_MAX = 32 * 1024 * 1024
_LENGTH = struct.Struct(">I")

ORIGIN_MAX = 8192  # of a path
COUNT_MAX = (1 << 63) - 1
HOMES_MAX = 10_000
HELD_MAX = 20_480  # attempts that are listed, beyond twice those that a node is known to have
REPORTS_MAX = 20_000  # in one message
PIECE_MAX = 1 << 20  # bytes of a file in one message
LIST_MAX = 1 << 20  # bytes of a message with a list that can be told in several


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
    overlay: bool = False  # whether it can give tasks addresses of the overlay network
    health: NodeHealth | None = None  # checks of the node that fail, if any


class Welcome(Struct, frozen=True, tag="welcome"):
    version: int
    epoch: int
    heartbeat_s: float
    self_fence_s: float
    generation: int = 0  # of the node's lease: heartbeats and reports must carry it
    credential: str = ""  # the node's own, in exchange for a join token: the runner uses it from now on


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
    idle: list[IdleDevice] = []  # devices that tasks hold and hardly use
    preparing: list[tuple[AttemptKey, str]] = []  # whose images are got ready, and how far that is
    homes: list[str] = []  # jobs that have files on this node which outlast their attempts: those of VPSs
    health: NodeHealth | None = None  # checks of the node that fail, if any
    unread: list[AttemptKey] = []  # stopped until their output is read: those of attached runs


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
    files: bool = False  # it has files to send, if the coordinator takes them
    usage: bool = False  # it can be asked for usage
    sessions: bool = False  # it opens sessions, if the coordinator asks for one
    snapshots: bool = False  # it can be asked about snapshots of VPSs
    times: bool = False  # it can be asked when logs were written (the stream `times`)
    holds: bool = False  # it stops attached attempts whose reader is far behind
    inputs: bool = False  # it gives attempts standard input


class ReadLog(Struct, frozen=True, tag="read_log"):
    """Ask for a piece of a log; with `wait`, answer only when there is something new or the attempt has ended."""

    id: int
    key: AttemptKey
    stream: str
    offset: int | None
    lines: int | None
    limit: int
    wait: bool
    hold: bool = False  # the reader of an attached attempt asks, and has what is before `offset`


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


class HoldLog(Struct, frozen=True, tag="hold_log"):
    """The reader of an attached attempt is there for so long, though it asks for nothing: it may be slow, or gone."""

    key: AttemptKey
    stream: str
    for_s: float


class FilesReady(Struct, frozen=True, tag="files_ready"):
    """The coordinator takes files, each of at most `max_bytes`. Runners of older versions are not told."""

    max_bytes: int


class PutFile(Struct, frozen=True, tag="put_file"):
    """A piece of a file for the place for files; the next one is sent when this one was taken.

    The last piece has the digest of the whole file; before it was compared, nothing is there.
    """

    id: int
    key: AttemptKey
    kind: FileKind
    path: str
    size: int  # of the whole file
    offset: int
    data: bytes
    sha256: str = ""


class FileTaken(Struct, frozen=True, tag="file_taken"):
    """A piece was taken, or the file is there if it was the last; or why it never will be, and whether to try again."""

    id: int
    error: str = ""
    retry: bool = False


_Control = Orders | Reports | Dispositions | Beat | BeatAck | OverlayMap | LeavingMessage | LeaveAck
_OfLogs = (
    LogHello
    | ReadLog
    | HoldLog
    | LogData
    | CancelRead
    | FilesReady
    | PutFile
    | FileTaken
    | ReadUsage
    | UsageData
)
_OfVps = AskSnapshots | SnapshotsTold
Message = HelloMessage | Welcome | Rejected | _Control | _OfLogs | _OfVps | SessionMessage

_encoder = msgpack.Encoder()
_decoder: msgpack.Decoder[Message] = msgpack.Decoder(Message)


_LISTS: dict[type, str] = {Reports: "reports", Orders: "orders", Dispositions: "items"}


def pack(message: Message) -> bytes:
    """A message as one frame, or a long list as several."""
    return b"".join(frames_of(message))


def frames_of(message: Message) -> list[bytes]:
    """The same, one by one: however long a list is, the other side takes each of them."""
    return [_LENGTH.pack(len(body)) + body for body in in_parts(message, _encoder.encode)]


def in_parts(message: Message, encode: Callable[[Message], bytes]) -> list[bytes]:
    """A message, encoded; one whose list is too long as several with a part of it each, in the same order."""
    body = encode(message)
    too_many = isinstance(message, Reports) and len(message.reports) > REPORTS_MAX
    name = _LISTS.get(type(message), "") if too_many or len(body) > LIST_MAX else ""
    items: list[object] = getattr(message, name) if name else []
    if len(items) < 2:
        return [body]
    count = 1 + max(len(body) // LIST_MAX, len(items) // REPORTS_MAX)
    size = -(-len(items) // count)
    parts = [structs.replace(message, **{name: items[at : at + size]}) for at in range(0, len(items), size)]
    return [packed for part in parts for packed in in_parts(part, encode)]


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


def why_wrong(message: Message) -> str:
    """What cannot be true of what a runner says: the field, its value and what would be right; empty: nothing."""
    match message:
        case Beat():
            times = wrong_times(("sent_at", message.sent_at), ("seen_at", message.seen_at))
            homes = wrong_count("the number of homes", len(message.homes), HOMES_MAX)
            unread = wrong_count("the number of unread attempts", len(message.unread), HELD_MAX)
            found: Iterable[str] = (
                *times,
                wrong_idle(message.idle, DEVICES_MAX),
                wrong_preparing(message.preparing, HELD_MAX, WORD_MAX),
                *(homes, unread),
            )
        case UsageData():
            return wrong_samples(message)
        case SnapshotsTold():
            return wrong_snapshots(message)
        case Reports() if len(message.reports) > REPORTS_MAX:
            return too_many("reports", len(message.reports), REPORTS_MAX)
        case Reports():
            return next((wrong for each in message.reports if (wrong := _of_report(each))), "")
        case HelloMessage():
            found = _of_hello(message)
        case LeavingMessage():
            found = wrong_times(("sent_at", message.sent_at), ("keep_s", message.keep_s))
        case LogData():
            numbers = (("offset", message.offset), ("size", message.size), ("gap", message.gap))
            found = (wrong for name, value in numbers if (wrong := wrong_count(name, value, COUNT_MAX // 2)))
        case PutFile():
            found = _of_file(message)
        case _:
            return ""
    return next(filter(None, found), "")


def too_many(name: str, count: int, most: int) -> str:
    return f"{name}: {count} are listed, expected at most {most}"


def _of_report(report: Report) -> str:
    if type(report) is Ended:
        return wrong_exit(report.exit)
    if type(report) is Started and not -TIME_MAX <= report.at <= TIME_MAX:
        return f"started.at = {report.at}: expected seconds since 1970"
    return ""


def _of_file(put: PutFile) -> Iterator[str]:
    yield wrong_count("id", put.id, COUNT_MAX)
    yield wrong_count("size", put.size, BYTES_MAX)
    yield wrong_count("offset", put.offset, put.size)
    yield wrong_count("the length of data", len(put.data), min(PIECE_MAX, max(0, put.size - put.offset)))
    if DIGEST.fullmatch(put.sha256) is None or bool(put.sha256) != (put.offset + len(put.data) == put.size):
        yield f"sha256 = {put.sha256[:80]!r}: expected 64 digits with the last piece, and nothing before"


def _of_hello(hello: HelloMessage) -> Iterator[str]:
    yield from wrong_texts(WORD_MAX, ("incarnation", hello.incarnation), ("address", hello.address))
    yield from wrong_texts(ORIGIN_MAX, ("origin", hello.origin), ("isolation", str(hello.capacity.isolation)))
    if hello.capacity.accounts is not None:
        yield from wrong_texts(WORD_MAX, ("accounts.shared", hello.capacity.accounts.shared))
    yield wrong_count("epoch", hello.epoch, COUNT_MAX)
    for (job, position, number), _ in hello.held:
        if len(job) > WORD_MAX or not (0 <= position <= COUNT_MAX and 0 <= number <= COUNT_MAX):
            yield f"held = {(job[:80], position, number)}: expected a job, a position and a number from 0 on"
    yield from wrong_capacity(hello.capacity)
