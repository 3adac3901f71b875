"""Which message of `proto/` each of our structs travels as, and the messages themselves.

The descriptors are compiled ahead (`scripts/protos`); the converters are made, and with that compared, when this is
first imported. Messages of runners and coordinators are wrapped in one message for each direction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import reduce
from operator import or_
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError, Message

from phalanx.api.schema.jobs import CancelReply, Page, WatchEvent
from phalanx.api.schema.submission import SubmitReply, SubmitRequest
from phalanx.api.schema.workflows import RetryReply, SubmittedWorkflow, WorkflowView
from phalanx.link import wire
from phalanx.rpc.convert import Converter, WrongMessage, converter, count_elements

PACKAGE = "phalanx.v1"
DESCRIPTORS = Path(__file__).with_name("v1.binpb")
RUNNERS, CLIENTS = f"{PACKAGE}.Runners", f"{PACKAGE}.Clients"

FROM_RUNNER = (wire.HelloMessage, wire.Reports, wire.Beat, wire.LeavingMessage)
TO_RUNNER = (wire.Welcome, wire.Rejected, wire.Orders, wire.Dispositions, wire.BeatAck, wire.LeaveAck)
FROM_LOGS = (wire.LogHello, wire.LogData)
TO_LOGS = (wire.Rejected, wire.ReadLog, wire.CancelRead)
_WITH_TOKEN = (wire.HelloMessage, wire.LogHello)
RECEIVED_MAX = 4 * 1024 * 1024  # bytes of a message, as gRPC has it where nothing else is said
SHORT = 4096  # bytes: one so short has few elements, however it is made
ELEMENTS_MAX = 20_000  # of all lists in what a client says,
CAPACITY_MAX = 100_000  # and of a node's capacity


def load_pool() -> descriptor_pool.DescriptorPool:
    """A separate pool: other users of stubs of the same files in this process are not disturbed."""
    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(DESCRIPTORS.read_bytes()).file:
        pool.AddSerializedFile(file.SerializeToString())
    return pool


_pool = load_pool()


def message_class(name: str) -> Any:
    """The class of a message, by its name in the package."""
    return message_factory.GetMessageClass(_pool.FindMessageTypeByName(f"{PACKAGE}.{name}"))


CancelRequestMessage, WatchRequestMessage = message_class("CancelRequest"), message_class("WatchRequest")
WatchReplyMessage = message_class("WatchReply")
SubmitWorkflowMessage, RetryWorkflowMessage = (
    message_class("SubmitWorkflowRequest"),
    message_class("RetryWorkflowRequest"),
)
ShowWorkflowMessage, CancelWorkflowMessage = (
    message_class("ShowWorkflowRequest"),
    message_class("CancelWorkflowRequest"),
)
ListWorkflowsMessage = message_class("ListWorkflowsRequest")
CallRequestMessage, CallReplyMessage = message_class("CallRequest"), message_class("CallReply")


class Codec:
    """One type of ours, or several with different tags, as the bytes of one message."""

    def __init__(self, name: str, kinds: Iterable[Any]) -> None:
        self.made = message_class(name)
        self._converter: Converter = converter(reduce(or_, kinds), self.made.DESCRIPTOR)

    def pack(self, value: Any) -> bytes:
        message = self.made()
        self._converter.write(message, value)
        packed: bytes = message.SerializeToString()
        return packed

    def unpack(self, data: bytes, **known: Any) -> Any:
        """The value; `known` are fields that travel elsewhere. Raises WrongMessage."""
        return self._converter.read(parse(self.made, data), **known)

    def unpack_said(self, data: bytes) -> Any:
        """The same for what a client says: how much it is to convert is counted first."""
        message = parse(self.made, data)
        if len(data) > SHORT:
            count_elements(message, ELEMENTS_MAX)
        return self._converter.read(message)

    def fill(self, message: Any, value: Any) -> None:
        self._converter.write(message, value)

    def read(self, message: Any) -> Any:
        return self._converter.read(message)


class LinkCodec(Codec):
    """The messages in one direction of a runner's stream."""

    def hear(self, data: bytes, token: str = "", held_max: int = wire.HELD_MAX) -> wire.Message:
        """The message; a hello gets the token that its call was made with."""
        message: Any = parse(self.made, data)
        tag = message.WhichOneof("message")
        if len(data) > SHORT:
            _check_counts(tag, message, held_max)
        is_hello = tag in {kind.__struct_config__.tag for kind in _WITH_TOKEN}
        found: wire.Message = self._converter.read(message, **({"token": token} if is_hello else {}))
        return found


def _check_counts(tag: str | None, message: Any, held_max: int) -> None:
    """Before they are converted: the lists that make a message of a runner long."""
    if tag == "reports" and len(message.reports.reports) > wire.REPORTS_MAX:
        raise WrongMessage(wire.too_many("reports.reports", len(message.reports.reports), wire.REPORTS_MAX))
    if tag in ("hello", "beat"):
        held = len(getattr(message, tag).held)
        if held > held_max:
            raise WrongMessage(wire.too_many(f"{tag}.held", held, held_max))
    if tag == "hello":
        count_elements(message.hello.capacity, CAPACITY_MAX)


def reader(made: Any) -> Callable[[bytes], Message]:
    """Reads a message of this class."""
    return lambda data: parse(made, data)


def parse(made: Any, data: bytes) -> Message:
    try:
        message: Message = made.FromString(data)
    except DecodeError as error:
        raise WrongMessage(f"not a {made.DESCRIPTOR.full_name}: {error}") from None
    return message


from_runner, to_runner = LinkCodec("FromRunner", FROM_RUNNER), LinkCodec("ToRunner", TO_RUNNER)
from_logs, to_logs = LinkCodec("FromLogs", FROM_LOGS), LinkCodec("ToLogs", TO_LOGS)
submit_request, submit_reply = Codec("SubmitRequest", [SubmitRequest]), Codec("SubmitReply", [SubmitReply])
submitted_workflow = Codec("SubmittedWorkflow", [SubmittedWorkflow])
workflow_view, workflow_page = (
    Codec("WorkflowView", [WorkflowView]),
    Codec("WorkflowPage", [Page[WorkflowView]]),
)
retry_reply = Codec("RetryReply", [RetryReply])
cancel_reply, watch_event = Codec("CancelReply", [CancelReply]), Codec("WatchEvent", [WatchEvent])
