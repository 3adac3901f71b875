"""What a user submits: one job, whose tasks stand in groups, and what holds them together.

Tasks of one group share a command and a request; they are counted by *position*, over the groups of the job one
after another. A `Job` is immutable. What happens to it (attempts, exit codes) is kept in `core/cluster/jobs.py`.
"""

from __future__ import annotations

from msgspec import Struct

from phalanx.core.model.array import Array
from phalanx.core.model.gang import Gang, IncompleteGang, Restart, Success
from phalanx.core.model.ids import JobId, is_object
from phalanx.core.model.resources import Request

PRIORITY_MAX = 1_000_000_000  # as high as a PriorityClass of Kubernetes may go
RETRIES_MAX = 1000
GROUPS_MAX = 1000


class Command(Struct, frozen=True, omit_defaults=True):
    """What a task runs. `argv` is given to the kernel as it is; a shell runs only if it is named in argv."""

    argv: tuple[str, ...]
    env: dict[str, str] = {}
    cwd: str | None = None


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
    applied: tuple[
        tuple[str, str], ...
    ] = ()  # objects of Kubernetes it was made from, "Pod default/a", and digests

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
