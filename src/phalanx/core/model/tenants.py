"""Who holds places on nodes, as columns: one row per lane or promise, so that one calculation asks all of them.

Preemption asks whose priority is low enough, a reservation asks who will have ended by when; neither may loop over
forty thousand objects. A slot is reused when its tenant has left.

The tenant of a lane is the job of its first attempt (`core/model/lanes.py`).
"""

from __future__ import annotations

from collections import Counter

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from phalanx.core.model.amounts import ANY, FIXED, DeviceKind, Rows, fixed, matching
from phalanx.core.model.columns import Columns, Matrix
from phalanx.core.model.job import JobId, QueueUser
from phalanx.core.model.resources import Grant

NEVER = float("inf")
TenantKey = tuple[str, int]  # (node, lane) of a lane; (job, position) of a promise


_COLUMNS = (
    "used", "node", "gpus", "priority", "evictable_at", "ends_at", "since", "promise", "leaving",
    "job", "group",
)  # fmt: skip


class Tenant(Struct, frozen=True):
    """One holder of a grant. `group` is the number of its group in its job."""

    key: TenantKey
    job: JobId
    queue: str
    group: int
    node_row: int
    grant: Grant
    priority: int
    evictable_at: float  # before this it may not be evicted; NEVER: not at all
    ends_at: float  # when its time limit ends it; NEVER if it has none
    since: float  # when it began to hold the place: what would be lost by evicting it
    is_leaving: bool = False  # it was told to leave, and holds the place only until it has gone
    is_promise: bool = False  # nothing runs there yet: the place is kept for a job whose victims are leaving
    affinity: str = ""  # others of the same key stand near it
    user: str = ""

    @property
    def queue_user(self) -> QueueUser:
        """On which its use is counted."""
        return self.queue, self.user


