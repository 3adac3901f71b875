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
from phalanx.runner import netlink, wireguard
from phalanx.runner.netlink import Netlink
from phalanx.runner.nftables import Nft
from phalanx.runner.overlay import NETNS
from phalanx.runner.overlay_rules import PORT
from phalanx.runner.wireguard import OverlayPeer, WireGuard

VNI = 7434
MTU = 1450
WIREGUARD = "wireguard"  # the beginning of the alias of such a link
CONF = Path("/proc/sys/net/ipv4/conf")
_PERMANENT, _NO_ARP, _SELF = 0x80, 0x40, 0x02  # of neighbours
_CLONE_NEWNET, _MS_BIND, _DETACH = 0x40000000, 0x1000, 2
_libc = ctypes.CDLL(None, use_errno=True)
_INNER = "eth0"


class OverlayError(OSError):
    """The kernel or nft refused something."""


Method = TypeVar("Method", bound=Callable[..., Any])


def translated(method: Method) -> Method:
    """What the kernel says to netlink, as an OSError that names what was tried."""

    @wraps(method)
    def called(self: OverlayKernel, *words: Any, **options: Any) -> Any:
        try:
            return method(self, *words, **options)
        except NetlinkError as error:
            code = int(error.code or errno.EIO)
            raise OverlayError(code, f"{method.__name__} {words[:1]}: {os.strerror(code)}") from None

    return called  # type: ignore[return-value]


