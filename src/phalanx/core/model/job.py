"""What a user submits: one job, whose tasks stand in groups, and what holds them together.

Tasks of one group share a command and a request; they are counted by *position*, over the groups of the job one
after another. A `Job` is immutable. What happens to it (attempts, exit codes) is kept in `core/cluster/jobs.py`.

How an *array* numbers its tasks is in `array.py`. What holds tasks together is a *gang* (they start whole and stand
close) and the rules by which they restart and end as one; the words of Koordinator and JobSet map onto these
(docs/guides/coming-from.md). *Tags* are words that people put on jobs, as labels are in Kubernetes; they change nothing
about where a task runs.

Job ids are ULIDs in lower case, made by the coordinator's shell (time and chance are not ours). The task of a plain job
shares the job's id; the others are `job.index`. People may shorten ids to any unique prefix, which the shell resolves.
A text with a slash names an object of Kubernetes.
"""

from __future__ import annotations

import re
from typing import Literal

from msgspec import Struct, msgpack

from phalanx.core.model.array import Array
from phalanx.core.model.dispatch import Dispatch
from phalanx.core.model.parameters import Params
from phalanx.core.model.resources import Request

JobId = str
QueueUser = tuple[str, str]  # a queue and a user: what one user holds and submits in one queue
NodeName = str
NAME_MAX = 63
OBJECT_MAX = 63 + 1 + 253
_NAME = re.compile(r"[a-z0-9](?:[a-z0-9._-]{0,61}[a-z0-9])?")
_JOB_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_OBJECT = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?/[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?")
LAST = "last"  # the newest job of whoever asks
_JOB_ID = re.compile(r"[0-9a-hjkmnp-tv-z]{26}")
_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"


def is_name(text: str) -> bool:
    """True for what may name a node, queue or group, which also keeps terminals safe."""
    return _NAME.fullmatch(text) is not None


def is_job_name(text: str) -> bool:
    """True for what may name a job or workflow: capitals too, but nothing that reads as a number, a task or `last`."""
    return _JOB_NAME.fullmatch(text) is not None and not reads_as_number(text) and text != LAST


def reads_as_number(text: str) -> bool:
    """Whether this is, or looks like, the number of a job or of a task of it: 17, 17.3."""
    return text.isascii() and text.replace(".", "").isdigit()


def host_name(text: str) -> str:
    """A name as a part of a host name: in lower case, with '-' for '_'."""
    return text.lower().replace("_", "-")


def is_object(text: str) -> bool:
    """True for what names an object of Kubernetes with its namespace, such as default/pod-1."""
    return _OBJECT.fullmatch(text) is not None


def is_job_id(text: str) -> bool:
    """True for a whole job id."""
    return _JOB_ID.fullmatch(text) is not None


def ulid(at_ms: int, chance: int) -> JobId:
    """A job id from a time in milliseconds and 80 random bits; ids made later sort later."""
    number = (at_ms & (1 << 48) - 1) << 80 | chance & (1 << 80) - 1
    return "".join(_ALPHABET[number >> shift & 31] for shift in range(125, -1, -5))


Match = Literal["once-satisfied", "only-waiting", "waiting-and-running"]


WAIT_S = 60.0


GANG_TASKS_MAX = 10_000  # members are looked at together, so their number is bounded


class Gather(Struct, frozen=True, omit_defaults=True):
    """How close members have to stand: all in one domain of `layer` (must), or in as few as possible (prefer).

    With `multiple` above 1 every domain of the layer holds a multiple of that many members.
    """

    layer: str
    must: bool = False
    multiple: int = 1


class Gang(Struct, frozen=True, omit_defaults=True):
    """Members start together or not at all, `Group.needed` of each group at the least."""

    gather: tuple[Gather, ...] = ()
    strict: bool = True  # False: members that found a place keep it while the others look for theirs
    match: Match = "once-satisfied"
    wait_s: float = WAIT_S  # how long members hold their places for the others before all let go
    affinity: str = ""  # stand near running tasks of the same key
    id: str = ""  # what a manifest calls the gang: "default/gang-a,default/gang-b"


class IncompleteGang(Struct, frozen=True, omit_defaults=True):
    """A gang whose members have not all come. Nothing of it is placed until it is amended with the others."""

    lacks: str  # in words
    manifests: str = ""  # what it was made from so far, for whoever amends it; nobody here reads it
    version: int = 0  # how often it was amended
    needed: int = 0  # how many members it cannot start without; 0: not known
    members: int = 0  # how many have come; before the first of them a group without names stands for all


Action = Literal["fail", "restart", "restart-uncounted", "restart-replica", "restart-replica-uncounted"]


class Rule(Struct, frozen=True, omit_defaults=True):
    """What a failure does if it matches: empty lists match everything."""

    action: Action
    reasons: tuple[str, ...] = ()  # words of `Why`
    patterns: tuple[str, ...] = ()  # regular expressions over the message
    groups: tuple[str, ...] = ()


class Restart(Struct, frozen=True, omit_defaults=True):
    """What the failure of one task, once its own retries are used up, does to the whole job.

    Without any of these the other tasks go on and the job fails when they have ended.
    """

    whole: bool = False  # start every task anew, at most `limit` times
    limit: int = 0
    fails_job: bool = False  # a task that failed for good ends the job
    shared: bool = False  # the retries are one budget for all tasks of the job
    counts_evictions: bool = False  # evictions and losses use up restarts and retries, as failures do
    rules: tuple[Rule, ...] = ()

    @property
    def patterns(self) -> tuple[str, ...]:
        """Those of all rules, in order: they are matched together."""
        return tuple(pattern for rule in self.rules for pattern in rule.patterns)


class Success(Struct, frozen=True, omit_defaults=True):
    """When the job has done its work: every task of `groups` (all, if none is named), or any one of them."""

    any: bool = False
    groups: tuple[str, ...] = ()


TAGS_MAX = 64


TERMS_MAX = 32


SELECTOR_MAX = 4096


_KEY = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._/-]{0,315}[A-Za-z0-9])?")


