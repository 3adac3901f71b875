"""What a runner without rights can still limit: how many processes its account has, so that some are left for itself.

Of the kernel's limits of single processes only RLIMIT_NPROC helps. It counts all processes of an account, so it keeps
no task from the others; but a task that starts more and more of them leaves enough for the runner to end it. The others
do harm: RLIMIT_AS counts address space, of which CUDA, Go and Java reserve more than the machine has memory;
RLIMIT_DATA counts memory that was asked for and never used; RLIMIT_FSIZE ends programs that write checkpoints;
RLIMIT_CPU ends what has used much time, and not what uses more than its share. Memory is watched instead
(`usage/memory_watch.py`).
"""

from __future__ import annotations

import os
import resource
from pathlib import Path

PID_MAX = Path("/proc/sys/kernel/pid_max")
RESERVED = 256  # processes and threads of the account that tasks cannot take


def processes_of_tasks(pid_max: Path = PID_MAX) -> int:
    """The most processes that the account may have while a task starts one; 0: no limit, as for root there is none."""
    if os.geteuid() == 0:
        return 0
    allowed, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    most = int(pid_max.read_text())
    limit = most if allowed == resource.RLIM_INFINITY else min(allowed, most)
    return max(limit - RESERVED, limit // 2)