class OverlayKernel:
    """Links, routes, namespaces and rules of one runner. It blocks, and belongs to one thread."""

    def __init__(self, mark: str, wireguard: WireGuard | None = None) -> None:
        """`wireguard` has the node's key, if it can encrypt."""
        self.links = f"{OURS}{mark}t"  # what the names of tasks' links begin with
        self.vxlan = f"{OURS}{mark}v"
        self.table = f"phalanx_{mark}"
        self._names = f"phalanx-{mark}-"
        self._group = 0x70000000 | int(mark, 16)  # links that are being removed
        self._mtu = MTU
        self._wireguard = wireguard
        self._is_encrypted = False
        self._netlink = IPRoute()
        self._tasks = Netlink()
        self._nft = Nft()

    def close(self) -> None:
        self._netlink.close()
        self._tasks.close()

    @translated
    def open(self, block: str, local: str, *, encrypted: bool) -> None:
        """Make the link to other nodes, of VXLAN or of WireGuard, unless it is there as it should be."""
        self._mtu = wireguard.MTU if encrypted else MTU
        alias = f"{WIREGUARD} {block}" if encrypted else f"{local} {block}"
        found = self._index(self.vxlan)
        if found is not None and self._alias(found) != alias:
            self._netlink.link("del", index=found)
            found = None
        if found is None:
            self._make_encrypted() if encrypted else self._make_vxlan(block, local)
            found = self._index(self.vxlan)
            self._netlink.link("set", index=found, ifalias=alias, mtu=self._mtu)
        self._netlink.link("set", index=found, state="up")
        self._netlink.addr("replace", index=found, address=gateway(block), prefixlen=32)
        self._is_encrypted = encrypted
        _forward(self.vxlan)

    def is_open(self) -> bool:
        """Whether the link to other nodes is there."""
        return self._tasks.index(self.vxlan) is not None

    def _make_vxlan(self, block: str, local: str) -> None:
        self._do(
            f"a VXLAN link from {local}",
            "this kernel has no VXLAN",
            ifname=self.vxlan,
            kind="vxlan",
            vxlan_id=VNI,
            vxlan_local=local,
            vxlan_port=PORT,
            vxlan_learning=False,
            address=mac_of(block),
            mtu=MTU,
        )

    def _make_encrypted(self) -> None:
        if self._wireguard is None:
            raise OverlayError(errno.EOPNOTSUPP, wireguard.NO_WIREGUARD)
        try:
            self._do("a WireGuard link", "this kernel has none", ifname=self.vxlan, kind="wireguard")
        except OverlayError as error:
            if error.errno != errno.EOPNOTSUPP:
                raise
            self._wireguard.start(self.vxlan)

    @translated
    def reach(self, block: str, peers: Iterable[OverlayPeer]) -> None:
        """Routes to the blocks of other nodes, and to no others."""
        at = self._index(self.vxlan)
        wanted = {each.block: each for each in peers}
        if self._is_encrypted and self._wireguard is not None:
            self._wireguard.set_peers(self.vxlan, wanted.values())
        for route in list(self._netlink.get_routes(oif=at, family=2)):
            to = f"{route.get_attr('RTA_DST')}/{route['dst_len']}"
            if to not in wanted and route["dst_len"] != 32:
                self._netlink.route("del", dst=to, oif=at)
        for each in wanted.values():
            self._route(each, gateway(block), at)

    def _route(self, peer: OverlayPeer, own: str, at: int | None) -> None:
        """WireGuard knows by itself which node has a block; VXLAN is told by neighbours that are written."""
        if self._is_encrypted:
            self._netlink.route("replace", dst=peer.block, oif=at, prefsrc=own)
            return
        near, mac = gateway(peer.block), mac_of(peer.block)
        self._netlink.neigh("replace", dst=near, lladdr=mac, ifindex=at, state=_PERMANENT)
        self._netlink.fdb(
            "replace", lladdr=mac, dst=peer.address, ifindex=at, state=_PERMANENT | _NO_ARP, flags=_SELF
        )
        self._netlink.route("replace", dst=peer.block, gateway=near, oif=at, flags=["onlink"], prefsrc=own)

    def add(self, key: str, address: str, block: str) -> str:
        """A network namespace for an attempt, with a link that has this address; its path."""
        name, link = self._names + key, self.link_of(address)
        if (NETNS / name).exists() or self._tasks.index(link) is not None:  # of an earlier try
            self.remove([(key, address)])
        with self._new_namespace(name) as (namespace, inner):
            self._connect(inner, namespace, link, f"{key} {address}", address, gateway(block))
        return str(NETNS / name)

    def _connect(
        self, inner: Netlink, namespace: int, link: str, alias: str, address: str, near: str
    ) -> None:
        """A link between this node and a namespace, with their routes to each other."""
        self._tasks.do(netlink.veth(link, _INNER, namespace, self._mtu))
        at, own = self._tasks.index(link), inner.index(_INNER)
        if at is None or own is None:
            raise OverlayError(errno.ENODEV, f"the link {link} was removed as soon as it was made")
        self._tasks.do(
            netlink.up(at, alias), netlink.address(at, near), netlink.route(at, address, source=near)
        )
        _forward(link)
        inner.do(
            netlink.up(netlink.LOOPBACK),
            netlink.address(own, address),
            netlink.up(own),
            netlink.route(own, near),
            netlink.route(own, via=near),
        )

    @contextmanager
    def _new_namespace(self, name: str) -> Iterator[tuple[int, Netlink]]:
        """A named network namespace, as `ip netns add` makes one, its descriptor, and a way to the kernel in it.

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
                namespace = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
                inner = Netlink()
            finally:
                _check(_libc.setns(own, _CLONE_NEWNET), "setns")
        finally:
            os.close(own)
        try:
            yield namespace, inner
        finally:
            inner.close()
            os.close(namespace)

    def remove(self, gone: Iterable[tuple[str, str]]) -> None:
        """Remove the links and namespaces of attempts, whichever are there; an address saves a search."""
        known = [
            (key, self._tasks.index(self.link_of(address)) if address else None) for key, address in gone
        ]
        unknown = {key for key, at in known if at is None}
        searched = self._task_links() if unknown else []
        links = [at for _, at in known if at is not None]
        links += [at for at, alias in searched if alias.partition(" ")[0] in unknown]
        self._remove_links(links)
        for key, _ in known:
            path = NETNS / (self._names + key)
            _libc.umount2(bytes(path), _DETACH)
            with suppress(OSError):
                path.unlink()

    def _remove_links(self, links: list[int]) -> None:
        """All at once: the kernel waits for its other processors when a link goes, for many as long as for one."""
        moved = 0
        for at in links:
            with suppress(OSError):  # it has gone with its namespace
                self._tasks.do(netlink.into_group(at, self._group))
                moved += 1
        if moved:
            with suppress(OSError):
                self._tasks.do(netlink.without_group(self._group))

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
        self.remove((key, "") for key in {*self.found(), *self.namespaces()})
        self._remove_links([at for at, _ in self._task_links()])
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

    def _alias(self, index: int) -> str:
        (link,) = self._netlink.get_links(index)
        return str(link.get_attr("IFLA_IFALIAS") or "")

    def _do(self, what: str, without: str, **fields: Any) -> None:
        """Make a link; `without` says what it means that the kernel does not know its kind."""
        try:
            self._netlink.link("add", **fields)
        except NetlinkError as error:
            code = int(error.code or errno.EIO)
            hint = f": {without}" if code == errno.EOPNOTSUPP else ""
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
