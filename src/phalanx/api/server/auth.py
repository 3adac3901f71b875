"""Who may enter, and who may do what: Host and Origin, bearer tokens, and one table from roles to permissions.

Each route names one permission in its row of the route table. A role holds it for everything, or only for what is its
own: jobs by the name of their user, and for a task's token the one job it was made for. What does not stand in the
table is refused; docs/operations/tokens.md shows this very table. Which tokens are accepted is decided elsewhere
(`Accepts`); a token is known here only by its digest.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Literal, Protocol
from urllib.parse import urlsplit

from msgspec import Struct

from phalanx.core.explain.change import Asker
from phalanx.core.model.credential import FINGERPRINT_CHARACTERS, power
from phalanx.errors import Forbidden, Unauthorized

Permission = Literal[
    "open",
    "read",
    "follow",
    "inspect",
    "submit",
    "approve",
    "control",
    "enter",
    "operate",
    "declare",
    "grant",
    "audit",
    "serve",
    "browse",
]
Bearer = Literal["viewer", "user", "operator", "admin", "node", "join", "task"]
Scope = Literal["all", "own"]

# What each permission allows, said for people.
MEANINGS: dict[Permission, str] = {
    "open": "ask whether it lives, is ready, and leads; no token is needed",
    "read": "see the names and states of all jobs, nodes and queues, and why they are so; plan",
    "follow": "see one job: its state, its tasks, its story",
    "inspect": "read what a job's tasks wrote, or the values of its environment",
    "submit": "submit jobs (under one's own name)",
    "approve": "approve or deny jobs (where the queue allows it)",
    "control": "cancel, evict, pause, resume, hold, release, retry, resubmit or change jobs",
    "enter": "run commands beside a job's running tasks, or connect to their ports",
    "operate": "drain or resume nodes",
    "declare": "set quotas or network layers",
    "grant": "create, list, rotate or revoke tokens (own: for one's own name, of no more power)",
    "audit": "read the audit log",
    "serve": "carry out the calls of an executor, as a worker of its job",
    "browse": "log in to the dashboard, or log out",
}

GRANTS: dict[Bearer, dict[Permission, Scope]] = {
    "viewer": {"read": "all", "follow": "all", "inspect": "own", "browse": "all"},
    "user": {
        "read": "all",
        "follow": "all",
        "inspect": "own",
        "submit": "all",
        "approve": "all",
        "control": "own",
        "enter": "own",
        "grant": "own",
        "browse": "all",
    },
    "operator": {
        "read": "all",
        "follow": "all",
        "inspect": "all",
        "submit": "all",
        "approve": "all",
        "control": "all",
        "enter": "all",
        "operate": "all",
        "grant": "own",
        "browse": "all",
    },
    "admin": {
        "read": "all",
        "follow": "all",
        "inspect": "all",
        "submit": "all",
        "approve": "all",
        "control": "all",
        "enter": "all",
        "operate": "all",
        "declare": "all",
        "grant": "all",
        "audit": "all",
        "browse": "all",
    },
    "task": {"follow": "own", "inspect": "own", "serve": "own"},
    "node": {},  # for the link port alone, and there for its own name
    "join": {},  # for one hello of one runner
}

# What is refused of another user's jobs.
_WITH_JOBS: dict[Permission, str] = {
    "control": "stop or change jobs of",
    "inspect": "read the logs or the environment of jobs of",
    "enter": "run commands in, or connect to ports of, tasks of",
}

_ELSEWHERE: dict[Bearer, str] = {
    "node": "a node's credential is for runners, at the link port",
    "join": "a join token is for the first hello of a runner, at the link port",
    "task": "inside a task `phalanx` has the task's token, which is for its own job alone",
}


NOT_ACCEPTED = "this token is not accepted: it is unknown, expired or revoked"
ASK_FOR_ANOTHER = "ask an admin for another, made with `phalanx token create`"
USE_ONES_OWN = "give your own token with --token-file FILE or PHALANX_TOKEN_FILE"
TOKEN_MAX = 4096  # longer ones are not ours, and are not worth a digest


class Identity(Struct, frozen=True):
    """Who shows a token. The token itself is known by its fingerprint."""

    name: str
    role: Bearer
    fingerprint: str
    job: str = ""  # of a task's token: its job
    expires_at: float | None = None
    is_record: bool = False  # it was created, so that it can be listed and revoked
    login: str = ""  # the id of a browser's login, if it came with its cookie

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
    def is_of_proxy(self) -> bool:
        """Whether a trusted proxy named this one: the login has no token behind it."""
        return bool(self.login) and self.fingerprint == self.login

    @property
    def asker(self) -> Asker:
        """Which fixes are worth telling this one."""
        name = self.name if self.scope("control") else ""
        everything = (self.scope(each) == "all" for each in ("control", "operate", "declare"))
        return Asker(name, *everything)

    @property
    def power(self) -> int:
        return power(self.role)


NOBODY = Identity("", "join", "")


def forbidden(identity: Identity, permission: Permission, what: str = "", *, whose: str = "") -> Forbidden:
    """The refusal: who asks, what it would take; with `whose`, that it is about a job of this user."""
    if whose:
        what = f"{_WITH_JOBS.get(permission, 'see jobs of')} {whose}"
    what = what or MEANINGS[permission].partition(" (")[0].partition(";")[0]
    whole = [role for role, held in GRANTS.items() if held.get(permission) == "all"]
    own = [role for role, held in GRANTS.items() if held.get(permission) == "own" and role != "task"]
    takes = f"the role {' or '.join(whole)}"
    if own:
        noun = "tokens" if permission == "grant" else "jobs"
        takes += f"; the role {' or '.join(own)} allows it only for your own {noun}"
    if identity.role in _ELSEWHERE:
        detail = f"{_ELSEWHERE[identity.role]}; it may not {what}"
    else:
        detail = f"{identity.name} has the role {identity.role}, which may not {what}"
    return Forbidden(
        detail,
        reason="RoleForbids",
        hint=USE_ONES_OWN if identity.role == "task" else f"requires {takes}",
        extra={"role": identity.role, "permission": permission},
    )


class Accepts(Protocol):
    """Who knows the accepted tokens of the moment."""

    def accepts_user(self, token: str) -> Identity | None: ...


class Tokens:
    """A fixed set of accepted tokens, each with its user, all of one role. None accepted means nobody enters."""

    def __init__(self, accepted: Iterable[tuple[str, str]], role: Bearer = "admin") -> None:
        self._role: Bearer = role
        self._digests: list[tuple[bytes, Identity]] = []
        self.replace(accepted)

    def replace(self, accepted: Iterable[tuple[str, str]]) -> None:
        """Take another set of (user, token) from now on; open streams notice it at their next beat."""
        self._digests = [
            (digest(token), Identity(user, self._role, fingerprint(token)))
            for user, token in accepted
            if token
        ]

    def accepts_user(self, token: str) -> Identity | None:
        """Who shows a token, or None. Every accepted token is compared, so time tells nothing."""
        if not token or len(token) > TOKEN_MAX:
            return None
        shown, found = digest(token), None
        for accepted, identity in self._digests:
            if hmac.compare_digest(shown, accepted):
                found = identity
        return found


class Guard:
    """Looks at where a request comes from before any route does."""

    def __init__(self, hosts: Iterable[str] = ()) -> None:
        extra = frozenset(host.lower().strip("[]") for host in hosts if host)
        # A Host header repeats for ever, so each spelling is judged once.
        self._is_ours = lru_cache(maxsize=256)(lambda host: _is_ours(host, extra))

    def check_origin(self, headers: Mapping[bytes, bytes]) -> None:
        """Refuse a Host that is not ours (DNS rebinding) and an Origin that is another site (web pages)."""
        host = headers.get(b"host", b"")
        if not self._is_ours(host):
            raise Forbidden(
                f"the Host {host[:80].decode('latin-1')!r} is not one this coordinator answers to",
                reason="HostNotAllowed",
                hint="use a loopback address, or add the name to the coordinator's allowed hosts",
            )
        origin = headers.get(b"origin")
        if origin is not None and origin.partition(b"://")[2] != host:
            raise Forbidden("requests from the pages of another site are refused", reason="OriginNotAllowed")


def identify(tokens: Accepts, authorization: bytes) -> tuple[Identity, str]:
    """Who shows the token in this header, and the token; or raise Unauthorized."""
    scheme, _, token = authorization.decode("latin-1").partition(" ")
    found = tokens.accepts_user(token.strip()) if scheme.lower() == "bearer" else None
    if found is None:
        if scheme.lower() == "bearer":
            raise Unauthorized(NOT_ACCEPTED, hint=ASK_FOR_ANOTHER)
        raise Unauthorized(
            "a token is needed",
            hint="send the header 'Authorization: Bearer TOKEN'; tokens are not read from anywhere else",
        )
    return found, token.strip()


def check_role(identity: Identity, permission: Permission, *, is_about_a_job: bool) -> None:
    """Refuse what the role does not allow. Whether a job is one's own is asked later, when it is known."""
    scope = identity.scope(permission)
    is_checked_later = is_about_a_job or permission in (
        "grant",
        "enter",
    )  # the ticket of a session names its user
    if scope is None or (scope == "own" and not is_checked_later):
        raise forbidden(identity, permission)


def digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


def fingerprint(token: str) -> str:
    """What may be written of a token."""
    return digest(token).hex()[:FINGERPRINT_CHARACTERS]


def _is_ours(host: bytes, extra: frozenset[str]) -> bool:
    try:
        name = urlsplit(f"//{host.decode('ascii')}").hostname or ""
    except ValueError:
        return False
    if any(each in host for each in b"/@?#\\ "):
        return False
    return name == "localhost" or name in extra or _is_loopback(name)


def _is_loopback(name: str) -> bool:
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
