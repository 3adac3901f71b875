"""What waits for a place as one: a group whose tasks are placed one by one, or a gang; and their attempts.

Of a group, a position that was never placed lies at or beyond `fresh`; one that is to be placed again stands in
`again`; positions in backoff are remembered by the job. A *gate* keeps work from being placed, whatever room there is:
a job, a group, a gang and a task have gates of their own, and work may be placed when all of them are open. Placement
asks for them here and `core/explain/gates.py` puts each into words, so that the two cannot differ.

A *formation* is one try of a gang to start whole: members placed together, held at the barrier by their runners, and
released when every one of them is ready. What the match policy asks for follows Koordinator's three words.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Hashable, Iterator
from enum import Enum, auto
from typing import TYPE_CHECKING, Literal

from msgspec import Struct, structs

from phalanx.core.model.bindings import workflow_key
from phalanx.core.model.dispatch import DispatchNote
from phalanx.core.model.job import Gang, Group, Job, JobId
from phalanx.core.model.lanes import SAMPLES_MIN, Lane, LaneKey, LanePool, averaged
from phalanx.core.model.orders import AttemptKey, Status, Why
from phalanx.core.model.resources import Grant, Request, Target
from phalanx.core.model.waiting import Part, Rank

if TYPE_CHECKING:
    from phalanx.core.cluster.jobs import JobState


class Gate(Enum):
    """One thing that has to come first. The order is that in which closed gates are told."""

    HELD = auto()  # of a job: a person has to release it
    APPROVAL = auto()  # of a job: its queue asks for an approval
    BEGIN = auto()  # of a job: its time has not come
    APPLIED = auto()  # of a job: not all members of the gang have been applied
    DEPENDENCY = auto()  # of a job: another job comes first; of a task: the same task of another array does
    MERGED = auto()  # of a job: it runs as a part of another
    PROMISE = auto()  # of a job: its places are promised, and their holders are still leaving
    RESTART = auto()  # of a job: attempts of its previous run are still ending
    RETRY = auto()  # of a task: it failed, and its backoff runs
    BACKOFF = auto()  # of a job: it restarts, or its gang tries again, after a pause
    AFTER = auto()  # of a group: another group has to start or complete first
    LIMIT = auto()  # of a task: its array runs as many tasks as it may
    BARRIER = auto()  # of a gang: its members hold places and wait for each other
    MEMBERS = auto()  # of a gang: too few of its members can be placed, or none is left to place


class Attempt(Struct, array_like=True):
    """One try at one task, alive: where it is, what it holds until its end is confirmed, and how far it has come.

    Images keep it as it is, so fields are added at the end and with a default; `row` and `group` are set anew when one
    is read.
    """

    key: AttemptKey
    node: str
    lane: int
    grant: Grant
    placed_at: float
    started_at: float | None = None  # as its node's clock has it
    since: float = 0.0  # by our own clock: when it was placed or released, then when it started
    ending: Why | None = None  # being stopped, and why
    paused: bool | None = None  # None: it never was
    suspicions: int = 0
    formation: int = 0  # of a gang: the try to start whole that it belongs to
    ready: bool = False  # of a gang: its runner holds it at the barrier
    released: bool = True  # of a gang: it may run
    row: int = 0  # of its node in the table; follows from the node
    group: int = 0  # the number of its group in the job; follows from the key
    note: DispatchNote | None = None  # what the choice of its node rested on, if a mode made it
    merged: tuple[JobId, ...] = ()  # jobs that run as a part of it
    preparing: bool = False  # its runner gets its image ready
    prepared_at: float = 0.0  # by our own clock; 0: it had nothing to get ready, or still has


class GroupState:
    """One group of a job; a unit that waits, unless the job is a gang."""

    __slots__ = (
        "again", "first", "fresh", "group", "job", "kind", "lanes", "last", "live", "number", "owner", "pool",
        "rank", "request", "run_s", "samples", "staying",
    )  # fmt: skip
    is_gang: Literal[False] = False
    comes_back = False

    def __init__(self, owner: JobState, number: int, first: int, rank: Rank) -> None:
        self.owner = owner
        self.job = owner.job
        self.number = number
        self.group: Group = owner.job.groups[number]
        self.request: Request = self.group.request
        self.rank = rank
        self.kind: Hashable = kind_of(owner.job, self.request)
        self.first = first
        self.last = first + self.group.tasks
        self.fresh = first  # the first position that was never placed
        self.again: list[int] = []  # positions to be placed again, sorted
        self.live: dict[int, int] = {}  # places held, by replica
        self.staying = 0  # of these, how many were not told to leave
        self.lanes: dict[LaneKey, Lane] = {}
        self.pool: LanePool | None = None  # of jobs that share lanes, these among them
        self.run_s = 0.0
        self.samples = 0

    @property
    def typical_run_s(self) -> float | None:
        if self.pool is not None:
            return self.pool.typical_run_s
        return self.run_s if self.samples >= SAMPLES_MIN else None

    def share_lanes(self, pool: LanePool) -> None:
        """Its task may queue in the lanes of this pool, and others in its own. How long it took is known already."""
        self.pool, self.lanes = pool, pool.lanes
        if self.samples:
            pool.learn(self.run_s)

    @property
    def has_ready(self) -> bool:
        """True if a task could be placed now, as far as the job itself is concerned."""
        return next(self.ready(1), None) is not None

    @property
    def may_begin(self) -> bool:
        """True if every group that has to come first has."""
        after = self.group.after
        return not after or all(self.owner.has_come(name, when) for name, when in after)

    def stay_on(self, node: str) -> None:
        """Its only task is a VPS, whose files are on this node: it is placed there again, and nowhere else."""
        if self.request.target is None:
            self.request = structs.replace(self.request, target=Target(node))
            self.group = structs.replace(self.group, request=self.request)
            self.owner.job = self.job = structs.replace(self.job, groups=(self.group,))
            self.kind = kind_of(self.job, self.request)

    def closed_gates(self) -> list[Gate]:
        """The closed gates of a group whose tasks are placed one by one, those of its job included."""
        closed = self.owner.closed_gates()
        return closed if self.may_begin else [*closed, Gate.AFTER]

    def closed_gates_of_task(self, position: int) -> list[Gate]:
        """The closed gates of one task alone."""
        closed = [Gate.RETRY] if position in self.owner.delayed else []
        if self.owner.is_locked(position):
            closed.append(Gate.DEPENDENCY)
        return [*closed, Gate.LIMIT] if self.is_full(position) else closed

    def ready(self, most: int) -> Iterator[int]:
        """Up to `most` positions that may be placed now: those to be placed again first, then fresh ones."""
        if self.closed_gates():
            return iter(())
        if not self.group.at_once:
            return self._in_order(most)
        if self.group.replicas == 1:
            return self._in_order(min(most, self.group.at_once - self.live.get(0, 0)))
        return self._within_limits(most)

    @property
    def pending_count(self) -> int:
        """How many positions may be placed now, without listing them."""
        fresh = self.owner.status.count(Status.PENDING, self.fresh, self.last)
        late = sum(self.fresh <= position < self.last for position in self.owner.delayed)
        return len(self.again) + fresh - late

    def pending(self) -> list[int]:
        """Every position that may be placed now, in order."""
        return sorted(self._in_order(self.last - self.first))

    def is_full(self, position: int) -> bool:
        """Whether as many tasks of the array that a position belongs to hold places as may."""
        limit = self.group.at_once
        return limit > 0 and self.live.get(self.replica(position), 0) >= limit

    def ahead_of(self, position: int) -> int:
        """How many tasks of this group are placed before the one at a position."""
        if position < self.fresh:
            return bisect_left(self.again, position)
        late = sum(self.fresh <= each < position for each in self.owner.delayed)
        return len(self.again) + self.owner.status.count(Status.PENDING, self.fresh, position) - late

    def replica(self, position: int) -> int:
        return (position - self.first) // self.group.completions

    def begin(self, position: int) -> None:
        """It was placed: it no longer waits and counts against its replica's limit."""
        replica = self.replica(position)
        self.live[replica] = self.live.get(replica, 0) + 1
        self.staying += 1
        self.take_ready(position)

    def leave(self, position: int) -> None:
        """It no longer holds a place."""
        replica = self.replica(position)
        self.live[replica] -= 1
        if not self.live[replica]:
            del self.live[replica]

    def wait_again(self, position: int) -> None:
        if position < self.fresh:
            insort(self.again, position)

    def is_again(self, position: int) -> bool:
        """Whether a position is among those to be placed again, or of which each waited for another's."""
        at = bisect_left(self.again, position)
        return at < len(self.again) and self.again[at] == position

    def take_ready(self, position: int) -> None:
        """Forget that a position waits. One beyond `fresh` needs no forgetting: its status is passed over."""
        if position < self.fresh and self.is_again(position):
            del self.again[bisect_left(self.again, position)]
        status = self.owner.status
        while self.fresh < self.last and status[self.fresh] != Status.PENDING:
            self.fresh += 1

    def drop_all(self) -> None:
        """Nothing of it will be placed any more."""
        self.again.clear()
        self.fresh = self.last

    def learn(self, run_s: float) -> None:
        self.run_s = averaged(self.run_s, self.samples, run_s)
        self.samples += 1
        if self.pool is not None:
            self.pool.learn(run_s)

    def _in_order(self, most: int) -> Iterator[int]:
        if self.again and most > 0:
            for position in self.again[:most]:
                yield position
                most -= 1
        position = self.fresh
        while position < self.last and most > 0:
            if self.owner.is_ready(position):
                yield position
                most -= 1
            position += 1

    def _within_limits(self, most: int) -> Iterator[int]:
        """In order, but no more of a replica than may hold a place at one time."""
        held = dict(self.live)
        for position in self._in_order(self.last - self.first):
            if most <= 0:
                return
            replica = self.replica(position)
            if held.get(replica, 0) < self.group.at_once:
                held[replica] = held.get(replica, 0) + 1
                most -= 1
                yield position


