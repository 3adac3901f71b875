"""The overlay network in the kernel: a VXLAN link to the other nodes, and a namespace with a link for each task.

Everything is routed: each task's link has a route for its one address, and each other node's block a route through the
VXLAN link, to a neighbour whose MAC address follows from its block. So nothing is learned or flooded, and there is no
bridge that could carry a packet past the firewall. Names begin with `phx` and a mark of this runner's folder, by which
a later runner finds what is its own; a task's link says in its alias which attempt and address it is for.
"""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import wraps
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any, TypeVar

from pyroute2 import IPRoute, NetlinkError

from phalanx.core.model.overlay import gateway
from phalanx.routes import OURS
from phalanx.runner.nftables import Nft
from phalanx.runner.overlay import NETNS
from phalanx.runner.overlay_rules import PORT

VNI = 7434
MTU = 1450
CONF = Path("/proc/sys/net/ipv4/conf")
_PERMANENT, _NO_ARP, _SELF = 0x80, 0x40, 0x02  # of neighbours
_LINK_SCOPE = 253
_LOOPBACK = 1  # the index of the first link of every namespace
_CLONE_NEWNET, _MS_BIND, _DETACH = 0x40000000, 0x1000, 2
_libc = ctypes.CDLL(None, use_errno=True)
_INNER = "eth0"


class OverlayError(OSError):
    """The kernel or nft refused something."""


Method = TypeVar("Method", bound=Callable[..., Any])


def translated(method: Method) -> Method:
    """What the kernel says to netlink, as an OSError that names what was tried."""

    @wraps(method)
    def called(self: OverlayKernel, *words: Any) -> Any:
        try:
            return method(self, *words)
        except NetlinkError as error:
            code = int(error.code or errno.EIO)
            raise OverlayError(code, f"{method.__name__} {words[:1]}: {os.strerror(code)}") from None

    return called  # type: ignore[return-value]


