"""What a coordinator tells runners of the overlay network. It goes over frames only."""

from __future__ import annotations

from msgspec import Struct


class OverlayMap(Struct, frozen=True, tag="overlay_map"):
    """The overlay network as one node has to know it; sent to runners that take part, at first and at every change."""

    subnet: str
    block: str  # of this node
    peers: list[tuple[str, str]]  # the block and the address of every other node
    owners: list[tuple[str, str]]  # of addresses, of all tasks anywhere whose owners have tasks on this node
    keys: dict[str, str] | None = (
        None  # the public keys of all other nodes, by block; None: nothing is encrypted
    )
