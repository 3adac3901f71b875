"""What a token is worth at the link port, and whom to ask."""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct

from phalanx.api.server.auth import Identity
from phalanx.coordinator.environment_keys import EnvironmentKeys
from phalanx.core.model.credential import Credential

STRANGER = "the token is not one of this cluster's"
NOT_OF_RUNNERS = "a user's token cannot speak for a node: `phalanx token create --join` makes one that can"


class LinkAccess(Struct, frozen=True):
    """The answer for one token and one node."""

    refusal: str = ""  # why not; empty: it may enter
    join: str = ""  # the join token that has to be redeemed first, by its id
    credential: Credential | None = None  # the record of what the node gets for it
    token: str = ""  # and that itself


class LinkAuthenticator(Protocol):
    """Who knows which tokens may speak for which node."""

    def accepts_node(
        self, token: str, node: str, origin: str = "", peer_name: str | None = None
    ) -> LinkAccess: ...

    def identity_by(self, shown: str) -> Identity | None:
        """The identity of the user's token with this fingerprint, while it is accepted."""
        ...

    def task_token(self, job: str) -> str: ...

    def vps_seed(self, job: str) -> bytes:
        """What the host key of a VPS follows from."""
        ...

    @property
    def environments(self) -> EnvironmentKeys:
        """What seals the environments of jobs, and opens them."""
        ...

    def refused(self, node: str, entry: LinkAccess, where: str) -> None: ...

    def joined(self, node: str, entry: LinkAccess, where: str) -> None: ...


class SharedToken:
    """One token for every node, or none at all: for the simulator, and for tests that are about something else."""

    def __init__(self, token: str | None = None) -> None:
        self._token = token
        self.environments = EnvironmentKeys(("simulated",))

    def accepts_node(
        self, token: str, node: str, origin: str = "", peer_name: str | None = None
    ) -> LinkAccess:
        return LinkAccess("" if self._token in (None, token) else STRANGER)

    def identity_by(self, shown: str) -> Identity | None:
        return None  # it has no users

    def task_token(self, job: str) -> str:
        return ""

    def vps_seed(self, job: str) -> bytes:
        return job.encode().ljust(32, b"\0")[:32]

    def refused(self, node: str, entry: LinkAccess, where: str) -> None:
        """Nobody reads it."""

    def joined(self, node: str, entry: LinkAccess, where: str) -> None:
        """Nor that."""
