"""Fake of the commands about addresses of the overlay network: one node, and as many reservations as are asked for."""

from __future__ import annotations

from phalanx.api.schema.overlay import AddressesView, NewReservation, ReservationView, ReserveRequest
from phalanx.errors import NotFound


class FakeOverlay:
    """The part of `Commands` that is about addresses."""

    def __init__(self) -> None:
        super().__init__()
        self.reserved: dict[str, ReservationView] = {}

    async def reserve_address(self, node: str, request: ReserveRequest, user: str) -> NewReservation:
        id = f"{len(self.reserved) + 1:016x}"
        ip = request.ip or f"10.128.0.{len(self.reserved) + 2}"
        view = self.reserved[id] = ReservationView(id, node, ip, user, 1.0, 1.0 + request.ttl)
        return NewReservation(f"phx_ip_{id}", ip, request.ttl, view)

    async def reservations(self) -> list[ReservationView]:
        return list(self.reserved.values())

    async def release_reservation(self, id: str, user: str, is_operator: bool) -> ReservationView:
        found = self.reserved.get(id)
        if found is None or not (is_operator or found.user == user):
            raise NotFound("Reservation not found, expired, or in use", reason="ReservationNotFound")
        return self.reserved.pop(id)

    async def addresses(self, limit: int) -> list[AddressesView]:
        return [await self.node_addresses("n1", limit)]

    async def node_addresses(self, name: str, limit: int) -> AddressesView:
        if name != "n1":
            raise NotFound(f"no node {name!r}", reason="NoAddresses")
        free = [f"10.128.0.{number}" for number in range(2, 2 + limit)]
        return AddressesView("n1", "10.128.0.0/22", "10.128.0.1", 1020, 1020, 0, 0, 0, free)
