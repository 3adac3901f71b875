"""A process identified by pid and start time, because pids are reused."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from phalanx.errors import Conflict, Unavailable

END_WITHIN_S = 45.0


class ProcessOwner(Struct, frozen=True):
    """A process, distinguished from a later one with the same pid."""

    pid: int
    started: int  # clock ticks after boot

    @classmethod
    def of(cls, pid: int) -> ProcessOwner | None:
        """The process that has this pid now."""
        with suppress(OSError, ValueError):
            # The program's name may hold spaces and brackets, so we count from the last bracket on.
            fields = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()
            return cls(pid, int(fields[19])) if fields[0] not in {"Z", "X"} else None
        return None

    @property
    def is_alive(self) -> bool:
        return ProcessOwner.of(self.pid) == self


def end(owner: ProcessOwner, is_right: Callable[[int], bool] = lambda _pid: True) -> None:
    """Ask it to end and wait until it has. A pidfd cannot come to mean another process.

    While the pidfd is open the pid names this process; it is signalled only if it is the right one.
    """
    try:
        process = os.pidfd_open(owner.pid)
    except ProcessLookupError:
        return
    try:
        if not owner.is_alive:
            return
        if not is_right(owner.pid):
            raise Conflict(
                f"process {owner.pid} is not the one its file names, and was not stopped",
                hint=f"`ps -fp {owner.pid}` shows it; end the right one with `kill`",
            )
        signal.pidfd_send_signal(process, signal.SIGTERM)
        ended = select.poll()
        ended.register(process, select.POLLIN)
        if not ended.poll(END_WITHIN_S * 1000):
            text = f"process {owner.pid} has not ended within {END_WITHIN_S:g} s"
            raise Unavailable(text, hint="try again")
    finally:
        os.close(process)
