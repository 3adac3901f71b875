"""The surroundings of a running attempt: how a process gets to where the attempt's leader is, and what it has there.

All is read of the leader itself, in /proc, and nothing is remembered from its launch: cgroups, account, limits,
namespaces and environment are those that it really has, however they were made, and whether or not this runner started
it. `session_child.py` goes there.
"""

from __future__ import annotations

import os
import resource
from pathlib import Path

from msgspec import Struct

from phalanx.errors import Conflict, Unavailable
from phalanx.runner.keeper.spawn import KEY_VARIABLE
from phalanx.runner.keeper_messages import Ticks

PROC = Path("/proc")
# The order in which they are entered: the one of mounts last, for the paths of the others are ours.
NAMESPACES = ("user", "cgroup", "ipc", "uts", "net", "pid", "mnt")
# The names of /proc/PID/limits. Asking the kernel for those of another account would take a right that root may lack.
LIMITS = {
    "Max cpu time": resource.RLIMIT_CPU,
    "Max file size": resource.RLIMIT_FSIZE,
    "Max data size": resource.RLIMIT_DATA,
    "Max stack size": resource.RLIMIT_STACK,
    "Max core file size": resource.RLIMIT_CORE,
    "Max resident set": resource.RLIMIT_RSS,
    "Max processes": resource.RLIMIT_NPROC,
    "Max open files": resource.RLIMIT_NOFILE,
    "Max locked memory": resource.RLIMIT_MEMLOCK,
    "Max address space": resource.RLIMIT_AS,
    "Max pending signals": resource.RLIMIT_SIGPENDING,
    "Max msgqueue size": resource.RLIMIT_MSGQUEUE,
    "Max nice priority": resource.RLIMIT_NICE,
    "Max realtime priority": resource.RLIMIT_RTPRIO,
    "Max realtime timeout": resource.RLIMIT_RTTIME,  # which has the mark of its keeper
}
CAPABILITIES = 64
OTHER_ACCOUNT = "OtherAccount"
ENVIRONMENT_BYTES_MAX = 4 << 20


class AttemptLeader(Struct, frozen=True):
    """The first process of an attempt: its pid, the ticks between which it began, and the keeper's key of it."""

    pid: int
    born: Ticks
    name: str
    uid: int | None = (
        None  # of the account that its user has; None: the runner's own, or what it has made of that
    )


class Surroundings(Struct, frozen=True):
    """Where a leader is. `leader_fd` is a pidfd, which the caller closes."""

    leader: int
    leader_fd: int
    cgroups: tuple[str, ...]
    namespaces: tuple[str, ...]
    limits: tuple[tuple[int, tuple[int, int]], ...]
    cpus: tuple[int, ...]
    nice: int
    oom_score: int
    uid: int
    gid: int
    groups: tuple[int, ...]
    dropped: tuple[int, ...]  # capabilities that it can never have
    no_new_privileges: bool
    umask: int
    cwd: str
    env: dict[str, str]


def enter(leader: AttemptLeader, cwd: str | None = None) -> Surroundings:
    """The way to a leader; `cwd` is the folder that its job names. Raises Conflict if it has ended."""
    try:
        leader_fd = os.pidfd_open(leader.pid)
    except OSError:
        raise task_ended() from None
    try:
        return _read(leader, leader_fd, cwd)
    except FileNotFoundError:
        os.close(leader_fd)
        raise task_ended() from None
    except PermissionError as error:
        os.close(leader_fd)
        raise Unavailable(
            f"the runner may not look into the task: {error}",
            reason="CannotEnter",
            hint="the task has another account than the runner, which is not root",
        ) from None
    except BaseException:
        os.close(leader_fd)
        raise


def task_ended() -> Conflict:
    return Conflict(
        "the task has ended, so nothing can be run in it",
        reason="TaskEnded",
        hint="phalanx show says how it ended; phalanx logs shows what it wrote",
    )


def other_account(uid: int) -> Unavailable:
    return Unavailable(
        f"the first process of the task has another account (uid {uid}) than its user", reason=OTHER_ACCOUNT
    )


