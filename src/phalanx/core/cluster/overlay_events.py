"""Decided facts about addresses of the overlay network; see `events.py`."""

from __future__ import annotations

from phalanx.core.cluster.event_kinds import NodeEvent
from phalanx.core.cluster.overlay import ReservedAddress


class BlockAssigned(NodeEvent, frozen=True):
    """A node has this block of addresses from now on, whoever had it before; an empty one: it has none."""

    block: str


class AddressReserved(NodeEvent, frozen=True):
    """An address of the node is set aside for a user. A job that is submitted with its token is bound to it."""

    reservation: ReservedAddress


class ReservationEnded(NodeEvent, frozen=True):
    """Nobody has used the reservation, and its address is free: its user released it, or its time is over."""

    id: str
    address: str
    released: bool = False
