"""Signals to processes by handle (pidfd), so that no other gets one that was given their number meanwhile."""

from __future__ import annotations

import errno
import os
import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


def signal_each(find: Callable[[], set[int]], *signums: int) -> None:
    """Signal the processes found, and no other that got one's number meanwhile.

    A handle is opened for each, then they are looked for again: whoever is found twice is who the handle
    means.
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