def _read(leader: AttemptLeader, leader_fd: int, cwd: str | None) -> Surroundings:
    here = PROC / str(leader.pid)
    status = _status((here / "status").read_text())
    if not _is_same(here, leader.born) or status["State"].startswith(("Z", "X")):
        raise task_ended()
    uid = int(status["Uid"].split()[0])
    if leader.uid not in (
        None,
        uid,
    ):  # it is about to become that account; or it has become another, by itself
        raise other_account(uid)
    bounding = int(status["CapBnd"], 16)
    return Surroundings(
        leader=leader.pid,
        leader_fd=leader_fd,
        cgroups=_cgroups(here),
        namespaces=tuple(name for name in NAMESPACES if _is_other(here, name)),
        limits=_limits((here / "limits").read_text()),
        cpus=tuple(sorted(os.sched_getaffinity(leader.pid))),
        nice=os.getpriority(os.PRIO_PROCESS, leader.pid),
        oom_score=int((here / "oom_score_adj").read_text()),
        uid=uid,
        gid=int(status["Gid"].split()[0]),
        groups=tuple(map(int, status["Groups"].split())),
        dropped=tuple(number for number in range(CAPABILITIES) if not bounding >> number & 1),
        no_new_privileges=status.get("NoNewPrivs") == "1" or leader.uid is not None,
        umask=int(status.get("Umask", "22"), 8),
        cwd=cwd if cwd and not _is_other(here, "mnt") else (here / "cwd").readlink().as_posix(),
        env=_environment(here, leader.name),
    )


def _limits(text: str) -> tuple[tuple[int, tuple[int, int]], ...]:
    found = []
    for line in text.splitlines():
        name = line[:26].strip()
        if name in LIMITS:
            soft, hard = (
                resource.RLIM_INFINITY if word == "unlimited" else int(word) for word in line[26:].split()[:2]
            )
            found.append((LIMITS[name], (soft, hard)))
    return tuple(found)


def _status(text: str) -> dict[str, str]:
    return {name: rest.strip() for name, _, rest in (line.partition(":") for line in text.splitlines())}


def _is_same(here: Path, born: Ticks) -> bool:
    """Whether the process with this pid is still the one that was started."""
    begun = int((here / "stat").read_text().rpartition(")")[2].split()[19])
    return not born[1] or born[0] - 1 <= begun <= born[1] + 1


def _is_other(here: Path, name: str) -> bool:
    try:
        return (here / "ns" / name).readlink() != (PROC / "self/ns" / name).readlink()
    except FileNotFoundError:  # the kernel has no such namespaces
        return False


def _environment(here: Path, key: str) -> dict[str, str]:
    """The environment that the leader began with, unless it has overwritten it, as some programs do for their title."""
    found = _variables(here)
    return found if found.get(KEY_VARIABLE) == key else _of_another(here, key) or found


def _of_another(here: Path, key: str) -> dict[str, str]:
    """That of another process of the attempt which still has the key. Others could have set it, to be taken for one."""
    place = _identity(here)
    for entry in PROC.iterdir():
        if entry.name.isdecimal() and entry.name != here.name:
            try:
                if _identity(entry) == place and (found := _variables(entry)).get(KEY_VARIABLE) == key:
                    return found
            except OSError:
                continue
    return {}


def _identity(here: Path) -> tuple[str, str]:
    """The account of a process, and its cgroups."""
    return _status((here / "status").read_text())["Uid"], (here / "cgroup").read_text()


def _variables(here: Path) -> dict[str, str]:
    with (here / "environ").open("rb") as file:
        words = file.read(ENVIRONMENT_BYTES_MAX).split(b"\0")
    pairs = (os.fsdecode(word).partition("=") for word in words)
    return {name: value for name, sign, value in pairs if name and sign}


def _cgroups(here: Path) -> tuple[str, ...]:
    """The folders of the cgroups that the leader is in and we are not."""
    theirs, ours = _memberships(here), _memberships(PROC / "self")
    apart = {names: path for names, path in theirs.items() if ours.get(names) != path}
    mounted = _mounts() if apart else []
    return tuple(_folder(names, path, mounted) for names, path in apart.items())


def _memberships(here: Path) -> dict[frozenset[str], str]:
    """By the controllers of a hierarchy, none for v2: the path of the cgroup."""
    found = {}
    for line in (here / "cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        found[frozenset(controllers.split(",")) - {""}] = path
    return found


def _mounts() -> list[tuple[str, str, frozenset[str]]]:
    """Where hierarchies are mounted: the part of it, the folder, and its options, none for v2."""
    found = []
    for line in (PROC / "self/mountinfo").read_text().splitlines():
        fields, _, rest = line.partition(" - ")
        kind, _, options = rest.split(" ", 2)
        root, point = fields.split()[3:5]
        if kind in ("cgroup", "cgroup2"):
            found.append((root, point, frozenset(options.split(",")) if kind == "cgroup" else frozenset()))
    return found


def _folder(names: frozenset[str], path: str, mounted: list[tuple[str, str, frozenset[str]]]) -> str:
    """Nothing may run outside the limits of the task, so a hierarchy that cannot be entered is an error."""
    for root, point, options in mounted:
        is_it = names <= options if names else not options
        if is_it and f"{path}/".startswith(root):
            return point + path[len(root.rstrip("/")) :].rstrip("/")
    raise Unavailable(
        f"the cgroup {path} of the task is not mounted where the runner runs", reason="CannotEnter"
    )
