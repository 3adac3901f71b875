"""The environment of attempts that stand alone: what those of one group with the same grant share is made once.

An array of trivial tasks has thousands of them, and to make all variables for each took a fifth of what the runner
does for one. What the variables are is said in `environment.py`; here is only which of them differ between attempts.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256

from phalanx.core.model.orders import Brief, Start
from phalanx.core.model.resources import Capacity, Grant
from phalanx.runner.environment import Peer, attempt_environment, in_replica, standing, task_id
from phalanx.runner.keeper_keys import brief_id
from phalanx.runner.parameters import is_parameter, variables

GRANTS_MAX = 256  # of one group
DIGEST_SIGNS = 16
OF_ONE = frozenset((
    "JOB_INDEX", "JOB_COMPLETION_INDEX", "PET_RDZV_ID", "PET_RDZV_ENDPOINT", "PET_MASTER_PORT", "MASTER_PORT",
    "PHALANX_TASK_ID", "PHALANX_ATTEMPT", "PHALANX_RESTART_COUNT", "PHALANX_ARRAY_INDEX", "PHALANX_MERGED",
    "PHALANX_GROUP_RANK", "PHALANX_HOSTNAME",
))  # fmt: skip


class LoneEnvironments:
    """The environments of the groups whose attempts this runner starts, until their briefs are forgotten."""

    def __init__(self) -> None:
        self._groups: dict[tuple[str, int], dict[Grant, SharedEnvironment]] = {}

    def of(
        self, brief: Brief, start: Start, port: int, here: Peer, capacity: Capacity, epoch: int
    ) -> tuple[SharedEnvironment, dict[str, str]]:
        """The variables of an attempt that is in no gang and whose job has no names: shared ones, and its own."""
        group = self._groups.setdefault((brief.job, brief.group), {})
        shared = group.get(start.grant)
        if shared is None or not shared.holds(brief, here, capacity, epoch):
            if len(group) >= GRANTS_MAX:
                group.clear()
            shared = group[start.grant] = SharedEnvironment(brief, start, port, here, capacity, epoch)
        return shared, shared.own(start, str(port))

    def forget(self, job: str, group: int) -> None:
        self._groups.pop((job, group), None)


class SharedEnvironment:
    """What attempts of one group with one grant have in common, as long as their runner's facts stay the same."""

    __slots__ = (
        "_address", "_brief", "_capacity", "_epoch", "_here", "_host", "_is_one_process", "_may_set", "brief_id",
        "env",
    )  # fmt: skip

    def __init__(
        self, brief: Brief, start: Start, port: int, here: Peer, capacity: Capacity, epoch: int
    ) -> None:
        self._brief, self._here, self._capacity, self._epoch = brief, here, capacity, epoch
        place = standing(start, brief, None, here, port)
        whole = attempt_environment(brief, start, place, capacity, epoch)
        self.env = {
            name: text for name, text in whole.items() if name not in OF_ONE and not is_parameter(name)
        }
        # By what is in it: attempts that an earlier runner sent may still wait for theirs.
        digest = sha256("\0".join((*self.env, *self.env.values())).encode()).hexdigest()[:DIGEST_SIGNS]
        self.brief_id = f"{brief_id(brief.job, brief.group)}/{digest}"
        address = place.leader.address
        self._address = f"[{address}]" if ":" in address else address
        self._host = place.hostname.removesuffix("{}-{}".format(*in_replica(brief, start)))
        self._is_one_process = "MASTER_PORT" in whole
        given: Mapping[str, str] = brief.command.env
        self._may_set = None if OF_ONE.isdisjoint(given) else OF_ONE - given.keys()

    def holds(self, brief: Brief, here: Peer, capacity: Capacity, epoch: int) -> bool:
        is_same = brief is self._brief and capacity is self._capacity and epoch == self._epoch
        return is_same and here == self._here

    def own(self, start: Start, port: str) -> dict[str, str]:
        """What only this attempt has."""
        brief, (_, position, number) = self._brief, start.key
        replica, place = in_replica(brief, start)
        named = task_id(brief, start)
        env = {
            "JOB_INDEX": str(replica),
            "JOB_COMPLETION_INDEX": str(place),
            "PET_RDZV_ID": named,
            "PET_RDZV_ENDPOINT": f"{self._address}:{port}",
            "PET_MASTER_PORT": port,
        }
        if self._is_one_process:
            env["MASTER_PORT"] = port
        if self._may_set is not None:  # the job's own variables override conventions
            env = {name: text for name, text in env.items() if name in self._may_set}
        env["PHALANX_TASK_ID"] = named
        env["PHALANX_ATTEMPT"] = str(number)
        env["PHALANX_RESTART_COUNT"] = str(start.restarts)
        if start.index is not None:
            env["PHALANX_ARRAY_INDEX"] = str(start.index)
        if start.has_merged:
            env["PHALANX_MERGED"] = start.merged
        if start.params:
            env |= variables(start.params)
        env["PHALANX_GROUP_RANK"] = str(position - brief.group_first)
        env["PHALANX_HOSTNAME"] = f"{self._host}{replica}-{place}"
        return env
