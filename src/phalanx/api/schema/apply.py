"""What `apply`, `plan` and `topology` ask and answer: job files, layers and quotas, all accepted or none.

`plan` tells what would come of them; it and `topology` are answered by a coordinator and, offline, by the same code on
files (`phalanx.preview`). How a `JobSpec` is read is `api/schema/jobspec.py`'s business, how files become specs that of
`manifests/`.
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

from phalanx.api.schema.cluster import TopologySpec
from phalanx.api.schema.exports import check_exported
from phalanx.api.schema.fields import check_count, check_name, check_text, shown
from phalanx.api.schema.jobs import DomainSlots, Fix, NodeReasons
from phalanx.api.schema.jobspec import JobSpec
from phalanx.api.schema.queues import QuotaSpec
from phalanx.api.schema.submission import SubmitRequest
from phalanx.api.schema.workflows import SubmittedWorkflow, WorkflowSpec
from phalanx.core.model.resources import Cores
from phalanx.errors import BadRequest

SPECS_MAX = 1000
QUOTAS_MAX = 1000
FILES_MAX = 20  # of one plan
FILE_NAME_BYTES_MAX = 255

NOW, MUST_WAIT, NEVER = 0, 3, 4


class AmendSpec(Struct, frozen=True, forbid_unknown_fields=True):
    """The gang that the only spec takes the place of, as it was read."""

    job: str
    version: int


class DraftView(Struct):
    """A gang that waits for members: what it lacks, what it was made from, and the version to amend."""

    job: str
    version: int
    lacks: str
    manifests: str
    applied: dict[str, str] = {}  # digests of what it was made from, by kind and name


class ApplyRequest(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Jobs to submit, and what an operator declares for them. Nothing of it happens if one is refused."""

    specs: list[JobSpec] = []
    topology: TopologySpec | None = None
    quotas: dict[str, QuotaSpec] = {}
    allow_infeasible: bool = False  # wait even if no node of today could ever hold it
    amends: AmendSpec | None = None  # members of a gang that waits for some
    strict: bool = False  # what would be a warning is a refusal
    request_id: str | None = None  # the same as the Idempotency-Key header
    exported: dict[
        str, str
    ] = {}  # the caller's environment, for all jobs: weaker than what they say themselves


class AppliedJob(Struct):
    """One job that was accepted, or that is of the same objects already."""

    id: str
    name: str
    tasks: int
    unchanged: bool = False  # it was there already: the same objects of Kubernetes were applied before
    number: int = 0  # by arrival; it names the job wherever its id does


class ApplyReply(Struct, omit_defaults=True):
    """Durable when returned. The jobs are in the order of the specs."""

    jobs: list[AppliedJob]
    topology_changed: bool = False
    quotas: list[str] = []  # the queues whose quota was set
    warnings: list[str] = []
    replayed: bool = False  # true when the same request_id had been answered before
    workflows: list[SubmittedWorkflow] = []  # what `phalanx apply` handed in besides


def check_extent(request: ApplyRequest) -> None:
    """Refuse a call that asks for nothing, or for too much at once."""
    if not (request.specs or request.topology or request.quotas):
        raise BadRequest("specs: nothing to apply: give specs, a topology or quotas")
    check_count("specs", len(request.specs), SPECS_MAX)
    if request.amends is not None and len(request.specs) != 1:
        raise BadRequest(f"amends: given with {len(request.specs)} specs, one gang is amended at a time")
    check_exported(request.exported, "exported")
    check_count("quotas", len(request.quotas), QUOTAS_MAX)
    for queue in request.quotas:
        check_name("quotas", queue)


