"""Slots: how the processes of an attempt are recognised, whatever they do to get away.

An attempt has a slot from its spawn until its last process has ended. All its processes carry the number of the slot
in their mark, and where the runner may make cgroups they are in the slot's own. A slot is used again, its cgroup and
its descriptors with it: making and removing a folder for each attempt would cost three times as much as going in and
out.

The mark is an unusual resource limit, inherited through fork and exec. A process can leave a session, clear its
environment and outlive its parent, but to get rid of a soft limit it has to ask for that. RLIMIT_RTTIME is used
because nothing else uses it so: it bounds how long a real-time process may run without a pause, in microseconds, and
ours is more than 100,000 years. The number holds the state folder of the keeper (40 bits) and its slot (20 bits).
"""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import signal
import sys

from . import cgroup, files, tree
from .cgroup import Homes, signal_each

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from .attempt import KeptAttempt

_OURS = 1 << 62
_SLOT_BITS = 20
SLOT_MAX = (1 << _SLOT_BITS) - 1
_LINE = b"Max realtime timeout"
OPEN_MAX = 128  # slots that keep their descriptors; the others open theirs each time


class Mark:
    """The mark of one keeper: made of its folder, so that the next keeper of the folder has the same."""

    def __init__(self, state_dir: str, bases: Sequence[str] = ()) -> None:
        self.state_dir = state_dir
        self.bases = (
            bases  # the node's folders for cgroups, from its runner: all processes in them are of this keeper
        )
        found = os.stat(state_dir)  # noqa: PTH116 (the keeper imports no pathlib)
        self._high = _OURS >> _SLOT_BITS | (found.st_ino ^ found.st_dev << 28) & (1 << 40) - 1
        self._usual = resource.getrlimit(resource.RLIMIT_RTTIME)
        self._allowed = self._usual[1] == resource.RLIM_INFINITY

    def put_on(self, number: int) -> None:
        """From now on our children get the mark of this slot."""
        if self._allowed and number <= SLOT_MAX:
            value = self._high << _SLOT_BITS | number
            resource.setrlimit(resource.RLIMIT_RTTIME, (value, self._usual[1]))

    def take_off(self) -> None:
        resource.setrlimit(resource.RLIMIT_RTTIME, self._usual)

    def number_of(self, pid: int | str) -> int | None:
        """The slot whose mark a process carries; None if it has none of this folder's."""
        for line in files.read(f"/proc/{pid}/limits").splitlines():
            if line.startswith(_LINE):
                soft = line[len(_LINE) :].split()[0]
                value = int(soft) if soft.isdigit() else 0
                return value & SLOT_MAX if value >> _SLOT_BITS == self._high else None
        return None


class Slot:
    """A number, and a cgroup or none."""

    __slots__ = ("_files", "_way_in", "base", "folder", "given_up", "key", "number")

    def __init__(self, number: int, base: str) -> None:
        self.number = number
        self.base = base  # the folder in which its cgroup is, or was to be
        self.folder = f"{base}/{cgroup.SLOT}{number}" if base else ""  # empty without a cgroup
        self.given_up = False  # it failed for the last attempt, and is checked again before the next one
        self.key = ""  # of the attempt that has it
        self._files: dict[str, int] = {}
        self._way_in = ""

    def make(self) -> None:
        self.close()
        cgroup.make(self.folder)

    def enter(self) -> None:
        """Move the keeper into the cgroup; raises OSError."""
        if not self._way_in:
            self._way_in = cgroup.way_in(self.folder)
        name = self._way_in
        if self.number >= OPEN_MAX:
            files.write(f"{self.folder}/{name}", b"0")
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
            text = os.pread(fd, 256, 0) if fd >= 0 else files.read(f"{self.folder}/{name}")
        except OSError:  # the folder was removed, which only an empty one can be
            return True
        try:
            if b"frozen 1" in text and (b"populated 0" in text or cgroup.is_only_ours(self.folder)):
                cgroup.thaw(self.folder)  # a task can freeze its own, and the keeper enters again
            if text and b"populated 0" not in text:
                return cgroup.is_only_ours(self.folder)
            return bool(text) or not cgroup.members([self.folder])
        except OSError:  # unknown for now, so there may be one
            return False

    def kill(self) -> None:
        """Kill all processes inside; on v1, those forked meanwhile are killed the next time."""
        if not cgroup.kill([self.folder]):
            signal_each(lambda: tree.members([self.folder]), signal.SIGKILL)

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
    for base in {files.parent(folder) for folder in folders}:
        with contextlib.suppress(OSError), os.scandir(base) as entries:
            found |= {entry.path for entry in entries if entry.name.startswith(cgroup.SLOT)}
    return found
