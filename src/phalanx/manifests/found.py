"""The result of a reading: jobs, some of which already hold places in a cluster, and gangs that cannot start yet."""

from __future__ import annotations

import re
from typing import ClassVar

from msgspec import Struct

from phalanx.api.schema.groupspec import NAMED_TASKS_MAX, GroupSpec
from phalanx.api.schema.jobspec import JobSpec
from phalanx.core.model.job import NAME_MAX, is_job_name, is_object
from phalanx.core.model.reason import Reason, Tier
from phalanx.core.model.resources import Cores
from phalanx.manifests.load import Map
from phalanx.manifests.taints import Toleration
from phalanx.manifests.view import View


class Placed(Struct, frozen=True):
    """A task that holds a place. `position` counts over the groups of its job.

    It may hold less than its group asks for: pods in a Kubernetes cluster share parts of devices, which `nodes.py`
    subtracts from the node in whole units.
    """

    position: int
    node: str
    cores: Cores
    memory_bytes: int
    gpus: int
    started_at: float | None = None
    ending: bool = False  # it is being evicted or deleted
    addresses: ClassVar[int] = 0  # Kubernetes' own are none of ours


class ParsedJob(Struct, frozen=True):
    """A job as read, with what else is known about it."""

    spec: JobSpec
    where: str  # file:line
    id: str  # namespace/name, or the manifest's name of the gang
    names: tuple[str, ...] = ()  # of the tasks, by position, where the manifest names them
    placed: tuple[Placed, ...] = ()
    nominated: tuple[tuple[int, str], ...] = ()  # (position, node) that is being freed for it
    done: tuple[int, ...] = ()  # positions of members that have succeeded
    tolerations: tuple[tuple[Toleration, ...], ...] = ()  # of each group; empty: none
    asked: bool = True  # False: it is only part of the cluster
    documents: tuple[Map, ...] = ()  # of a gang of pods: its PodGroups and pods, as they were written
    is_orphan: bool = False  # of a gang that lacks members: nothing says how many it needs


class Incomplete(Struct, frozen=True):
    """A gang that cannot be placed because its files lack something."""

    id: str
    where: str
    reason: Reason
    asked: bool = True


def gang_lacks(id: str, text: str, needed: int = 0, members: int = 0) -> Reason:
    """Why a gang cannot start: too few members, or a group that is missing."""
    return Reason("GangIncomplete", Tier.CAPACITY, f"{id} {text}", {"needed": needed, "members": members})


def object_names(names: list[str]) -> list[str]:
    """The names of objects as they are kept; empty if one of them has no name yet, as with generateName."""
    return names if all(map(is_object, names)) else []


def knows_names(groups: list[GroupSpec]) -> bool:
    """Whether tasks of these groups know each other by name, as in JobSet: several do, if they are not too many."""
    return 1 < sum(group.tasks for group in groups) <= NAMED_TASKS_MAX


def tell_no_names(groups: list[GroupSpec], view: View) -> None:
    """Add a caution if tasks of these groups, which start one by one, are too many to know each other by name."""
    if (tasks := sum(group.tasks for group in groups)) > NAMED_TASKS_MAX:
        view.note(
            "",
            f"its {tasks} tasks do not find each other by host name: at most {NAMED_TASKS_MAX} that are no gang can",
            "",
        )


def plain_name(text: str, view: View) -> str:
    """A valid name made of a foreign one, with a caution if it had to be changed."""
    name = text.rpartition("/")[2].lower()
    if not is_job_name(name):
        name = re.sub(r"[^a-z0-9._-]", "-", name)[:NAME_MAX].strip("._-") or "job"
        name = (
            name if is_job_name(name) else f"job-{name}"[:NAME_MAX]
        )  # such as 17, which is a number of a job
        view.note("name", f"is not a name here (63 characters of a-z, 0-9, '.', '_', '-'); {name!r} is used")
    return name
