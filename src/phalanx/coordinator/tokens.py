"""Tokens, created and revoked: requests become inputs, and records become what REST shows.

Who may ask for what was checked before, in `api/server/routes/tokens.py`. A token is made here by chance and told once.
"""

from __future__ import annotations

import secrets

from phalanx.api.schema.cluster import NewToken, TokenRequest, TokenView
from phalanx.api.server.auth import Identity, digest, fingerprint
from phalanx.api.server.limits import TimeSlices
from phalanx.clock import Clock
from phalanx.coordinator.refusals import accepted
from phalanx.coordinator.requests import Requests
from phalanx.core.cluster.inputs import CreateCredential, RevokeCredential, RotateCredential
from phalanx.core.model.credential import Credential
from phalanx.errors import Forbidden, NotFound

PREFIXES = {"user": "phx_", "join": "phx_join_"}


class TokenCommands:
    """What REST may ask about tokens."""

    def __init__(self, loop: Requests, clock: Clock, slices: TimeSlices) -> None:
        self._loop = loop
        self._clock = clock
        self._slices = slices

    async def tokens(self, user: str | None = None) -> list[TokenView]:
        await self._slices.turn()  # thousands take milliseconds
        now = self._clock.now()
        known = self._loop.state.keyring.by_id.values()
        found = [each for each in known if user is None or (each.kind == "user" and each.name == user)]
        return [_view(each, now) for each in sorted(found, key=lambda each: each.created_at, reverse=True)]

    async def token(self, id: str) -> TokenView | None:
        known = self._loop.state.keyring.by_id.get(id)
        return None if known is None else _view(known, self._clock.now())

    async def create_token(self, request: TokenRequest, span_s: float | None, by: Identity) -> NewToken:
        self._loop.require_active()
        token, made = self._made(request, span_s, by)
        accepted(await self._loop.ask([CreateCredential(made, f"user {by.name}")]), "token")
        return NewToken(token, _view(made, self._clock.now()))

    async def revoke_token(self, id: str, by: Identity) -> TokenView:
        accepted(await self._loop.ask([RevokeCredential(id, f"user {by.name}")]), f"token {id}")
        return _view(self._known(id), self._clock.now())

    async def rotate_token(self, id: str, overlap_s: float, by: Identity) -> NewToken:
        self._loop.require_active()
        known, now = self._known(id), self._clock.now()
        span_s = None if known.expires_at is None else known.expires_at - known.created_at
        if by.scope("grant") != "all" and known.expires_at is not None:  # nobody lengthens their own time
            span_s = known.expires_at - now
        request = TokenRequest("user", known.name, known.role)  # type: ignore[arg-type]  # a user's has a role
        token, made = self._made(request, span_s, by)
        options = RotateCredential(id, made, now + overlap_s, f"user {by.name}")
        accepted(await self._loop.ask([options]), f"token {id}")
        return NewToken(token, _view(made, now))

    def _made(self, request: TokenRequest, span_s: float | None, by: Identity) -> tuple[str, Credential]:
        token, now = PREFIXES[request.kind] + secrets.token_urlsafe(32), self._clock.now()
        return token, Credential(
            fingerprint(token),
            request.kind,
            digest(token),
            now,
            request.name or request.node or "",
            request.role or "",
            by.name,
            by.fingerprint if by.is_record else "",
            self._end(request, span_s, by, now),
        )

    def _end(self, request: TokenRequest, span_s: float | None, by: Identity, now: float) -> float | None:
        """When it expires. A token created by anyone but an admin does not outlive the token used to create it."""
        ends_at = None if span_s is None else now + span_s
        if by.expires_at is None or by.scope("grant") == "all":
            return ends_at
        if request.expires is not None and (ends_at is None or ends_at > by.expires_at):
            raise Forbidden(
                "a token cannot outlive the one it is made with",
                reason="RoleForbids",
                hint=f"give less than {int(by.expires_at - now)} seconds, or ask an admin",
            )
        return by.expires_at if ends_at is None else min(ends_at, by.expires_at)

    def _known(self, id: str) -> Credential:
        known = self._loop.state.keyring.by_id.get(id)
        if known is None:
            raise NotFound(f"no token {id!r}", reason="TokenNotFound", hint="`phalanx token list` shows them")
        return known


def _view(record: Credential, now: float) -> TokenView:
    return TokenView(
        record.id,
        record.kind,
        record.name,
        record.role,
        record.is_valid(now),
        record.revoked,
        record.created_at,
        record.created_by,
        record.expires_at,
        record.used_at,
        record.node,
    )