def kind_of(job: Job, request: Request) -> Hashable:
    """What tasks have in common that find room together or not at all: where a mode binds them, also to what."""
    asked = job.dispatch
    if asked is None or asked.mode == "adaptive":
        if asked is None or not (asked.may_merge or asked.waits_for_sticky):
            return job.queue, request
        sticky, merges = asked.sticky if asked.waits_for_sticky else "", asked.may_merge
        return job.queue, request, sticky, asked.merge_key if merges else ""
    if asked.mode == "static_worker":
        return job.queue, request, asked.mode, workflow_key(job)
    return job.queue, request, asked.mode, asked.task_type if asked.mode == "fixed_pipeline" else ""


class Formation(Struct):
    """Members that wait at the barrier for each other."""

    number: int
    formed_at: float
    positions: set[int] = set()
    ready: set[int] = set()


class Promise(Struct, array_like=True):
    """Places kept for a job until the last of those who were asked to leave has gone. Images keep it as it is."""

    members: dict[int, tuple[str, Grant]]
    victims: set[AttemptKey]
    trigger: int  # the position of the member that found no room
    until: float
    made_at: float

    def is_on(self, node: str) -> bool:
        """Whether a place on this node is kept."""
        return any(name == node for name, _ in self.members.values())


class GangState:
    """The whole job as one thing that waits."""

    __slots__ = ("gang", "has_multiples", "incomplete", "job", "owner", "rank")
    is_gang: Literal[True] = True

    def __init__(self, owner: JobState, gang: Gang, rank: Rank, incomplete: set[JobId]) -> None:
        self.owner = owner
        self.job = owner.job
        self.gang = gang
        self.rank = rank
        self.incomplete = incomplete  # jobs that hold a part of their places, over the whole cluster
        self.has_multiples = any(rule.multiple > 1 for rule in gang.gather)

    @property
    def kind(self) -> Hashable:
        """Gangs that ask for the same are of one kind; one that is bound somewhere is like no other."""
        comes_back = self.comes_back
        alone = self.job.id if self.owner.live or comes_back else ""
        gang = self.gang
        return self.job.queue, gang.gather, gang.affinity, gang.strict, self.wanted(), alone, comes_back

    @property
    def has_ready(self) -> bool:
        """True if enough members may be placed now, as far as the job itself is concerned."""
        return not self.closed_gates()

    def closed_gates(self) -> list[Gate]:
        """The closed gates of a gang, those of its job included; with one closed its members are not counted."""
        closed = self.owner.closed_gates()
        if self.owner.forming is not None and self.gang.strict:  # nobody joins them meanwhile
            return [*closed, Gate.BARRIER]
        return closed if closed or self._has_members else [Gate.MEMBERS]

    @property
    def _has_members(self) -> bool:
        """Whether some members are to be placed, and enough of every group may be."""
        wanted = self.wanted()
        return any(each.most for each in wanted) and all(each.need <= each.most for each in wanted)

    @property
    def is_surplus(self) -> bool:
        """Whether it has a place for all that it needs, so that whoever is still to be placed is one more."""
        return not any(map(self._lacks, self.owner.groups))

    @property
    def comes_back(self) -> bool:
        """Whether it has started whole and a member that it needs is to be placed again."""
        short = (each for each in self.owner.groups if self._lacks(each))
        return self.owner.satisfied and any(each.pending_count for each in short)

    def _lacks(self, group: GroupState) -> bool:
        """Whether a group has fewer members than it needs, those that ended well counted."""
        return group.staying + self.owner.well_in(group) < group.group.needed

    @property
    def may_hold_part(self) -> bool:
        """A deadlock needs two gangs that hold halves against each other, so only one may hold a part."""
        return not self.gang.strict and not self.incomplete - {self.job.id}

    def wanted(self) -> tuple[Part, ...]:
        """What is to be placed now, one entry for each group of the job; at least one task in all."""
        # Whoever is one more comes in multiples, and so not together with one who comes back and need not.
        only_short = self.has_multiples and self.comes_back
        asks = []
        for state in self.owner.groups:
            # One more member that may not begin yet could take the very place that the one it waits for needs again.
            is_early = self.owner.satisfied and not state.may_begin
            is_more = only_short and not self._lacks(state)
            most = 0 if is_early or is_more else state.pending_count
            asks.append(Part(state.request, self._need(state, state.staying, most), most))
        if not any(each.need for each in asks):
            able = [n for n, each in enumerate(asks) if each.most]
            if able:
                first = next((n for n in able if self._lacks(self.owner.groups[n])), able[0])
                asks[first] = Part(asks[first].request, 1, asks[first].most)
        return tuple(asks)

    def _need(self, state: GroupState, held: int, pending: int) -> int:
        needed = state.group.needed
        if not self.owner.satisfied:
            return max(0, needed - held)
        if not pending or self.gang.match == "once-satisfied":
            return 0  # once satisfied, members come one by one
        # When others have ended well there may be fewer left than the gang began with: they come together.
        left = state.owner.status[state.first : state.last].count(Status.PENDING)
        return min(left, needed if self.gang.match == "only-waiting" else max(0, needed - held))

    @property
    def is_whole(self) -> bool:
        """Whether it has started whole, or holds all the places that it needs for that."""
        groups = self.owner.groups
        return self.owner.satisfied or all(each.staying >= each.group.needed for each in groups)

    def staying(self) -> Counter[int]:
        """How many members of each group hold a place and will keep it."""
        return Counter({state.number: state.staying for state in self.owner.groups})

    def members(self, group: int) -> list[tuple[int, int]]:
        """(index in the network, position) of the tasks of a group that may be placed now, in that order."""
        state = self.owner.groups[group]
        indexes, first = state.group.indexes, state.first
        return sorted((indexes[each - first] if indexes else each, each) for each in state.pending())

    def bound(self) -> list[tuple[int, int]]:
        """(node row, count) where members of this job already hold places."""
        live = self.owner.live
        return sorted(Counter(attempt.row for attempt in live.values()).items()) if live else []
