"""Control groups as the keeper needs them: a slot for each attempt, to enter, return from, look into and kill in.

An attempt has a slot from its spawn until its last process has ended. All its processes carry the number of the slot
in their mark (`tree.py`), and where the runner may make cgroups they are in the slot's own. A slot is used again, its
cgroup and its descriptors with it: making and removing a folder for each attempt would cost three times as much as
going in and out.

An attempt may be in several folders at once, one per hierarchy (memory on v1, tracking on v2). The runner makes and
removes folders with limits (`runner/cgroups.py`); the keeper those of its slots, which only distinguish the processes
of one attempt from another's. Beside them is a leaf named `keeper`, to which the keeper returns.

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
import sys

from . import log, system
from .system import signal_each

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from .attempt import KeptAttempt
    from .tree import Mark

HOME = "keeper"
BASE = "phalanx-"  # and the node's name: the folder of all this
OPTION = "--cgroups="  # and a folder of this node: processes in it belong to this keeper
PID_DIGITS_MAX = 7
SLOT = "slot-"  # and a number: the cgroups that the keeper itself makes
THREADED = f"{BASE}slots"  # on v2, the folder of a node in which they are
KILL_ROUNDS_MAX = 8
OPEN_MAX = 128  # slots that keep their descriptors; the others open theirs each time


class Homes:
    """The way back: an open control file of the leaf `keeper`, one for each hierarchy."""

    def __init__(self) -> None:
        self._procs: dict[str, int] = {}

    def open(self, parent: str) -> None:
        """Make sure that there is a way back from any folder in this one; raises OSError."""
        self._home(parent)

    def enter(self, folder: str) -> None:
        """Move the keeper into the folder, but only when the way back is known to be open."""
        self.open(system.parent(folder))
        system.write(f"{folder}/{way_in(folder)}", b"0")

    def leave(self, folder: str) -> None:
        self.return_to(system.parent(folder))

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
        system.write(f"{system.parent(folder)}/{HOME}/cgroup.procs", b"0")

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
    if system.read(f"{folder}/cgroup.type").startswith(b"domain invalid"):
        system.write(f"{folder}/cgroup.type", b"threaded")


def way_in(folder: str) -> str:
    """The control file by which the keeper enters: one that takes a single thread, where there is one."""
    if _is_threaded(folder):
        return "cgroup.threads"
    return "tasks" if os.access(f"{folder}/tasks", os.W_OK) else "cgroup.procs"


def _is_threaded(folder: str) -> bool:
    """Raises OSError where that is unknown."""
    return system.read_surely(f"{folder}/cgroup.type").strip() == b"threaded"


def oom_kills(folders: list[str]) -> int:
    """How many processes the kernel has OOM-killed in these folders so far."""
    total = 0
    for folder in folders:
        for name in ("memory.events", "memory.oom_control"):  # v2, v1
            for line in system.read(f"{folder}/{name}").splitlines():
                if line.startswith(b"oom_kill "):
                    total += int(line.split()[1])
    return total


def members(folders: list[str]) -> set[int]:
    """The processes now in these folders, without the keeper itself; raises OSError where that is unknown."""
    return {pid for folder in folders for pid in _pids(folder)} - {os.getpid()}


def known_members(folders: list[str]) -> set[int]:
    """The processes inside; empty where that is unknown: they are signalled again later."""
    try:
        return members(folders)
    except OSError:
        return set()


def node_folder(base: str) -> str:
    """The node's folder that this folder of slots is in; in one hierarchy an attempt is in one cgroup only."""
    return base.partition(f"/{THREADED}")[0]


def is_beside(folders: list[str], base: str) -> bool:
    """Whether one of these is in the node's folder that this folder of slots is in."""
    node = node_folder(base)
    return any(system.parent(folder) == node for folder in folders)


def is_of_a_node(folder: str) -> bool:
    """Whether it can be an attempt's, beside a keeper's leaf: whatever a journal says, no other is killed."""
    base, _, name = folder.rpartition("/")
    is_ours = system.parent(base).startswith("/") and base.rpartition("/")[2].startswith(BASE)
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
                if folder == base or _is_of_an_owner(folder, base):
                    names[:] = [name for name in names if name not in (HOME, THREADED)]
                found.update(f"{folder}/{name}" for name in names)
    return found


def _is_of_an_owner(folder: str, base: str) -> bool:
    """Whether it is a folder for the slots of one owner, in which there is a leaf of the keeper as well."""
    above, _, name = folder.rpartition("/")
    return above == base and name.startswith(BASE)


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
                system.write(f"{folder}/cgroup.kill", b"1")
            killed = True
        except OSError:
            continue
    return killed


def _kill_frozen(folder: str) -> None:
    """The kernel cannot kill a threaded cgroup at once: freeze it, so that no process forks, and kill each."""
    system.write(f"{folder}/cgroup.freeze", b"1")
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
    system.write(f"{folder}/cgroup.freeze", b"0")


def _pids(folder: str) -> set[int]:
    """The pids inside; a journal can name a folder that is no cgroup, with anything in a file of that name."""
    if not _is_threaded(folder):
        return _numbers(system.read_surely(f"{folder}/cgroup.procs"))
    threads = _numbers(system.read_surely(f"{folder}/cgroup.threads"))
    return {pid for thread in threads for pid in _numbers(_process_of(thread))}


def _process_of(thread: int) -> bytes:
    """The number of the process a thread belongs to; empty if it has ended."""
    return system.read_surely(f"/proc/{thread}/status").partition(b"\nTgid:")[2].partition(b"\n")[0]


def _numbers(text: bytes) -> set[int]:
    return {int(word) for word in text.split() if word.isdigit() and len(word) <= PID_DIGITS_MAX}


