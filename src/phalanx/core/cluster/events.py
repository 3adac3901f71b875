"""Decided facts, in the past tense. The log holds these and nothing else; replaying them gives the state.

Each carries when it was decided and its cause. An event says what became true, completely: `apply` makes no
choices. Two are volatile, not worth a place in the log: they follow from the time alone.
"""

from __future__ import annotations

from msgspec import msgpack

from phalanx.core.cluster import change_events as c
from phalanx.core.cluster import number_events as n
from phalanx.core.cluster import overlay_events as o
from phalanx.core.cluster import workflow_events as w
from phalanx.core.cluster.approval_events import JobApproved, WorkflowApproved
from phalanx.core.cluster.dispatch_events import MergedEnded, TaskDeferred
from phalanx.core.cluster.environment_events import EnvironmentKept
from phalanx.core.cluster.event_kinds import AttemptEvent, ClusterEvent, JobEvent, NodeEvent, Recorded
from phalanx.core.cluster.exclusion_events import NodeExcluded, NodeRecovered
from phalanx.core.cluster.health_events import NodeChecked
from phalanx.core.cluster.image_events import AttemptPrepared, AttemptPreparing
from phalanx.core.cluster.login_events import LoginEnded, LoginOpened, LoginsUsed, LoginTicketMade
from phalanx.core.model.credential import Credential
from phalanx.core.model.dispatch import DispatchNote
from phalanx.core.model.job import Job, JobId, NodeName
from phalanx.core.model.orders import AttemptKey, Exit, Status
from phalanx.core.model.queues import Quota
from phalanx.core.model.resources import Capacity, Grant
from phalanx.core.model.topology import Topology


class _Submitted(Recorded, frozen=True):
    job: Job
    request_id: str = ""

    @property
    def own_job(self) -> JobId:
        return self.job.id

    @property
    def jobs(self) -> tuple[JobId, ...]:
        return (self.job.id,) if self.job.workflow is None else (self.job.id, self.job.workflow[0])


class TermOpened(ClusterEvent, frozen=True):
    """A coordinator began to decide, under an epoch higher than all before."""

    epoch: int


class JobSubmitted(_Submitted, frozen=True, kw_only=True):
    number: int = 0  # by arrival, with workflows; 0: of an older version, which counted on
    approve_by: float | None = None  # it waits for an approval until then, 0: for ever; None: it needs none


class JobAmended(_Submitted, frozen=True, kw_only=True):
    """Members of a gang came that was not whole: the job as it is now, under its id. Nothing of it was ever placed."""

    approve_by: float | None = None  # as in JobSubmitted; None: whether it waits for one is as it was


class _Placed(AttemptEvent, frozen=True):
    node: NodeName
    lane: int
    grant: Grant
    opens: bool = True
    formation: int = 0  # of a gang: the members of one formation start together
    promised: bool = False  # the place had been set aside for it


class TaskPlaced(_Placed, frozen=True, kw_only=True):
    """An attempt was given a node and a grant. `opens` is false when it queues in a lane that is already held."""

    note: DispatchNote | None = None  # what the choice of the node rested on, if a mode made it
    merged: tuple[JobId, ...] = ()  # jobs of one task that run as a part of it


class AttemptReady(AttemptEvent, frozen=True):
    """Its runner holds this member of a gang at the barrier."""


class GangReleased(JobEvent, frozen=True):
    """Every member of the formation is ready, so all may run."""

    formation: int


class GangRecalled(JobEvent, frozen=True):
    """A formation could not start whole: its members give their places back, none of them has run."""

    formation: int
    retry_at: float
    text: str = ""


class _Promised(JobEvent, frozen=True):
    members: tuple[tuple[int, NodeName, Grant], ...]  # position, node, what it will be given
    victims: tuple[AttemptKey, ...]
    displaced: tuple[JobId, ...]  # jobs of lower priority whose own promises gave way
    trigger: int  # the position of the member that found no room
    until: float


class RoomPromised(_Promised, frozen=True, kw_only=True):
    """Attempts were asked to leave, and their places are set aside for a job: all of it in one step."""

    awaited: tuple[AttemptKey, ...] = ()  # attempts that were leaving already, and have to have left
    preemptor: str = ""  # how people call the job: its name, number, user and priority

    @property
    def jobs(self) -> tuple[JobId, ...]:
        return tuple(dict.fromkeys([self.job, *(key[0] for key in self.victims), *self.displaced]))


