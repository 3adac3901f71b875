"""Choices about addresses of the overlay network: which block a node has, who may reserve which address, how long.

A token is refused with one and the same reason, whatever is wrong with it, so that nobody can try out which exist.
"""

from __future__ import annotations

from msgspec import structs

from phalanx.core.cluster import events as e
from phalanx.core.cluster import inputs as i
from phalanx.core.cluster import overlay_events as o
from phalanx.core.cluster.decision import Accepted, Decision, Refused, refuse, refuse_because
from phalanx.core.cluster.overlay import RESERVATIONS_MAX, USER_RESERVATIONS_MAX, ReservedAddress
from phalanx.core.cluster.state import ClusterState
from phalanx.core.model.containers import required_labels
from phalanx.core.model.job import Job, NodeName
from phalanx.core.model.overlay import AddressBlock
from phalanx.core.model.reason import Reason, Tier
from phalanx.core.model.resources import Target

OFF = Reason(
    "OverlayOff",
    Tier.NEVER,
    "IP reservation requires overlay network to be enabled (overlay.mode = enabled in the coordinator's settings)",
)
BAD_TOKEN = Reason(
    "ReservationInvalid", Tier.NEVER, "Invalid IP reservation token, expired, or node mismatch"
)


def block_changed(state: ClusterState, given: i.Hello, now: float) -> list[e.Event]:
    """The block that a node gets with its hello, if it has not the right one; the same name keeps its own."""
    overlay, rules = state.overlay, state.rules.overlay
    has = overlay.blocks.get(given.node, "")
    if not rules.is_on or not given.has_overlay or (rules.encrypted and not given.capacity.wireguard):
        return [o.BlockAssigned(at=now, cause="hello", node=given.node, block="")] if has else []
    if has and rules.number(has) is not None:
        return []
    number = _free_number(state)
    if number is None:
        return []
    return [o.BlockAssigned(at=now, cause="hello", node=given.node, block=rules.block(number))]


def _free_number(state: ClusterState) -> int | None:
    """The lowest block that is no node's; if there is none, one of a node that was removed and holds nothing there."""
    rules, blocks = state.rules.overlay, state.overlay.blocks
    taken = {rules.number(block): name for name, block in blocks.items()}
    free = next((number for number in range(rules.blocks) if number not in taken), None)
    if free is not None:
        return free
    busy = {each.node for each in state.overlay.by_id.values()} | {each[1] for each in state.overlay.resting}
    gone = (number for number, name in taken.items() if name not in state.nodes and name not in busy)
    return next((number for number in gone if number is not None), None)


def reserve(state: ClusterState, given: i.ReserveAddress, now: float) -> Decision:
    """Set an address aside, or say why not."""
    if not state.rules.overlay.is_on:
        return refuse(OFF, "bad")
    made, overlay = given.made, state.overlay
    if len(overlay.by_id) >= RESERVATIONS_MAX or overlay.of_user.get(made.user, 0) >= USER_RESERVATIONS_MAX:
        text = f"{made.user} has {overlay.of_user.get(made.user, 0)} reservations, at most {USER_RESERVATIONS_MAX} may"
        return refuse_because("TooManyReservations", text, "too_many")
    found = _chosen(state, made)
    if isinstance(found, Reason):
        return refuse(found, "conflict")
    reserved = structs.replace(made, address=found)
    event = o.AddressReserved(at=now, cause=f"user {made.user}", node=made.node, reservation=reserved)
    return Decision([event], [], Accepted())


def _chosen(state: ClusterState, made: ReservedAddress) -> str | Reason:
    block = _block(state, made.node)
    if block is None:
        text = f"IP unavailable or runner '{made.node}' not found: no such node has overlay addresses"
        return Reason("AddressUnavailable", Tier.NEVER, text, {"host": made.node})
    if not made.address:
        return block.choose() or Reason(
            "AddressUnavailable", Tier.CAPACITY, f"no address of {made.node} ({block.block}) is free"
        )
    if block.is_free(made.address):
        return made.address
    what = "is in use, reserved, or was in use until a moment ago"
    if not block.owns(made.address):
        what = f"is not one that tasks may have there ({block.block} without its first two and its last two)"
    text = f"IP unavailable: {made.address} {what}"
    return Reason("AddressUnavailable", Tier.CAPACITY, text, {"host": made.node, "address": made.address})


def release(state: ClusterState, given: i.ReleaseReservation, now: float) -> Decision:
    """End a reservation that nobody has used."""
    known = state.overlay.by_id.get(given.id)
    if known is None or not known.is_open(now) or not (given.is_operator or known.user == given.user):
        text = "Reservation not found, expired, or in use"
        return refuse_because("ReservationNotFound", text, "not_found")
    return Decision([_ended(known, now, f"user {given.user}", released=True)], [], Accepted())


def expired(state: ClusterState, now: float) -> list[e.Event]:
    """End the reservations whose time is over."""
    return [_ended(each, now, "expired") for each in state.overlay.expired(now)]


def with_reservation(state: ClusterState, given: i.Submit, now: float) -> Job | Refused:
    """The job with the address that its token stands for, on the node it is of; or the one reason why not."""
    if not given.ip_digest:
        return given.job
    if not state.rules.overlay.is_on:
        return Refused(OFF, "bad")
    made = state.overlay.by_digest.get(given.ip_digest)
    job, group = given.job, given.job.groups[0]
    target = group.request.target
    if made is None or not made.is_open(now) or made.user != job.user or job.tasks != 1:
        return Refused(BAD_TOKEN, "reservation")
    if target is not None and target.host != made.node:
        return Refused(BAD_TOKEN, "reservation")
    request = structs.replace(
        group.request,
        target=target or Target(made.node),
        addresses=0,
        address=made.address,
        labels=tuple(
            sorted({*group.request.labels, *required_labels(group.command.image, has_address=True)})
        ),
    )
    return structs.replace(job, groups=(structs.replace(group, request=request),))


def _ended(made: ReservedAddress, now: float, cause: str, *, released: bool = False) -> o.ReservationEnded:
    return o.ReservationEnded(
        at=now, cause=cause, node=made.node, id=made.id, address=made.address, released=released
    )


def _block(state: ClusterState, node: NodeName) -> AddressBlock | None:
    known = state.nodes.get(node)
    return None if known is None else state.table.ledgers[known.row].addresses
