"""What events do to addresses of the overlay network: blocks, reservations, and how long an address rests."""

from __future__ import annotations

from msgspec import structs

from phalanx.core.cluster import overlay_events as o
from phalanx.core.cluster.jobs import JobState
from phalanx.core.cluster.overlay import Overlay
from phalanx.core.cluster.state import ClusterState
from phalanx.core.model.job import NodeName
from phalanx.core.model.ledger import AddressChange, Ledger
from phalanx.core.model.overlay import AddressBlock
from phalanx.core.model.resources import Capacity


def with_block(state: ClusterState, node: NodeName, capacity: Capacity) -> Capacity:
    """What a node has, with its block; a runner says nothing of that."""
    block = state.overlay.blocks.get(node, "")
    return capacity if capacity.block == block else structs.replace(capacity, block=block)


def assigned(state: ClusterState, event: o.BlockAssigned) -> None:
    """`apply/nodes.py` tells the node's account."""
    blocks = state.overlay.blocks
    state.overlay.version += 1
    for former in [name for name, block in blocks.items() if block == event.block and name != event.node]:
        del blocks[former]
    if event.block:
        blocks[event.node] = event.block
    else:
        blocks.pop(event.node, None)


def reserved(state: ClusterState, event: o.AddressReserved) -> None:
    made = event.reservation
    free_again(state, made.node, made.address, event.at)
    state.overlay.add(made)
    _change(state, made.node, "reserve", made.address)


def reservation_ended(state: ClusterState, event: o.ReservationEnded) -> None:
    made = state.overlay.end(event.id)
    if made is not None:
        _change(state, made.node, "unreserve", made.address)
        state.gain += 1


def bind_reservation(state: ClusterState, job: JobState) -> None:
    """A job was submitted with the token of a reservation: what it asks for says which."""
    request = job.job.groups[0].request
    if request.address and request.target is not None:
        made = state.overlay.at(request.target.host, request.address)
        if made is not None and not made.job:
            state.overlay.bind(made, job.job.id)


def end_use(state: ClusterState, job: JobState, at: float) -> None:
    """The reservation of a job that is over ends with its last attempt, and its address rests."""
    made = state.overlay.by_job.get(job.job.id)
    if made is None or not job.is_over or job.live:
        return
    state.overlay.end(made.id)
    _change(state, made.node, "unreserve", made.address)
    if any(job.attempts):
        rest(state, made.node, made.address, at)


def rest(state: ClusterState, node: NodeName, address: str, at: float) -> None:
    """Nobody is given an address that was used until its quarantine is over, unless it is still reserved."""
    if is_reserved(state, node, address):
        return
    quarantine_s = state.rules.overlay.quarantine_s
    _change(state, node, "rest", address)
    if quarantine_s > 0:
        state.overlay.rest(node, address, at + quarantine_s)
    else:
        _change(state, node, "end_rest", address)


def is_reserved(state: ClusterState, node: NodeName, address: str) -> bool:
    block = _block(state, node)
    return block is not None and address in block.reserved


def end_rests(state: ClusterState, at: float) -> None:
    """Time has passed. Not written down: a replay is told with the next event that may rest on it."""
    for node, address in state.overlay.rested(at):
        _change(state, node, "end_rest", address)
        state.gain += 1


def free_again(state: ClusterState, node: NodeName, address: str, at: float) -> None:
    """An event builds on the end of a rest that was not written down, perhaps of a shorter quarantine than today's."""
    end_rests(state, at)
    block = _block(state, node)
    if block is not None and address in block.resting:
        state.overlay.wake(node, address)
        _change(state, node, "end_rest", address)


def tell_addresses(overlay: Overlay, ledger: Ledger) -> None:
    """Say to a node's new account which of its addresses are reserved, and which rest."""
    if ledger.addresses is None:
        return
    for each in overlay.by_id.values():
        if each.node == ledger.name:
            ledger.change_address("reserve", each.address)
    for _, node, address in overlay.resting:
        if node == ledger.name and ledger.addresses.owns(address):
            ledger.change_address("rest", address)


def restore_overlay(state: ClusterState) -> None:
    """What an image says of addresses, told to the accounts of all nodes."""
    for node in state.nodes.values():
        for lane in node.lanes.values() if state.rules.overlay.is_on else ():
            state.overlay.came(node.name, state.jobs[next(iter(lane.attempts))[0]].job.user)
        for attempt in node.attempts.values():
            if attempt.grant.address:
                state.overlay.hold(attempt.grant.address, node.name, state.jobs[attempt.key[0]].job.user)
    for ledger in state.table.ledgers:
        tell_addresses(state.overlay, ledger)
        state.table.columns.refresh(state.table.rows[ledger.name])


def _block(state: ClusterState, node: NodeName) -> AddressBlock | None:
    known = state.nodes.get(node)
    return None if known is None else state.table.ledgers[known.row].addresses


def _change(state: ClusterState, node: NodeName, change: AddressChange, address: str) -> None:
    known = state.nodes.get(node)
    if known is not None:
        state.table.change_address(known.row, change, address)