class Tenants:
    """Columns over every tenant. `used` marks the rows that are taken."""

    def __init__(self) -> None:
        self.used: NDArray[np.bool_] = np.zeros(0, dtype=np.bool_)
        self.node: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self.held: Matrix = np.zeros((FIXED, 0), dtype=np.int64)  # cores in thousandths, bytes of memory
        self.gpus: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self.priority: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self.evictable_at: NDArray[np.float64] = np.zeros(0)
        self.ends_at: NDArray[np.float64] = np.zeros(0)
        self.since: NDArray[np.float64] = np.zeros(0)
        self.promise: NDArray[np.bool_] = np.zeros(0, dtype=np.bool_)
        self.leaving: NDArray[np.bool_] = np.zeros(0, dtype=np.bool_)
        self.job: NDArray[np.int64] = np.zeros(0, dtype=np.int64)  # a number for each job, as in `numbers`
        self.group: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self.tenants: list[Tenant | None] = []
        self.slots: dict[TenantKey, int] = {}
        self.of_job: dict[JobId, dict[TenantKey, Tenant]] = {}
        self.needed: dict[JobId, tuple[int, ...]] = {}  # of gangs: how many of each group must stay together
        self.numbers: dict[JobId, int] = {}
        self.near: dict[str, Counter[int]] = {}  # by affinity: how many tenants stand on which node row
        self._free: list[int] = []
        self._numbers_free: list[int] = []

    def __len__(self) -> int:
        return len(self.slots)

    def add(self, tenant: Tenant) -> None:
        if not self._free:
            self._grow()
        slot = self._free.pop()
        self.slots[tenant.key] = slot
        self.used[slot] = True
        self._write(slot, tenant)
        if tenant.affinity:
            self.near.setdefault(tenant.affinity, Counter())[tenant.node_row] += 1

    def replace(self, tenant: Tenant) -> None:
        """The same place with other facts, such as a start that gives it a deadline, or another job in the lane."""
        self._write(self.slots[tenant.key], tenant)

    def get(self, key: TenantKey) -> Tenant | None:
        slot = self.slots.get(key)
        return None if slot is None else self.tenants[slot]

    def near_to(self, affinity: str, nodes: int) -> NDArray[np.int64] | None:
        """How many tenants of this affinity key stand on each node row; None if there are none."""
        near = self.near.get(affinity) if affinity else None
        if not near:
            return None
        column = np.zeros(nodes, dtype=np.int64)
        column[list(near)] = list(near.values())
        return column

    def on_nodes(self, job: JobId, nodes: int) -> NDArray[np.int64]:
        """How many places a job holds on each node row, promises among them; the column is the caller's."""
        number = self.numbers.get(job)
        if number is None:
            return np.zeros(nodes, dtype=np.int64)
        return np.bincount(self.node[self.used & (self.job == number)], minlength=nodes)

    def remove(self, key: TenantKey) -> None:
        slot = self.slots.pop(key)
        self.used[slot] = False
        if (tenant := self.tenants[slot]) is not None:
            self._leave_job(tenant)
            if tenant.affinity:
                self._leave(tenant)
        self.tenants[slot] = None
        self._free.append(slot)

    def amounts(self, rows: Rows, slots: NDArray[np.int64], nodes: Columns) -> Matrix:
        """What the tenants in these slots hold, by row."""
        devices = [self._devices(kind, slots, nodes) for kind in rows.kinds]
        whole = [np.ones(len(slots), dtype=np.int64)] if rows.has_whole else []
        return np.stack([*self.held[:, slots], *devices, *whole])

    def _devices(self, kind: DeviceKind, slots: NDArray[np.int64], nodes: Columns) -> NDArray[np.int64]:
        """How many devices of a kind each holds. Only on nodes with several kinds one has to look closely."""
        node, gpus = self.node[slots], self.gpus[slots]
        mine, every = nodes.of_kind(kind, every=True)[node], nodes.of_kind(ANY, every=True)[node]
        found = np.where(mine == every, gpus, 0)
        for at in np.flatnonzero((mine > 0) & (mine < every) & (gpus > 0)).tolist():
            tenant = self.tenants[slots[at]]
            assert tenant is not None
            fitting = matching(nodes.ledgers[tenant.node_row].capacity.devices, kind)
            found[at] = sum(device.index in tenant.grant.devices for device in fitting)
        return found

    def move_node(self, before: int, after: int) -> None:
        """A node has another row of the table from now on."""
        for slot in np.flatnonzero(self.used & (self.node == before)).tolist():
            tenant = self.tenants[slot]
            assert tenant is not None
            moved = replace(tenant, node_row=after)
            if tenant.affinity:
                self._leave(tenant)
                self.near.setdefault(tenant.affinity, Counter())[after] += 1
            self._write(slot, moved)

    def _leave_job(self, tenant: Tenant) -> None:
        siblings = self.of_job[tenant.job]
        del siblings[tenant.key]
        if not siblings:
            del self.of_job[tenant.job]
            self._numbers_free.append(self.numbers.pop(tenant.job))

    def _leave(self, tenant: Tenant) -> None:
        rows = self.near[tenant.affinity]
        rows[tenant.node_row] -= 1
        if not rows[tenant.node_row]:
            del rows[tenant.node_row]
            if not rows:
                del self.near[tenant.affinity]

    def _write(self, slot: int, tenant: Tenant) -> None:
        grant, before = tenant.grant, self.tenants[slot]
        if before is not None and before.job != tenant.job:
            self._leave_job(before)
        self.tenants[slot] = tenant
        self.of_job.setdefault(tenant.job, {})[tenant.key] = tenant
        self.node[slot] = tenant.node_row
        for row, amount in enumerate(fixed(grant)):
            self.held[row, slot] = amount
        self.gpus[slot] = len(grant.devices)
        self.priority[slot] = tenant.priority
        self.evictable_at[slot], self.ends_at[slot] = tenant.evictable_at, tenant.ends_at
        self.since[slot] = tenant.since
        self.promise[slot], self.leaving[slot] = tenant.is_promise, tenant.is_leaving
        self.job[slot], self.group[slot] = self._number(tenant.job), tenant.group

    def _number(self, job: JobId) -> int:
        number = self.numbers.get(job)
        if number is None:
            number = self._numbers_free.pop() if self._numbers_free else len(self.numbers)
            self.numbers[job] = number
        return number

    def _grow(self) -> None:
        """Twice as many rows, so that adding one costs the same however many there are."""
        size = len(self.tenants)
        more = max(64, size)
        for name in _COLUMNS:
            column = getattr(self, name)
            setattr(self, name, np.concatenate([column, np.zeros(more, dtype=column.dtype)]))
        self.held = np.concatenate([self.held, np.zeros((FIXED, more), dtype=np.int64)], axis=1)
        self.tenants += [None] * more
        self._free += range(size + more - 1, size - 1, -1)