_VALUE = re.compile(r"(?:[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?")


def is_tag(key: str, value: str) -> bool:
    """True for what may be a tag: the rule of Kubernetes for labels."""
    return _KEY.fullmatch(key) is not None and _VALUE.fullmatch(value) is not None


PRIORITY_MAX = 1_000_000_000  # as high as a PriorityClass of Kubernetes may go


RETRIES_MAX = 1000


GROUPS_MAX = 1000


AFTER_MAX = 100


EACH_TASKS_MAX = 20_000  # of an array whose tasks wait one by one


When = Literal["ok", "any", "failed", "started"]


class After(Struct, frozen=True, omit_defaults=True):
    """Another job that comes first: until it has completed (ok), ended (any), failed, or started all of its tasks.

    With `each`, every task waits only for the task of the same index: both are arrays of the same indexes.
    """

    job: JobId
    when: When = "ok"
    each: bool = False

    def __str__(self) -> str:
        return f"{self.job}:{self.when}{':each' if self.each else ''}"


SshMode = Literal["upload", "generate", "disabled"]


class Command(Struct, frozen=True, omit_defaults=True):
    """What a task runs. `argv` is given to the kernel as it is; a shell runs only if it is named in argv."""

    argv: tuple[str, ...]
    env: dict[str, str] = {}
    cwd: str | None = None
    image: str = ""  # the container it runs in; empty: none (`containers.py`)
    mounts: tuple[str, ...] = ()  # what of the node that container sees besides: SRC:DST[:ro]
    split_output: bool = False  # standard output and standard error go into two logs, not into one
    environment: str = ""  # digest of the sealed environment it was submitted with; empty: it has only `env`
    attached: bool = False  # a client shows its output: the task is stopped while that is far behind
    stdin: bool = False  # a client gives the first task standard input; without, it is empty


class Vps(Struct, frozen=True, omit_defaults=True):
    """What makes a job of one task a VPS: it is to run until somebody stops it, and stays on its first node."""

    ssh: SshMode
    keys: tuple[str, ...] = ()  # public keys that may log in, as authorized_keys has them


class Group(Struct, frozen=True, omit_defaults=True):
    """Tasks with one command and one request. `replicas` divides them into equal runs, as JobSet's jobs do."""

    command: Command
    request: Request
    name: str = ""
    tasks: int = 1
    min: int = 0  # how many of them a gang cannot start without; 0: all
    optional: bool = False  # a gang starts without any of them
    at_once: int = 0  # how many of each replica may hold a place at one time; 0: all
    replicas: int = 1
    indexes: tuple[int, ...] = ()  # each task's index in the network, where it is not its place in the group
    after: tuple[tuple[str, str], ...] = ()  # (group, "started" or "completed"): who has to come first
    objects: tuple[str, ...] = ()  # what Kubernetes calls each task, namespace/name
    tags: tuple[tuple[str, str], ...] = ()  # what `ps -l` selects by, besides those of the job

    @property
    def needed(self) -> int:
        """How many tasks a gang has to have of this group before any may run."""
        return 0 if self.optional else self.min or self.tasks

    @property
    def completions(self) -> int:
        """How many tasks stand in one replica."""
        return self.tasks // self.replicas


