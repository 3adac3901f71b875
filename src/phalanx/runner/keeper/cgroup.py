"""Control groups as the keeper needs them: enter, return, read OOM kills, find and kill the processes inside.

An attempt may be in several folders at once, one per hierarchy (memory on v1, tracking on v2). The runner makes and
removes folders with limits (`runner/cgroups.py`); the keeper those without, which only distinguish the processes of
one attempt from another's (`slots.py`). Beside them is a leaf named `keeper`, to which the keeper returns.

How a child gets in before its first instruction was measured here (CPU above a plain spawn, memory on v1 and unified
v2 together): the keeper goes in, spawns and comes back +0.1 ms; a `/bin/sh` that enters and execs +0.85 ms; writing
the child's pid after the spawn +0.03 ms, but then what the child forked meanwhile is outside. So the keeper goes in.
The price: until its exec the child shares the keeper's memory, and an OOM kill in that instant would take the keeper
along. That is why the runner sets no limit under a few MiB.

To move a whole process (`cgroup.procs`) the kernel waits for a grace period of RCU, 6 to 20 ms on an idle machine; a
thread that moves itself need not wait. The keeper has one thread, so it writes to `tasks` on v1, and on v2 to
`cgroup.threads`, for which slots are threaded cgroups (decision 40).
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal

from . import files, log

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection

HOME = "keeper"
BASE = "phalanx-"  # and the node's name: the folder of all this
OPTION = "--cgroups="  # and a folder of this node: processes in it belong to this keeper
PID_DIGITS_MAX = 7
SLOT = "slot-"  # and a number: the cgroups that the keeper itself makes
THREADED = f"{BASE}slots"  # on v2, the folder of a node in which they are
KILL_ROUNDS_MAX = 8


class Homes:
    """The way back: an open control file of the leaf `keeper`, one for each hierarchy."""

    def __init__(self) -> None:
        self._procs: dict[str, int] = {}

    def open(self, parent: str) -> None:
        """Make sure that there is a way back from any folder in this one; raises OSError."""
        self._home(parent)

    def enter(self, folder: str) -> None:
        """Move the keeper into the folder, but only when the way back is known to be open."""
        self.open(files.parent(folder))
        files.write(f"{folder}/{way_in(folder)}", b"0")

    def leave(self, folder: str) -> None:
        self.return_to(files.parent(folder))

    def return_to(self, parent: str) -> None:
        """Return from any folder that is in this one."""
        try:
            os.write(self._home(parent), b"0")
        except OSError:  # the leaf was removed
            self._forget(parent)
            try:
                os.write(self._home(parent), b"0")
            except OSError as error:
                log.write("leave", f"cannot leave a cgroup in {parent}: {error}")

    def join(self, folder: str) -> None:
        """Move the keeper into the leaf as a whole process: only from there can a thread enter threaded cgroups."""
        files.write(f"{files.parent(folder)}/{HOME}/cgroup.procs", b"0")

    def _forget(self, parent: str) -> None:
        if (fd := self._procs.pop(parent, -1)) >= 0:
            os.close(fd)

    def _home(self, parent: str) -> int:
        if parent not in self._procs:
            home = f"{parent}/{HOME}"
            with contextlib.suppress(OSError):
                make(home)
            self._procs[parent] = os.open(f"{home}/{way_in(home)}", os.O_WRONLY)
        return self._procs[parent]


def make(folder: str) -> None:
    """Create a cgroup unless it exists; in a threaded tree it has to be threaded itself."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(folder)  # noqa: PTH102 (the keeper imports no pathlib)
    if files.read(f"{folder}/cgroup.type").startswith(b"domain invalid"):
        files.write(f"{folder}/cgroup.type", b"threaded")


def way_in(folder: str) -> str:
    """The control file by which the keeper enters: one that takes a single thread, where there is one."""
    if _is_threaded(folder):
        return "cgroup.threads"
    return "tasks" if os.access(f"{folder}/tasks", os.W_OK) else "cgroup.procs"


def _is_threaded(folder: str) -> bool:
    """Raises OSError where that is unknown."""
    return files.read_surely(f"{folder}/cgroup.type").strip() == b"threaded"


def oom_kills(folders: list[str]) -> int:
    """How many processes the kernel has OOM-killed in these folders so far."""
    total = 0
    for folder in folders:
        for name in ("memory.events", "memory.oom_control"):  # v2, v1
            for line in files.read(f"{folder}/{name}").splitlines():
                if line.startswith(b"oom_kill "):
                    total += int(line.split()[1])
    return total


def members(folders: list[str]) -> set[int]:
    """The processes now in these folders, without the keeper itself; raises OSError where that is unknown."""
    return {pid for folder in folders for pid in _pids(folder)} - {os.getpid()}


