"""A gang that waits: what it still wants, where its members already are, and its tries to start whole.

A *formation* is one such try: members placed together, held at the barrier by their runners, and released when
every one of them is ready. What the match policy asks for follows Koordinator's three words.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from typing import Protocol

from phalanx.core.cluster import gates
from phalanx.core.cluster.attempt import Attempt
from phalanx.core.cluster.groups import GroupState
from phalanx.core.model.gang import Gang
from phalanx.core.model.ids import JobId
from phalanx.core.model.resources import Grant
from phalanx.core.model.status import Status
from phalanx.core.model.waiting import Rank, Wanted


class Formation:
    """Members that wait at the barrier for each other."""

    __slots__ = ("formed_at", "number", "positions", "ready")

    def __init__(self, number: int, formed_at: float) -> None:
        self.number = number
        self.formed_at = formed_at
        self.positions: set[int] = set()
        self.ready: set[int] = set()


class Promise:
    """Places kept for a job until the last of those who were asked to leave has gone."""

    __slots__ = ("made_at", "members", "trigger", "until", "victims")

    def __init__(
        self, members: dict[int, tuple[str, Grant]], trigger: int, until: float, made_at: float
    ) -> None:
        self.members = members
        self.made_at = made_at
        self.victims: set[tuple[str, int, int]] = set()
        self.trigger = trigger
        self.until = until


class GangOwner(gates.GatedJob, Protocol):
    """What a gang needs to know of its job."""

    groups: list[GroupState]
    live: dict[int, Attempt]
    satisfied: bool
    forming: Formation | None

    def well_in(self, group: GroupState) -> int: ...


class GangState:
    """The whole job as one thing that waits."""

    __slots__ = ("gang", "has_multiples", "incomplete", "job", "owner", "rank")
    is_gang = True

    def __init__(self, owner: GangOwner, gang: Gang, rank: Rank, incomplete: set[JobId]) -> None:
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
        return gates.is_open(gates.of_gang(self))

    @property
    def waits_at_barrier(self) -> bool:
        """Whether its members hold places and wait for each other, and nobody joins them meanwhile."""
        return self.owner.forming is not None and self.gang.strict

    @property
    def has_members(self) -> bool:
        """Whether some members are to be placed, and enough of every group may be."""
        wanted = self.wanted()
        return any(each.most for each in wanted) and all(each.need <= each.most for each in wanted)

    @property
    def is_surplus(self) -> bool:
        """Whether it has a place for all that it needs, so that whoever is still to be placed is one more."""
        return not self._is_short

    @property
    def comes_back(self) -> bool:
        """Whether it has started whole and a member that it needs is to be placed again."""
        short = (each for each in self.owner.groups if self._lacks(each))
        return self.owner.satisfied and any(each.pending_count for each in short)

    @property
    def _is_short(self) -> bool:
        return any(map(self._lacks, self.owner.groups))

    def _lacks(self, group: GroupState) -> bool:
        """Whether a group has fewer members than it needs, those that ended well counted."""
        return group.staying + self.owner.well_in(group) < group.group.needed

    @property
    def may_hold_part(self) -> bool:
        """A deadlock needs two gangs that hold halves against each other, so only one may hold a part."""
        return not self.gang.strict and not self.incomplete - {self.job.id}

    def wanted(self) -> tuple[Wanted, ...]:
        """What is to be placed now, one entry for each group of the job; at least one task in all."""
        # Whoever is one more comes in multiples, and so not together with one who comes back and need not.
        only_short = self.has_multiples and self.comes_back
        asks = []
        for state in self.owner.groups:
            # One more member that may not begin yet could take the very place that the one it waits for needs again.
            is_early = self.owner.satisfied and not state.may_begin
            is_more = only_short and not self._lacks(state)
            most = 0 if is_early or is_more else state.pending_count
            asks.append(Wanted(state.request, self._need(state, state.staying, most), most))
        if not any(each.need for each in asks):
            able = [n for n, each in enumerate(asks) if each.most]
            if able:
                first = next((n for n in able if self._lacks(self.owner.groups[n])), able[0])
                asks[first] = Wanted(asks[first].request, 1, asks[first].most)
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

    def held(self) -> Counter[int]:
        """How many members of each group hold a place and will keep it."""
        return Counter({state.number: state.staying for state in self.owner.groups})

    def members(self, group: int) -> list[tuple[int, int]]:
        """(index in the network, position) of the tasks of a group that may be placed now, in that order."""
        state = self.owner.groups[group]
        indexes = state.group.indexes
        return sorted(
            (indexes[position - state.first] if indexes else position, position)
            for position in state.pending()
        )

    def bound(self) -> list[tuple[int, int]]:
        """(node row, count) where members of this job already hold places."""
        live = self.owner.live
        return sorted(Counter(attempt.row for attempt in live.values()).items()) if live else []
