"""`phalanx queue`: who may use each queue, its limits, and the use against them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

import typer
from msgspec import convert, structs, to_builtins

from phalanx.api.schema.queues import (
    QueueUserView,
    QueueView,
    QuotaSpec,
    QuotaView,
    UsageView,
    UserLimitsView,
)
from phalanx.cli import queue_options as o
from phalanx.cli.output import OutputOption, Table, emit, fields, size
from phalanx.cli.session import CliSession, session
from phalanx.core.model.amounts import describe_seconds
from phalanx.core.model.queues import PRIORITY_OF_USERS
from phalanx.settings import Output

NameArgument = Annotated[str, typer.Argument(metavar="NAME", show_default=False)]


def queues(ctx: typer.Context, output: OutputOption = None) -> None:
    """List queues: usage of quota (4/8), limits of users, and number of waiting jobs."""
    here = session(ctx)
    found = here.client().queues()
    chosen = here.output(output)
    has_access, has_limits = (
        any(map(of, (view.quota for view in found))) for of in (_access, _limits_of_users)
    )
    headings = ["NAME", "TASKS", "CORES", "MEMORY", "GPUS", "UNFINISHED", "WAITING"]
    headings += (["USER LIMITS"] if has_limits else []) + (["ACCESS"] if has_access else [])
    table = Table(*headings, narrows={"USER LIMITS": 12, "ACCESS": 10, "NAME": 10})
    for view in found:
        limit = None if view.quota is None else view.quota.submitted
        row = [view.name, *_held(view.used, view.quota), _of(view.submitted, limit), view.waiting]
        row += [_limits_of_users(view.quota)] if has_limits else []
        table.add(*row, *([_access(view.quota) or "all"] if has_access else []))
    emit(found, chosen, [view.name for view in found], lambda _wide: table)


def show(ctx: typer.Context, name: NameArgument, output: OutputOption = None) -> None:
    """Show one queue: its limits, and what it and each of its users hold."""
    here = session(ctx)
    _tell(here.client().queue(name), here.output(output))


def set_quota(  # noqa: PLR0913, PLR0917 - its options
    ctx: typer.Context,
    name: NameArgument,
    tasks: o.TasksOption = None,
    cores: o.CoresOption = None,
    memory: o.MemoryOption = None,
    gpus: o.GpusOption = None,
    submitted: o.SubmittedOption = None,
    priority_max: o.PriorityOption = None,
    users: o.UsersOption = None,
    roles: o.RolesOption = None,
    user_running: o.UserRunningOption = None,
    user_cores: o.UserCoresOption = None,
    user_memory: o.UserMemoryOption = None,
    user_gpus: o.UserGpusOption = None,
    user_submitted: o.UserSubmittedOption = None,
    for_user: o.ForUserOption = None,
    approval: o.ApprovalOption = None,
    approvers: o.ApproversOption = None,
    approval_within: o.WithinOption = None,
    dispatch_mode: o.ModeOption = None,
    selection: o.SelectionOption = None,
    order: o.OrderOption = None,
    output: OutputOption = None,
) -> None:
    """Create a queue or change it. What is left out stays as it is; `none` takes a limit away.

    Running tasks beyond a limit continue; nothing more is started until usage is below it.
    """
    here = session(ctx)
    old = _declared(here, name)
    given = {
        "tasks": tasks,
        "cores": cores,
        "memory": memory,
        "gpus": gpus,
        "submitted": submitted,
        "priority_max": priority_max,
        "dispatch_mode": dispatch_mode,
        "selection": selection,
        "order": order,
        "users": None if users is None else o.names(users),
        "roles": None if roles is None else o.names(roles),
    }
    each = (user_running, user_cores, user_memory, user_gpus, user_submitted)
    spec = structs.replace(
        old,
        **o.said(given),
        each_user=o.each_user(old.each_user, dict(zip(o.LIMITS, each, strict=True))),
        by_user=o.by_user(old, for_user or []),
        approval=o.approval(old.approval, approval, approvers, approval_within),
    )
    _tell(here.client().set_quota(name, spec), here.output(output))


def unset_quota(ctx: typer.Context, name: NameArgument, output: OutputOption = None) -> None:
    """Remove a queue and its quota: new submits to it are rejected. Jobs waiting in it stay."""
    here = session(ctx)
    view = here.client().set_quota(name, None)
    emit(view, here.output(output), [view.name], lambda _wide: [f"{view.name} removed"])


def _declared(here: CliSession, name: str) -> QuotaSpec:
    """The queue as it is, to be changed; a new one has no limits."""
    found = next((view.quota for view in here.client().queues() if view.name == name), None)
    if found is None:
        return QuotaSpec()
    told = to_builtins(found)
    for limits in (told, told["each_user"] or {}, *told["by_user"].values()):
        if limits:
            limits["memory"] = limits.pop("memory_bytes")
    if told["approval"]:
        told["approval"]["within"] = told["approval"].pop("within_s")
    return convert(told, QuotaSpec)


def _tell(view: QueueView, output: Output) -> None:
    emit(view, output, [view.name], lambda _wide: [*fields(_facts(view)), *_users(view)])


def _facts(view: QueueView) -> list[tuple[str, object]]:
    quota = view.quota
    highest = None if quota is None else quota.priority_max
    names = ("Tasks", "Cores", "Memory", "GPUs")
    pairs: list[tuple[str, object]] = [*zip(names, _held(view.used, quota), strict=True)]
    pairs.append(("Unfinished tasks", _of(view.submitted, None if quota is None else quota.submitted)))
    at_most = f"{PRIORITY_OF_USERS} for users; queue set --priority-max changes it"
    pairs.append(("Priority at most", at_most if highest is None else highest))
    if quota is not None:
        pairs += [
            ("Dispatch mode", quota.dispatch_mode),
            ("Selection", quota.selection),
            ("Order", "fair" if quota.order == "fair" else None),
            ("Users", ", ".join(quota.users)),
            ("Roles", ", ".join(quota.roles)),
            ("Each user", "" if quota.each_user is None else _limits_text(quota.each_user)),
            ("Approval", _approval_text(quota)),
        ]
    waiting: list[tuple[str, object]] = [("Waiting", view.waiting)]
    if view.unapproved or (quota is not None and quota.approval is not None):
        waiting.append(("Waiting for approval", view.unapproved))
    return [("Queue", view.name), *pairs, *waiting]


def _approval_text(quota: QuotaView) -> str:
    if quota.approval is None:
        return ""
    by, within_s = quota.approval.by, quota.approval.within_s
    within = "" if within_s is None else f", within {describe_seconds(within_s)}"
    return f"by {', '.join([*by, 'operators and admins'])}{within}"


def _users(view: QueueView) -> Iterable[str]:
    """What each user holds of what he may, as a table under the rest."""
    if not view.users:
        return
    table = Table("USER", "TASKS", "CORES", "MEMORY", "GPUS", "UNFINISHED", narrows={"USER": 10, "MEMORY": 8})
    for user in view.users:
        table.add(*_user_row(user))
    yield from ("", *table.lines())


def _user_row(user: QueueUserView) -> list[str]:
    limits = user.limits or UserLimitsView()
    return [user.name, *_held(user.used, limits), _of(user.submitted, limits.submitted)]


def _limits_text(limits: UserLimitsView) -> str:
    terms = {
        "running": limits.running,
        "cores": limits.cores,
        "memory": None if limits.memory_bytes is None else size(limits.memory_bytes),
        "gpus": limits.gpus,
        "submitted": limits.submitted,
    }
    return ", ".join(f"{value} {name}" for name, value in terms.items() if value is not None)


def _limits_of_users(quota: QuotaView | None) -> str:
    """What each user may hold, and users for whom other limits are set."""
    if quota is None:
        return ""
    each = "" if quota.each_user is None else f"each {_limits_text(quota.each_user)}"
    return "; ".join(
        filter(None, (each, *(f"{user} {_limits_text(limits)}" for user, limits in quota.by_user.items())))
    )


def _access(quota: QuotaView | None) -> str:
    """Who may use a queue; nothing if everybody may at once."""
    if quota is None:
        return ""
    words = [*quota.users, *(f"role {role}" for role in quota.roles)]
    return ", ".join([*words, *(["approval"] if quota.approval is not None else [])])


def _held(used: UsageView, quota: QuotaView | UserLimitsView | None) -> list[str]:
    """`12/64` where there is a limit, `12` where there is none."""
    quota = quota or UserLimitsView()
    tasks = quota.running if isinstance(quota, UserLimitsView) else quota.tasks
    memory = size(used.memory_bytes) if used.memory_bytes else "0"
    if quota.memory_bytes is not None:
        memory = f"{memory}/{size(quota.memory_bytes)}"
    return [
        _of(used.tasks, tasks),
        _of(used.cores, quota.cores),
        memory,
        _of(used.gpus, quota.gpus),
    ]


def _of(held: float, limit: float | None) -> str:
    return str(held) if limit is None else f"{held}/{limit}"
