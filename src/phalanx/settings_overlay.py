"""The settings of the overlay network: its subnet, the part of it that each node has, and how long addresses rest."""

from __future__ import annotations

from ipaddress import IPv4Network
from typing import Annotated, Literal

from msgspec import Meta, Struct

from phalanx.core.model.amounts import SECONDS_MAX
from phalanx.errors import ConfigError

_PREFIX_MIN, _PREFIX_MAX = 8, 26
_NEVER = tuple(map(IPv4Network, ("0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "224.0.0.0/3")))


class OverlaySettings(Struct, frozen=True, kw_only=True):
    """Whether `phalanx coordinator` gives tasks addresses of their own, and which."""

    mode: Annotated[
        Literal["off", "enabled"],
        "off or enabled",
        "whether tasks can have addresses of their own in a network over all nodes",
    ] = "off"
    subnet: Annotated[
        Annotated[str, Meta(pattern=r"^[0-9]{1,3}(\.[0-9]{1,3}){3}/[0-9]{1,2}\Z")],
        "a subnet such as 10.128.0.0/12",
        "addresses of the overlay network; no part of it may be routed on a node",
    ] = "10.128.0.0/12"
    block_prefix: Annotated[
        Annotated[int, Meta(ge=16, le=28)],
        "a number from 16 to 28",
        "prefix length of the part that each node has: 22 gives 1020 tasks of a node addresses",
    ] = 22
    encryption: Annotated[
        Literal["off", "wireguard"],
        "off or wireguard",
        "whether packets between nodes are encrypted; nodes that cannot then take no tasks with addresses",
    ] = "off"
    quarantine_s: Annotated[
        Annotated[float, Meta(ge=0, le=SECONDS_MAX)],
        "a duration such as 60, 60s or 1m, or 0",
        "how long an address that was used is given to no other task",
    ] = 60.0

    def __post_init__(self) -> None:
        if self.mode == "off":
            return
        prefix = int(self.subnet.rpartition("/")[2])
        if not _PREFIX_MIN <= prefix <= _PREFIX_MAX:
            raise ConfigError(
                f"overlay.subnet = {self.subnet!r}: expected a prefix length from {_PREFIX_MIN} to {_PREFIX_MAX}"
            )
        if prefix > self.block_prefix:
            raise ConfigError(
                f"overlay.block_prefix = {self.block_prefix}: a block cannot be larger than the subnet {self.subnet}",
                hint=f"give at least {prefix}; each node has one block",
            )
        try:
            subnet = IPv4Network(self.subnet)
        except ValueError as error:
            raise ConfigError(f"overlay.subnet = {self.subnet!r}: {error}") from None
        if any(subnet.overlaps(taken) for taken in _NEVER):
            raise ConfigError(
                f"overlay.subnet = {self.subnet!r}: no task can have such an address "
                "(loopback, link-local, multicast, reserved)",
                hint="choose a private one that is not used here, such as 10.128.0.0/12",
            )
