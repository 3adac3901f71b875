"""Namespaces of a task: its own host name and hosts file, and its own network, taken on for the moment of a spawn.

A child inherits the namespaces of the process that spawns it. So the keeper, which has a single thread, enters those
of the task, spawns, and comes back, as it does with folders and CPUs. A keeper that cannot come back exits: whatever
it did next would be done in the wrong place, and its watchdog ends what it leaves behind.

Which namespaces a task has is said in its launch (`spaces`): `hostname`, `hosts` (a file that is bound over /etc/hosts)
`net` (a network namespace by its path, made by the runner) and `confined`
(the task has no rights over networks).
"""

from __future__ import annotations

import ctypes
import os
import sys

from . import log

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

HOSTS = "/etc/hosts"
SETPRIV = "/usr/bin/setpriv"
DROPPED = "-net_raw,-net_admin"
LOST = 70  # the exit code of a keeper that cannot come back
_CLONE_NEWNS, _CLONE_NEWUTS, _CLONE_NEWNET = 0x00020000, 0x04000000, 0x40000000
_MS_BIND, _MS_REC, _MS_SLAVE = 0x1000, 0x4000, 1 << 19
_KINDS = (("mnt", _CLONE_NEWNS), ("uts", _CLONE_NEWUTS), ("net", _CLONE_NEWNET))
_HOSTNAME_MAX = 63


class Namespaces:
    """The keeper's own namespaces, and those of tasks while they are spawned."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._own: dict[str, int] = {}
        self._root = -1

    def enter(self, spaces: dict[str, Any]) -> None:
        """Go where the task is to be; raises OSError, and then nothing has changed."""
        self._open_own()
        try:
            if spaces.get("net"):
                self._join(str(spaces["net"]), _CLONE_NEWNET)
            if spaces.get("hosts") or spaces.get("hostname"):
                self._make(str(spaces.get("hostname") or ""), str(spaces.get("hosts") or ""))
        except BaseException:
            self.leave()
            raise

    def leave(self) -> None:
        """Come back, to the keeper's root as well: entering a mount namespace moves a process to the root of that."""
        try:
            for kind, flag in _KINDS:
                self._check(self._libc.setns(self._own[kind], flag), f"setns {kind}")
            os.fchdir(self._root)
            os.chroot(".")
        except BaseException as error:  # in a wrong namespace nothing must be done, not even tidying up
            try:
                log.write("namespaces", f"cannot come back to the keeper's own namespaces: {error}")
                sys.stderr.write(f"the keeper exits: it cannot come back to its own namespaces: {error}\n")
            finally:
                os._exit(LOST)

    @staticmethod
    def confined(program: str, argv: list[str]) -> list[str]:
        """The command of a task with a network of its own: without the rights to change that or to forge packets.

        What is dropped cannot be taken on again, so it is dropped by a program between the keeper and the task.
        """
        return [SETPRIV, f"--bounding-set={DROPPED}", "--", program, *argv[1:]]

    def _make(self, hostname: str, hosts: str) -> None:
        """A mount namespace with this hosts file, and a UTS namespace with this host name."""
        self._check(self._libc.unshare(_CLONE_NEWNS | _CLONE_NEWUTS), "unshare")
        # What is mounted on the machine later is seen in there; what is mounted in there is not seen outside.
        self._check(self._libc.mount(None, b"/", None, _MS_REC | _MS_SLAVE, None), "mount --make-rslave /")
        if hosts:
            self._check(
                self._libc.mount(os.fsencode(hosts), HOSTS.encode(), None, _MS_BIND, None), "mount hosts"
            )
        if 0 < len(hostname) <= _HOSTNAME_MAX:
            name = hostname.encode()
            self._check(self._libc.sethostname(name, len(name)), "sethostname")

    def _join(self, path: str, flag: int) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            self._check(self._libc.setns(fd, flag), f"setns {path}")
        finally:
            os.close(fd)

    def _open_own(self) -> None:
        """Before the first task that has namespaces of its own: most keepers never need them."""
        if self._own:
            return
        opened = {kind: os.open(f"/proc/self/ns/{kind}", os.O_RDONLY | os.O_CLOEXEC) for kind, _ in _KINDS}
        self._root = os.open("/", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._own = opened

    def _check(self, result: int, what: str) -> None:
        if result != 0:
            number = ctypes.get_errno()
            raise OSError(number, f"{what}: {os.strerror(number)}")
