"""Who may do what: one table from roles to permissions. What does not stand in it is refused.

Each route names one permission. A role holds it for everything, or only for what is its own: jobs by the name of
their user, and for a task's token the one job it was made for. docs/operations/tokens.md shows this very table.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from phalanx.core.model.credential import power
from phalanx.errors import Forbidden

Permission = Literal[
    "open", "read", "follow", "inspect", "submit", "control", "operate", "declare", "grant", "audit"
]
Bearer = Literal["viewer", "user", "operator", "admin", "node", "join", "task"]
Scope = Literal["all", "own"]

# What each permission allows, said for people.
MEANINGS: dict[Permission, str] = {
    "open": "ask whether it lives, is ready, and leads; no token is needed",
    "read": "see the names and states of all jobs, nodes and queues, and why they are so; plan",
    "follow": "see one job: its state, its tasks, its story",
    "inspect": "read what a job's tasks wrote, and the values of its environment",
    "submit": "submit jobs, under one's own name",
    "control": "cancel, evict, pause and resume jobs",
    "operate": "drain nodes and take them back",
    "declare": "set quotas and the layers of the network",
    "grant": "create, list, rotate and revoke tokens (own: for one's own name, of no more power)",
    "audit": "read who did what",
}

GRANTS: dict[Bearer, dict[Permission, Scope]] = {
    "viewer": {"read": "all", "follow": "all", "inspect": "own"},
    "user": {
        "read": "all",
        "follow": "all",
        "inspect": "own",
        "submit": "all",
        "control": "own",
        "grant": "own",
    },
    "operator": {
        "read": "all",
        "follow": "all",
        "inspect": "all",
        "submit": "all",
        "control": "all",
        "operate": "all",
        "grant": "own",
    },
    "admin": {
        "read": "all",
        "follow": "all",
        "inspect": "all",
        "submit": "all",
        "control": "all",
        "operate": "all",
        "declare": "all",
        "grant": "all",
        "audit": "all",
    },
    "task": {"follow": "own", "inspect": "own"},
    "node": {},  # for the link port alone, and there for its own name
    "join": {},  # for one hello of one runner
}

# The highest priority that each may give a job, in a queue that does not say otherwise.
PRIORITY_OF_USERS = 1_000
PRIORITY_OF_OPERATORS = 1_000_000

_ELSEWHERE: dict[Bearer, str] = {
    "node": "a node's credential is for runners, at the link port",
    "join": "a join token is for the first hello of a runner, at the link port",
    "task": "a task's token is for reading its own job while that lives",
}


class Identity(Struct, frozen=True):
    """Who shows a token. The token itself is known by its fingerprint."""

    name: str
    role: Bearer
    fingerprint: str
    job: str = ""  # of a task's token: its job
    expires_at: float | None = None
    is_record: bool = False  # it was created, so that it can be listed and revoked

    def scope(self, permission: Permission) -> Scope | None:
        """How far a permission reaches; None: it is not held."""
        return GRANTS[self.role].get(permission)

    def owns(self, job: str, user: str) -> bool:
        """Whether a job is one's own."""
        return job == self.job if self.role == "task" else user == self.name

    def may(self, permission: Permission, job: str, user: str) -> bool:
        """Whether a permission is held for a job of a user."""
        scope = self.scope(permission)
        return scope == "all" or (scope == "own" and self.owns(job, user))

    @property
    def priority_max(self) -> int:
        """The highest priority of this one's jobs, in a queue that does not say otherwise."""
        return PRIORITY_OF_OPERATORS if self.role in {"operator", "admin"} else PRIORITY_OF_USERS

    @property
    def power(self) -> int:
        return power(self.role)


NOBODY = Identity("", "join", "")


def forbidden(identity: Identity, permission: Permission, what: str = "") -> Forbidden:
    """The refusal: who asks, what it would take."""
    whole = [role for role, held in GRANTS.items() if held.get(permission) == "all"]
    own = [role for role, held in GRANTS.items() if held.get(permission) == "own" and role != "task"]
    takes = f"the role {' or '.join(whole)}" + (f", or {' or '.join(own)} for one's own" if own else "")
    if identity.role in _ELSEWHERE:
        detail = f"{_ELSEWHERE[identity.role]}; it does not allow to {what or MEANINGS[permission]}"
    else:
        detail = f"{identity.name} has the role {identity.role}, which does not allow to {what or MEANINGS[permission]}"
    return Forbidden(
        detail,
        reason="RoleForbids",
        hint=f"it takes {takes}",
        extra={"role": identity.role, "permission": permission},
    )
