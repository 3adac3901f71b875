"""Fake of the commands about addresses of the overlay network: one node, and as many reservations as are asked for."""

from __future__ import annotations

from phalanx.api.schema.overlay import AddressesView, NewReservation, ReservationView, ReserveRequest


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
        return self.reserved.pop(id, ReservationView(id, "n1", "10.128.0.2", user, 1.0, 301.0))

    async def addresses(self, limit: int) -> list[AddressesView]:
        return [await self.node_addresses("n1", limit)]

    async def node_addresses(self, name: str, limit: int) -> AddressesView:
        free = [f"10.128.0.{number}" for number in range(2, 2 + limit)]
        return AddressesView(name, "10.128.0.0/22", "10.128.0.1", 1020, 1020, 0, 0, 0, free)
