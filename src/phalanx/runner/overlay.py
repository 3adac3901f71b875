"""The networks of this node's tasks: which attempt has which address, kept in step with what the coordinator says.

The coordinator gives the map: this node's block, where the other nodes are, and who owns which address. What is done in
the kernel is `overlay_kernel.py`'s business; it blocks, so all of it is done in one thread of its own, one thing after
another. An error is told with the attempt that needs a network, or as the node's trouble.
"""

from __future__ import annotations

import errno
import os
import shutil
import zlib
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from threading import Event
from typing import Protocol, TypeVar

from phalanx.core.model.orders import AttemptKey
from phalanx.core.model.overlay import AddressBlock
from phalanx.errors import ConfigError
from phalanx.link.overlay import OverlayMap
from phalanx.logger import logger
from phalanx.routes import OURS, check_subnet
from phalanx.runner.nftables import SYSTEM_PATH
from phalanx.runner.overlay_owners import TaskOwners
from phalanx.runner.overlay_peers import PeerAddresses
from phalanx.runner.overlay_rules import FirewallNames, Rules, ruleset
from phalanx.runner.wireguard import OverlayPeer

log = logger("runner")
T = TypeVar("T")
WITHIN_S = 30.0
GATHER_S = 0.2  # how long networks of attempts that are over wait for each other
NETNS = Path("/run/netns")
NOT_OVERLAID = TaskOwners()


class Kernel(Protocol):
    """What is needed of `OverlayKernel`."""

    links: str
    vxlan: str
    table: str

    def open(self, block: str, local: str, *, encrypted: bool) -> None: ...
    def is_open(self) -> bool: ...
    def reach(self, block: str, peers: Iterable[OverlayPeer]) -> None: ...
    def add(self, key: str, address: str, block: str) -> str: ...
    def remove(self, gone: Iterable[tuple[str, str]]) -> None: ...
    def found(self) -> dict[str, str]: ...
    def namespaces(self) -> list[str]: ...
    def link_of(self, address: str) -> str: ...
    def set_rules(self, text: str) -> None: ...
    def withdraw(self) -> None: ...