class PromiseWithdrawn(JobEvent, frozen=True):
    """The places set aside for a job are free for all again."""


class TasksEvicted(ClusterEvent, frozen=True):
    """These attempts were asked to leave."""

    keys: tuple[AttemptKey, ...]
    text: str = ""

    @property
    def jobs(self) -> tuple[JobId, ...]:
        return tuple(dict.fromkeys(key[0] for key in self.keys))


class JobRestarted(JobEvent, frozen=True):
    """Tasks of a job start anew, all of them or one replica's (`positions`), because one failed."""

    counted: bool
    retry_at: float
    positions: tuple[int, ...] | None = None


class _Settled(JobEvent, frozen=True):
    status: Status
    text: str = ""


class JobSettled(_Settled, frozen=True, kw_only=True):
    """The job as a whole has ended: whatever of it has not is stopped."""

    culprit: int | None = None  # the task whose end brought it down


class TopologySet(ClusterEvent, frozen=True):
    topology: Topology


class QuotaSet(ClusterEvent, frozen=True):
    queue: str
    quota: Quota | None


class AttemptStarted(AttemptEvent, frozen=True):
    started_at: float


class AttemptSuspected(AttemptEvent, frozen=True):
    """Its runner does not list it, though it should."""


class _Ended(AttemptEvent, frozen=True):
    exit: Exit
    status: Status
    retry_at: float | None = None
    charged: bool = False
    loss: bool = False


class AttemptEnded(_Ended, frozen=True, kw_only=True):
    """The runner confirmed the end, or it is provably over. `status` is what the task becomes."""

    fault: bool | None = None  # of its node: True, it failed there; False, it did well; None, it says nothing
    then: str = ""  # what its job does about it, where that is more than to try the task again


class _Cancelled(JobEvent, frozen=True):
    positions: tuple[int, ...] | None = None


class TasksCancelled(_Cancelled, frozen=True, kw_only=True):
    """The user wants these no more; `positions` None means every task that has not ended."""

    by: str = ""  # the user who asked for it; empty: it is not known


class TasksAbandoned(JobEvent, frozen=True):
    """These tasks can never start: `text` says what the task of the same index was to do, and did."""

    other: JobId  # whose tasks come first
    ranges: tuple[tuple[int, int], ...]  # the first and the last position of each run of them
    status: Status
    text: str


class TaskPaused(AttemptEvent, frozen=True):
    pass


class TaskResumed(AttemptEvent, frozen=True):
    pass


class JobForgotten(JobEvent, frozen=True):
    """An ended job left memory for the history."""


class _Joined(NodeEvent, frozen=True):
    incarnation: str
    origin: str
    capacity: Capacity
    leftovers: tuple[AttemptKey, ...] = ()  # attempts it still runs and must stop before it gets new work
    address: str = ""


class NodeJoined(_Joined, frozen=True, kw_only=True):
    """A runner introduced itself: a new node, or a new life of a known one."""

    generation: int = 0  # of the lease it is given; 0: one more than before


class NodeConnected(NodeEvent, frozen=True):
    pass


class NodeDisconnected(NodeEvent, frozen=True):
    """The connection ended; the lease runs on."""


class NodeLost(NodeEvent, frozen=True, kw_only=True):
    """The lease is over: whatever ran there has been stopped by its own runner."""

    generation: int = 0  # from now on, so that nothing said under the lost lease can count; 0: one more
    text: str = ""  # what an operator said who declared it lost


class NodeCleared(NodeEvent, frozen=True):
    """A leftover of a former life has ended."""

    key: AttemptKey


class NodeQuarantined(NodeEvent, frozen=True):
    """An attempt was given up that its runner had not started: it gets no work until it confirms the end of it."""

    key: AttemptKey


class NodeHealthChanged(NodeEvent, frozen=True):
    """What the runner says of itself: what keeps it from starting tasks, or nothing."""

    trouble: str


class NodeLeaving(NodeEvent, frozen=True):
    """Its runner stops in an orderly way. What runs there goes on under the lease, which is so much longer."""

    keep_s: float = 0.0


class NodeDrained(NodeEvent, frozen=True):
    reason: str


class NodeResumed(NodeEvent, frozen=True):
    pass


class NodeDisabled(NodeEvent, frozen=True):
    """An elastic node takes no work of any kind from now on; what runs there goes on."""

    reason: str  # by whom, or after how long without work
    automatic: bool = False


class NodeEnabled(NodeEvent, frozen=True):
    """An elastic node takes work again."""

    reason: str
    automatic: bool = False


