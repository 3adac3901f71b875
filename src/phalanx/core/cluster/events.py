"""Decided facts, in the past tense. The log holds these and nothing else; replaying them gives the state.

Each carries when it was decided and its cause. An event says what became true, completely: `apply` makes no
choices. `NodeHeard` alone is volatile: it moves a lease and is not worth a place in the log.
"""

from __future__ import annotations

from msgspec import msgpack

from phalanx.core.cluster.events_log import JobReleased, LogRepaired, LogSettled
from phalanx.core.cluster.events_log import Recorded as _Event
from phalanx.core.model.credential import Credential
from phalanx.core.model.ids import JobId, NodeName
from phalanx.core.model.job import Job
from phalanx.core.model.orders import AttemptKey, Exit
from phalanx.core.model.queue import Quota
from phalanx.core.model.resources import Capacity, Grant
from phalanx.core.model.status import Status
from phalanx.core.model.topology import Topology


class TermOpened(_Event, frozen=True):
    """A coordinator began to decide, under an epoch higher than all before."""

    epoch: int


class JobSubmitted(_Event, frozen=True):
    job: Job
    request_id: str = ""


class JobAmended(_Event, frozen=True):
    """Members of a gang came that was not whole: the job as it is now, under its id. Nothing of it was ever placed."""

    job: Job
    request_id: str = ""


class TaskPlaced(_Event, frozen=True):
    """An attempt was given a node and a grant. `opens` is false when it queues in a lane that is already held."""

    key: AttemptKey
    node: NodeName
    lane: int
    grant: Grant
    opens: bool = True
    formation: int = 0  # of a gang: the members of one formation start together
    promised: bool = False  # the place had been set aside for it


class AttemptReady(_Event, frozen=True):
    """Its runner holds this member of a gang at the barrier."""

    key: AttemptKey


class GangReleased(_Event, frozen=True):
    """Every member of the formation is ready, so all may run."""

    job: JobId
    formation: int


class GangRecalled(_Event, frozen=True):
    """A formation could not start whole: its members give their places back, none of them has run."""

    job: JobId
    formation: int
    retry_at: float
    text: str = ""


class _Promised(_Event, frozen=True):
    job: JobId
    members: tuple[tuple[int, NodeName, Grant], ...]  # position, node, what it will be given
    victims: tuple[AttemptKey, ...]
    displaced: tuple[JobId, ...]  # jobs of lower priority whose own promises gave way
    trigger: int  # the position of the member that found no room
    until: float


class RoomPromised(_Promised, frozen=True, kw_only=True):
    """Attempts were asked to leave, and their places are set aside for a job: all of it in one step."""

    awaited: tuple[AttemptKey, ...] = ()  # attempts that were leaving already, and have to have left


class PromiseWithdrawn(_Event, frozen=True):
    """The places set aside for a job are free for all again."""

    job: JobId


class TasksEvicted(_Event, frozen=True):
    """These attempts were asked to leave."""

    keys: tuple[AttemptKey, ...]
    text: str = ""


class JobRestarted(_Event, frozen=True):
    """Tasks of a job start anew, all of them or one replica's (`positions`), because one failed."""

    job: JobId
    counted: bool
    retry_at: float
    positions: tuple[int, ...] | None = None


class _Settled(_Event, frozen=True):
    job: JobId
    status: Status
    text: str = ""


class JobSettled(_Settled, frozen=True, kw_only=True):
    """The job as a whole has ended: whatever of it has not is stopped."""

    culprit: int | None = None  # the task whose end brought it down


class TopologySet(_Event, frozen=True):
    topology: Topology


class QuotaSet(_Event, frozen=True):
    queue: str
    quota: Quota | None


class AttemptStarted(_Event, frozen=True):
    key: AttemptKey
    started_at: float


class AttemptSuspected(_Event, frozen=True):
    """Its runner does not list it, though it should."""

    key: AttemptKey


class _Ended(_Event, frozen=True):
    key: AttemptKey
    exit: Exit
    status: Status
    retry_at: float | None = None
    charged: bool = False
    loss: bool = False


class AttemptEnded(_Ended, frozen=True, kw_only=True):
    """The runner confirmed the end, or it is provably over. `status` is what the task becomes."""

    fault: bool | None = None  # of its node: True, it failed there; False, it did well; None, it says nothing
    then: str = ""  # what its job does about it, where that is more than to try the task again


class TasksCancelled(_Event, frozen=True):
    """The user wants these no more; `positions` None means every task that has not ended."""

    job: JobId
    positions: tuple[int, ...] | None = None


class TaskPaused(_Event, frozen=True):
    key: AttemptKey


class TaskResumed(_Event, frozen=True):
    key: AttemptKey


class JobForgotten(_Event, frozen=True):
    """An ended job left memory for the history."""

    job: JobId


class _Joined(_Event, frozen=True):
    node: NodeName
    incarnation: str
    origin: str
    capacity: Capacity
    leftovers: tuple[AttemptKey, ...] = ()  # attempts it still runs and must stop before it gets new work
    address: str = ""


