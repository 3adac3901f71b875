"""One node as the coordinator knows it: the life of its runner, whether it takes work, and what it holds."""

from __future__ import annotations

from typing import ClassVar

from msgspec import Struct

from phalanx.core.cluster.units import Attempt
from phalanx.core.model.bindings import workflow_key
from phalanx.core.model.health import WELL, NodeHealth
from phalanx.core.model.job import Job, JobId, NodeName
from phalanx.core.model.lanes import Lane
from phalanx.core.model.orders import AttemptKey
from phalanx.core.model.resources import Capacity

# So many users' failures in a row are a node's.
USERS_MIN = 2


class Unfit(Exception):
    """An event names what is not there, or takes what is not free: the record before it was damaged."""


class NodeState(Struct, eq=False):
    """One node: the life of its runner that we talk to, and what it holds."""

    name: NodeName
    row: int  # in the table; another node may have it after this one was removed
    number: int = 0  # its place in `known_names`, never given again
    incarnation: str = ""
    generation: int = 0  # of its lease: one more with each join and each loss
    origin: str = ""
    address: str = ""
    capacity: Capacity = Capacity(0, 0)
    connected: bool = False
    lost: bool = False
    lost_at: float | None = None
    failures: int = 0  # reported in a row
    failed_users: tuple[str, ...] = ()  # whose jobs they were, the first few
    failed_jobs: ClassVar[tuple[JobId, ...]] = ()  # images of older versions say which jobs failed
    excluded_until: float | None = None
    exclusion_text: str = ""  # what the node itself did wrong; nothing if tasks failed
    is_kept_away: bool = (
        False  # it is excluded, and others take work instead (see `_reopen` in apply/nodes.py)
    )
    counted: tuple[bool, bool] = (
        False,
        False,
    )  # among those that could take work, and those of them that are excluded
    drain_reason: str | None = None
    disabled_reason: str | None = None  # of an elastic node: by whom, or how long it was idle
    disabled_automatically: bool = False
    toggled_at: float | None = None  # when it was last disabled or enabled
    idle_since: float | None = None  # None: attempts stand there
    bound_to: JobId = ""  # in the mode static_worker: the workflow that alone is given it
    health: NodeHealth = WELL  # checks of it that fail: it gets no work, or devices are out of service
    trouble: str = ""  # what keeps its runner from starting tasks, in its own words
    leaving: bool = False  # its runner stops, or has stopped, in an orderly way; until it is back
    kept_s: float = 0.0  # how much longer its lease is while nothing is heard of it
    heard_at: float = 0.0
    attempts: dict[AttemptKey, Attempt] = {}
    lanes: dict[int, Lane] = {}
    next_lane: int = 1
    leftovers: set[AttemptKey] = set()

    @property
    def could_work(self) -> bool:
        """Whether it would take work if it were not excluded."""
        return self.disabled_reason is None and self.is_fit

    @property
    def is_only_disabled(self) -> bool:
        """Whether it would take work as soon as it is enabled."""
        return self.disabled_reason is not None and self.is_fit and not self.is_kept_away

    @property
    def is_fit(self) -> bool:
        """Whether it would take work if it were enabled and not excluded."""
        is_ill = self.leftovers or self.trouble or self.health.reason
        return self.connected and self.drain_reason is None and not (self.lost or self.leaving or is_ill)

    @property
    def takes_work(self) -> bool:
        """Whether it takes anybody's work."""
        return self.could_work and not self.is_kept_away and not self.bound_to

    def takes_work_of(self, job: Job) -> bool:
        """Whether it takes this job's work: if it is bound, only that of the workflow it is bound to."""
        if self.bound_to and self.bound_to != workflow_key(job):
            return False
        return self.could_work and not self.is_kept_away

    @property
    def is_out(self) -> bool:
        """Whether it takes no work for a while, by a person's will or because it is lost: nobody is bound to it."""
        return self.lost or self.drain_reason is not None or self.disabled_reason is not None

    def holds_lease(self, incarnation: str, generation: int) -> bool:
        """Whether a runner speaks in the life and under the lease that are in force."""
        return self.incarnation == incarnation and self.generation == generation and not self.lost

    def lane(self, id: int) -> Lane:
        """The lane with this number; Unfit if there is none."""
        found = self.lanes.get(id)
        if found is None:
            raise Unfit(f"{self.name} has no lane {id}")
        return found

    def failed_users_with(self, job: Job) -> tuple[str, ...]:
        """Whose jobs failed here in a row with this one, as far as it matters."""
        users = self.failed_users
        return users if job.user in users or len(users) >= USERS_MIN else (*users, job.user)

    def is_silent(self, now: float, seconds: float) -> bool:
        """Whether nothing was heard of it for so long, though it was not declared lost."""
        return not self.lost and now - self.heard_at > seconds + self.kept_s
