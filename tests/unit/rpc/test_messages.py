"""The frames, REST and proto/ say the same: one definition is compared with the other, and no change is overlooked."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool

from phalanx.api.schema.jobs import CancelReply, Page, WatchEvent
from phalanx.api.schema.submission import SubmitReply, SubmitRequest
from phalanx.api.schema.workflows import RetryReply, SubmittedWorkflow, WorkflowView
from phalanx.core.model.orders import Ended, Exit, Started, Why
from phalanx.link import wire
from phalanx.link.overlay import OverlayMap
from phalanx.link.session_messages import SessionMessage
from phalanx.link.usage import ReadUsage, UsageData
from phalanx.link.vps import AskSnapshots, SnapshotsTold
from phalanx.rpc import messages
from phalanx.rpc.convert import Drift, WrongMessage, converter
from tests.tidy.source import ROOT

File = Any  # a FileDescriptorProto, of which mypy knows nothing
WRAPPERS = {
    "FromRunner": messages.FROM_RUNNER,
    "ToRunner": messages.TO_RUNNER,
    "FromLogs": messages.FROM_LOGS,
    "ToLogs": messages.TO_LOGS,
}
ALONE: dict[str, Any] = {
    "SubmitRequest": SubmitRequest,
    "SubmitReply": SubmitReply,
    "CancelReply": CancelReply,
    "WatchEvent": WatchEvent,
    "SubmittedWorkflow": SubmittedWorkflow,
    "WorkflowView": WorkflowView,
    "WorkflowPage": Page[WorkflowView],
    "RetryReply": RetryReply,
}
OF_GRPC_ALONE = {
    *("CancelRequest", "WatchRequest", "WatchReply", "CallRequest", "CallReply"),
    *("SubmitWorkflowRequest", "ShowWorkflowRequest", "ListWorkflowsRequest"),
    *("CancelWorkflowRequest", "RetryWorkflowRequest"),
}


def compiled() -> list[File]:
    return list(descriptor_pb2.FileDescriptorSet.FromString(messages.DESCRIPTORS.read_bytes()).file)


def compare(files: list[File]) -> None:
    """Make every converter, with these definitions in the place of ours."""
    pool = descriptor_pool.DescriptorPool()
    for file in files:
        pool.AddSerializedFile(file.SerializeToString())
    for name, kinds in WRAPPERS.items():
        union = kinds[0]
        for kind in kinds[1:]:
            union = union | kind  # type: ignore[assignment]
        converter(union, pool.FindMessageTypeByName(f"phalanx.v1.{name}"))
    for name, kind in ALONE.items():
        converter(kind, pool.FindMessageTypeByName(f"phalanx.v1.{name}"))


def message(files: list[File], name: str) -> Any:
    return next(each for file in files for each in file.message_type if each.name == name)


def field(files: list[File], name: str, of: str) -> Any:
    return next(each for each in message(files, of).field if each.name == name)


def enum(files: list[File], name: str) -> Any:
    return next(each for file in files for each in file.enum_type if each.name == name)


def test_the_definitions_are_the_same():
    compare(compiled())


def test_every_message_of_the_link_has_one_of_grpc():
    """Except those about files, readers, usage, sessions, snapshots and the overlay: frames, of our runners alone."""
    carried = {kind for kinds in WRAPPERS.values() for kind in kinds}
    as_frames = {
        wire.FilesReady,
        wire.PutFile,
        wire.FileTaken,
        wire.HoldLog,
        ReadUsage,
        UsageData,
        OverlayMap,
        AskSnapshots,
        SnapshotsTold,
        *get_args(SessionMessage),
    }
    assert carried == set(get_args(wire.Message)) - as_frames


def test_no_message_of_grpc_stands_for_nothing():
    def reached(descriptor: Any) -> Iterator[str]:
        yield descriptor.name
        for each in descriptor.fields:
            if each.message_type is not None:
                yield from reached(each.message_type)

    known = {
        found for name in [*WRAPPERS, *ALONE] for found in reached(messages.message_class(name).DESCRIPTOR)
    }
    written = {each.name for file in compiled() for each in file.message_type}
    assert written - known == OF_GRPC_ALONE


def test_the_version_that_proto_names_is_the_one_in_force():
    text = (ROOT / "proto/phalanx/v1/runners.proto").read_text()
    assert re.findall(r"// of these messages: (\d+)", text) == [str(wire.VERSION)]


def test_the_descriptors_are_compiled_from_proto(tmp_path: Path):
    again = tmp_path / "v1.binpb"
    subprocess.run(["bash", ROOT / "scripts/protos", again], check=True)
    assert again.read_bytes() == messages.DESCRIPTORS.read_bytes(), "run scripts/protos"


def gone(files: list[File]) -> None:
    beat = message(files, "Beat")
    beat.field.remove(field(files, "trouble", "Beat"))


def added(files: list[File]) -> None:
    message(files, "Beat").field.add(name="mood", number=99, type=9, label=1)


def renamed(files: list[File]) -> None:
    field(files, "sent_at", "Beat").name = "said_at"


def retyped(files: list[File]) -> None:
    field(files, "epoch", "Beat").type = 9


def not_repeated(files: list[File]) -> None:
    field(files, "held", "Beat").label = 1


def no_longer_optional(files: list[File]) -> None:
    found = field(files, "multiple", "GatherSpec")  # absent means 1, and would be read as 0
    found.proto3_optional = False
    found.ClearField("oneof_index")
    message(files, "GatherSpec").ClearField("oneof_decl")


def enumerator_gone(files: list[File]) -> None:
    del enum(files, "Why").value[-1]


def enumerators_exchanged(files: list[File]) -> None:
    first, second = enum(files, "Disposition").value[1:3]
    first.name, second.name = second.name, first.name


def order_gone(files: list[File]) -> None:
    order = message(files, "Order")
    order.field.remove(field(files, "dismiss", "Order"))


def shorter_key(files: list[File]) -> None:
    del message(files, "AttemptKey").field[-1]


def no_map(files: list[File]) -> None:
    found = field(files, "env", "SubmitRequest")
    found.ClearField("type_name")
    found.type, found.label = 9, 1


CHANGES: list[Callable[[list[File]], None]] = [
    gone,
    added,
    renamed,
    retyped,
    not_repeated,
    no_longer_optional,
    enumerator_gone,
    enumerators_exchanged,
    order_gone,
    shorter_key,
    no_map,
]


@pytest.mark.parametrize("change", CHANGES, ids=lambda each: each.__name__)
def test_a_definition_that_has_drifted_is_refused(change: Callable[[list[File]], None]):
    files = compiled()
    change(files)
    with pytest.raises(Drift):
        compare(files)


def test_a_token_travels_in_the_metadata_and_not_in_the_hello():
    hello = wire.LogHello(wire.VERSION, "a-secret", "n1", "life")
    packed = messages.from_logs.pack(hello)
    assert b"a-secret" not in packed
    assert messages.from_logs.hear(packed, "a-secret") == hello
    assert messages.from_logs.hear(packed) == wire.LogHello(wire.VERSION, "", "n1", "life")


def without(path: str) -> bytes:
    """Reports of a start and an end, with one field taken away."""
    end = Ended(("j", 0, 1), Exit(Why.NONE, 0))
    made = messages.from_runner.made.FromString(
        messages.from_runner.pack(wire.Reports(1, [Started(("j", 0, 1), 1.0), end]))
    )
    of: Any = made.reports.reports[1]
    *outer, last = path.split(".")
    for name in outer:
        of = getattr(of, name)
    of.ClearField(last)
    return bytes(made.SerializeToString())


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "message is missing: expected one of hello, reports, beat, leaving"),
        (b"\xff", "not a phalanx.v1.FromRunner: "),
        (
            without("ended"),
            "reports.reports[1].report is missing: expected one of ready, started, ended, returned",
        ),
        (without("ended.key"), "reports.reports[1].ended.key is missing"),
        (
            without("ended.exit.why"),
            "reports.reports[1].ended.exit.why = 0: expected one of WHY_NONE, WHY_EXITED",
        ),
    ],
)
def test_what_cannot_be_meant_is_refused_by_field_and_value(data: bytes, says: str):
    with pytest.raises(WrongMessage) as refused:
        messages.from_runner.hear(data)
    assert str(refused.value).startswith(says)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_number_that_is_none_is_refused(value: float):
    made = messages.from_runner.made()
    made.hello.capacity.cores = value
    with pytest.raises(WrongMessage, match=r"^hello.capacity.cores = "):
        messages.from_runner.hear(made.SerializeToString())


def test_a_number_that_its_struct_refuses_is_refused_here_as_well():
    made = messages.from_runner.made()
    made.hello.capacity.cores = -1.0
    with pytest.raises(WrongMessage, match=r"^hello.capacity: cores: -1 is out of range"):
        messages.from_runner.hear(made.SerializeToString())