class NodeNeeded(ClusterEvent, frozen=True):
    """Work waits that no node can take which is there and enabled."""

    node: NodeName  # a disabled one that could, or nothing
    first_job: JobId  # that waits; not told in its story, for it is about all of them
    tasks: int  # that wait, counted as far as it matters
    reason: str


class CredentialCreated(ClusterEvent, frozen=True):
    credential: Credential


class CredentialEnds(ClusterEvent, frozen=True):
    """A credential is good no longer than this: it was revoked, or another takes its place."""

    id: str
    ends_at: float
    revoked: bool = False


class CredentialUsed(ClusterEvent, frozen=True):
    """Somebody showed it. Written down now and then, not each time."""

    id: str


class CredentialForgotten(ClusterEvent, frozen=True):
    """It ended long ago and is no longer listed."""

    id: str


class JoinRedeemed(ClusterEvent, frozen=True):
    """A runner gave a join token for a credential of its own; nobody else can from now on."""

    id: str
    node: NodeName
    origin: str


class SecretKnown(ClusterEvent, frozen=True):
    """The cluster has a secret with this fingerprint: a coordinator with another one is not of this cluster."""

    fingerprint: str


class NodeRemoved(NodeEvent, frozen=True):
    """The node is gone for good and holds nothing: its name and its row are free."""


class BrakeSet(ClusterEvent, frozen=True):
    """Most nodes fell silent at once. It is likelier that we are cut off, so nobody is declared lost."""

    silent: int
    nodes: int
    names: tuple[NodeName, ...] = ()  # some of the silent ones


class BrakeReleased(ClusterEvent, frozen=True):
    """Enough nodes are back: whoever is still silent is lost as usual."""

    silent: int
    nodes: int


class NodeHeard(NodeEvent, frozen=True):
    """Volatile: a heartbeat renewed the lease."""


class BackoffsEnded(ClusterEvent, frozen=True):
    """Volatile: time has passed, and tasks whose backoff is over by `at` wait for a place again."""


class LogSettled(ClusterEvent, frozen=True):
    """Writes whose answers were lost are behind us: what was kept of them is known, and nothing follows late."""

    after: int  # where the log ended when it was written; its batch may leave numbers out


class LogRepaired(ClusterEvent, frozen=True):
    """The log had a hole and an operator chose how to go on; what follows rests on an image saved with this."""

    after: int  # the last revision before the hole
    choice: str  # "hold" or "to-image"
    jobs: tuple[JobId, ...] = ()  # those that are held, or whose past since then is forgotten


# fmt: off
Event = (
    TermOpened | LogSettled | LogRepaired | c.JobReleased | JobSubmitted | JobAmended | TaskPlaced | AttemptReady
    | GangReleased | GangRecalled | RoomPromised | PromiseWithdrawn | TasksEvicted | JobRestarted | JobSettled
    | TopologySet | QuotaSet | AttemptStarted | AttemptPreparing | AttemptPrepared | AttemptSuspected | AttemptEnded
    | TasksCancelled | TasksAbandoned | TaskPaused | TaskResumed | JobForgotten | NodeJoined | NodeConnected
    | NodeDisconnected | NodeLost | NodeCleared | NodeQuarantined | NodeHealthChanged | NodeLeaving | NodeDrained
    | NodeResumed | NodeExcluded | NodeRecovered | NodeRemoved | BrakeSet | BrakeReleased | NodeHeard
    | CredentialCreated | CredentialEnds | CredentialUsed | CredentialForgotten | JoinRedeemed | SecretKnown
    | BackoffsEnded | NodeDisabled | NodeEnabled | NodeNeeded | TaskDeferred | MergedEnded | w.WorkflowSubmitted
    | w.StagesEnded | w.InputsAwaited | w.WorkflowCancelled | w.WorkflowStopped | w.WorkflowRetried
    | w.WorkflowForgotten | o.BlockAssigned | o.AddressReserved | o.ReservationEnded | n.NumbersSkipped | c.JobHeld
    | c.JobUpdated | EnvironmentKept | NodeChecked | JobApproved | WorkflowApproved | LoginTicketMade
    | LoginOpened | LoginsUsed | LoginEnded
)
# fmt: on
VOLATILE = (NodeHeard, BackoffsEnded, w.InputsAwaited)
encode = msgpack.Encoder().encode  # a list of events, as the log keeps them
decode = msgpack.Decoder(list[Event]).decode  # a damaged record raises msgspec.DecodeError or ValidationError
