"""Problems: our errors as RFC 9457 problem+json, and back again on the other side of the wire.

`type` names the class of the error tree, so that a client raises the very class the coordinator raised;
`reason` is the finer code. Headers and status lines are left to `api/server/messages.py` and to the clients.
"""

from __future__ import annotations

import math
from typing import Any

import msgspec
from msgspec import Struct

from phalanx import errors
from phalanx.api.schema.documents import decoder
from phalanx.errors import PhalanxError, TooMany, Unavailable

MEDIA_TYPE = "application/problem+json"
_URN = "urn:phalanx:problem:"


class FailedTarget(Struct):
    """A target that was not accepted, and why."""

    target: str
    reason: str  # a code, such as TargetNotFound
    detail: str


class Problem(Struct, omit_defaults=True):
    """RFC 9457 problem+json, with our reason code and what to do next."""

    type: str
    title: str
    status: int
    detail: str
    instance: str = ""
    reason: str = ""
    hint: str = ""
    failed_targets: list[FailedTarget] = []


_CLASSES = {
    name: each
    for name, each in vars(errors).items()
    if isinstance(each, type) and issubclass(each, PhalanxError) and each is not PhalanxError
}
_STANDARD = frozenset(Problem.__struct_fields__) - {"failed_targets"}


def spell_problem(error: PhalanxError, instance: str = "") -> bytes:
    """The error as problem+json. Nothing is told but what the error was given to tell."""
    problem = Problem(
        type=_URN + type(error).__name__,
        title=error.title,
        status=error.status,
        detail=error.detail,
        instance=instance,
        reason=error.reason,
        hint=error.hint,
    )
    if not error.extra:
        return msgspec.json.encode(problem)
    extra = {key: value for key, value in error.extra.items() if key not in _STANDARD}
    return msgspec.json.encode(msgspec.to_builtins(problem) | extra)


def read_problem(status: int, body: bytes, retry_after: str | None = None) -> PhalanxError:
    """The error behind an answer of 400 or more; by its type, or by its status if somebody else answered."""
    try:
        problem: Problem = decoder(Problem).decode(body)
        extra = _extra(msgspec.json.decode(body))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        problem, extra = Problem("about:blank", "", status, _foreign(status)), {}
    kind = _CLASSES.get(problem.type.removeprefix(_URN)) or _by_status(status)
    return kind(
        problem.detail,
        reason=problem.reason,
        hint=problem.hint,
        retry_after_s=_seconds(retry_after),
        extra=extra,
    )


def retry_after_s(error: PhalanxError) -> int | None:
    """Whole seconds for Retry-After, which 429 and 503 always carry."""
    if error.retry_after_s is None and error.status not in (TooMany.status, Unavailable.status):
        return None
    return max(1, math.ceil(error.retry_after_s or 1))


def _extra(members: dict[str, Any]) -> dict[str, Any]:
    extra = {key: value for key, value in members.items() if key not in _STANDARD}
    if "failed_targets" in extra:
        extra["failed_targets"] = msgspec.convert(extra["failed_targets"], list[FailedTarget])
    return extra


def _by_status(status: int) -> type[PhalanxError]:
    found = [each for each in _CLASSES.values() if each.status == status and each.__base__ is PhalanxError]
    if found:
        return found[-1]  # of two with one status the later is the plainer: Unavailable, not NoRoom
    return Unavailable if status in (502, 504) else PhalanxError


def _foreign(status: int) -> str:
    return f"the server answered {status} without a problem document; is this address a phalanx coordinator?"


def _seconds(text: str | None) -> float | None:
    return (
        float(text) if text is not None and text.isascii() and text.isdecimal() and len(text) < 10 else None
    )
