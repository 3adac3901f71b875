"""What a coordinator tells a runner, and what a runner answers: the words both state machines share.

`Status` has the words of Krishiv's table. `Why` is the closed list of reason codes that goes with a status; a
number so that an array of a million tasks keeps both in two bytes each.

Every order and report names an attempt by its key (job, position, number). Orders are idempotent: telling a
runner twice changes nothing. How they travel is `link/wire.py`'s business.

Tasks are told at which port to meet; nothing is bound to find one, and none is ephemeral. A gang's port follows from
the place of its rank 0, so that all members are told the same; a task that stands alone is given one by its runner.
Both differ from those of all others alive on that node. The port of a VPS follows from its job.
"""

from __future__ import annotations

import zlib
from enum import IntEnum

from msgspec import Struct

from phalanx.core.model.job import Command, JobId, Vps
from phalanx.core.model.resources import Grant
from phalanx.core.model.task_results import LoadedNames, PartResult
from phalanx.core.model.usage import AttemptUsage

GANG_PORTS = range(20_000, 25_000)
LONE_PORTS = range(25_000, 30_000)
VPS_PORTS = range(30_000, 32_768)


class Status(IntEnum):
    """A task's place in its life. The last three never change again."""

    PENDING = 0
    ASSIGNED = 1
    RUNNING = 2
    COMPLETED = 3
    FAILED = 4
    CANCELLED = 5

    @property
    def word(self) -> str:
        """The public spelling: Pending, Assigned, …"""
        return self.name.capitalize()

    @property
    def is_final(self) -> bool:
        return self >= Status.COMPLETED


STATUSES = tuple(Status)  # by number: much quicker than to ask the class


class Why(IntEnum):
    """Why an attempt ended, or why its task is where it is."""

    NONE = 0
    EXITED = 1  # the process ended with a code other than 0
    SIGNALLED = 2  # the process was ended by a signal nobody of ours sent
    OOM = 3  # the kernel ended it for using more memory than it was granted
    TIMEOUT = 4  # its time limit passed
    CANCELLED = 5  # the user cancelled it
    LOST = 6  # its node fell silent, or its runner no longer knows it
    UNCONFIRMED = 7  # its runner never confirmed the start
    REFUSED = 8  # the runner could not start it: no such program, no such folder
    FENCED = 9  # the runner stopped it because it had lost touch with the coordinator
    RETURNED = 10  # the runner gave it back unstarted, so that another node may take it
    STUCK = 11  # it waited longer than a pending task may
    EVICTED = 12  # a plan took its place for something more urgent
    UNKNOWN = 13  # the process is gone and its exit code is unknown
    RECALLED = 14  # its gang could not start whole, so it gave its place back before it ran
    RESTARTED = 15  # another task of its job failed, and all start anew
    JOB_FAILED = 16  # another task of its job failed, and with it the job
    JOB_DONE = 17  # its job had done its work without it
    EXHAUSTED = 18  # its node had no processes, memory, descriptors or disk left to start it with
    DEPENDENCY = 19  # a job that its own was to start after did not end as it had to
    BAD_RESULT = (
        20  # it ended with code 0, and what it wrote as its result is no JSON, too long or could not be kept
    )
    NO_INPUT = 21  # no client came to give it its standard input

    @property
    def word(self) -> str:
        return self.name.lower()


UNCHARGED = frozenset((
    Why.LOST, Why.UNCONFIRMED, Why.FENCED, Why.RETURNED, Why.EVICTED, Why.UNKNOWN, Why.RECALLED, Why.RESTARTED,
    Why.EXHAUSTED,
))  # fmt: skip
"""Ends that are not the task's doing. They use up no retry; losses have a limit of their own."""


def gang_port(node: str, lane: int) -> int:
    """The port of a gang whose rank 0 holds this lane. Lanes of a node are numbered on and on, so it is a fresh one."""
    return GANG_PORTS[(_mark(node) + lane) % len(GANG_PORTS)]


