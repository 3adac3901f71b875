"""What arrives at the cluster: a user's command, a runner's report, a plan, the time.

An input is a request or a claim; it becomes an event only once decided.
"""

from __future__ import annotations

from msgspec import Struct

from phalanx.core.cluster.overlay import ReservedAddress
from phalanx.core.model.credential import Credential
from phalanx.core.model.health import NodeHealth
from phalanx.core.model.job import Job, JobId, NodeName
from phalanx.core.model.orders import AttemptKey, Phase, Report
from phalanx.core.model.plan import GangPlacement, Placement
from phalanx.core.model.queues import Quota
from phalanx.core.model.reason import Reason
from phalanx.core.model.resources import Capacity
from phalanx.core.model.topology import Topology
from phalanx.core.model.workflow import Workflow


class Input(Struct, frozen=True):
    """Whatever `decide` is asked about."""


class Submit(Input, frozen=True):
    """A job, already valid in itself. With `no_queue` it comes with the placement found for it, or with none."""

    job: Job
    request_id: str = ""
    allow_infeasible: bool = False
    no_queue: bool = False
    placement: Placement | None = None
    never: Reason | None = None  # why placement says that the job as a whole could never fit
    # Of whoever submits: what a queue asks about, and how high a priority may be where it does not say. Who has one
    # needs a declared queue, too; empty asks for nothing.
    role: str = ""
    ip_digest: bytes = b""  # of the token of a reservation, whose address its only task is to have
    amends: int | None = None  # the version of the gang with this job's id that the job takes the place of
    retries: int = 0  # of one that repeats tasks: how many jobs are known that did so before
    environments: dict[str, bytes] = {}  # by digest: those that the job names, sealed
    hold: bool = False  # it is held from its first moment on


class Cancel(Input, frozen=True):
    job: JobId
    position: int | None = None
    cause: str = "user"
    by: str = ""  # the user who asked for it


class Approve(Input, frozen=True):
    """Somebody approves or denies a job."""

    job: JobId
    approves: bool
    user: str
    role: str
    text: str = ""  # of a denial: why


class ApproveWorkflow(Input, frozen=True):
    """The same for a workflow as a whole."""

    workflow: JobId
    approves: bool
    user: str
    role: str
    text: str = ""


class SetPaused(Input, frozen=True):
    job: JobId
    position: int | None
    paused: bool


class Hold(Input, frozen=True):
    """Place nothing more of a job until it is released."""

    job: JobId
    user: str
    reason: str = ""
    is_operator: bool = False  # whose hold takes the place of the owner's, who could release that


class ReleaseJob(Input, frozen=True):
    """Let a job that is held be placed again."""

    job: JobId
    user: str
    is_operator: bool = False  # who may release what others hold


class Update(Input, frozen=True):
    """Change settings of a job; None leaves one as it is."""

    job: JobId
    user: str
    priority: int | None = None
    time_limit_s: float | None = None  # 0: none
    queue: str | None = None
    begin_at: float | None = None  # 0: at once
    role: str = ""  # as in `Submit`
    if_revision: int | None = None  # refuse it if the settings were changed since this revision
    at_once: int | None = None  # 0: all tasks of an array


class Propose(Input, frozen=True):
    """One placement of a plan, to be checked again."""

    placement: Placement


class ProposeGang(Input, frozen=True):
    """Members of a plan that are placed together, to be checked again as one."""

    gang_placement: GangPlacement


class Redeem(Input, frozen=True):
    """Those who had to leave for this job are gone: its members may have their places."""

    job: JobId


class Defer(Input, frozen=True):
    """A plan found that this job waits for one node, though others have room."""

    job: JobId


class Abandon(Input, frozen=True):
    """This job can never start, because of how one ended that it was to start after."""

    job: JobId


class SubmitWorkflow(Input, frozen=True):
    """A workflow, already valid in itself; the other fields are those of `Submit`."""

    workflow: Workflow
    request_id: str = ""
    allow_infeasible: bool = False
    never: Reason | None = None
    role: str = ""
    environments: dict[str, bytes] = {}


class Advance(Input, frozen=True):
    """Stages of this workflow have ended, or may begin."""

    workflow: JobId


class GiveInputs(Input, frozen=True):
    """What was fetched for a stage, or why it could not be."""

    workflow: JobId
    stage: int
    job: JobId  # that the stage is to become: of an earlier retry, it comes too late
    results: dict[tuple[int, int], str] = {}  # by stage and position, as JSON
    trouble: str = ""
    is_final: bool = False  # trying again would not help: the stage fails


class CancelWorkflow(Input, frozen=True):
    workflow: JobId
    cause: str = "user"
    by: str = ""  # the user who asked for it


class RetryWorkflow(Input, frozen=True):
    """Run stages of an ended workflow again: this one and all that build on it, or whatever did not complete."""

    workflow: JobId
    stage: int | None = None
    cause: str = "user"
    deadline_at: float | None = None  # None: as before
    budget: float | None = None
    role: str = ""  # of whoever asks; "": nobody who has to be asked about


