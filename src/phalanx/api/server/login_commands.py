"""What the REST app may ask about logins of browsers; `commands.py` has the rest."""

from __future__ import annotations

from typing import Protocol

from phalanx.api.schema.logins import LoginRecord
from phalanx.api.server.auth import Identity


class LoginCommands(Protocol):
    """Browsers that log in with a ticket."""

    async def make_login_ticket(self, addresses: list[str], by: Identity) -> tuple[str, float]:
        """A ticket for whoever shows a token, and for how many seconds it is good."""
        ...

    async def open_login(self, ticket: str) -> str:
        """The cookie of a new login. Forbidden if the ticket is not good."""
        ...

    async def vouch_login(self, name: str, role: str) -> str:
        """The same for a user whom a trusted proxy names."""
        ...

    async def end_login(self, id: str, by: Identity) -> LoginRecord: ...

    async def logins(self) -> list[LoginRecord]:
        """Everybody's, newest first. Who may see which is decided before."""
        ...