class TaskNetworks:
    """The networks of all attempts of one runner."""

    def __init__(
        self,
        make: Callable[[], Kernel],
        mark: str,
        address: Callable[[], str],
        owners: TaskOwners = NOT_OVERLAID,
    ) -> None:
        """`mark` is in the names of all that is ours; `address` is where other nodes reach this one.

        `owners` tell apart the tasks that have no address.
        """
        self._make = make
        self._mark = mark
        self._address = address
        self._owners = owners
        self._thread = ThreadPoolExecutor(1, "overlay")
        self._later = ThreadPoolExecutor(1, "overlay-removal")
        self._closed = Event()
        self._kernel: Kernel | None = None
        self._map: OverlayMap | None = None
        self._tasks: dict[str, str] = {}  # address by attempt
        self._gone: list[tuple[str, str]] = []  # attempts that are over, with their addresses
        self._rules: Rules | None = None  # as they are in the kernel
        self._marks: dict[str, int] = {}  # the numbers of owners in them
        self._peers = PeerAddresses()
        self._lacking: list[str] = []  # names of peers that are not known, so that those are not reached
        self.trouble = ""

    @property
    def is_on(self) -> bool:
        """Whether the coordinator has an overlay network, and this node a part in it."""
        return self._map is not None

    def update(self, told: OverlayMap) -> str:
        """Follow the coordinator's map; why that cannot be done, or nothing."""
        try:
            self._do(lambda: self._update(told))
            self.trouble = ""
        except OSError as error:
            self.trouble = f"overlay network: {error.strerror or error}"
            log.error("the overlay network cannot be made", why=self.trouble)
        return self.trouble

    def add(self, key: AttemptKey, address: str) -> str:
        """A network namespace for an attempt; raises OSError."""
        if self._map is None or self.trouble:
            raise OSError(
                errno.ENETDOWN, self.trouble or "the coordinator has not told of the overlay network"
            )
        return self._do(lambda: self._add(_name(key), address))

    def remove(self, key: AttemptKey) -> None:
        """The attempt is over. Its network goes soon, with those of others: nobody waits for that."""
        if (address := self._tasks.pop(_name(key), None)) is not None:
            self._gone.append((_name(key), address))
            if len(self._gone) == 1:
                self._later.submit(self._remove_soon)

    def assign(self, cgroup: str, owner: str) -> None:
        """Only tasks of this owner will be in a cgroup, in the node's own network; raises OSError.

        Containers in the node's network are told apart in the same way, if their cgroup is in the node's folder.
        """
        if self._owners.assign(cgroup, owner) and self._map is not None and not self.trouble:
            self._do(self._refresh)

    def clean(self, live: Iterable[AttemptKey]) -> None:
        """After a start: keep the networks of attempts that are alive, and remove what else is ours."""
        names = {_name(key) for key in live}
        if not _traces(self._mark):  # as on most nodes
            return
        self._do(lambda: self._quietly(lambda: self._clean(names)))

    def close(self) -> None:
        """Nothing will be asked any more; what is over has been removed then."""
        self._closed.set()
        self._later.shutdown(wait=True)
        self._thread.shutdown(wait=True)

    def withdraw(self) -> None:
        """No task has a network here any more: nothing of ours stays."""
        if self._kernel is not None or _traces(self._mark):
            self._do(lambda: self._quietly(lambda: self._opened().withdraw()))

    def _remove_soon(self) -> None:
        """Once others may have ended too: removing a link takes the kernel long, for many as long as for one."""
        self._closed.wait(GATHER_S)
        self._thread.submit(lambda: self._quietly(self._remove))

    # In the thread.

    def _opened(self) -> Kernel:
        if self._kernel is None:
            self._kernel = self._make()
        return self._kernel

    def _update(self, told: OverlayMap) -> None:
        former = self._map
        if former is None or former.subnet != told.subnet:
            _check_routes(told.subnet)
        self._connect(told, former)
        if former is None:
            self._owners.scan()
        self._map = told
        self._refresh()

    def _connect(self, told: OverlayMap, former: OverlayMap | None) -> None:
        """The link to the other nodes, and the ways through it, as far as they are not there."""
        kernel, encrypted = self._opened(), told.keys is not None
        changed = former is None or _frame(former) != _frame(told) or not kernel.is_open()
        if changed:
            kernel.open(told.block, self._own_ip(), encrypted=encrypted)
        is_new = former is None or (former.peers, former.keys) != (told.peers, told.keys)
        if changed or is_new or self._lacking:
            self._reach(kernel, told)

    def _refresh(self) -> None:
        """The firewall, as it has to be now: what has changed of it, or all of it."""
        kernel = self._opened()
        rules = self._wanted(kernel)
        if (former := self._rules) == rules:
            return
        self._rules = None
        try:
            change = None if former is None else rules.change(former)
            kernel.set_rules(rules.whole() if change is None else change)
        except OSError:  # a cgroup may have been removed in this moment
            rules = self._wanted(kernel)
            kernel.set_rules(rules.whole())
        self._rules = rules

    def _wanted(self, kernel: Kernel) -> Rules:
        """It follows from the map, which has a task's address before the task's start is ordered."""
        told = self._map
        assert told is not None
        own, owners = AddressBlock(told.block), dict(told.owners)
        links = {kernel.link_of(address): address for address in owners if own.owns(address)}
        blocks = [told.block, *(block for block, _ in told.peers)]
        here = self._owners.known(owners.values())
        names = FirewallNames(kernel.table, kernel.links, kernel.vxlan)
        return ruleset(names, told.subnet, links, owners, blocks, here, self._marks)

    def _reach(self, kernel: Kernel, told: OverlayMap) -> None:
        """Routes to the peers whose addresses are known; the others are tried again with the next change or task."""
        known, lacking = self._peers.of(told.peers)
        if lacking and lacking != self._lacking:
            log.warning(
                "nodes of the overlay network are not reached: no address is known", names=lacking[:10]
            )
        self._lacking = lacking
        keys = told.keys or {}
        peers = [OverlayPeer(block, address, keys.get(block, "")) for block, address in known]
        kernel.reach(told.block, [each for each in peers if each.key or told.keys is None])

    def _own_ip(self) -> str:
        host = self._address() or "127.0.0.1"
        known, _ = self._peers.of([("", host)])
        if not known:
            raise OSError(errno.EADDRNOTAVAIL, f"the address {host!r} of this node cannot be resolved")
        return known[0][1]

    def _add(self, name: str, address: str) -> str:
        assert self._map is not None
        kernel = self._opened()
        if any(freed == address for _, freed in self._gone):
            self._remove()
        self._connect(self._map, self._map)  # the link may have been removed, or its program killed
        path = kernel.add(name, address, self._map.block)
        self._tasks[name] = address
        return path

    def _remove(self) -> None:
        """The networks of all that are over by now."""
        gone = []
        while self._gone:  # others are added meanwhile, by another thread
            gone.append(self._gone.pop(0))
        self._opened().remove(gone)

    def _clean(self, live: set[str]) -> None:
        kernel = self._opened()
        found = kernel.found()
        kernel.remove([(name, "") for name in {*found, *kernel.namespaces()} - live])
        self._tasks = {name: address for name, address in found.items() if name in live}
        if not self._tasks and self._map is None:
            kernel.withdraw()

    def _do(self, work: Callable[[], T]) -> T:
        return self._thread.submit(work).result(WITHIN_S)

    def _quietly(self, work: Callable[[], None]) -> None:
        try:
            work()
        except OSError as error:
            log.warning("a task's network cannot be removed", why=str(error))


def _frame(told: OverlayMap) -> tuple[str, str, bool]:
    return told.subnet, told.block, told.keys is not None


def _check_routes(subnet: str) -> None:
    """Raise OSError if the network would hide a route of this node."""
    try:
        check_subnet(subnet)
    except ConfigError as error:
        raise OSError(errno.EADDRINUSE, str(error)) from None


def mark_of(origin: str) -> str:
    """What the names of all that a runner with this folder makes have in common."""
    return f"{zlib.crc32(origin.encode()):08x}"[:6]


def why_not() -> str:
    """Why this machine cannot take part in an overlay network, as far as it is seen without trying; or nothing."""
    if os.geteuid() != 0:
        return "the runner is not root"
    missing = [name for name in ("nft", "ip") if shutil.which(name, path=SYSTEM_PATH) is None]
    return f"no program {' and no '.join(missing)}: install nftables and iproute2" if missing else ""


def _traces(mark: str) -> bool:
    """Whether something of ours may be left of an earlier runner, looked at as cheaply as possible."""
    with suppress(OSError):
        if any(mark in path.name for path in NETNS.iterdir()):
            return True
    with suppress(OSError):
        return f"{OURS}{mark}" in Path("/proc/net/dev").read_text()
    return False


def _name(key: AttemptKey) -> str:
    return "-".join(map(str, key))
