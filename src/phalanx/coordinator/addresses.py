"""Addresses of the overlay network, asked for over REST: reservations become inputs, and the state becomes views.

Who may ask for what was checked before, in `api/server/routes/overlay.py`. A token is made by chance and told once.
"""

from __future__ import annotations

import secrets

from phalanx.api.schema.overlay import (
    TOKEN,
    AddressesView,
    NewReservation,
    ReservationView,
    ReserveRequest,
)
from phalanx.api.server.auth import digest, fingerprint
from phalanx.clock import Clock
from phalanx.coordinator.refusals import accepted
from phalanx.coordinator.requests import Requests
from phalanx.core.cluster.decide.overlay import OFF
from phalanx.core.cluster.inputs import ReleaseReservation, ReserveAddress
from phalanx.core.cluster.nodes import NodeState
from phalanx.core.cluster.overlay import ReservedAddress
from phalanx.core.cluster.state import ClusterState
from phalanx.core.model.overlay import gateway
from phalanx.errors import BadRequest, NotFound


class AddressCommands:
    """What REST may ask about addresses."""

    def __init__(self, loop: Requests, clock: Clock) -> None:
        self._loop = loop
        self._clock = clock

    async def reserve_address(self, node: str, request: ReserveRequest, user: str) -> NewReservation:
        self._loop.require_active()
        token, now = TOKEN + secrets.token_urlsafe(24), self._clock.now()
        made = ReservedAddress(
            fingerprint(token), digest(token), node, request.ip or "", user, now, now + request.ttl
        )
        accepted(await self._loop.ask([ReserveAddress(made)]), node)
        kept = self._loop.state.overlay.by_id[made.id]
        return NewReservation(token, kept.address, request.ttl, _view(kept))

    async def reservations(self) -> list[ReservationView]:
        self._require_on()
        now = self._clock.now()
        found = self._loop.state.overlay.by_id.values()
        return [_view(each) for each in found if each.job or each.is_open(now)]

    async def release_reservation(self, id: str, user: str, is_operator: bool) -> ReservationView:
        self._require_on()
        known = self._loop.state.overlay.by_id.get(id)
        asked = ReleaseReservation(id, user, is_operator)
        accepted(await self._loop.ask([asked]), "reservation")
        assert known is not None  # it was there, or it could not have been released
        return _view(known)

    async def addresses(self, limit: int) -> list[AddressesView]:
        self._require_on()
        state = self._loop.state
        found = (_addresses(state, node, limit) for node in state.nodes.values())
        return [each for each in found if each is not None]

    async def node_addresses(self, name: str, limit: int) -> AddressesView:
        self._require_on()
        state = self._loop.state
        node = state.nodes.get(name)
        found = None if node is None else _addresses(state, node, limit)
        if found is None:
            what = f"no node {name!r}" if node is None else f"{name} has no addresses of the overlay network"
            hint = "" if node is None else _why_none(state, node)
            raise NotFound(what, reason="NoAddresses", hint=hint)
        return found

    def _require_on(self) -> None:
        if not self._loop.state.rules.overlay.is_on:
            raise BadRequest(OFF.text, reason=OFF.code)


def _why_none(state: ClusterState, node: NodeState) -> str:
    if state.rules.overlay.encrypted and not node.capacity.wireguard:
        return f"overlay.encryption is wireguard, and {node.capacity.no_wireguard or 'its runner cannot do that'}"
    return "its runner says in its log why it cannot take part"


def _view(made: ReservedAddress) -> ReservationView:
    return ReservationView(
        made.id,
        made.node,
        made.address,
        made.user,
        made.created_at,
        None if made.job else made.expires_at,
        made.job,
    )


def _addresses(state: ClusterState, node: NodeState, limit: int) -> AddressesView | None:
    block = state.table.ledgers[node.row].addresses
    if block is None:
        return None
    return AddressesView(
        node.name,
        block.block,
        gateway(block.block),
        node.capacity.addresses,
        block.free,
        len(block.held | block.promised),
        len(block.reserved - block.held),
        len(block.resting),
        list(block.listed(limit)),
    )
