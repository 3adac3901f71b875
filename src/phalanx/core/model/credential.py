"""Credentials that were created: who may show them, for what, and until when.

A record holds the SHA-256 digest of a token and never the token. Its id is the digest's beginning, the same
fingerprint that logs show. Tokens out of settings and files are no records; the shell adds them to these.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct, structs

Role = Literal["viewer", "user", "operator", "admin"]
Kind = Literal["user", "node", "join"]

ROLES: tuple[Role, ...] = ("viewer", "user", "operator", "admin")  # each may do all that the one before may
FINGERPRINT_CHARACTERS = 16
CREDENTIALS_MAX = 10_000
USER_CREDENTIALS_MAX = 500  # that one user made for their own name, so that others find room


def power(role: str) -> int:
    """How much a role may do, against others; 0 for what is no role of a user."""
    return ROLES.index(role) + 1 if role in ROLES else 0


class Credential(Struct, frozen=True, omit_defaults=True):
    """One created token. `name` is whom it stands for: a user, or the node that may show it ("" in a join: any)."""

    id: str
    kind: Kind
    digest: bytes
    created_at: float
    name: str = ""
    role: str = ""  # of a user's
    created_by: str = ""  # a name, for people
    parent: str = ""  # the credential that was shown when this one was made
    expires_at: float | None = None
    revoked: bool = False
    used_at: float | None = None  # coarse: see `core/cluster/decide/declared.py`
    origin: str = ""  # of a join: the runner that has redeemed it
    node: str = ""  # of a join: the node that this runner answers for

    def is_valid(self, now: float) -> bool:
        return not self.revoked and (self.expires_at is None or now < self.expires_at)


class Keyring:
    """Every record, by id and by digest. `secret` is the fingerprint of the cluster's own secret."""

    def __init__(self) -> None:
        self.by_id: dict[str, Credential] = {}
        self.by_digest: dict[bytes, Credential] = {}
        self.secret = ""

    def put(self, credential: Credential) -> None:
        """Add a record, or take its newer version."""
        self.by_id[credential.id] = credential
        self.by_digest[credential.digest] = credential

    def remove(self, id: str) -> None:
        """Forget a record. Those that were made with it count as made with its parent, and fall with that one."""
        credential = self.by_id.pop(id)
        self.by_digest.pop(credential.digest, None)
        for child in [each for each in self.by_id.values() if each.parent == id]:
            self.put(structs.replace(child, parent=credential.parent))

    def own_of(self, name: str) -> list[Credential]:
        """What a user made for their own name."""
        return [
            each
            for each in self.by_id.values()
            if each.kind == "user" and each.name == each.created_by == name
        ]

    def of_node(self, name: str, now: float) -> list[Credential]:
        """The valid credentials of one node."""
        found = (each for each in self.by_id.values() if each.kind == "node" and each.name == name)
        return [each for each in found if each.is_valid(now)]