def vps_port(job: JobId, failures: int) -> int:
    """The port of a VPS: the same over restarts, and another after a failure, which a port that is taken leads to."""
    return VPS_PORTS[(_mark(job) + failures * 997) % len(VPS_PORTS)]


class LonePorts:
    """The ports of those who stand alone on one node, one after another so that none is given again at once."""

    def __init__(self, life: str) -> None:
        """`life` names the runner's life: one that starts anew does not know which ports its former life gave."""
        self._next = _mark(life) % len(LONE_PORTS)
        self._of: dict[AttemptKey, int] = {}
        self._taken: set[int] = set()

    def take(self, key: AttemptKey) -> int:
        """A port that no other attempt has, unless all are taken; the same if it is asked again."""
        if key in self._of:
            return self._of[key]
        is_full = len(self._taken) == len(LONE_PORTS)
        while not is_full and LONE_PORTS[self._next] in self._taken:
            self._step()
        port = self._of[key] = LONE_PORTS[self._next]
        self._taken.add(port)
        self._step()
        return port

    def give_back(self, key: AttemptKey) -> None:
        if (port := self._of.pop(key, None)) is not None:
            self._taken.discard(port)

    def _step(self) -> None:
        self._next = (self._next + 1) % len(LONE_PORTS)


def _mark(text: str) -> int:
    return zlib.crc32(text.encode())


AttemptKey = tuple[JobId, int, int]  # job, position of the task, number of the attempt (from 1)


def key_text(key: AttemptKey) -> str:
    """The key as one word, for journals and environments."""
    return f"{key[0]}/{key[1]}/{key[2]}"


def key_from_text(text: str) -> AttemptKey:
    job, position, number = text.split("/")
    return job, int(position), int(number)


class Brief(Struct, frozen=True, array_like=True, tag="brief"):
    """What all attempts of one group share; sent once per group and connection, before its first start."""

    job: JobId
    group: int  # its number in the job
    command: Command
    name: str
    queue: str
    batch: JobId
    tasks: int  # of the whole job
    array: str | None
    grace_s: float
    time_limit_s: float | None
    group_name: str = ""
    group_first: int = 0  # the position of its first task
    group_tasks: int = 1
    replicas: int = 1  # of this group
    replicas_of_all: int = 1  # of all groups of the job together
    token: str = ""  # what the job's own processes may show to the coordinator
    address: str = ""  # where they can show it: the coordinator's REST; empty: not known
    user: str = ""  # who submitted the job; empty: not told, by an older coordinator
    names: bool = False  # tasks of the job know each other by name
    subdomain: str = ""  # of those names; empty: the name of the job
    vps: Vps | None = None  # the job is a VPS: its program is the runner's own
    host_key: str = ""  # of a VPS with SSH: the server's private key, as OpenSSH writes it
    exported: dict[
        str, str
    ] = {}  # the environment of whoever submitted it: weaker than all that the runner sets
    trouble: str = ""  # why none of its attempts may start anywhere
    number: int = 0  # of the job, as people write it; 0: not told, by an older coordinator


class Roll(Struct, frozen=True, array_like=True, tag="roll"):
    """Who stands where in a formation of a gang; sent once per formation and connection, before its first start.

    `nodes` lists each node once, in the order of the members' network index; `members` says for each position
    which of them it is on. Positions stand in the order of their rank.
    """

    job: JobId
    formation: int
    nodes: tuple[tuple[str, str], ...]  # name and address
    members: tuple[tuple[int, int], ...]  # position, place in `nodes`
    port: int = 0  # where rank 0 listens; 0: not told, by an older coordinator
    meeting: int = 0  # the formation that rank 0 started with: those who join later meet there; 0: their own
    most_devices: int = -1  # of the member that has the most; −1: not told
    addresses: tuple[str, ...] = ()  # in the overlay network, in the order of `members`; "" for those without
    # The groups of the job, so that each member's name is known: name, first position, tasks, replicas.
    groups: tuple[tuple[str, int, int, int], ...] = ()


NONE_MERGED = "[]"  # as `Start.merged`


