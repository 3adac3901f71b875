"""The words about tokens: what is asked for, what is listed, and the one answer that holds a token."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from phalanx.core.model.credential import Kind, Role
from phalanx.core.model.quantity import parse_seconds
from phalanx.errors import BadRequest, Unprocessable

USER_S, JOIN_S, OVERLAP_S = 30 * 86_400.0, 3600.0, 3600.0  # what is taken if nothing is said
JOIN_S_MAX, OVERLAP_S_MAX = 7 * 86_400.0, 30 * 86_400.0


class TokenRequest(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A user's token (`name`, `role`), or with `kind` join one that lets a runner in, once (`node`: only this one)."""

    kind: Literal["user", "join"] = "user"
    name: str | None = None  # whose jobs are one's own; None: that of who asks
    role: Role | None = None
    expires: float | str | None = None  # seconds, or "30d", or "never"
    node: str | None = None


class RotateRequest(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """How long the old token stays good beside the new one."""

    overlap: float | str | None = None  # seconds, or "1h"; 0: not at all


class TokenView(Struct):
    """One token that was created, without the token. Its id is the fingerprint that logs and the audit show."""

    id: str
    kind: Kind
    name: str
    role: str
    is_valid: bool
    is_revoked: bool
    created_at: float
    created_by: str
    expires_at: float | None
    used_at: float | None  # to about ten minutes
    node: str = ""  # of a join token: the node that redeemed it


class NewToken(Struct):
    """The only answer that ever holds this token: keep it."""

    token: str
    record: TokenView


def seconds_of(field: str, given: float | str | None, default_s: float, most_s: float | None) -> float | None:
    """A duration out of a request; None is never, where that is allowed (`most_s` None)."""
    if given is None:
        return default_s
    if given == "never":
        if most_s is not None:
            raise BadRequest(f"{field}: 'never' is not possible here, give at most {most_s:.0f} seconds")
        return None
    try:
        found = 0.0 if given in (0, "0") else parse_seconds(str(given))
    except ValueError as error:
        raise BadRequest(f"{field}: {error}") from None
    if most_s is not None and found > most_s:
        raise Unprocessable(f"{field}: {given} is too long, give at most {most_s:.0f} seconds")
    return found
