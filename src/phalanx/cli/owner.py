"""A process told apart from a later one: pids are used again, a pid and a starting time are not."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from msgspec import Struct


class Owner(Struct, frozen=True):
    """A process, told apart from a later one with the same pid."""

    pid: int
    started: int  # clock ticks after boot

    @classmethod
    def of(cls, pid: int) -> Owner | None:
        """The process that has this pid now."""
        with suppress(OSError, ValueError):
            # The program's name may hold spaces and brackets, so we count from the last bracket on.
            fields = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()
            return cls(pid, int(fields[19])) if fields[0] not in {"Z", "X"} else None
        return None

    @property
    def is_alive(self) -> bool:
        return Owner.of(self.pid) == self