def node_folder(base: str) -> str:
    """The node's folder that this folder of slots is in; in one hierarchy an attempt is in one cgroup only."""
    return base.removesuffix(f"/{THREADED}")


def is_of_a_node(folder: str) -> bool:
    """Whether it can be an attempt's, beside a keeper's leaf: whatever a journal says, no other is killed."""
    base, _, name = folder.rpartition("/")
    is_ours = files.parent(base).startswith("/") and base.rpartition("/")[2].startswith(BASE)
    return (
        is_ours
        and ".." not in folder.split("/")
        and name not in ("", ".", HOME)
        and _is_folder(f"{base}/{HOME}")
    )


def attempts_in(bases: Collection[str]) -> set[str]:
    """All cgroups in these folders of a node, with those that tasks made in theirs, except the keeper's leaf."""
    found: set[str] = set()
    for base in (*bases, *(f"{base}/{THREADED}" for base in bases)):
        if is_of_a_node(f"{base}/{SLOT}0"):
            for folder, names, _ in os.walk(base):
                if folder == base:
                    names[:] = [name for name in names if name not in (HOME, THREADED)]
                found.update(f"{folder}/{name}" for name in names)
    return found


def _is_folder(path: str) -> bool:
    return os.access(f"{path}/.", os.F_OK)


def is_only_ours(folder: str) -> bool:
    """Whether only this process is in it, because it could not leave."""
    return _pids(folder) == {os.getpid()}


def kill(folders: list[str], spared: Collection[int] = ()) -> bool:
    """Kill all processes inside at once where the kernel offers it (v2); False when each needs a signal."""
    killed = False
    for folder in folders:
        # If the keeper could not return, signal each process rather than kill the keeper with them.
        try:
            if not _pids(folder).isdisjoint((os.getpid(), *spared)):
                continue
            if _is_threaded(folder):
                _kill_frozen(folder)
            else:
                files.write(f"{folder}/cgroup.kill", b"1")
            killed = True
        except OSError:
            continue
    return killed


def _kill_frozen(folder: str) -> None:
    """The kernel cannot kill a threaded cgroup at once: freeze it, so that no process forks, and kill each."""
    files.write(f"{folder}/cgroup.freeze", b"1")
    try:
        signalled: set[int] = set()
        for _ in range(KILL_ROUNDS_MAX):  # a process forked just before the freeze is found in the next round
            left = _pids(folder) - signalled
            if not left:
                return
            signal_each(lambda: _pids(folder) - signalled, signal.SIGKILL)
            signalled.update(left)
    finally:
        thaw(folder)


def thaw(folder: str) -> None:
    """Thaw the cgroup; otherwise the keeper would freeze when it enters."""
    files.write(f"{folder}/cgroup.freeze", b"0")


def _pids(folder: str) -> set[int]:
    """The pids inside; a journal can name a folder that is no cgroup, with anything in a file of that name."""
    if not _is_threaded(folder):
        return _numbers(files.read_surely(f"{folder}/cgroup.procs"))
    threads = _numbers(files.read_surely(f"{folder}/cgroup.threads"))
    return {pid for thread in threads for pid in _numbers(_process_of(thread))}


def _process_of(thread: int) -> bytes:
    """The number of the process a thread belongs to; empty if it has ended."""
    return files.read_surely(f"/proc/{thread}/status").partition(b"\nTgid:")[2].partition(b"\n")[0]


def _numbers(text: bytes) -> set[int]:
    return {int(word) for word in text.split() if word.isdigit() and len(word) <= PID_DIGITS_MAX}


def signal_each(find: Callable[[], set[int]], *signums: int) -> None:
    """Signal the processes found, and no other that got one's pid meanwhile.

    A handle is opened for each, then they are looked for again: a process found twice is the one of the handle.
    """
    handles = {pid: fd for pid in find() if (fd := _open_process(pid)) is not None}
    again = find() if handles else set()
    for pid, fd in handles.items():
        for signum in signums if pid in again else ():
            _send_by_handle(pid, fd, signum)
        if fd >= 0:
            os.close(fd)


def _open_process(pid: int) -> int | None:
    """A handle on the process: None when it is gone, -1 where the kernel (before 5.3) has no handles."""
    try:
        return os.pidfd_open(pid)
    except OSError as error:
        return -1 if error.errno == errno.ENOSYS else None


def _send_by_handle(pid: int, fd: int, signum: int) -> None:
    try:
        if fd >= 0:
            signal.pidfd_send_signal(fd, signum)
        else:
            os.kill(pid, signum)
    except OSError:  # it is gone, or not ours to signal
        pass
