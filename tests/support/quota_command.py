"""What `phalanx queue set …` gives the coordinator."""

from __future__ import annotations

import shlex

from msgspec import structs

from phalanx.core.cluster.inputs import SetQuota
from phalanx.core.model.amounts import parse_bytes, parse_cores
from phalanx.core.model.queues import Quota, UserLimits

_NEW = Quota()


def quota_set(command: str, old: Quota = _NEW) -> SetQuota:
    """What is left out stays as it is."""
    words = shlex.split(command)
    assert words[:3] == ["phalanx", "queue", "set"]
    limits: dict[str, object] = {}
    for option, value in zip(words[4::2], words[5::2], strict=True):
        if option == "--for-user":
            user, _, terms = value.partition(":")
            own = {name: int(amount) for name, amount in (term.split("=") for term in terms.split(","))}
            limits["by_user"] = {**old.by_user, user: UserLimits(**own)}
        elif option == "--cores":
            limits["cores"] = parse_cores(value)
        elif option == "--memory":
            limits["memory_bytes"] = parse_bytes(value)
        elif option == "--order":
            limits["order"] = value
        else:
            limits[option.removeprefix("--")] = int(value)
    return SetQuota(words[3], structs.replace(old, **limits))