class Called(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """What the answer calls a job, and its tasks by position, where they have names of their own."""

    job: str
    tasks: list[str] = []


class PlanRequest(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Jobs to plan without submitting them, in this order, behind the jobs that already wait."""

    specs: list[JobSpec] = []
    submit: SubmitRequest | None = None
    names: list[Called] = []  # of the specs, in the same order
    workflows: list[WorkflowSpec] = []  # behind the specs


class PlanFile(Struct, forbid_unknown_fields=True):
    """A job file or manifest as it was written: YAML, JSON or TOML, as `phalanx plan -f` reads it."""

    name: str  # for errors; its ending says how it is read
    text: str


class PlanFilesRequest(Struct, forbid_unknown_fields=True):
    """Files whose jobs are planned without submitting them."""

    files: list[PlanFile]


def check_files(files: list[PlanFile]) -> None:
    """Refuse a request without files, with too many, or with names that cannot be shown."""
    if not files:
        raise BadRequest("files: none is given: give the text of one")
    check_count("files", len(files), FILES_MAX)
    for number, file in enumerate(files):
        check_text(f"files[{number}].name", file.name, FILE_NAME_BYTES_MAX)
        if not file.name or not file.name.isprintable():
            raise BadRequest(
                f"files[{number}].name: {shown(file.name)} is not a name: write printable characters"
            )


class PlannedPlacement(Struct):
    """One task and where it would be placed. `nominated`: it starts when the tasks evicted there have ended."""

    task: str
    node: str
    devices: list[int]
    job: str = ""
    group: str = ""
    index: int = 0  # in the network, of a gang; otherwise the task's place in its job
    domain: list[str] = []  # from the outermost layer to the innermost
    cores: Cores = 0
    memory_bytes: int = 0
    nominated: bool = False


class PlannedEviction(Struct):
    """One task that would be evicted, for which job, and the message of its eviction."""

    task: str  # as people call it: its name in Kubernetes, or its number
    node: str
    job: str
    devices: list[int] = []
    priority: int = 0
    preemptor: str = ""  # the job it makes way for
    why: str = ""  # the message of its condition
    name: str = ""  # of the job that it is of
    id: str = ""  # of the task


class PlanReason(Struct):
    """Why a job, or a part of it, does not start now. The first of a job is the dominant one and has the details."""

    job: str
    code: str
    tier: str
    text: str
    numbers: dict[str, Any] = {}
    dominant: bool = False
    waits: bool = True  # false: the job starts without it, and this is said of the rest
    tasks: int = 0  # how many tasks it speaks for
    domains: list[DomainSlots] = []
    nodes: list[NodeReasons] = []
    fix: Fix | None = None  # tried before it is offered
    expected_at: float | None = None  # when it starts if nobody passes it and time limits are used up


class WorkflowEstimate(Struct, omit_defaults=True):
    """What earlier runs say of a workflow, the time it waits for room not counted."""

    name: str
    stages: int
    begins: int  # stages that would begin at once, and are planned as NAME:STAGE
    least_s: float = 0.0  # with every stage where it was fastest
    expected_s: float = 0.0
    least_cost: float = 0.0
    expected_cost: float = 0.0
    unknown: list[str] = []  # stages that count with nothing: they never ran, and have no time limit
    warnings: list[str] = []  # why it may not keep its deadline or its budget


class PlanReply(Struct, omit_defaults=True):
    """What the scheduler would do. `exit` is the worst of all jobs: 0 now, 3 must wait, 4 never."""

    placements: list[PlannedPlacement]
    evictions: list[PlannedEviction]
    reasons: list[PlanReason]
    exit: Literal[0, 3, 4]
    warnings: list[str] = []  # what was read otherwise than written
    workflows: list[WorkflowEstimate] = []


class LayerView(Struct):
    """A layer between the cluster and its nodes, and the labels that assign nodes to its domains."""

    name: str
    keys: list[str]


class SeatView(Struct):
    """A task that holds a place on a node."""

    task: str  # as people call it: its name in Kubernetes, or its number
    job: str
    devices: list[int]
    name: str = ""  # of the job
    id: str = ""


class PlaceView(Struct):
    """One node of the network: its domains, free resources, and running tasks."""

    name: str
    domain: list[str]
    open: bool  # takes new work
    cores: Cores
    cores_free: Cores
    devices: int
    devices_free: int
    seats: list[SeatView]
    missing: list[str] = []  # layers that other nodes have a label for and this one has not


class DomainView(Struct):
    """One domain. `children` names the domains right below it; it is empty where nodes are."""

    layer: str
    domain: list[str]  # its path; empty: the whole cluster
    child_layer: str
    children: list[str]
    nodes: int
    cores: Cores
    cores_free: Cores
    devices: int
    devices_free: int
    virtual: bool = False  # no label names it


class TopologyView(Struct):
    """The tree: layers from the outermost to the innermost, domains depth first, nodes in the same order."""

    cluster_layer: str
    layers: list[LayerView]
    node_layer: str
    domains: list[DomainView]
    nodes: list[PlaceView]
