"""What a reading finds: jobs, some of which already hold places in a cluster, and those that cannot begin yet."""

from __future__ import annotations

import re

from msgspec import Struct

from phalanx.api.schema.jobspec import JobSpec
from phalanx.core.model.ids import NAME_MAX, is_name, is_object
from phalanx.core.model.reason import Reason, Tier
from phalanx.manifests.load import Map
from phalanx.manifests.taints import Toleration
from phalanx.manifests.view import View


class Placed(Struct, frozen=True):
    """A task that holds a place. `position` counts over the groups of its job.

    What it holds may be less than its group asks for: parts of cores and devices are shared in a cluster of
    Kubernetes, and are taken off the node as a whole (`nodes.py`).
    """

    position: int
    node: str
    cores: int
    memory_bytes: int
    gpus: int
    started_at: float | None = None
    ending: bool = False  # it has been told to leave


class ParsedJob(Struct, frozen=True):
    """A job as read, and what is known about it besides."""

    spec: JobSpec
    where: str  # file:line
    id: str  # namespace/name, or what the manifest calls the gang
    names: tuple[str, ...] = ()  # of the tasks, by position, where the manifest names them
    placed: tuple[Placed, ...] = ()
    nominated: tuple[tuple[int, str], ...] = ()  # (position, node) that is being freed for it
    done: tuple[int, ...] = ()  # positions of members that have done their work
    tolerations: tuple[tuple[Toleration, ...], ...] = ()  # of each group; empty: nobody tolerates anything
    asked: bool = True  # False: it only lies in the cluster
    documents: tuple[Map, ...] = ()  # of a gang of pods: its PodGroups and pods, as they were written
    is_orphan: bool = False  # of a gang that lacks members: nobody says how many it needs


class Incomplete(Struct, frozen=True):
    """A gang that cannot be placed for what its files lack."""

    id: str
    where: str
    reason: Reason
    asked: bool = True


def gang_lacks(id: str, text: str, needed: int = 0, members: int = 0) -> Reason:
    """Why a gang cannot begin: too few members, or a group that is not there."""
    return Reason("GangIncomplete", Tier.CAPACITY, f"{id} {text}", {"needed": needed, "members": members})


def object_names(names: list[str]) -> list[str]:
    """The names of objects as they are kept; none of them if one is yet to be made, as by generateName."""
    return names if all(map(is_object, names)) else []


def plain_name(text: str, view: View) -> str:
    """A name of ours out of somebody else's, with a caution if it had to be changed."""
    name = text.rpartition("/")[2].lower()
    if not is_name(name):
        name = re.sub(r"[^a-z0-9._-]", "-", name)[:NAME_MAX].strip("._-") or "job"
        view.note(
            "name", f"is not a name here (63 characters of a-z, 0-9, '.', '_', '-'); it is called {name!r}"
        )
    return name
