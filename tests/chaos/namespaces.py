"""A network of namespaces: every part has its own address on one bridge. For root.

The rig must already be in its own network namespace (`unshare --net`), so that bridges of several rigs never meet. A
cut is a wrong, permanent neighbour entry: frames leave for a machine that does not exist, as silently as with a pulled
cable, in one direction and for one pair alone. Only `ip` and `nsenter` are needed for it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from tests.chaos.network import RIG, ServiceAddress

_NET = "10.77.0"
_NOWHERE = "02:00:00:00:00:fe"
_BRIDGE = "phx0"
_NAMED = Path("/run/netns")


def why_not() -> str:
    """Why this network is impossible here, or ""."""
    if os.geteuid() != 0:
        return "we are not root"
    for program in ("ip", "nsenter", "unshare"):
        if shutil.which(program) is None:
            return f"there is no program {program}"
    probe = f"phx{os.getpid()}-probe"
    for words in (
        ["unshare", "--net", "ip", "link", "add", _BRIDGE, "type", "bridge"],
        ["unshare", "--net", "ip", "link", "add", "v0", "type", "veth", "peer", "name", "v1"],
        ["ip", "netns", "add", probe],
        ["ip", "netns", "del", probe],
    ):
        tried = subprocess.run(words, capture_output=True, check=False)
        if tried.returncode != 0:
            return f"{' '.join(words)}: {tried.stderr.decode().strip()}"
    return ""


class Namespaces:
    """One bridge, and a namespace for each part."""

    needs_tls = True

    def __init__(self) -> None:
        self._numbers = {RIG: 1}
        self._clear_old()
        _ip("link", "set", "lo", "up")
        _ip("link", "add", _BRIDGE, "type", "bridge")
        _ip("addr", "add", f"{_NET}.1/24", "dev", _BRIDGE)
        _ip("link", "set", _BRIDGE, "up")

    def address(self, owner: str) -> str:
        if owner not in self._numbers:
            self._build(owner)
        return f"{_NET}.{self._numbers[owner]}"

    def service_address(self, owner: str, service: str, port: int) -> ServiceAddress:
        address = self.address(owner)
        return ServiceAddress(address, port, address, port)

    def enter(self, owner: str) -> list[str]:
        self.address(owner)
        return ["nsenter", f"--net={_NAMED / self._name(owner)}", "--"]

    def settled(self, owner: str, pid: int) -> None:
        """Nothing to do: a sender is known by its address."""

    def cut(self, source: str, target: str) -> None:
        to = ("to", self.address(target), "lladdr", _NOWHERE, "nud", "permanent")
        _ip(*self._at(source), "neigh", "replace", *to, "dev", self._device(source))

    def heal(self, source: str, target: str) -> None:
        _ip(*self._at(source), "neigh", "del", self.address(target), "dev", self._device(source))

    def close(self) -> None:
        for owner in [each for each in self._numbers if each != RIG]:
            _ip("netns", "del", self._name(owner))

    def _build(self, owner: str) -> None:
        number = self._numbers[owner] = len(self._numbers) + 1
        name, cable = self._name(owner), f"v{number}"
        _ip("netns", "add", name)
        _ip("link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", name)
        _ip("link", "set", cable, "master", _BRIDGE, "up")
        _ip("-n", name, "addr", "add", f"{_NET}.{number}/24", "dev", "eth0")
        _ip("-n", name, "link", "set", "eth0", "up")
        _ip("-n", name, "link", "set", "lo", "up")

    def _at(self, owner: str) -> tuple[str, ...]:
        return () if owner == RIG else ("-n", self._name(owner))

    def _device(self, owner: str) -> str:
        return _BRIDGE if owner == RIG else "eth0"

    def _name(self, owner: str) -> str:
        return f"phx{os.getpid()}-{owner}"

    def _clear_old(self) -> None:
        """Remove what killed rigs left: the names say whose they were."""
        for found in _NAMED.glob("phx*-*") if _NAMED.exists() else ():
            pid = found.name.removeprefix("phx").partition("-")[0]
            if pid.isdecimal() and not Path("/proc", pid).exists():
                _ip("netns", "del", found.name)


def _ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"ip {' '.join(words)}: {done.stderr.decode().strip()}")