class Job(Struct, frozen=True, omit_defaults=True):
    """A job as accepted. `batch` is the id of the first job made by the same submission."""

    id: JobId
    groups: tuple[Group, ...]
    batch: JobId
    submitted_at: float
    name: str = ""
    queue: str = "default"
    priority: int = 0
    array: Array | None = None  # how the tasks of the only group are numbered for people
    time_limit_s: float | None = None
    max_retries: int = 3  # of each task by itself, before `restart` is asked
    grace_s: float = 5.0
    user: str = ""
    gang: Gang | None = None  # None: every task starts as soon as there is room for it
    restart: Restart = Restart()
    success: Success = Success()
    may_evict: bool = True  # False: it never takes a place from anybody (preemptionPolicy: Never)
    evictable: bool = True  # False: nobody takes a place from it
    min_run_s: float = 0.0  # how long an attempt runs before it may be evicted
    draft: IncompleteGang | None = None  # of a gang: members are still to come
    object: str = ""  # what Kubernetes calls it, namespace/name; a gang's PodGroups are in its id
    tags: tuple[tuple[str, str], ...] = ()
    applied: tuple[tuple[str, str], ...] = ()  # objects of Kubernetes it was made from, and their digests
    after: tuple[After, ...] = ()  # jobs that come first
    workflow: tuple[JobId, int] | None = None  # the workflow that it is a stage of, and which
    dispatch: Dispatch | None = None  # None: nodes are chosen by the cluster's score
    names: bool = False  # tasks know each other by name; those of a gang always do
    subdomain: str = ""  # of those names; empty: the name of the job
    vps: Vps | None = None
    begin_at: float = 0.0  # nothing of it is placed before this instant, in seconds since 1970; 0: at once
    revision: int = 0  # how often its settings were changed after it was submitted
    params: Params | None = None  # of an array: what each of its tasks is given
    repeats: JobId = ""  # the job whose failed tasks it runs again, under their indexes

    def params_at(self, position: int) -> dict[str, str]:
        """What the task at a position is given."""
        if self.params is None or self.array is None:
            return {}
        return self.params.values(self.array.index(position))

    @property
    def queue_user(self) -> QueueUser:
        """On which its use is counted."""
        return self.queue, self.user

    @property
    def is_named(self) -> bool:
        """Whether its tasks know each other by name."""
        return self.names or self.gang is not None

    @property
    def tasks(self) -> int:
        """How many tasks the job has."""
        groups = self.groups
        return groups[0].tasks if len(groups) == 1 else sum(group.tasks for group in groups)

    @property
    def object_name(self) -> str:
        """What Kubernetes calls it as a whole: its PodGroups if it has any; empty if it is none of theirs."""
        return (self.gang.id if self.gang is not None else "") or self.object

    @property
    def whole_objects(self) -> frozenset[str]:
        """The names of all objects that stand for the whole job."""
        if not self.object_name:
            return frozenset()
        return frozenset(name for name in (*self.object_name.split(","), self.object) if is_object(name))

    def object_at(self, position: int) -> str:
        """What Kubernetes calls one task; empty if it has no name there."""
        number, first = self.group_at(position)
        objects = self.groups[number].objects
        return objects[position - first] if objects else ""

    def task_name(self, position: int) -> str:
        """What a sentence calls one task: by its name in Kubernetes, or else by its id."""
        return self.object_at(position) or self.task_id(position)

    def object_position(self, name: str) -> int | None:
        """Where the task that Kubernetes calls so stands."""
        first = 0
        for group in self.groups:
            if name in group.objects:
                return first + group.objects.index(name)
            first += group.tasks
        return None

    def task_id(self, position: int) -> str:
        """The public id of one task: the job's own if it is the only one."""
        if self.array is not None:
            return f"{self.id}.{self.array.index(position)}"
        return self.id if self.tasks == 1 else f"{self.id}.{position}"

    def position(self, index: int) -> int | None:
        """Where the task with this public index stands, or None if there is none."""
        if self.array is not None:
            return self.array.position(index)
        return index if 0 <= index < self.tasks else None

    def group_at(self, position: int) -> tuple[int, int]:
        """The number of the group that a position is in, and where that group begins."""
        first = 0
        for number, group in enumerate(self.groups):
            if position < first + group.tasks:
                return number, first
            first += group.tasks
        raise IndexError(position)


TASK_BYTES = 32  # in the columns of a job, about
_encode = msgpack.Encoder().encode


def spec_bytes(spec: Struct) -> int:
    """How long a job or workflow is as it is written down, about as much as it takes in memory; 0 if it cannot be."""
    try:
        return len(_encode(spec))
    except (OverflowError, TypeError, ValueError):  # it will be refused before it is written
        return 0


def job_bytes(job: Job) -> int:
    """The same of a job, with what is noted of each of its tasks."""
    return spec_bytes(job) + TASK_BYTES * job.tasks
