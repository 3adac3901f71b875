"""One workflow as bytes: in the image of the whole state, and for the history."""

from __future__ import annotations

from array import array

from msgspec import Struct, msgpack

from phalanx.core.cluster.workflows import KeptResult, WorkflowState
from phalanx.core.model.workflow import Workflow

# Records of jobs and of workflows stand in one history. No record of a job begins so: MessagePack has no such byte.
_MARK = b"\xc1workflow"


class WorkflowImage(Struct, array_like=True):
    workflow: Workflow
    phases: bytearray
    retries: bytes
    parents: dict[int, int]
    notes: dict[int, str]
    results: dict[int, str]
    times: bytes
    nodes: bytes
    ended_at: float | None
    kept: dict[int, tuple[KeptResult, ...]] = {}
    spent: float = 0.0
    stopped: str = ""
    number: int = 0
    unapproved: bool = False
    reused: dict[int, int] = {}


def workflow_image(flow: WorkflowState) -> WorkflowImage:
    return WorkflowImage(
        flow.workflow,
        flow.phases,
        flow.retries.tobytes(),
        flow.parents,
        flow.notes,
        flow.results,
        flow.stage_times.tobytes(),
        flow.stage_nodes.tobytes(),
        flow.ended_at,
        flow.kept,
        flow.spent,
        flow.stopped,
        flow.number,
        flow.unapproved,
        flow.reused,
    )


def workflow_state(image: WorkflowImage) -> WorkflowState:
    flow = WorkflowState(image.workflow, image.number)
    flow.phases, flow.ended_at = image.phases, image.ended_at
    flow.parents, flow.notes, flow.results = image.parents, image.notes, image.results
    flow.retries, flow.stage_nodes = array("H", image.retries), array("I", image.nodes)
    flow.kept, flow.spent, flow.stopped = image.kept, image.spent, image.stopped
    flow.stage_times = array("d", image.times)
    flow.unapproved, flow.reused = image.unapproved, image.reused
    flow.result_bytes = sum(map(len, flow.results.values()))
    flow.unfinished = sum(not flow.phase(stage).is_over for stage in range(len(flow.phases)))
    flow.count_missing()
    return flow


def encode_workflow(flow: WorkflowState) -> bytes:
    """One workflow, for the history."""
    return _MARK + msgpack.encode(workflow_image(flow))


def is_workflow(body: bytes) -> bool:
    """Whether a record of the history is one of a workflow."""
    return body.startswith(_MARK)


def decode_workflow(body: bytes) -> WorkflowState:
    """A workflow out of the history."""
    return workflow_state(msgpack.decode(body[len(_MARK) :], type=WorkflowImage))


def number_of_workflow(body: bytes) -> int:
    """The number in a record of the history."""
    return decode_workflow(body).number
