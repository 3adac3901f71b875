"""Links, addresses and routes of a task's network, as messages to the kernel: several in one go, each acknowledged.

pyroute2 takes about half a millisecond of CPU to encode one message, ten times as long as the kernel takes to carry it
out, and a task's network needs nine. So the few kinds that every task needs are packed here; what is done once for a
node is left to pyroute2 (`overlay_kernel.py`). A `Netlink` works in the network namespace that it was made in.
"""

from __future__ import annotations

import fcntl
import os
import struct
from ipaddress import IPv4Address
from socket import AF_INET, AF_NETLINK, SOCK_CLOEXEC, SOCK_DGRAM, SOCK_RAW, socket

LOOPBACK = 1  # the index of the first link of every namespace
_SIOCGIFINDEX = 0x8933
_ERROR = 2
_NEW_LINK, _DEL_LINK, _NEW_ADDRESS, _NEW_ROUTE = 16, 17, 20, 24
_REQUEST, _ACK, _REPLACE, _EXCLUSIVE, _CREATE = 0x1, 0x4, 0x100, 0x200, 0x400
_UP = 1
_NAME, _MTU, _LINKINFO, _ALIAS, _GROUP, _NET_NS_FD = 3, 4, 18, 20, 27, 28
_KIND, _DATA, _PEER = 1, 2, 1
_TO, _LINK, _VIA, _SOURCE = 1, 4, 5, 7  # of routes
_AT, _LOCAL = 1, 2  # of addresses
_MAIN, _BOOT, _UNICAST = 254, 3, 1
_ANYWHERE, _HERE = 0, 253  # scopes of routes: by a gateway, or on this link
_REPLY_MAX = 1 << 16
_HEADER = struct.Struct("=IHHII")
_INFO = struct.Struct("=BxHiII")


class NetlinkRequest:
    """One message, and what it is about."""

    __slots__ = ("body", "flags", "kind", "what")

    def __init__(self, what: str, kind: int, body: bytes, flags: int = 0) -> None:
        self.what, self.kind, self.body, self.flags = what, kind, body, flags


class Netlink:
    """A way to the kernel; it blocks, and belongs to one thread."""

    def __init__(self) -> None:
        self._way = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, 0)
        self._asking = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC)
        self._number = 0

    def close(self) -> None:
        self._way.close()
        self._asking.close()

    def index(self, name: str) -> int | None:
        """The number of a link; None if there is none with this name."""
        try:
            said = fcntl.ioctl(self._asking, _SIOCGIFINDEX, struct.pack("16sI12x", name.encode(), 0))
        except OSError:
            return None
        return int(struct.unpack("16sI12x", said)[1])

    def do(self, *requests: NetlinkRequest) -> None:
        """Have these done, one after another; raises OSError for the first that the kernel refuses."""
        first = self._number + 1
        packed = b"".join(self._packed(each) for each in requests)
        self._way.send(packed)
        refused: dict[int, int] = {}
        left = len(requests)
        while left:
            for number, code in _answers(self._way.recv(_REPLY_MAX)):
                if number >= first:
                    left -= 1
                    refused |= {number: code} if code else {}
        if refused:
            number = min(refused)
            code, what = refused[number], requests[number - first].what
            raise OSError(code, f"cannot make {what}: {os.strerror(code)}")

    def _packed(self, asked: NetlinkRequest) -> bytes:
        self._number += 1
        flags = _REQUEST | _ACK | asked.flags
        return _HEADER.pack(16 + len(asked.body), asked.kind, flags, self._number, 0) + asked.body


def veth(name: str, inner: str, namespace: int, mtu: int) -> NetlinkRequest:
    """A pair of links: one here, the other in the namespace that this descriptor is of."""
    ends = _attribute(_NAME, inner.encode() + b"\0") + _attribute(_MTU, struct.pack("=I", mtu))
    peer = _INFO.pack(0, 0, 0, 0, 0) + ends + _attribute(_NET_NS_FD, struct.pack("=i", namespace))
    info = _attribute(_KIND, b"veth\0") + _attribute(_DATA, _attribute(_PEER, peer))
    own = _attribute(_NAME, name.encode() + b"\0") + _attribute(_MTU, struct.pack("=I", mtu))
    body = _INFO.pack(0, 0, 0, 0, 0) + own + _attribute(_LINKINFO, info)
    return NetlinkRequest(f"a link {name}", _NEW_LINK, body, _CREATE | _EXCLUSIVE)


def up(index: int, alias: str = "") -> NetlinkRequest:
    """A link works from now on, and says what it is for."""
    named = _attribute(_ALIAS, alias.encode() + b"\0") if alias else b""
    return NetlinkRequest(f"link {index} work", _NEW_LINK, _INFO.pack(0, 0, index, _UP, _UP) + named)


def address(index: int, ip: str) -> NetlinkRequest:
    own = IPv4Address(ip).packed
    body = struct.pack("=BBBBI", AF_INET, 32, 0, 0, index) + _attribute(_LOCAL, own) + _attribute(_AT, own)
    return NetlinkRequest(f"the address {ip}", _NEW_ADDRESS, body, _CREATE | _REPLACE)


def route(index: int, to: str = "", via: str = "", source: str = "") -> NetlinkRequest:
    """A route to one address, or to all others, through a link."""
    scope = _ANYWHERE if via else _HERE
    body = struct.pack("=8BI", AF_INET, 32 if to else 0, 0, 0, _MAIN, _BOOT, scope, _UNICAST, 0)
    for kind, ip in ((_TO, to), (_VIA, via), (_SOURCE, source)):
        body += _attribute(kind, IPv4Address(ip).packed) if ip else b""
    body += _attribute(_LINK, struct.pack("=I", index))
    return NetlinkRequest(f"a route to {to or 'all'}", _NEW_ROUTE, body, _CREATE | _REPLACE)


def into_group(index: int, group: int) -> NetlinkRequest:
    body = _INFO.pack(0, 0, index, 0, 0) + _attribute(_GROUP, struct.pack("=I", group))
    return NetlinkRequest(f"link {index} one of a group", _NEW_LINK, body)


def without_group(group: int) -> NetlinkRequest:
    """Remove all links of a group at once: the kernel waits once for all of them, not for each."""
    body = _INFO.pack(0, 0, 0, 0, 0) + _attribute(_GROUP, struct.pack("=I", group))
    return NetlinkRequest("room: a group of links stays", _DEL_LINK, body)


def _attribute(kind: int, data: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(data), kind) + data + b"\0" * (-len(data) % 4)


def _answers(text: bytes) -> list[tuple[int, int]]:
    """The numbers of the requests that are answered here, each with its error or 0."""
    found, at = [], 0
    while at + _HEADER.size <= len(text):
        length, kind, _, number, _ = _HEADER.unpack_from(text, at)
        if kind == _ERROR:
            found.append((number, -struct.unpack_from("=i", text, at + _HEADER.size)[0]))
        at += max(_HEADER.size, length + 3 & ~3)
    return found
