"""Gangs whose members have not all been applied: the job that waits for them, and the text that is kept for it.

Controllers create a PodGroup first and its pods one by one. The coordinator keeps what it has received as text and
does not read it; the client that applies more of it reads all of it together.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import msgspec

from phalanx.api.schema.groupspec import GroupSpec
from phalanx.api.schema.jobspec import DraftSpec, JobSpec, RestartSpec
from phalanx.manifests.containers import NOTHING_RUNS
from phalanx.manifests.found import ParsedJob, object_names, plain_name
from phalanx.manifests.gangs import GangBook, PodGang, gang_id, with_gang
from phalanx.manifests.load import Map
from phalanx.manifests.members import by_shape, in_order
from phalanx.manifests.pods import Pod
from phalanx.manifests.traits import common_traits, with_traits

LACKS_MAX = 900  # characters


def draft(gangs: list[PodGang], pods: list[Pod], book: GangBook, before: int) -> ParsedJob:
    """A job that waits for members, made of those that were applied, or of a group in their place."""
    lacking = book.incomplete[before:]
    pods = in_order(pods)
    shapes = by_shape(pods)
    name = plain_name(gangs[0].name.partition(",")[0], gangs[0].view)
    groups = [
        msgspec.structs.replace(
            shape[0].template.group,
            name=name if len(shapes) == 1 else f"{name[:56]}-{number}",
            tasks=len(shape),
            objects=object_names([pod.name for pod in shape]),
        )
        for number, shape in enumerate(shapes)
    ]
    if not groups:
        tasks = sum(gang.terms.min or 1 for gang in gangs)
        groups = [GroupSpec(name=name, tasks=tasks, command=list(NOTHING_RUNS))]
    lacks = "; ".join(each.reason.text for each in lacking)[:LACKS_MAX]
    needed = (
        0 if any(gang.terms.min is None for gang in gangs) else sum(gang.terms.min or 0 for gang in gangs)
    )
    waits = DraftSpec(lacks, needed=needed, members=len(pods))
    spec = JobSpec(groups, name=name, restart=RestartSpec(whole=False), draft=waits)
    traits = common_traits([pod.template for pod in pods]) if pods else None
    spec = with_gang(with_traits(spec, traits) if traits else spec, gangs, traits.affinity if traits else "")
    return ParsedJob(
        spec=spec,
        where=gangs[0].view.where(),
        id=gang_id(gangs),
        names=tuple(pod.name for shape in shapes for pod in shape),
        tolerations=tuple(shape[0].template.tolerations for shape in shapes) or ((),),
        documents=documents_of(gangs, pods, book),
        is_orphan=any(gang.terms.min is None for gang in gangs),
    )


def documents_of(gangs: list[PodGang], pods: list[Pod], book: GangBook) -> tuple[Map, ...]:
    """The PodGroups and pods of gangs, as they were written."""
    names = [name for gang in gangs for name in gang.name.split(",")]
    views = [book.podgroups[name].view for name in names if name in book.podgroups]
    views += [pod.template.view for pod in pods]
    return tuple(view.around.content for view in views if view.around is not None)


def with_classes(found: ParsedJob, classes: tuple[Map, ...]) -> ParsedJob:
    """The parsed job, with its priority classes among the documents kept for it."""
    return (
        msgspec.structs.replace(found, documents=(*classes, *found.documents)) if found.documents else found
    )


def in_folder(pod: Pod, folder: str) -> Pod:
    """The pod, in this folder if it names none."""
    group = pod.template.group
    if group.cwd is not None:
        return pod
    template = msgspec.structs.replace(pod.template, group=msgspec.structs.replace(group, cwd=folder))
    return msgspec.structs.replace(pod, template=template)


def kept_text(documents: Sequence[Map], folder: str) -> str:
    """Documents as they are kept; a pod without a folder gets `folder`, whatever folder later ones come from."""
    kept = [copy.deepcopy(document) for document in documents]
    for document in kept:
        for container in _containers(document):
            container.setdefault("workingDir", folder)
    return "\n---\n".join(msgspec.json.encode(document).decode() for document in kept)


def is_same_document(kept: Map, again: Map) -> bool:
    """Whether a document is one that was kept, ignoring the folder that was added to it."""
    again = copy.deepcopy(again)
    for old, new in zip(_containers(kept), _containers(again), strict=False):
        if "workingDir" in old:
            new.setdefault("workingDir", old["workingDir"])
    return kept == again


def _containers(document: Map) -> list[dict[str, Any]]:
    spec = document.get("spec")
    found = spec.get("containers") if isinstance(spec, dict) else None
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []
