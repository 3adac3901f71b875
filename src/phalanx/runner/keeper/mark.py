"""A mark that every process of an attempt carries and hands down to its children: an unusual resource limit.

A session can be left, an environment cleared and a parent outlived; a soft resource limit is inherited through fork and
exec, and whoever wants to be rid of it has to ask for that. RLIMIT_RTTIME is taken because nothing else uses it so: it
bounds how long a real-time process may run without a pause, in microseconds, and ours is more than 100,000 years. The
number says which state folder's keeper it was (40 bits) and which slot of it (20 bits).
"""

from __future__ import annotations

import os
import resource

from . import files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

_OURS = 1 << 62
_SLOT_BITS = 20
SLOT_MAX = (1 << _SLOT_BITS) - 1
_LINE = b"Max realtime timeout"


class Mark:
    """The mark of one keeper: of its folder, so that the next keeper of the folder has the same."""

    def __init__(self, state_dir: str, bases: Sequence[str] = ()) -> None:
        self.state_dir = state_dir
        self.bases = bases  # the node's folders for cgroups, as its runner said: all who are in them are of this keeper
        found = os.stat(state_dir)  # noqa: PTH116 (the keeper imports no pathlib)
        self._high = _OURS >> _SLOT_BITS | (found.st_ino ^ found.st_dev << 28) & (1 << 40) - 1
        self._usual = resource.getrlimit(resource.RLIMIT_RTTIME)
        self._allowed = self._usual[1] == resource.RLIM_INFINITY

    def put_on(self, number: int) -> None:
        """From now on children of ours have the mark of this slot."""
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
