"""Queues: who may use them, what their tasks may hold, together and by user, and what they hold now.

Use is counted by queue, and in it by user: the quota of the queue limits the sum over its users, the limits of a user
his own part. Who is over a limit waits, and nobody behind waits for that (`Block.QUOTA`, `Block.USER`).

Submitted are the tasks of jobs that have not ended, those of stages of workflows that have no job yet among them. Too
many of them are refused, for they cannot wait anywhere else.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import inf
from typing import TYPE_CHECKING, Literal, TypeVar

from msgspec import Struct, structs

from phalanx.core.model import reason
from phalanx.core.model.amounts import MILLICORES, WORDS, headroom, total, use, written
from phalanx.core.model.dispatch import DispatchMode, Selection
from phalanx.core.model.job import Job, QueueUser
from phalanx.core.model.reason import Reason
from phalanx.core.model.resources import Cores, Grant, Request

if TYPE_CHECKING:
    from phalanx.core.model.waiting import Part

DEFAULT = "default"
QUEUES_MAX = 1000
NAMES_MAX = 1000  # users, approvers or limits of single users of one queue
OPERATORS = ("operator", "admin")  # may use every queue, and approve in all of them
# The highest priority that each may give a job, in a queue that does not say otherwise.
PRIORITY_OF_USERS = 1_000
PRIORITY_OF_OPERATORS = 1_000_000
Asked = tuple[Request, int]  # so many tasks with this request
_UNUSED = [0] * len(WORDS)
_Limits = tuple[int | None, ...]
QueueOrder = Literal[
    "arrival", "fair"
]  # of jobs with one priority: by arrival, or whose user holds least goes first
_Key = TypeVar("_Key", str, QueueUser)


class UserLimits(Struct, frozen=True, omit_defaults=True):
    """What one user may hold and submit in a queue. None sets no limit."""

    running: int | None = None  # tasks that hold a place
    cores: Cores | None = None
    memory_bytes: int | None = None
    gpus: int | None = None
    submitted: int | None = None  # tasks of jobs that have not ended

    @property
    def limits(self) -> _Limits:
        """As a vector."""
        return self.running, _millis(self.cores), self.memory_bytes, self.gpus

    @property
    def is_set(self) -> bool:
        return self != _NO_LIMITS

    def over(self, others: UserLimits) -> UserLimits:
        """These limits, and those of others where these set none."""
        mine = {name: value for name, value in structs.asdict(self).items() if value is not None}
        return structs.replace(others, **mine)


_NO_LIMITS = UserLimits()


class Approval(Struct, frozen=True, omit_defaults=True):
    """That jobs of a queue wait until an operator, or one of these users, approves them."""

    by: tuple[str, ...] = ()
    within_s: float | None = (
        None  # a job that nobody has approved by then is cancelled; None: it waits for ever
    )


class Quota(Struct, frozen=True, omit_defaults=True):
    """A queue as it was declared: the most that its tasks may hold together, the highest priority of its jobs, who may
    use it and what each of its users may hold. None sets no limit; for the priority, that of whoever submits holds."""

    tasks: int | None = None
    cores: Cores | None = None
    memory_bytes: int | None = None
    gpus: int | None = None
    priority_max: int | None = None
    dispatch_mode: DispatchMode | None = None  # by which its jobs are given their nodes; stages follow it too
    selection: Selection | None = None
    users: tuple[str, ...] = ()  # who may submit to it; with no user and no role named, everybody
    roles: tuple[str, ...] = ()
    submitted: int | None = None  # tasks of its jobs that have not ended
    each_user: UserLimits = UserLimits()
    by_user: dict[str, UserLimits] = {}  # for single users, instead of `each_user`
    approval: Approval | None = None
    order: QueueOrder = "arrival"

    @property
    def limits(self) -> _Limits:
        """As a vector."""
        return self.tasks, _millis(self.cores), self.memory_bytes, self.gpus

    @property
    def limits_users(self) -> bool:
        """Whether what a user holds or submits matters."""
        return self.each_user.is_set or bool(self.by_user)

    @property
    def tells_users_apart(self) -> bool:
        """Whether what one user holds matters to whether and when he is given more."""
        return self.limits_users or self.order == "fair"

    def of_user(self, user: str) -> UserLimits:
        """What one user may hold: what is set for him, else what is set for each."""
        own = self.by_user.get(user)
        return self.each_user if own is None else own.over(self.each_user)

    def admits(self, user: str, role: str) -> bool:
        """Whether this one may submit to it."""
        is_open = not self.users and not self.roles
        return is_open or role in OPERATORS or user in self.users or role in self.roles

    def needs_approval(self, role: str) -> bool:
        """Whether a job of one with this role waits for it: who could approve it does not."""
        return self.approval is not None and role not in OPERATORS

    def may_approve(self, user: str, role: str) -> bool:
        return role in OPERATORS or (self.approval is not None and user in self.approval.by)


def _millis(cores: Cores | None) -> int | None:
    return None if cores is None else MILLICORES[cores]


class Queues:
    """Quotas and usage by queue. Who has a quota is declared, and `default` always is; jobs of older stores may wait in
    others, which have no limit."""

    def __init__(self) -> None:
        self.quotas: dict[str, Quota] = {}
        self.usage: dict[str, list[int]] = {}  # what the tasks of each hold, as a vector
        self.used_by: dict[QueueUser, list[int]] = {}  # the same by user; who holds nothing is not listed
        self.submitted: dict[str, int] = {}
        self.submitted_by: dict[QueueUser, int] = {}

    def with_quotas(self, quotas: Mapping[str, Quota]) -> Queues:
        """The same usage under these quotas as well."""
        other = Queues()
        other.quotas, other.usage, other.used_by = {**self.quotas, **quotas}, self.usage, self.used_by
        other.submitted, other.submitted_by = self.submitted, self.submitted_by
        return other

    def unlimited(self) -> Queues:
        """The same usage without any quota."""
        other = self.with_quotas({})
        other.quotas = {}
        return other

    @property
    def by_user(self) -> frozenset[str]:
        """The queues in which it matters what each user holds."""
        return frozenset(name for name, quota in self.quotas.items() if quota.tells_users_apart)

    @property
    def fair(self) -> frozenset[str]:
        """The queues in which the user who holds least goes first."""
        return frozenset(name for name, quota in self.quotas.items() if quota.order == "fair")

    def unwelcome(self, job: Job, role: str) -> Reason | None:
        """Why one may not submit a job there, or not so urgently, or None. The queue's own limit beats the role's."""
        quota = self.quotas.get(job.queue)
        if quota is None and job.queue != DEFAULT:
            return reason.queue_not_found(job.queue, sorted({DEFAULT, *self.quotas}))
        if quota is not None and not quota.admits(job.user, role):
            return reason.queue_not_allowed(job.queue, job.user, quota.users, quota.roles)
        limit = PRIORITY_OF_OPERATORS if role in OPERATORS else PRIORITY_OF_USERS
        if quota is not None and quota.priority_max is not None:
            limit = quota.priority_max
        return None if job.priority <= limit else reason.priority_too_high(job.queue, job.priority, limit)

    def too_many(self, whose: QueueUser, added: int) -> Reason | None:
        """Why so many more tasks may not be submitted there, or None if they may."""
        queue, user = whose
        quota = self.quotas.get(queue)
        if quota is None:
            return None
        limit, held = quota.submitted, self.submitted.get(queue, 0)
        if limit is not None and held + added > limit:
            return reason.queue_submit_limit(queue, added, held, limit)
        limit, held = quota.of_user(user).submitted, self.submitted_by.get(whose, 0)
        if limit is not None and held + added > limit:
            return reason.user_submit_limit(queue, user, added, held, limit)
        return None

    def submit(self, whose: QueueUser, tasks: int) -> None:
        """So many more tasks of one user in a queue have not ended, or so many fewer."""
        add_to(self.submitted, whose[0], tasks)
        add_to(self.submitted_by, whose, tasks)

    def take(self, whose: QueueUser, grant: Grant) -> None:
        used = self.usage.get(whose[0])
        if used is None:
            used = self.usage[whose[0]] = [0] * len(WORDS)
        use(used, grant, 1)
        mine = self.used_by.get(whose)
        if mine is None:
            mine = self.used_by[whose] = [0] * len(WORDS)
        use(mine, grant, 1)

    def give_back(self, whose: QueueUser, grant: Grant) -> None:
        use(self.usage[whose[0]], grant, -1)
        mine = self.used_by[whose]
        use(mine, grant, -1)
        if not mine[0]:
            del self.used_by[whose]

    def room(self, whose: QueueUser, request: Request, beside: Iterable[Asked] = ()) -> int | None:
        """How many tasks with this request the limits admit now beside others, or None if there are none."""
        if whose[0] not in self.quotas:
            return None
        ask, others, counts = total([(request, 1)]), total(beside), list[int]()
        for _, limits, used in self._limited(whose):
            taken = [each + more for each, more in zip(used, others, strict=True)]
            left = headroom(limits, taken, ask)
            counts += [1 + int(each) // asked for each, asked in zip(left, ask, strict=True) if each != inf]
        return max(0, min(counts)) if counts else None

    def lacks(self, whose: QueueUser, asked: Iterable[Asked], *, ever: bool = False) -> Reason | None:
        """Why the limits do not admit these tasks together now, or `ever`: even if nothing were used; else None."""
        return self._refused(whose, total(asked), ever=ever) if whose[0] in self.quotas else None

    def lacks_grants(self, whose: QueueUser, grants: Iterable[Grant]) -> Reason | None:
        """The same for what would be granted: a whole node may be more than was asked for."""
        needed = [0] * len(WORDS)
        for grant in grants:
            use(needed, grant, 1)
        return self._refused(whose, needed, ever=False) if whose[0] in self.quotas else None

    def refuses(
        self, whose: QueueUser, grants: Iterable[Grant], leaving: Iterable[tuple[QueueUser, Grant]]
    ) -> bool:
        """Whether the limits do not admit these grants together once others have left."""
        if whose[0] not in self.quotas:
            return False
        needed, of_queue, own = [0] * len(WORDS), [0] * len(WORDS), [0] * len(WORDS)
        for grant in grants:
            use(needed, grant, 1)
        for other, grant in leaving:
            if other[0] == whose[0]:
                use(of_queue, grant, -1)
            if other == whose:
                use(own, grant, -1)
        for user, limits, used in self._limited(whose):
            left = [each + gone for each, gone in zip(used, of_queue if user is None else own, strict=True)]
            if min(headroom(limits, left, needed)) < 0:
                return True
        return False

    def admitted(self, whose: QueueUser, parts: Sequence[Part]) -> list[int] | Reason:
        """How many members of each part the limits admit, or why they do not admit what is needed."""
        needed = [(part.request, part.need) for part in parts]
        if whose[0] not in self.quotas:
            return [part.most for part in parts]
        no = self.lacks(whose, needed, ever=True) or self.lacks(whose, needed)
        if no is not None:
            return no
        most: list[int] = []
        for at, part in enumerate(parts):
            # Those of the parts before are counted as admitted, those of the others as needed.
            beside = [(each.request, count) for each, count in zip(parts, most, strict=False)] + needed[at:]
            left, more = self.room(whose, part.request, beside), part.most - part.need
            most.append(part.need + (more if left is None else min(more, left)))
        return most

    def left(self, whose: QueueUser, asked: Iterable[Asked]) -> list[tuple[str | None, list[float]]]:
        """What the limits leave of each row beside these tasks: of the queue (under None), and of the user."""
        if whose[0] not in self.quotas:
            return []
        needed = total(asked)
        return [(user, headroom(limits, used, needed)) for user, limits, used in self._limited(whose)]

    def free(self, whose: QueueUser, *, ever: bool = False) -> list[float]:
        """What the limits leave of each row, or `ever`: would leave if nothing were used."""
        free = [inf] * len(WORDS)
        for _, limits, used in self._limited(whose) if whose[0] in self.quotas else ():
            held = _UNUSED if ever else used
            left = (inf if most is None else most - has for most, has in zip(limits, held, strict=True))
            free = [min(pair) for pair in zip(free, left, strict=True)]
        return free

    def _refused(self, whose: QueueUser, needed: Sequence[int], *, ever: bool) -> Reason | None:
        for user, limits, used in self._limited(whose):
            held = _UNUSED if ever else used
            for row, left in enumerate(headroom(limits, held, needed)):
                limit = limits[row]
                if left < 0 and limit is not None:
                    wanted, has, most = (_shown(row, amount) for amount in (needed[row], held[row], limit))
                    return _no(whose[0], user, row, ever=ever, wanted=wanted, has=has, most=most)
        return None

    def _limited(self, whose: QueueUser) -> Iterator[tuple[str | None, _Limits, list[int]]]:
        """Limits and use of a queue (under None), and of the user there if that is limited."""
        quota = self.quotas[whose[0]]
        yield None, quota.limits, self.usage.get(whose[0], _UNUSED)
        if quota.limits_users:
            yield whose[1], quota.of_user(whose[1]).limits, self.used_by.get(whose, _UNUSED)


def _no(
    queue: str, user: str | None, row: int, *, ever: bool, wanted: Cores, has: Cores, most: Cores
) -> Reason:
    if user is not None:
        if ever:
            return reason.exceeds_user_limit(queue, user, WORDS[row], wanted, most)
        return reason.user_limit_reached(queue, user, WORDS[row], wanted, has, most)
    if ever:
        return reason.exceeds_quota(queue, WORDS[row], wanted, most)
    return reason.quota_exhausted(queue, WORDS[row], wanted, has, most)


def _shown(row: int, amount: int) -> Cores:
    return written(amount) if WORDS[row] == "cores" else amount


def add_to(counts: dict[_Key, int], key: _Key, count: int) -> None:
    """Count up or down; what is nothing is not listed."""
    left = counts.get(key, 0) + count
    if left > 0:
        counts[key] = left
    else:
        counts.pop(key, None)
