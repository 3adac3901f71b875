"""The keeper's priority: what it bounds (logs, leases, time limits) must not wait behind the tasks it bounds."""

from __future__ import annotations

import os

NICENESS = -10


def go_first() -> None:
    """Raise our own scheduling priority, as far as allowed; processes started from now on do not have it."""
    try:
        os.sched_setscheduler(0, os.SCHED_RR | os.SCHED_RESET_ON_FORK, os.sched_param(1))
    except OSError:
        try:
            os.sched_setscheduler(0, os.SCHED_OTHER | os.SCHED_RESET_ON_FORK, os.sched_param(0))
            os.setpriority(os.PRIO_PROCESS, 0, NICENESS)
        except OSError:
            return  # an ordinary account may not; its logs may outgrow their limit by more while the node is busy
