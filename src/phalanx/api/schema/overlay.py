"""Addresses of the overlay network over REST: what is asked and answered about blocks and reservations."""

from __future__ import annotations

from msgspec import Struct

from phalanx.api.schema.fields import shown
from phalanx.api.schema.queries import Limit
from phalanx.core.model.overlay import TTL_S, TTL_S_MAX, TTL_S_MIN, parse_address
from phalanx.errors import BadRequest, Unprocessable

TOKEN = "phx_ip_"  # noqa: S105 - what every token of a reservation begins with
TOKEN_BYTES_MAX = 128


class ReserveRequest(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """An address of a node to be set aside: this one, or any."""

    ip: str | None = None
    ttl: int = TTL_S  # seconds, from 60 to 1800


class ReservationView(Struct):
    """One reservation, without its token."""

    id: str  # the beginning of its token's digest
    node: str
    ip: str
    user: str
    created_at: float
    expires_at: float | None  # None once a task has it: then it ends with the task
    job: str = ""  # whose task has it


class NewReservation(Struct):
    """A reservation and its token, which is in this answer only."""

    token: str
    ip: str
    ttl: int
    reservation: ReservationView


class AddressesView(Struct):
    """The addresses of one node: how many of them are free, and the lowest of those."""

    node: str
    block: str  # such as 10.128.0.0/22
    gateway: str
    total: int  # that tasks may have
    free: int
    in_use: int
    reserved: int  # that no task has yet
    resting: int  # that were used and are given to nobody for a while
    available: list[str]  # the lowest free ones, as many as were asked for


class AddressesQuery(Struct, forbid_unknown_fields=True):
    limit: Limit = 20


def check_reserve(request: ReserveRequest) -> ReserveRequest:
    """Refuse what can be refused without the cluster."""
    if not TTL_S_MIN <= request.ttl <= TTL_S_MAX:
        raise Unprocessable(
            f"ttl: {shown(request.ttl)} is out of range, give {TTL_S_MIN} to {TTL_S_MAX} seconds",
            reason="OutOfRange",
        )
    if request.ip is not None:
        try:
            parse_address(request.ip)
        except ValueError as error:
            raise BadRequest(f"ip: {error}") from None
    return request