class Start(Struct, frozen=True, array_like=True, tag="start", gc=False):
    """Run this attempt with this grant. Attempts of one lane run one after another, in the order sent.

    With a formation it is a member of a gang: get it ready, say so, and run nothing before `Go`.
    """

    key: AttemptKey
    lane: int
    grant: Grant
    index: int | None  # the array index, if the job is an array
    restarts: int  # attempts before this one
    group: int = 0
    formation: int = 0  # 0: no gang, start at once
    # The tasks that run as a part of it, as JSON, for its program; `[]`: none, but its program may answer for several.
    merged: str = ""
    port: int = 0  # of a VPS with SSH: where its server listens
    params: str = ""  # of a sweep: what the task is given by name, as a JSON object of texts

    @property
    def has_merged(self) -> bool:
        """Whether other tasks run as a part of it."""
        return self.merged not in ("", NONE_MERGED)


class Go(Struct, frozen=True, array_like=True, tag="go", gc=False):
    """Every member of the gang is ready: run this one."""

    key: AttemptKey


class Stop(Struct, frozen=True, array_like=True, tag="stop", gc=False):
    """End this attempt and never start it. Answered by a report even if the runner never knew it."""

    key: AttemptKey
    why: Why
    grace_s: float


class Pause(Struct, frozen=True, array_like=True, tag="pause"):
    key: AttemptKey


class Resume(Struct, frozen=True, array_like=True, tag="resume"):
    key: AttemptKey


class Dismiss(Struct, frozen=True, array_like=True, tag="dismiss"):
    """The job is over: its brief may be forgotten."""

    job: JobId


Order = Brief | Roll | Start | Go | Stop | Pause | Resume | Dismiss


RESULT_BYTES_MAX = 4096  # of the result of one task that travels with its end,
RESULT_FILE_BYTES_MAX = 64 * 1024  # and of one in the place for files


class Exit(Struct, frozen=True, array_like=True, gc=False):
    """How an attempt ended. `code` is None when no process of ours ended by itself."""

    why: Why
    code: int | None = None  # −N for signal N
    started_at: float | None = None
    ended_at: float | None = None
    message: str = ""
    stderr_tail: str = ""
    of_node: bool = False  # its node's own doing: it could not make a process, or write the log
    result: str = ""  # what the task gives as its result, as JSON
    result_bytes: int = 0  # of a result that is not in `result` but in the place for files
    result_sha256: str = ""
    usage: AttemptUsage | None = None  # None: not measured
    of_user: bool = False  # its user's own mistake, the same on every node: an image that does not exist
    # Its program may answer for other tasks, too, and its runner looked for such an answer: this result is its own.
    is_own: bool = False
    parts: tuple[PartResult, ...] = ()  # the results of the others
    loaded: LoadedNames | None = None  # what a result in the place for files says about its node


class Ready(Struct, frozen=True, array_like=True, tag="ready", gc=False):
    """A member of a gang is ready to run: its program and folder are there, and its place is kept for it."""

    key: AttemptKey


class Started(Struct, frozen=True, array_like=True, tag="started", gc=False):
    key: AttemptKey
    at: float


class Ended(Struct, frozen=True, array_like=True, tag="ended", gc=False):
    key: AttemptKey
    exit: Exit


class Returned(Struct, frozen=True, array_like=True, tag="returned"):
    """Given back unstarted: the attempt before it in its lane takes long, and another node may be free."""

    key: AttemptKey


Report = Ready | Started | Ended | Returned


class Phase(IntEnum):
    """Where an attempt stands on its runner."""

    QUEUED = 0
    RUNNING = 1
    ENDED = 2  # the end is not yet acknowledged by a coordinator
    READY = 3  # a member of a gang that waits for the others
    PREPARING = 4  # its image is got ready; it has not been given to the keeper


class Disposition(IntEnum):
    """What became of a report. Only ACCEPTED changed anything.

    After a stale epoch or lease it is kept, and told again under the next; after any other it may be forgotten.
    """

    ACCEPTED = 0
    DUPLICATE = 1
    STALE_EPOCH = 2
    STALE_LEASE = 3
    STALE_ATTEMPT = 4
    UNKNOWN = 5
