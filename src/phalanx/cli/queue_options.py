"""The options of `phalanx queue set`, and how they change what was declared before."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from msgspec import structs

from phalanx.api.schema.queues import ApprovalSpec, QuotaSpec, UserLimitsSpec
from phalanx.cli.session import read_cores, read_memory
from phalanx.core.model.dispatch import DispatchMode, Selection
from phalanx.core.model.queues import QueueOrder

NONE = "none"  # takes a limit away
LIMITS = ("running", "cores", "memory", "gpus", "submitted")  # of a user


def count(text: str) -> int | str:
    """A whole number, or `none`."""
    if str(text).lower() == NONE:
        return NONE
    if not str(text).isdecimal() or len(str(text)) > 18:
        raise typer.BadParameter(f"{str(text)!r} is not a whole number (0 or more), nor none")
    return int(text)


def _cores(text: str) -> float | str:
    return NONE if str(text).lower() == NONE else read_cores(text)


def _memory(text: str) -> str:
    return NONE if str(text).lower() == NONE else read_memory(text)


def _limit(text: str, parser: Any = count, metavar: str = "N") -> Any:
    return typer.Option(parser=parser, metavar=metavar, help=text, show_default=False)


def _text(metavar: str, text: str) -> Any:
    return typer.Option(metavar=metavar, help=text, show_default=False)


TasksOption = Annotated[Any, _limit("Maximum number of tasks that hold a place.")]
CoresOption = Annotated[Any, _limit("Maximum number of cores, such as 64 or 7.5.", _cores, "CORES")]
MemoryOption = Annotated[Any, _limit("Maximum memory, such as 2TiB.", _memory, "SIZE")]
GpusOption = Annotated[Any, _limit("Maximum number of GPUs.")]
SubmittedOption = Annotated[Any, _limit("Maximum number of tasks of unfinished jobs; more are rejected.")]
PriorityOption = Annotated[
    int | None,
    typer.Option(help="Maximum priority of its jobs.", show_default="1000 for users, 1000000 for operators"),
]
UsersOption = Annotated[
    str | None, _text("A,B", "Who may submit to it, beside operators and admins; none: everybody.")
]
RolesOption = Annotated[str | None, _text("A,B", "Roles that may submit to it, such as operator.")]
UserRunningOption = Annotated[Any, _limit("For each user: tasks that hold a place.")]
UserCoresOption = Annotated[Any, _limit("For each user: cores.", _cores, "CORES")]
UserMemoryOption = Annotated[Any, _limit("For each user: memory.", _memory, "SIZE")]
UserGpusOption = Annotated[Any, _limit("For each user: GPUs.")]
UserSubmittedOption = Annotated[Any, _limit("For each user: tasks of unfinished jobs.")]
ForUserOption = Annotated[
    list[str] | None,
    _text("USER:LIMITS", "Other limits for one user: bob:gpus=16,running=4 or bob:none. Repeatable."),
]
ApprovalOption = Annotated[
    bool | None,
    typer.Option(
        "--approval/--no-approval", help="Jobs of users wait until they are approved.", show_default=False
    ),
]
ApproversOption = Annotated[str | None, _text("A,B", "Who may approve, beside operators and admins.")]
WithinOption = Annotated[str | None, _text("TIME", "Cancel what is not approved by then, such as 24h.")]
ModeOption = Annotated[
    DispatchMode | None,
    typer.Option(help="How its jobs are given their nodes.", show_default="the cluster's, for workflows"),
]
SelectionOption = Annotated[
    Selection | None,
    typer.Option(help="Which node the adaptive mode prefers.", show_default="the cluster's"),
]
OrderOption = Annotated[
    QueueOrder | None,
    typer.Option(
        help="Which of the jobs with one priority goes first: the one that came first, or, with fair, the one whose "
        "user holds the smallest part of the cluster.",
        show_default="arrival",
    ),
]


def said(options: dict[str, Any]) -> dict[str, Any]:
    """What was said, with `none` as no limit."""
    return {key: None if value == NONE else value for key, value in options.items() if value is not None}


def names(text: str) -> list[str]:
    """Names between commas; `none` for no names."""
    return [] if text == NONE else [name.strip() for name in text.split(",") if name.strip()]


def each_user(old: UserLimitsSpec | None, given: dict[str, Any]) -> UserLimitsSpec | None:
    """The limits of every user, with those that were said."""
    new = structs.replace(old or UserLimitsSpec(), **said(given))
    return None if new == UserLimitsSpec() else new


def by_user(old: QuotaSpec, given: list[str]) -> dict[str, UserLimitsSpec]:
    """The limits of single users, with those that were said."""
    found = dict(old.by_user)
    for text in given:
        user, _, terms = text.rpartition(":")
        if not user:
            raise typer.BadParameter(
                f"--for-user: {text!r} is not USER:LIMITS, such as bob:gpus=16,running=4"
            )
        if terms == NONE:
            found.pop(user, None)
        else:
            found[user] = structs.replace(found.get(user, UserLimitsSpec()), **said(_limits(terms)))
    return found


def _limits(terms: str) -> dict[str, Any]:
    """`gpus=16,running=4`."""
    limits: dict[str, Any] = {}
    for term in terms.split(","):
        key, _, value = term.partition("=")
        if key not in LIMITS:
            raise typer.BadParameter(f"--for-user: {term!r} is not one of {', '.join(LIMITS)}, each with =N")
        read: Any = {"cores": _cores, "memory": _memory}.get(key, count)
        limits[key] = read(value)
    return limits


def approval(
    old: ApprovalSpec | None, wanted: bool | None, by: str | None, within: str | None
) -> ApprovalSpec | None:
    """Whether jobs wait for an approval, and whose."""
    is_said = by is not None or within is not None
    if wanted is False and is_said:
        raise typer.BadParameter("--no-approval takes neither --approvers nor --approval-within")
    if wanted is False or (wanted is None and old is None and not is_said):
        return None
    new = old or ApprovalSpec()
    if by is not None:
        new = structs.replace(new, by=names(by))
    if within is not None:
        new = structs.replace(new, within=None if within == NONE else within)
    return new
