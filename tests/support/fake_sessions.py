"""Fake of the coordinator's sessions: a ticket for everything, and the runner's end as the test gives it."""

from __future__ import annotations

from phalanx.api.schema.sessions import ExecRequest, ForwardRequest, InputRequest, SessionTicket
from phalanx.duplex import Duplex
from phalanx.errors import Forbidden

TICKET = "a-good-ticket"


class FakeSessions:
    """Implements the part of `Commands` about sessions."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[str, ExecRequest | ForwardRequest | InputRequest, str]] = []
        self.runner_end: Duplex | None = None  # of the next session

    async def open_exec(self, id: str, request: ExecRequest, user: str) -> SessionTicket:
        request.check()
        self.asked.append((id, request, user))
        return _ticket(id)

    async def open_forward(self, id: str, request: ForwardRequest, user: str) -> SessionTicket:
        self.asked.append((id, request, user))
        return _ticket(id)

    async def open_input(self, id: str, request: InputRequest, user: str) -> SessionTicket:
        self.asked.append((id, request, user))
        return _ticket(id)

    async def join_session(self, id: str, ticket: str, user: str) -> Duplex:
        if ticket != TICKET or self.runner_end is None:
            raise Forbidden("this ticket is not accepted", reason="TicketRefused")
        return self.runner_end


def _ticket(task: str) -> SessionTicket:
    return SessionTicket(session="s1", ticket=TICKET, expires_in_s=30.0, task=task, attempt=1, node="n1")