class OverlayKernel:
    """Links, routes, namespaces and rules of one runner. It blocks, and belongs to one thread."""

    def __init__(self, mark: str) -> None:
        self.links = f"{OURS}{mark}t"  # what the names of tasks' links begin with
        self.vxlan = f"{OURS}{mark}v"
        self.table = f"phalanx_{mark}"
        self._names = f"phalanx-{mark}-"
        self._netlink = IPRoute()
        self._nft = Nft()

    def close(self) -> None:
        self._netlink.close()

    @translated
    def open(self, block: str, local: str) -> None:
        """Make the VXLAN link of this node, unless it is there as it should be."""
        wanted = (mac_of(block), local)
        found = self._index(self.vxlan)
        if found is not None and self._facts(found) != wanted:
            self._netlink.link("del", index=found)
            found = None
        if found is None:
            self._do(
                f"a VXLAN link from {local}",
                "add",
                ifname=self.vxlan,
                kind="vxlan",
                vxlan_id=VNI,
                vxlan_local=local,
                vxlan_port=PORT,
                vxlan_learning=False,
                address=wanted[0],
                mtu=MTU,
                ifalias=local,
            )
            found = self._index(self.vxlan)
            self._netlink.link("set", index=found, ifalias=local)
        self._netlink.link("set", index=found, state="up")
        self._netlink.addr("replace", index=found, address=gateway(block), prefixlen=32)
        _forward(self.vxlan)

    @translated
    def reach(self, block: str, peers: Iterable[tuple[str, str]]) -> None:
        """Routes to the blocks of other nodes, at these addresses, and to no others."""
        at = self._index(self.vxlan)
        wanted = dict(peers)
        for route in list(self._netlink.get_routes(oif=at, family=2)):
            to = f"{route.get_attr('RTA_DST')}/{route['dst_len']}"
            if to not in wanted and route["dst_len"] != 32:
                self._netlink.route("del", dst=to, oif=at)
        for other, address in wanted.items():
            near, mac = gateway(other), mac_of(other)
            self._netlink.neigh("replace", dst=near, lladdr=mac, ifindex=at, state=_PERMANENT)
            self._netlink.fdb(
                "replace", lladdr=mac, dst=address, ifindex=at, state=_PERMANENT | _NO_ARP, flags=_SELF
            )
            self._netlink.route(
                "replace", dst=other, gateway=near, oif=at, flags=["onlink"], prefsrc=gateway(block)
            )

    @translated
    def add(self, key: str, address: str, block: str) -> str:
        """A network namespace for an attempt, with a link that has this address; its path."""
        name, link = self._names + key, self.link_of(address)
        if (NETNS / name).exists():  # of an earlier try
            self.remove(key)
        if (old := self._index(link)) is not None:
            self._netlink.link("del", index=old)
        with self._new_namespace(name) as inner:
            self._connect(inner, name, link, key, address, gateway(block))
        return str(NETNS / name)

    def _connect(self, inner: IPRoute, name: str, link: str, key: str, address: str, near: str) -> None:
        """A link between this node and a namespace, with their routes to each other."""
        self._do(
            f"a link for {address}",
            "add",
            ifname=link,
            kind="veth",
            mtu=MTU,
            peer={"ifname": _INNER, "mtu": MTU, "net_ns_fd": name},
        )
        at = self._index(link)
        self._netlink.link("set", index=at, ifalias=f"{key} {address}", state="up")
        self._netlink.addr("add", index=at, address=near, prefixlen=32)
        self._netlink.route("replace", dst=f"{address}/32", oif=at, prefsrc=near, scope=_LINK_SCOPE)
        _forward(link)
        (own,) = inner.link_lookup(ifname=_INNER)
        inner.link("set", index=_LOOPBACK, state="up")
        inner.addr("add", index=own, address=address, prefixlen=32)
        inner.link("set", index=own, state="up")
        inner.route("add", dst=f"{near}/32", oif=own, scope=_LINK_SCOPE)
        inner.route("add", dst="default", gateway=near, oif=own)

    @contextmanager
    def _new_namespace(self, name: str) -> Iterator[IPRoute]:
        """A named network namespace, as `ip netns add` makes one, and a netlink socket in it.

        Only this thread enters it, for a moment.
        """
        NETNS.mkdir(mode=0o755, parents=True, exist_ok=True)
        path = NETNS / name
        path.touch(0o600)
        own = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        try:
            _check(_libc.unshare(_CLONE_NEWNET), "unshare")
            try:
                _check(_libc.mount(b"/proc/thread-self/ns/net", bytes(path), None, _MS_BIND, None), "mount")
                inner = IPRoute()
            finally:
                _check(_libc.setns(own, _CLONE_NEWNET), "setns")
        finally:
            os.close(own)
        try:
            yield inner
        finally:
            inner.close()

    @translated
    def remove(self, key: str, address: str = "") -> None:
        """Remove the link and the namespace of an attempt, whichever is there; its address saves a search."""
        known = self._index(self.link_of(address)) if address else None
        links = [] if address else [at for at, alias in self._task_links() if alias.partition(" ")[0] == key]
        for at in links if known is None else [known]:
            self._netlink.link("del", index=at)
        path = NETNS / (self._names + key)
        _libc.umount2(bytes(path), _DETACH)
        with suppress(OSError):
            path.unlink()

    @translated
    def found(self) -> dict[str, str]:
        """Which attempts have a link here, and its address."""
        pairs = (alias.partition(" ")[::2] for _, alias in self._task_links())
        return {key: address for key, address in pairs if key and address}

    def namespaces(self) -> list[str]:
        """The attempts that have a namespace here."""
        try:
            names = [path.name for path in NETNS.iterdir()]
        except OSError:
            return []
        return [name.removeprefix(self._names) for name in names if name.startswith(self._names)]

    def link_of(self, address: str) -> str:
        """The name of the link of an address; those of one node differ in their last 20 bits."""
        return f"{self.links}{int(IPv4Address(address)) & 0xFFFFF:05x}"

    def set_rules(self, text: str) -> None:
        if said := self._nft.run(text):
            raise OverlayError(errno.EINVAL, f"nft: {said}")

    @translated
    def withdraw(self) -> None:
        """Remove all that is ours, whatever is left of it."""
        for key in {*self.found(), *self.namespaces()}:
            self.remove(key)
        for at, _ in self._task_links():
            self._netlink.link("del", index=at)
        if (own := self._index(self.vxlan)) is not None:
            self._netlink.link("del", index=own)
        with suppress(OSError):
            self.set_rules(f"table inet {self.table} {{}}\ndelete table inet {self.table}\n")

    def _task_links(self) -> list[tuple[int, str]]:
        return [
            (int(link["index"]), str(link.get_attr("IFLA_IFALIAS") or ""))
            for link in self._netlink.get_links()
            if str(link.get_attr("IFLA_IFNAME")).startswith(self.links)
        ]

    def _index(self, name: str) -> int | None:
        found = self._netlink.link_lookup(ifname=name)
        return int(found[0]) if found else None

    def _facts(self, index: int) -> tuple[str, str]:
        (link,) = self._netlink.get_links(index)
        return str(link.get_attr("IFLA_ADDRESS")), str(link.get_attr("IFLA_IFALIAS"))

    def _do(self, what: str, command: str, **fields: Any) -> None:
        try:
            self._netlink.link(command, **fields)
        except NetlinkError as error:
            code = int(error.code or errno.EIO)
            hint = ": this kernel has no VXLAN" if code == errno.EOPNOTSUPP else ""
            raise OverlayError(code, f"cannot make {what}: {os.strerror(code)}{hint}") from None


def mac_of(block: str) -> str:
    """The MAC address of the VXLAN link of the node that has this block: known to all without being asked for."""
    number = int(IPv4Address(block.partition("/")[0]))
    return ":".join(f"{each:02x}" for each in (0x02, 0x70, *number.to_bytes(4, "big")))


def _check(result: int, what: str) -> None:
    if result:
        number = ctypes.get_errno()
        raise OverlayError(number, f"{what}: {os.strerror(number)}")


def _forward(link: str) -> None:
    """Let packets that come in by this link go on; what the machine does with others is not ours to change."""
    (CONF / link / "forwarding").write_text("1")
