"""Queues as they travel: what an admin declares, and what is shown of it beside its use.

Checked here is what can be known without the cluster: how a `QuotaSpec` becomes a `Quota`.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct, structs

from phalanx.api.schema.fields import check_number, read_cores, read_duration, read_memory, shown
from phalanx.core.model.credential import ROLES
from phalanx.core.model.dispatch import DispatchMode, Selection
from phalanx.core.model.job import PRIORITY_MAX
from phalanx.core.model.queues import NAMES_MAX, Approval, QueueOrder, Quota, UserLimits
from phalanx.core.model.resources import Cores
from phalanx.errors import BadRequest

COUNT_MAX = 1_000_000_000
USER_NAME_MAX = 200


class UserLimitsSpec(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What one user may hold and submit in a queue. What is left out is unlimited."""

    running: int | None = None  # tasks that hold a place
    cores: Cores | None = None
    memory: int | str | None = None  # bytes, or "2TiB"
    gpus: int | None = None
    submitted: int | None = None  # tasks of jobs that have not ended


class ApprovalSpec(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """That jobs of a queue wait until they are approved, by an operator or one of these users."""

    by: list[str] = []
    within: float | str | None = None  # a job that is not approved by then is cancelled: seconds, or "24h"


class QuotaSpec(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A queue: the quota of its tasks, its highest priority, who may use it. What is left out is unlimited."""

    tasks: int | None = None
    cores: Cores | None = None
    memory: int | str | None = None  # bytes, or "2TiB"
    gpus: int | None = None
    priority_max: int | None = None  # else 1,000 for users and 1,000,000 for operators
    dispatch_mode: DispatchMode | None = (
        None  # else that of the cluster for stages of workflows, none for other jobs
    )
    selection: Selection | None = None  # else that of the cluster
    users: list[str] = []  # who may submit, beside operators and admins; with `roles` empty too: everybody
    roles: list[str] = []
    submitted: int | None = None  # tasks of its jobs that have not ended
    each_user: UserLimitsSpec | None = None
    by_user: dict[str, UserLimitsSpec] = {}  # for single users, over `each_user`
    approval: ApprovalSpec | None = None
    order: QueueOrder = "arrival"  # of jobs with one priority; fair: the user who holds least goes first


class UsageView(Struct):
    """What tasks of a queue hold, including resources promised to them."""

    tasks: int
    cores: Cores
    memory_bytes: int
    gpus: int


class UserLimitsView(Struct):
    """What one user may hold and submit in a queue; null means unlimited."""

    running: int | None = None
    cores: Cores | None = None
    memory_bytes: int | None = None
    gpus: int | None = None
    submitted: int | None = None


class ApprovalView(Struct):
    """Who may approve jobs of a queue, beside operators and admins, and for how long they wait for it."""

    by: list[str] = []
    within_s: float | None = None


class QuotaView(Struct):
    """The limits of a queue; null means unlimited."""

    tasks: int | None = None
    cores: Cores | None = None
    memory_bytes: int | None = None
    gpus: int | None = None
    priority_max: int | None = None
    dispatch_mode: DispatchMode | None = None
    selection: Selection | None = None
    users: list[str] = []
    roles: list[str] = []
    submitted: int | None = None
    each_user: UserLimitsView | None = None
    by_user: dict[str, UserLimitsView] = {}
    approval: ApprovalView | None = None
    order: QueueOrder = "arrival"


class QueueUserView(Struct):
    """One user of a queue: what his tasks hold there, how many have not ended, and what he may."""

    name: str
    used: UsageView
    submitted: int
    limits: UserLimitsView | None = None


class QueueView(Struct):
    """One queue. Without a quota it was not declared (unless it is `default`) and is unlimited."""

    name: str
    quota: QuotaView | None
    used: UsageView
    waiting: (
        int  # jobs with a task that waits, whatever else of them runs; held and unapproved ones among them
    )
    submitted: int = 0  # tasks of jobs that have not ended, those of stages without a job among them
    unapproved: int = 0  # of these jobs, those that wait for an approval
    users: list[QueueUserView] = []  # the first 1,000 by name, where one queue is shown


def to_quota(spec: QuotaSpec, field: str = "") -> Quota:
    """The quota a spec describes, or a refusal that names the field."""
    memory_bytes = None if spec.memory is None else read_memory(f"{field}memory", spec.memory)
    for name, limit in (("tasks", spec.tasks), ("gpus", spec.gpus), ("submitted", spec.submitted)):
        if limit is not None:
            check_number(f"{field}{name}", limit, 0, COUNT_MAX)
    if spec.priority_max is not None:
        check_number(f"{field}priority_max", spec.priority_max, -PRIORITY_MAX, PRIORITY_MAX)
    cores = None if spec.cores is None else read_cores(f"{field}cores", spec.cores, COUNT_MAX)
    _check_names(f"{field}by_user", spec.by_user)
    limits = {name: _limits(each, f"{field}by_user[{name!r}].") for name, each in spec.by_user.items()}
    return Quota(
        spec.tasks,
        cores,
        memory_bytes,
        spec.gpus,
        spec.priority_max,
        spec.dispatch_mode,
        spec.selection,
        _check_names(f"{field}users", spec.users),
        _roles(f"{field}roles", spec.roles),
        spec.submitted,
        _limits(spec.each_user or UserLimitsSpec(), f"{field}each_user."),
        limits,
        None if spec.approval is None else _approval(spec.approval, f"{field}approval."),
        spec.order,
    )


def to_quota_spec(quota: Quota) -> QuotaSpec:
    """The other way round."""
    approval = quota.approval
    return QuotaSpec(
        quota.tasks,
        quota.cores,
        quota.memory_bytes,
        quota.gpus,
        quota.priority_max,
        quota.dispatch_mode,
        quota.selection,
        list(quota.users),
        list(quota.roles),
        quota.submitted,
        UserLimitsSpec(*structs.astuple(quota.each_user)) if quota.each_user.is_set else None,
        {name: UserLimitsSpec(*structs.astuple(limits)) for name, limits in quota.by_user.items()},
        None if approval is None else ApprovalSpec(list(approval.by), approval.within_s),
        quota.order,
    )


def _limits(spec: UserLimitsSpec, field: str) -> UserLimits:
    counts = (("running", spec.running), ("gpus", spec.gpus), ("submitted", spec.submitted))
    for name, limit in counts:
        if limit is not None:
            check_number(f"{field}{name}", limit, 0, COUNT_MAX)
    cores = None if spec.cores is None else read_cores(f"{field}cores", spec.cores, COUNT_MAX)
    memory_bytes = None if spec.memory is None else read_memory(f"{field}memory", spec.memory)
    return UserLimits(spec.running, cores, memory_bytes, spec.gpus, spec.submitted)


def _approval(spec: ApprovalSpec, field: str) -> Approval:
    within_s = None if spec.within is None else read_duration(f"{field}within", spec.within)
    return Approval(_check_names(f"{field}by", spec.by), within_s)


def _roles(field: str, roles: list[str]) -> tuple[str, ...]:
    known = ROLES[1:]  # a viewer submits nothing
    for role in roles:
        if role not in known:
            detail = f"{field}: {shown(role)} is not a role that submits: {', '.join(known)}"
            raise BadRequest(detail)
    return tuple(dict.fromkeys(roles))


def _check_names(field: str, names: Iterable[str]) -> tuple[str, ...]:
    found = tuple(dict.fromkeys(names))
    if len(found) > NAMES_MAX:
        raise BadRequest(f"{field}: {len(found)} users are too many, at most {NAMES_MAX}")
    for name in found:
        if not name.strip() or len(name) > USER_NAME_MAX or not name.isprintable():
            raise BadRequest(f"{field}: {shown(name)} is not the name of a user")
    return found
