"""How the first process of a container comes under the limits of its attempt, before it runs anything.

A runtime makes cgroups of its own, in which neither the keeper nor its watchdog looks. So the container's first process
is moved into the cgroups of the attempt's process, where limits, OOM counts, usage and the end of the lease find it and
all that it starts. Only the devices of the runtime's own cgroup stay in force: those allow less than ours.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import resource

_CLONE_NEWNS = 0x00020000
_REMOUNT_BIND_NODEV_NOSUID = 0x20 | 0x1000 | 0x4 | 0x2
ROUNDS_MAX = 100


class CannotJoin(Exception):
    """The container would run outside the limits of its attempt."""


def join(pid: int) -> None:
    """Put a process under our own limits: cgroups, CPUs and the keeper's mark. Raises CannotJoin."""
    for folder in own_cgroups():
        try:
            _write(f"{folder}/cgroup.procs", str(pid))
        except OSError as error:
            raise CannotJoin(f"the cgroup {folder}: {error.strerror}") from None
    with contextlib.suppress(OSError):  # a runtime in another cpuset: the cgroup holds them, if there is one
        os.sched_setaffinity(pid, os.sched_getaffinity(0))
    with contextlib.suppress(OSError, ValueError):  # of another account: a right that root may lack
        resource.prlimit(pid, resource.RLIMIT_RTTIME, resource.getrlimit(resource.RLIMIT_RTTIME))


def join_all(pid: int) -> None:
    """The same for a container that runs already: what it has started meanwhile follows. Raises CannotJoin."""
    former = [folder for folder in cgroups_of(pid) if folder not in own_cgroups()]
    join(pid)
    for _ in range(ROUNDS_MAX):
        left = {each for folder in former for each in _read(f"{folder}/cgroup.procs").split()}
        if not left:
            return
        for each in left:
            with contextlib.suppress(CannotJoin):
                join(int(each))


def own_cgroups() -> list[str]:
    """The folders of our cgroups, but those at the top of a hierarchy and those of devices."""
    return cgroups_of(os.getpid())


def cgroups_of(pid: int) -> list[str]:
    mounted = _mounts()
    found = []
    for line in _read(f"/proc/{pid}/cgroup").splitlines():
        _, names, path = line.split(":", 2)
        controllers = frozenset(names.split(",")) - {""}
        if path == "/" or "devices" in controllers:
            continue
        for root, point, options in mounted:
            if (controllers <= options if controllers else not options) and f"{path}/".startswith(root):
                found.append(point + path[len(root.rstrip("/")) :].rstrip("/"))
                break
    return found


def check_account(pid: int, account: tuple[int, int, list[int]] | None) -> None:
    """Raise CannotJoin if a process has rights that the account does not have.

    A runtime looks groups up in the image, where one may be called by the number of another.
    """
    if account is None:
        return
    uid, gid, groups = account
    lines = (line.partition(":") for line in _read(f"/proc/{pid}/status").splitlines())
    found = {name: {*map(int, rest.split())} for name, _, rest in lines if name in ("Uid", "Gid", "Groups")}
    if (found.get("Uid"), found.get("Gid")) != ({uid}, {gid}) or not found["Groups"] <= {gid, *groups}:
        raise CannotJoin("the image gives its process another account or other groups than those of its user")


def close_devices(pid: int) -> None:
    """Device nodes and setuid programs in the image are without effect. Raises CannotJoin."""
    child = os.fork()
    if not child:
        code = errno.EIO
        try:
            code = _remount(pid)
        except OSError as error:
            code = error.errno or code
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    if code := os.waitstatus_to_exitcode(status):
        raise CannotJoin(f"its root cannot be mounted without devices: {os.strerror(abs(code))}")


def _remount(pid: int) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    fd = os.open(f"/proc/{pid}/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
    if libc.setns(fd, _CLONE_NEWNS) or libc.mount(b"none", b"/", None, _REMOUNT_BIND_NODEV_NOSUID, None):
        return ctypes.get_errno()
    return 0


def _mounts() -> list[tuple[str, str, frozenset[str]]]:
    """Where hierarchies are mounted: the part of it, the folder, and its options, none for v2."""
    found = []
    for line in _read("/proc/self/mountinfo").splitlines():
        fields, _, rest = line.partition(" - ")
        kind, _, options = rest.split(" ", 2)
        root, point = fields.split()[3:5]
        if kind in ("cgroup", "cgroup2"):
            found.append((root, point, frozenset(options.split(",")) if kind == "cgroup" else frozenset()))
    return found


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:  # noqa: PTH123 (no pathlib here)
            return file.read()
    except OSError:
        return ""


def _write(path: str, text: str) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)
