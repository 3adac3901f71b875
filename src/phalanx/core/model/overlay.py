"""The overlay network's addresses: which block each node has, and which addresses of it are free.

The subnet is cut into blocks of equal size, one for each node, from its first address on. In a block four addresses are
given to nobody: the first (the network), the second (the gateway, which is the node's bridge), the last but one and the
last (broadcast). An address that was used is not free at once when its attempt ends: it rests until its quarantine is
over, so that packets for its former holder do not reach another. Who holds which address is decided in
`core/cluster`; the network itself is made by runners.
"""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import AddressValueError, IPv4Address, IPv4Network

from msgspec import Struct

PREFIX_MIN, PREFIX_MAX = 8, 26  # of the subnet
BLOCK_MIN, BLOCK_MAX = 16, 28  # of a block
ADDRESS_BYTES_MAX = 15
TTL_S_MIN, TTL_S, TTL_S_MAX = 60, 300, 1800  # of a reservation
_HEAD, _TAIL = 2, 2  # addresses of a block that nobody is given, at either end


class OverlayRules(Struct, frozen=True):
    """The subnet of the overlay network, as the settings have it; without one there is no overlay network."""

    subnet: str = ""
    block_prefix: int = 22
    quarantine_s: float = 60.0  # how long an address that was used is given to nobody
    encrypted: bool = False  # by WireGuard; nodes without a key of it then have no block

    @property
    def is_on(self) -> bool:
        return bool(self.subnet)

    @property
    def blocks(self) -> int:
        """How many blocks the subnet has."""
        return 1 << (self.block_prefix - IPv4Network(self.subnet).prefixlen) if self.is_on else 0

    def block(self, number: int) -> str:
        """The block with this number, such as 10.128.4.0/22."""
        base = int(IPv4Network(self.subnet).network_address)
        return f"{IPv4Address(base + (number << 32 - self.block_prefix))}/{self.block_prefix}"

    def number(self, block: str) -> int | None:
        """The number of a block; None if it is none of this subnet's."""
        first, _, prefix = block.partition("/")
        if not self.is_on or prefix != str(self.block_prefix):
            return None
        number = (
            int(IPv4Address(first)) - int(IPv4Network(self.subnet).network_address) >> 32 - self.block_prefix
        )
        return number if 0 <= number < self.blocks else None


def usable(block: str) -> int:
    """How many addresses of a block tasks may have; 0 if there is no block."""
    return max(0, (1 << 32 - int(block.partition("/")[2])) - _HEAD - _TAIL) if block else 0


def gateway(block: str) -> str:
    """The address of the node's bridge."""
    return str(IPv4Address(int(IPv4Address(block.partition("/")[0])) + 1))


def parse_address(text: str) -> IPv4Address:
    """Read an address, or raise ValueError with what is right."""
    try:
        return IPv4Address(text[: ADDRESS_BYTES_MAX + 1])
    except AddressValueError:
        raise ValueError(f"{text[:80]!r} is not an IPv4 address such as 10.128.0.5") from None


class AddressBlock:
    """The addresses of one node: who has them is known to others, whether they are free is known here.

    An address is free, held by a lane, set aside by a promise, reserved (and then perhaps held by the task it is
    reserved for), or it rests.
    """

    __slots__ = ("_base", "_end", "block", "free", "held", "promised", "reserved", "resting")

    def __init__(self, block: str) -> None:
        self.block = block
        self._base = int(IPv4Address(block.partition("/")[0]))
        self._end = (1 << 32 - int(block.partition("/")[2])) - _TAIL
        self.free = usable(block)
        self.held: set[str] = set()
        self.promised: set[str] = set()
        self.reserved: set[str] = set()
        self.resting: set[str] = set()

    def copied(self) -> AddressBlock:
        other = AddressBlock(self.block)
        other.free = self.free
        other.held, other.promised = set(self.held), set(self.promised)
        other.reserved, other.resting = set(self.reserved), set(self.resting)
        return other

    def emptied(self) -> AddressBlock:
        return AddressBlock(self.block)

    @property
    def is_untouched(self) -> bool:
        return self.free == self._end - _HEAD

    def owns(self, address: str) -> bool:
        """Whether tasks of this node may have the address."""
        return _HEAD <= int(IPv4Address(address)) - self._base < self._end

    def is_free(self, address: str) -> bool:
        return self.owns(address) and not self._is_out(address)

    def is_free_for_its_task(self, address: str) -> bool:
        """Whether the task that it is reserved for could be given it now."""
        return self.owns(address) and address not in self.held | self.promised | self.resting

    def choose(self) -> str | None:
        """The lowest free address."""
        if self.free <= 0:
            return None
        return next(self.listed(1), None)

    def listed(self, most: int) -> Iterator[str]:
        """The lowest free addresses, at most so many."""
        left = most
        for offset in range(_HEAD, self._end):
            if left <= 0:
                return
            address = str(IPv4Address(self._base + offset))
            if not self._is_out(address):
                left -= 1
                yield address

    def has_room(self, address: str) -> bool:
        """Whether exactly this one could be taken: it is free, or reserved and held by nobody."""
        if address in self.reserved:
            return self.is_free_for_its_task(address)
        return self.is_free(address)

    def take(self, address: str) -> None:
        self._leave_free(address)
        self.held.add(address)

    def undo_take(self, address: str) -> None:
        """It was never really given: it is as free as before."""
        self.held.discard(address)
        self._may_be_free(address)

    def give_back(self, address: str) -> None:
        """Its holder has left: it rests, unless it is reserved, as it is for the next attempt of the same task."""
        self.held.discard(address)
        if address not in self.reserved and self.owns(address):
            self.resting.add(address)

    def retake(self, address: str) -> None:
        """Undo a give_back, or hold on a new account what was held before."""
        if address in self.resting:
            self.resting.discard(address)
        else:
            self._leave_free(address)
        self.held.add(address)

    def promise(self, address: str) -> None:
        self._leave_free(address)
        self.promised.add(address)

    def withdraw(self, address: str) -> None:
        self.promised.discard(address)
        self._may_be_free(address)

    def reserve(self, address: str) -> None:
        self._leave_free(address)
        self.reserved.add(address)

    def unreserve(self, address: str) -> None:
        self.reserved.discard(address)
        self._may_be_free(address)

    def rest(self, address: str) -> None:
        """Nobody is given it for a while."""
        self._leave_free(address)
        self.resting.add(address)

    def end_rest(self, address: str) -> None:
        self.resting.discard(address)
        self._may_be_free(address)

    def _is_out(self, address: str) -> bool:
        return (
            address in self.held
            or address in self.resting
            or address in self.reserved
            or address in self.promised
        )

    def _leave_free(self, address: str) -> None:
        """An address of a former block, of before the settings were changed, is held and counted nowhere."""
        if self.is_free(address):
            self.free -= 1

    def _may_be_free(self, address: str) -> None:
        if self.is_free(address):
            self.free += 1