class NodeJoined(_Joined, frozen=True, kw_only=True):
    """A runner introduced itself: a new node, or a new life of a known one."""

    generation: int = 0  # of the lease it is given; 0: one more than before


class NodeConnected(_Event, frozen=True):
    node: NodeName


class NodeDisconnected(_Event, frozen=True):
    """The connection ended; the lease runs on."""

    node: NodeName


class _Lost(_Event, frozen=True):
    node: NodeName


class NodeLost(_Lost, frozen=True, kw_only=True):
    """The lease is over: whatever ran there has been stopped by its own runner."""

    generation: int = 0  # from now on, so that nothing said under the lost lease can count; 0: one more
    text: str = ""  # what an operator said who declared it lost


class NodeCleared(_Event, frozen=True):
    """A leftover of a former life has ended."""

    node: NodeName
    key: AttemptKey


class NodeQuarantined(_Event, frozen=True):
    """An attempt was given up that its runner had not started: it gets no work until it confirms the end of it."""

    node: NodeName
    key: AttemptKey


class NodeHealthChanged(_Event, frozen=True):
    """What the runner says of itself: what keeps it from starting tasks, or nothing."""

    node: NodeName
    trouble: str


class NodeLeaving(_Event, frozen=True):
    """Its runner stops in an orderly way. What runs there goes on under the lease, which is so much longer."""

    node: NodeName
    keep_s: float = 0.0


class NodeDrained(_Event, frozen=True):
    node: NodeName
    reason: str


class NodeResumed(_Event, frozen=True):
    node: NodeName


class CredentialCreated(_Event, frozen=True):
    credential: Credential


class CredentialEnds(_Event, frozen=True):
    """A credential is good no longer than this: it was revoked, or another takes its place."""

    id: str
    ends_at: float
    revoked: bool = False


class CredentialUsed(_Event, frozen=True):
    """Somebody showed it. Written down now and then, not each time."""

    id: str


class CredentialForgotten(_Event, frozen=True):
    """It ended long ago and is no longer listed."""

    id: str


class JoinRedeemed(_Event, frozen=True):
    """A runner gave a join token for a credential of its own; nobody else can from now on."""

    id: str
    node: NodeName
    origin: str


class SecretKnown(_Event, frozen=True):
    """The cluster has a secret with this fingerprint: a coordinator with another one is not of this cluster."""

    fingerprint: str


class _Rested(_Event, frozen=True):
    node: NodeName
    failures: int
    until: float


class NodeRested(_Rested, frozen=True, kw_only=True):
    """The node gets no new work for a while: it failed itself, or so many failures were reported in a row."""

    text: str = ""  # what it did wrong itself; nothing if tasks failed


class NodeRecovered(_Event, frozen=True):
    """The rest is over: it took its time, a task did well there, or somebody said so."""

    node: NodeName


class NodeRemoved(_Event, frozen=True):
    """The node is gone for good and holds nothing: its name and its row are free."""

    node: NodeName


class BrakeSet(_Event, frozen=True):
    """Most nodes fell silent at once. It is likelier that we are cut off, so nobody is declared lost."""

    silent: int
    nodes: int
    names: tuple[NodeName, ...] = ()  # some of the silent ones


class BrakeReleased(_Event, frozen=True):
    """Enough nodes are back: whoever is still silent is lost as usual."""

    silent: int
    nodes: int


class NodeHeard(_Event, frozen=True):
    """Volatile: a heartbeat renewed the lease."""

    node: NodeName


Event = (
    TermOpened
    | LogSettled
    | LogRepaired
    | JobReleased
    | JobSubmitted
    | JobAmended
    | TaskPlaced
    | AttemptReady
    | GangReleased
    | GangRecalled
    | RoomPromised
    | PromiseWithdrawn
    | TasksEvicted
    | JobRestarted
    | JobSettled
    | TopologySet
    | QuotaSet
    | AttemptStarted
    | AttemptSuspected
    | AttemptEnded
    | TasksCancelled
    | TaskPaused
    | TaskResumed
    | JobForgotten
    | NodeJoined
    | NodeConnected
    | NodeDisconnected
    | NodeLost
    | NodeCleared
    | NodeQuarantined
    | NodeHealthChanged
    | NodeLeaving
    | NodeDrained
    | NodeResumed
    | NodeRested
    | NodeRecovered
    | NodeRemoved
    | BrakeSet
    | BrakeReleased
    | NodeHeard
    | CredentialCreated
    | CredentialEnds
    | CredentialUsed
    | CredentialForgotten
    | JoinRedeemed
    | SecretKnown
)

VOLATILE = (NodeHeard,)

_encoder = msgpack.Encoder()
_decoder = msgpack.Decoder(list[Event])


def encode(events: list[Event]) -> bytes:
    """Events as the log keeps them."""
    return _encoder.encode(events)


def decode(data: bytes) -> list[Event]:
    """Events out of the log; raises msgspec.DecodeError or ValidationError for a damaged record."""
    return _decoder.decode(data)
