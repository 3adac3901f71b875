"""WireGuard between nodes: this node's key, and the link through which packets for other nodes' blocks are encrypted.

The kernel's own is used where it has one, else the program `wireguard-go`, which lives as long as its link and outlives
the runner, as the link does. Both are told their peers by the program `wg`. The private key is made here, is in one
file that only root reads, and goes to `wg` through a pipe: it never leaves the node. A node that has no key file makes
a new key, which the coordinator tells to the others.
"""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from phalanx.runner import state_files
from phalanx.runner.nftables import SYSTEM_PATH

PORT = 8474  # of UDP
MTU = 1420  # 80 bytes less than an Ethernet's, as WireGuard's own tools have it
KEY_FILE = "wireguard.key"
KEY_CHARACTERS = 44  # 32 bytes in base64
SOCKETS = Path("/var/run/wireguard")
TUN = Path("/dev/net/tun")
NO_WIREGUARD = (
    "this kernel has no WireGuard, and there is no program wireguard-go with /dev/net/tun in its place"
)
_PROGRAM_S = 10.0
_ENV = {"PATH": SYSTEM_PATH, "LOG_LEVEL": "silent"}


class OverlayPeer(NamedTuple):
    """Another node: its block, where it is, and its public key if packets to it are encrypted."""

    block: str
    address: str
    key: str = ""


class WireGuard:
    """The key of one node, and the programs; making the link up is left to `overlay_kernel.py`."""

    def __init__(self, private: str, public: str) -> None:
        self._private = private
        self.public = public

    @classmethod
    def found(cls, state_dir: Path) -> WireGuard:
        """With the key of this folder, made now if there is none; raises OSError with the reason why that cannot be."""
        if reason := why_not():
            raise OSError(errno.EOPNOTSUPP, reason)
        path = state_dir / KEY_FILE
        private = path.read_text().strip() if path.exists() else ""
        if len(private) != KEY_CHARACTERS:
            private = _wg(["genkey"])
            state_files.write(path, private.encode())
        path.chmod(0o600)
        return cls(private, _wg(["pubkey"], private))

    def start(self, link: str) -> None:
        """Have the program make a link of this name, for a kernel that cannot."""
        program = shutil.which("wireguard-go", path=SYSTEM_PATH)
        if program is None or not TUN.exists():
            raise OSError(errno.EOPNOTSUPP, NO_WIREGUARD)
        with suppress(OSError):  # of one that was killed
            (SOCKETS / f"{link}.sock").unlink()
        done = subprocess.run(
            [program, link],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            timeout=_PROGRAM_S,
            check=False,
            env=_ENV,
        )
        if done.returncode:
            raise OSError(errno.EIO, f"wireguard-go cannot make the link {link}: exit code {done.returncode}")

    def set_peers(self, link: str, peers: Iterable[OverlayPeer]) -> None:
        """Exchange packets with these nodes and no others; sessions with those that stay go on."""
        lines = ["[Interface]", f"PrivateKey = {self._private}", f"ListenPort = {PORT}"]
        for each in peers:
            lines += ["[Peer]", f"PublicKey = {each.key}", f"AllowedIPs = {each.block}"]
            lines += [f"Endpoint = {each.address}:{PORT}"]
        _wg(["syncconf", link, "/dev/stdin"], "\n".join([*lines, ""]))


def why_not() -> str:
    """Why this machine cannot encrypt, as far as it is seen without trying; or nothing."""
    if shutil.which("wg", path=SYSTEM_PATH) is None:
        return "there is no program wg: install wireguard-tools"
    return "" if _in_kernel() or _in_userspace() else NO_WIREGUARD


def _in_kernel() -> bool:
    """A module that is loaded, or one that is there to be loaded; built in, it is listed as well."""
    modules = Path("/lib/modules") / os.uname().release
    if Path("/sys/module/wireguard").exists():
        return True
    for listing in ("modules.dep", "modules.builtin"):
        with suppress(OSError):
            if "/wireguard.ko" in (modules / listing).read_text():
                return True
    return False


def _in_userspace() -> bool:
    return shutil.which("wireguard-go", path=SYSTEM_PATH) is not None and TUN.exists()


def _wg(words: list[str], given: str = "") -> str:
    """What `wg` answers; raises OSError without repeating what it was given."""
    program = shutil.which("wg", path=SYSTEM_PATH)
    if program is None:
        raise OSError(errno.ENOENT, "there is no program wg")
    try:
        done = subprocess.run(
            [program, *words],
            input=given,
            text=True,
            capture_output=True,
            timeout=_PROGRAM_S,
            check=False,
            env=_ENV,
        )
    except subprocess.SubprocessError as error:
        raise OSError(errno.EIO, f"wg {words[0]}: {type(error).__name__}") from None
    if done.returncode:
        raise OSError(errno.EIO, f"wg {words[0]}: {done.stderr.strip()[:200]}")
    return done.stdout.strip()
