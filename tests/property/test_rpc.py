"""Whatever our structs can say comes through protobuf unchanged."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import inspect as types

from phalanx.api.schema.jobs import Page, WatchEvent
from phalanx.api.schema.submission import SubmitReply, SubmitRequest
from phalanx.api.schema.workflows import RetryReply, SubmittedWorkflow, WorkflowView
from phalanx.core.model.orders import Order, Report
from phalanx.link import wire
from phalanx.rpc import messages
from phalanx.rpc.convert import LEFT_OUT

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
WHOLE = st.integers(-(2**63), 2**63 - 1)
NUMBER = st.floats(allow_nan=False, allow_infinity=False)

JSON = st.recursive(
    st.none() | st.booleans() | WHOLE | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=5,
)


def values(info: types.Type, name: str = "") -> st.SearchStrategy[Any]:
    """Whatever a type may hold."""
    match info:
        case types.StructType():
            # Files and samples of usage travel over the link alone; there they are not said at all.
            left_out = {field for kind, field in LEFT_OUT if kind == info.cls.__name__} - {"token"}
            fields = {
                each.name: values(each.type, each.name) for each in info.fields if each.name not in left_out
            }
            return st.builds(info.cls, **fields)
        case types.TupleType():
            *first, last = info.item_types
            return st.tuples(*map(values, first), values(last, name.removeprefix("numa_")))
        case types.UnionType():
            return st.one_of(*(values(each, name) for each in info.types))
        case types.ListType():
            return st.lists(values(info.item_type), max_size=3)
        case types.VarTupleType():
            return st.lists(values(info.item_type, name), max_size=3).map(tuple)
        case types.DictType():
            return st.dictionaries(values(info.key_type), values(info.value_type), max_size=3)
        case types.EnumType():
            return st.sampled_from(info.cls)
        case types.LiteralType():
            return st.sampled_from(info.values)
        case types.IntType() | types.FloatType() if name == "cores":
            return st.integers(0, 2**40) if isinstance(info, types.IntType) else st.floats(0.0, 2.0**40)
        case types.StrType() if name == "wireguard":
            return st.sampled_from(["", f"{'A' * 43}="])
        case types.IntType() if name == "slots":
            return st.integers(0, 1)
        case types.FloatType() if name == "cost_per_hour":
            return st.floats(0.0, 1e6)
        case types.IntType():
            return WHOLE
    simple: dict[type, st.SearchStrategy[Any]] = {
        types.NoneType: st.none(),
        types.BoolType: st.booleans(),
        types.FloatType: NUMBER,
        types.StrType: TEXT,
        types.BytesType: st.binary(max_size=8),
        types.AnyType: JSON,
    }
    return simple[type(info)]


def a(kind: Any) -> st.SearchStrategy[Any]:
    return values(types.type_info(kind))


@settings(max_examples=300)
@given(st.one_of(*(a(kind) for kind in (*messages.FROM_RUNNER, *messages.FROM_LOGS))))
def test_what_runners_say_comes_through(said: wire.Message):
    codec = messages.from_runner if isinstance(said, messages.FROM_RUNNER) else messages.from_logs
    assert codec.hear(codec.pack(said), getattr(said, "token", "")) == said


@settings(max_examples=300)
@given(st.one_of(*(a(kind) for kind in (*messages.TO_RUNNER, *messages.TO_LOGS))))
def test_what_coordinators_say_comes_through(said: wire.Message):
    codec = messages.to_runner if isinstance(said, messages.TO_RUNNER) else messages.to_logs
    assert codec.hear(codec.pack(said)) == said


@given(a(Order), a(Report))
def test_every_order_and_every_report_comes_through(order: Order, report: Report):
    orders, reports = wire.Orders(1, [order]), wire.Reports(1, [report])
    assert messages.to_runner.hear(messages.to_runner.pack(orders)) == orders
    assert messages.from_runner.hear(messages.from_runner.pack(reports)) == reports


def as_written(request: SubmitRequest) -> dict[str, Any]:
    """The request with numbers that may also be texts as texts."""
    fields: dict[str, Any] = msgspec.structs.asdict(request)
    written = {"memory", "gpu_memory", "time_limit", "grace", "gang_wait", "min_run", "begin"}
    return fields | {name: None if fields[name] is None else str(fields[name]) for name in written}


@given(a(SubmitRequest))
def test_a_submission_comes_through(request: SubmitRequest):
    codec = messages.submit_request
    assert as_written(codec.unpack(codec.pack(request))) == as_written(request)


def test_what_was_left_out_of_a_submission_is_what_it_is_in_rest():
    found = messages.submit_request.unpack(b"")
    assert found == SubmitRequest()


@given(a(SubmitReply), a(WatchEvent))
def test_replies_come_through(reply: SubmitReply, event: WatchEvent):
    assert messages.submit_reply.unpack(messages.submit_reply.pack(reply)) == reply
    assert messages.watch_event.unpack(messages.watch_event.pack(event)) == event


@given(a(SubmittedWorkflow), a(WorkflowView), a(Page[WorkflowView]), a(RetryReply))
def test_what_is_said_of_workflows_comes_through(
    made: SubmittedWorkflow, view: WorkflowView, page: Page[WorkflowView], again: RetryReply
):
    for codec, value in (
        (messages.submitted_workflow, made),
        (messages.workflow_view, view),
        (messages.workflow_page, page),
        (messages.retry_reply, again),
    ):
        assert codec.unpack(codec.pack(value)) == value
