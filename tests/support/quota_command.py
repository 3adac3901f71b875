"""What `phalanx queue set …` gives the coordinator."""

from __future__ import annotations

import shlex

from phalanx.core.cluster.inputs import SetQuota
from phalanx.core.model.amounts import parse_bytes, parse_cores
from phalanx.core.model.waiting import Quota


def quota_set(command: str) -> SetQuota:
    """What is left out is unlimited."""
    words = shlex.split(command)
    assert words[:3] == ["phalanx", "queue", "set"]
    given = dict(zip(words[4::2], words[5::2], strict=True))
    quota = Quota(
        tasks=int(given.pop("--tasks")) if "--tasks" in given else None,
        cores=parse_cores(given.pop("--cores")) if "--cores" in given else None,
        memory_bytes=parse_bytes(given.pop("--memory")) if "--memory" in given else None,
        gpus=int(given.pop("--gpus")) if "--gpus" in given else None,
        priority_max=int(given.pop("--priority-max")) if "--priority-max" in given else None,
    )
    assert not given
    return SetQuota(words[3], quota)
