"""A plan being tried: whatever it takes, evicts or promises in the columns is put back when the plan is made.

The columns are those of the cluster, so a draft is used as a context manager: an error puts everything back, too.
A part of it can be given up alone: `mark` remembers where one stands, `rollback` returns there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Self, TypeVar

from phalanx.core.model.job import JobId, QueueUser
from phalanx.core.model.plan import GangPlacement, Placement, Plan, PlanMemory, Snapshot
from phalanx.core.model.resources import Grant
from phalanx.core.model.score import Score
from phalanx.core.model.tenants import Tenant
from phalanx.core.model.tree import Mask

Mark = tuple[int, int, int]
Found = TypeVar("Found")


class Draft:
    """Speculative changes over a snapshot."""

    def __init__(self, snapshot: Snapshot, score: Score = "pack") -> None:
        self.score: Score = score
        self.nodes = snapshot.nodes
        self.tenants = snapshot.tenants
        self.queues = snapshot.queues
        self.now = snapshot.now
        self.size = 0  # members placed, alone or in gangs
        self.gone = set(snapshot.gone)  # tenants that have left in this draft, though they are still listed
        self.placements: list[Placement] = []  # tasks placed one by one so far
        self.gang_placements: list[GangPlacement] = []  # members placed together so far
        self._undo: list[tuple[Callable[..., None], tuple[object, ...]]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.rollback((0, 0, 0))

    def place(self, row: int, placement: Placement, whose: QueueUser) -> None:
        """One task onto a node."""
        self.take(row, placement.grant, whose)
        self.queue(placement)

    def enlist(self, gang_placement: GangPlacement) -> None:
        """Members that are placed together; their grants have been taken one by one."""
        self.gang_placements.append(gang_placement)
        self.size += len(gang_placement.members)

    def queue(self, placement: Placement) -> None:
        """A placement into a lane takes nothing more."""
        self.placements.append(placement)
        self.size += 1

    def take(self, row: int, grant: Grant, whose: QueueUser) -> None:
        """Hold a grant on a node, and count it for its queue and user."""
        self.nodes.take(row, grant)
        self.queues.take(whose, grant)
        self._undo.append((self._give_back, (row, grant, whose)))

    def evict(self, tenant: Tenant) -> None:
        """As if the tenant had left. A promise is withdrawn, a lane's grant given back."""
        self._leave(tenant)
        self._undo.append((self._return, (tenant,)))

    def readmit(self, tenant: Tenant) -> None:
        """It had left in this draft, and stays after all."""
        self._return(tenant)
        self._undo.append((self._leave, (tenant,)))

    def open(self, node: str) -> None:
        """As if a node that is closed took work."""
        self.nodes.set_open(node, True)
        self._undo.append((self.nodes.set_open, (node, False)))

    def without(self, places: Sequence[tuple[int, Grant]], attempt: Callable[[], Found]) -> Found:
        """Try something while these places, by node row, are set aside; what it takes stays taken."""
        for row, grant in places:
            self.nodes.promise(row, grant)
        try:
            return attempt()
        finally:
            for row, grant in places:
                self.nodes.withdraw(row, grant)

    @property
    def here(self) -> Mask:
        """By slot, the tenants that have not left in this draft."""
        here = self.tenants.used.copy()
        here[[self.tenants.slots[key] for key in self.gone]] = False
        return here

    def mark(self) -> Mark:
        return len(self._undo), len(self.placements), len(self.gang_placements)

    def rollback(self, mark: Mark) -> None:
        """Give up everything since the mark, the newest first."""
        undo, placements, gang_placements = mark
        while len(self._undo) > undo:
            act, arguments = self._undo.pop()
            act(*arguments)
        self.size -= len(self.placements) - placements
        self.size -= sum(
            len(gang_placement.members) for gang_placement in self.gang_placements[gang_placements:]
        )
        del self.placements[placements:]
        del self.gang_placements[gang_placements:]

    def _leave(self, tenant: Tenant) -> None:
        leave = self.nodes.withdraw if tenant.is_promise else self.nodes.give_back
        leave(tenant.node_row, tenant.grant)
        self.queues.give_back(tenant.queue_user, tenant.grant)
        self.gone.add(tenant.key)

    def _return(self, tenant: Tenant) -> None:
        come_back = self.nodes.promise if tenant.is_promise else self.nodes.retake
        come_back(tenant.node_row, tenant.grant)
        self.queues.take(tenant.queue_user, tenant.grant)
        self.gone.discard(tenant.key)

    def _give_back(self, row: int, grant: Grant, whose: QueueUser) -> None:
        self.nodes.undo_take(row, grant)
        self.queues.give_back(whose, grant)

    def positions_of(self, job: JobId) -> set[int]:
        return {each.position for each in self.placements if each.job == job}

    def plan(
        self, memory: PlanMemory | None = None, *, more: bool = False, deferred: list[JobId] | None = None
    ) -> Plan:
        """The proposal, with what the next one has to know; the columns are as they were before the draft began."""
        placements, gang_placements = self.placements, self.gang_placements
        self.placements, self.gang_placements = [], []
        self.rollback((0, 0, 0))
        return Plan(placements, more, gang_placements, deferred or [], memory or PlanMemory())