class Evict(Input, frozen=True):
    """Somebody takes the places of a job, or of one task of it, as a spot market or a drained node would."""

    job: JobId
    position: int | None = None
    cause: str = "user"


class SetTopology(Input, frozen=True):
    topology: Topology
    user: str = ""


class SetQuota(Input, frozen=True):
    """What a queue may hold from now on; None lifts the limits."""

    queue: str
    quota: Quota | None
    user: str = ""


class ReserveAddress(Input, frozen=True):
    """Set an address of a node aside, this one or any. `made` has none yet if it may be any."""

    made: ReservedAddress


class ReleaseReservation(Input, frozen=True):
    """Somebody gives a reservation back that was not used."""

    id: str
    user: str
    is_operator: bool = False  # who may release others' as well


class Hello(Input, frozen=True):
    """A runner introduces itself and lists what it still holds."""

    node: NodeName
    incarnation: str
    origin: str
    capacity: Capacity
    held: list[tuple[AttemptKey, Phase]]
    address: str = ""  # where peers reach it
    trouble: str = ""  # what keeps it from starting tasks, if anything
    has_overlay: bool = False  # whether it can give tasks addresses of the overlay network
    health: NodeHealth | None = None  # checks of the node that fail, if any


class Heartbeat(Input, frozen=True):
    node: NodeName
    incarnation: str
    held: list[tuple[AttemptKey, Phase]]
    generation: int  # of the lease that it renews
    trouble: str = ""  # what keeps its runner from starting tasks, if anything
    seen_at: float = 0.0  # by our clock: what we sent before on this connection had arrived; 0: not known
    starts_expire: bool = False  # what has not started within a lease of its arrival never will
    health: NodeHealth | None = None  # checks of the node that fail, if any


class Leave(Input, frozen=True):
    """A runner stops in an orderly way: it takes no more work, and asks to keep its tasks for a while."""

    node: NodeName
    incarnation: str
    generation: int
    keep_s: float = 0.0  # how much longer than its lease lasts anyway


class Tell(Input, frozen=True, gc=False):
    """One report of a runner, under the epoch, incarnation and lease generation it was made in."""

    node: NodeName
    incarnation: str
    epoch: int
    report: Report
    generation: int


class Disconnect(Input, frozen=True):
    node: NodeName
    incarnation: str


class Drain(Input, frozen=True):
    """Place nothing more on a node; with `evict`, what runs there is asked to leave, gangs as a whole."""

    node: NodeName
    reason: str
    evict: bool = False


class Undrain(Input, frozen=True):
    node: NodeName


class SetElastic(Input, frozen=True):
    """An elastic node takes no work from now on, or takes work again."""

    node: NodeName
    enabled: bool
    reason: str = ""
    user: str = ""


class Rescale(Input, frozen=True):
    """It is time to see whether elastic nodes are to be disabled or enabled."""


class DeclareLost(Input, frozen=True):
    """An operator says that a silent node is really gone, whatever the brake says."""

    node: NodeName
    reason: str
    user: str = ""


class RemoveNode(Input, frozen=True):
    """Forget a node that is gone for good."""

    node: NodeName
    user: str = ""


class CreateCredential(Input, frozen=True):
    credential: Credential
    cause: str = "user"


class RevokeCredential(Input, frozen=True):
    id: str
    cause: str = "user"


class RotateCredential(Input, frozen=True):
    """Another credential in the place of one that is good until `until` beside it."""

    id: str
    credential: Credential
    until: float
    cause: str = "user"


class UseCredentials(Input, frozen=True):
    """These were shown lately."""

    ids: tuple[str, ...]


class Admit(Input, frozen=True):
    """A runner says hello with a join token (its id), to be given a credential of its own."""

    hello: Hello
    join: str
    credential: Credential


class MakeLoginTicket(Input, frozen=True):
    """A user's token asks for a ticket with which a browser logs in."""

    digest: bytes
    name: str
    role: str
    parent: str  # the fingerprint of the token
    addresses: tuple[str, ...] = ()  # of the coordinators, as the user's client knows them


class OpenLogin(Input, frozen=True):
    """Somebody shows a ticket (its digest) and is to have a cookie, and a ticket for the next coordinator."""

    ticket: bytes
    digest: bytes
    next_digest: bytes


class VouchLogin(Input, frozen=True):
    """A trusted proxy names a user, who is to have the same."""

    digest: bytes
    next_digest: bytes
    name: str
    role: str


class UseLogins(Input, frozen=True):
    """The cookies of these were shown lately."""

    ids: tuple[str, ...]


class EndLogin(Input, frozen=True):
    id: str
    cause: str = "user"


class KnowSecret(Input, frozen=True):
    """The fingerprint of the secret that this coordinator has."""

    fingerprint: str
    replaces: str = ""  # the fingerprint of the one that it is to take the place of


class Tick(Input, frozen=True):
    """Time has passed."""
