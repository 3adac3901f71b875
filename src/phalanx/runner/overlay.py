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
from typing import Protocol, TypeVar

from phalanx.core.model.orders import AttemptKey
from phalanx.core.model.overlay import AddressBlock
from phalanx.link.overlay import OverlayMap
from phalanx.logger import logger
from phalanx.routes import OURS
from phalanx.runner.nftables import SYSTEM_PATH
from phalanx.runner.overlay_owners import TaskOwners
from phalanx.runner.overlay_peers import PeerAddresses
from phalanx.runner.overlay_rules import ruleset

log = logger("runner")
T = TypeVar("T")
WITHIN_S = 30.0
NETNS = Path("/run/netns")
NOT_OVERLAID = TaskOwners()


class Kernel(Protocol):
    """What is needed of `OverlayKernel`."""

    links: str
    vxlan: str
    table: str

    def open(self, block: str, local: str) -> None: ...
    def reach(self, block: str, peers: Iterable[tuple[str, str]]) -> None: ...
    def add(self, key: str, address: str, block: str) -> str: ...
    def remove(self, key: str, address: str = "") -> None: ...
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
        self._kernel: Kernel | None = None
        self._map: OverlayMap | None = None
        self._tasks: dict[str, str] = {}  # address by attempt
        self._rules = ""  # as they are in the kernel
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
        """The attempt is over."""
        if _name(key) in self._tasks:
            self._quietly(lambda: self._remove(_name(key)))

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
        self._quietly(lambda: self._clean(names))

    def close(self) -> None:
        self._thread.shutdown(wait=True)

    # In the thread.

    def _opened(self) -> Kernel:
        if self._kernel is None:
            self._kernel = self._make()
        return self._kernel

    def _update(self, told: OverlayMap) -> None:
        kernel, former = self._opened(), self._map
        if former is None or (former.block, former.subnet) != (told.block, told.subnet):
            kernel.open(told.block, self._own_ip())
        if former is None or former.peers != told.peers or former.block != told.block or self._lacking:
            self._reach(kernel, told)
        if former is None:
            self._owners.scan()
        self._map = told
        self._refresh()

    def _refresh(self) -> None:
        """The firewall, as it has to be now. A cgroup may be removed in this moment, and then it is made once more."""
        kernel = self._opened()
        assert self._map is not None
        if (rules := _rules(kernel, self._map, self._owners)) == self._rules:
            return
        self._rules = ""
        try:
            kernel.set_rules(rules)
        except OSError:
            again = _rules(kernel, self._map, self._owners)
            if again == rules:
                raise
            kernel.set_rules(rules := again)
        self._rules = rules

    def _reach(self, kernel: Kernel, told: OverlayMap) -> None:
        """Routes to the peers whose addresses are known; the others are tried again with the next change or task."""
        known, lacking = self._peers.of(told.peers)
        if lacking and lacking != self._lacking:
            log.warning(
                "nodes of the overlay network are not reached: no address is known", names=lacking[:10]
            )
        self._lacking = lacking
        kernel.reach(told.block, known)

    def _own_ip(self) -> str:
        host = self._address() or "127.0.0.1"
        known, _ = self._peers.of([("", host)])
        if not known:
            raise OSError(errno.EADDRNOTAVAIL, f"the address {host!r} of this node cannot be resolved")
        return known[0][1]

    def _add(self, name: str, address: str) -> str:
        assert self._map is not None
        kernel = self._opened()
        if self._lacking:
            self._reach(kernel, self._map)
        path = kernel.add(name, address, self._map.block)
        self._tasks[name] = address
        return path

    def _remove(self, name: str) -> None:
        self._opened().remove(name, self._tasks.pop(name, ""))

    def _clean(self, live: set[str]) -> None:
        kernel = self._opened()
        found = kernel.found()
        for name in {*found, *kernel.namespaces()} - live:
            kernel.remove(name)
        self._tasks = {name: address for name, address in found.items() if name in live}
        if not self._tasks and self._map is None:
            kernel.withdraw()

    def _do(self, work: Callable[[], T]) -> T:
        return self._thread.submit(work).result(WITHIN_S)

    def _quietly(self, work: Callable[[], None]) -> None:
        try:
            self._do(work)
        except OSError as error:
            log.warning("a task's network cannot be removed", why=str(error))


def _rules(kernel: Kernel, told: OverlayMap, tasks: TaskOwners) -> str:
    """The firewall, which follows from the map: it has a task's address before the task's start is ordered."""
    own, owners = AddressBlock(told.block), dict(told.owners)
    links = {kernel.link_of(address): address for address in owners if own.owns(address)}
    blocks = [told.block, *(block for block, _ in told.peers)]
    here = tasks.known(owners.values())
    return ruleset(kernel.table, told.subnet, links, owners, blocks, kernel.links, kernel.vxlan, here)


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
