"""The routes of this machine, and whether the overlay network's subnet would hide some of them."""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import IPv4Network
from pathlib import Path

from phalanx.errors import ConfigError

ROUTES = Path("/proc/net/route")
OURS = "phx"  # what the names of all our links begin with


def check_subnet(subnet: str, table: Path = ROUTES) -> None:
    """Refuse a subnet that overlaps a route of this machine, other than the default one and those of our own links."""
    wanted = IPv4Network(subnet)
    for network, link in routes(table):
        if network.prefixlen and not link.startswith(OURS) and network.overlaps(wanted):
            raise ConfigError(
                f"overlay.subnet = {subnet!r}: it would hide this machine's route to {network} through {link}",
                hint="choose a subnet that is not used here, such as 10.192.0.0/12",
            )


def routes(table: Path = ROUTES) -> Iterable[tuple[IPv4Network, str]]:
    """Every IPv4 route with the link it goes through; none where the kernel does not list them."""
    try:
        lines = table.read_text().splitlines()[1:]
    except OSError:
        return
    for line in lines:
        words = line.split()
        if len(words) >= 8:
            base, mask = (int.from_bytes(bytes.fromhex(words[at])[::-1], "big") for at in (1, 7))
            yield IPv4Network((base & mask, mask.bit_count())), words[0]