class Slot:
    """A number, and a cgroup or none."""

    __slots__ = ("_files", "_way_in", "base", "folder", "given_up", "key", "number")

    def __init__(self, number: int, base: str) -> None:
        self.number = number
        self.base = base  # the folder in which its cgroup is, or was to be
        self.folder = f"{base}/{SLOT}{number}" if base else ""  # empty without a cgroup
        self.given_up = False  # it failed for the last attempt, and is checked again before the next one
        self.key = ""  # of the attempt that has it
        self._files: dict[str, int] = {}
        self._way_in = ""

    def make(self) -> None:
        self.close()
        make(self.folder)

    def enter(self) -> None:
        """Move the keeper into the cgroup; raises OSError."""
        if not self._way_in:
            self._way_in = way_in(self.folder)
        name = self._way_in
        if self.number >= OPEN_MAX:
            system.write(f"{self.folder}/{name}", b"0")
            return
        if name not in self._files:
            self._files[name] = os.open(f"{self.folder}/{name}", os.O_WRONLY)
        os.write(self._files[name], b"0")

    def is_empty(self) -> bool:
        """Whether no process is in its cgroup. On v1 only the list of those inside shows it."""
        if not self.folder:
            return True
        name = "cgroup.events"
        if self.number < OPEN_MAX and name not in self._files:
            with contextlib.suppress(OSError):
                self._files[name] = os.open(f"{self.folder}/{name}", os.O_RDONLY)
        fd = self._files.get(name, -1)
        try:
            text = os.pread(fd, 256, 0) if fd >= 0 else system.read(f"{self.folder}/{name}")
        except OSError:  # the folder was removed, which only an empty one can be
            return True
        try:
            if b"frozen 1" in text and (b"populated 0" in text or is_only_ours(self.folder)):
                thaw(self.folder)  # a task can freeze its own, and the keeper enters again
            if text and b"populated 0" not in text:
                return is_only_ours(self.folder)
            return bool(text) or not members([self.folder])
        except OSError:  # unknown for now, so there may be one
            return False

    def kill(self) -> None:
        """Kill all processes inside; on v1, those forked meanwhile are killed the next time."""
        if not kill([self.folder]):
            signal_each(lambda: known_members([self.folder]), signal.SIGKILL)

    def close(self) -> None:
        for fd in self._files.values():
            os.close(fd)
        self._files = {}
        self._way_in = ""


class AttemptSlots:
    """The slots in use, and those that are free to be used again."""

    def __init__(self, mark: Mark) -> None:
        self.mark = mark
        self._homes = Homes()
        self._all: list[Slot] = []
        self._free: dict[str, list[Slot]] = {}  # by the folder their cgroups are in
        self._complained = False

    def take(self, attempt: KeptAttempt, base: str) -> None:
        """Give it a free slot, with a cgroup in this folder unless that is empty or not allowed."""
        free = self._free.get(base)
        slot = free.pop() if free else self._make(base)
        if slot.given_up and slot.is_empty():
            slot.given_up = False
        folder = "" if slot.given_up else slot.folder
        slot.key, attempt.slot, attempt.slot_folder = attempt.key, slot.number, folder

    def __getitem__(self, number: int) -> Slot:
        return self._all[number]

    def give_back(self, attempt: KeptAttempt) -> None:
        """Nothing of an attempt is alive: its slot is free."""
        slot = self._all[attempt.slot]
        attempt.slot, attempt.slot_folder, slot.key = -1, "", ""
        self._free.setdefault(slot.base, []).append(slot)

    def key_of(self, number: int) -> str:
        return self._all[number].key if number < len(self._all) else ""

    def enter(self, attempt: KeptAttempt) -> None:
        """Enter the cgroup, so that the child is inside from the start. If that fails, it is spawned without."""
        slot = self._all[attempt.slot]
        self.mark.put_on(slot.number)
        if not attempt.slot_folder:
            return
        try:
            self._homes.open(slot.base)
            try:
                slot.enter()
            except OSError:
                # The folder was removed, or does not exist yet, or we come from another tree.
                slot.make()
                self._enter_anew(slot)
        except OSError as error:
            self._give_up(slot, error)
            attempt.slot_folder = ""

    def leave(self, attempt: KeptAttempt) -> None:
        if attempt.slot_folder:
            self._homes.return_to(self._all[attempt.slot].base)
        self.mark.take_off()

    def _enter_anew(self, slot: Slot) -> None:
        try:
            slot.enter()
        except OSError as error:
            if error.errno != errno.EOPNOTSUPP:
                raise
            self._homes.join(slot.folder)
            slot.enter()

    def _make(self, base: str) -> Slot:
        slot = Slot(len(self._all), base)
        self._all.append(slot)
        if not slot.is_empty():  # it is another's, or of an earlier keeper whose end was not seen
            slot.kill()
            self._give_up(slot, OSError(errno.EBUSY, os.strerror(errno.EBUSY)))
        return slot

    def _give_up(self, slot: Slot, error: OSError) -> None:
        """This time the slot is used without its cgroup: descriptors or memory may have run out for a moment."""
        if not self._complained:
            self._complained = True
            sys.stderr.write(f"no cgroup for an attempt: {slot.folder}: {error.strerror}\n")
        slot.close()
        slot.given_up = True


def folders_beside(folders: Iterable[str]) -> set[str]:
    """The cgroups of all slots that exist beside these."""
    found = set()
    for base in {system.parent(folder) for folder in folders}:
        with contextlib.suppress(OSError), os.scandir(base) as entries:
            found |= {entry.path for entry in entries if entry.name.startswith(SLOT)}
    return found
