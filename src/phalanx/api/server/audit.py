"""The audit as REST sees it: one line for every change and every refusal. Others keep the lines.

A line tells who, from where, what, and how it went. It never holds a token or the body of a request.
"""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct

LINES_MAX = 10_000


class AuditLine(Struct, omit_defaults=True):
    """One thing that was done or refused. `status` is that of HTTP; `left_out`: refusals not written before it."""

    at: float = 0.0
    name: str = ""  # empty: nobody we know
    role: str = ""
    fingerprint: str = ""  # of the token that was shown
    where: str = ""  # the address it came from
    method: str = ""
    route: str = ""
    id: str = ""  # the job, node, queue or token it was about
    status: int = 0
    reason: str = ""
    request_id: str = ""
    left_out: int = 0


class Audit(Protocol):
    """Takes lines, and gives the newest back."""

    def note(self, line: AuditLine) -> None: ...

    def tail(self, count: int) -> list[AuditLine]: ...


class NoAudit:
    """For a cluster inside one process, which has one user."""

    def note(self, line: AuditLine) -> None:
        """Nobody else was there."""

    def tail(self, count: int) -> list[AuditLine]:
        return []


NO_AUDIT = NoAudit()
