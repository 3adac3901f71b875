"""Addresses of the overlay network from Python: the calls as values, and the clients' methods about them."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from phalanx.api.schema.overlay import TOKEN, AddressesView, NewReservation, ReservationView, ReserveRequest
from phalanx.client.calls import Call, get, path_of, query_of
from phalanx.core.model.credential import FINGERPRINT_CHARACTERS


def reserve(node: str, ip: str | None, ttl: int) -> Call[NewReservation]:
    body = msgspec.json.encode(ReserveRequest(ip, ttl))
    return Call(method="POST", path=path_of("nodes", node, "reserve"), answer=NewReservation, body=body)


def release(token: str) -> Call[ReservationView]:
    """A token is not sent: the coordinator knows reservations by their tokens' digests."""
    digest = hashlib.sha256(token.encode()).hexdigest()
    id = digest[:FINGERPRINT_CHARACTERS] if token.startswith(TOKEN) else token
    return Call(method="POST", path=path_of("reservations", id, "release"), answer=ReservationView)


def reservations() -> Call[list[ReservationView]]:
    return get("/v1/reservations", list[ReservationView])


def addresses(limit: int) -> Call[list[AddressesView]]:
    return get("/v1/addresses", list[AddressesView], query_of(limit=limit))


def node_addresses(node: str, limit: int) -> Call[AddressesView]:
    return get(path_of("addresses", node), AddressesView, query_of(limit=limit))


class OverlayCalls:
    """The methods of `Client` that are about addresses of the overlay network."""

    def _ask(self, call: Call[Any]) -> Any:
        raise NotImplementedError

    def reserve_address(self, node: str, *, ip: str | None = None, ttl: int = 300) -> NewReservation:
        """Set an address of a node aside; a task that is submitted with its `token` as `ip_token` gets it."""
        found: NewReservation = self._ask(reserve(node, ip, ttl))
        return found

    def release_reservation(self, token: str) -> ReservationView:
        """Give a reservation back that no task has used, by its token or its id."""
        found: ReservationView = self._ask(release(token))
        return found

    def reservations(self) -> list[ReservationView]:
        """Your own, or everybody's as operator; without their tokens."""
        found: list[ReservationView] = self._ask(reservations())
        return found

    def addresses(self, *, limit: int = 20) -> list[AddressesView]:
        """The addresses of every node: its block, how many are free, and the lowest `limit` of those."""
        found: list[AddressesView] = self._ask(addresses(limit))
        return found

    def node_addresses(self, node: str, *, limit: int = 20) -> AddressesView:
        """The addresses of one node."""
        found: AddressesView = self._ask(node_addresses(node, limit))
        return found


class AsyncOverlayCalls:
    """The methods of `AsyncClient` that are about addresses of the overlay network."""

    async def _ask(self, call: Call[Any]) -> Any:
        raise NotImplementedError

    async def reserve_address(self, node: str, *, ip: str | None = None, ttl: int = 300) -> NewReservation:
        found: NewReservation = await self._ask(reserve(node, ip, ttl))
        return found

    async def release_reservation(self, token: str) -> ReservationView:
        found: ReservationView = await self._ask(release(token))
        return found

    async def reservations(self) -> list[ReservationView]:
        found: list[ReservationView] = await self._ask(reservations())
        return found

    async def addresses(self, *, limit: int = 20) -> list[AddressesView]:
        found: list[AddressesView] = await self._ask(addresses(limit))
        return found

    async def node_addresses(self, node: str, *, limit: int = 20) -> AddressesView:
        found: AddressesView = await self._ask(node_addresses(node, limit))
        return found
