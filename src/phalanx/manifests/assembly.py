"""Pods into jobs: members of a gang, or of gangs that start together, become the groups of one job.

A group has members of one PodGroup with the same request and the same command. Pods of no gang are separate jobs,
unless they are in a cluster and have one owner.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import msgspec

from phalanx.api.schema.groupspec import GroupSpec
from phalanx.api.schema.jobspec import GangSpec, JobSpec, RestartSpec
from phalanx.manifests.drafts import documents_of, draft
from phalanx.manifests.found import ParsedJob, Placed, object_names, plain_name
from phalanx.manifests.gangs import GangBook, PodGang, gang_id, with_gang
from phalanx.manifests.members import by_shape, in_order, indexes, needed_of_each
from phalanx.manifests.pods import Pod
from phalanx.manifests.taints import Toleration
from phalanx.manifests.traits import common_traits, with_traits
from phalanx.manifests.view import View


def assemble(pods: list[Pod], book: GangBook) -> list[ParsedJob]:
    """Make jobs of pods."""
    members: dict[str, list[Pod]] = {}
    alone: dict[str, list[Pod]] = {}
    for pod in pods:
        if pod.template.gang:
            members.setdefault(pod.template.gang, []).append(pod)
        else:
            alone.setdefault(pod.owner or pod.name, []).append(pod)
    found = list(_together(members, book))
    found += [_without_gang(id, each) for id, each in alone.items()]
    return found


def _together(members: dict[str, list[Pod]], book: GangBook) -> Iterator[ParsedJob]:
    templates = {name: [pod.template for pod in pods] for name, pods in members.items()}
    for name in [*book.podgroups, *members]:
        if name in book.handled:
            continue
        if not (name in members or book.podgroups[name].terms.groups or book.keeps):
            continue
        before = len(book.incomplete)
        gangs = book.partners(name, templates)
        if gangs is None:
            if book.keeps:
                yield draft([book.alone(name, templates.get(name, []))], members.get(name, []), book, before)
            continue
        placed = any(pod.node or pod.done for gang in gangs for pod in members.get(gang.name, []))
        ready = [book.has_all(gang, len(members.get(gang.name, [])), placed) for gang in gangs]
        if all(ready):
            yield _gang_job(
                gangs, {gang.name: members[gang.name] for gang in gangs if gang.name in members}, book
            )
        elif book.keeps:
            yield draft(gangs, [pod for gang in gangs for pod in members.get(gang.name, [])], book, before)


def _gang_job(gangs: list[PodGang], members: dict[str, list[Pod]], book: GangBook) -> ParsedJob:
    groups: list[GroupSpec] = []
    ranks: list[Pod] = []
    for gang in gangs:
        pods = in_order(members.get(gang.name, []))
        shapes = by_shape(pods)
        needs = needed_of_each(gang.terms.min or len(pods), pods, shapes, gang.view)
        for number, (shape, need) in enumerate(zip(shapes, needs, strict=True)):
            name = _name(gang, gangs, number if len(shapes) > 1 else None, {group.name for group in groups})
            groups.append(_group(shape, name, need, gang.view))
            ranks += shape
        if gang.terms.total and gang.terms.total != len(pods):
            gang.view.note("", f"total-number is {gang.terms.total}, and there are {len(pods)} members")
    traits = common_traits([pod.template for pod in ranks])
    # Kubernetes restarts a member by itself, without the others.
    spec = JobSpec(groups, name=plain_name(gangs[0].name, gangs[0].view), restart=RestartSpec(whole=False))
    made = _found(with_gang(with_traits(spec, traits), gangs, traits.affinity), gang_id(gangs), ranks)
    return msgspec.structs.replace(made, documents=documents_of(gangs, ranks, book))


def _without_gang(id: str, pods: list[Pod]) -> ParsedJob:
    """Pods of one owner, each of which starts when there is room for it."""
    pods = in_order(pods)
    view = pods[0].template.view
    name = plain_name(id, view)
    shapes = by_shape(pods)
    groups = [
        _group(shape, name if len(shapes) == 1 else f"{name[:56]}-{number}", len(shape), view)
        for number, shape in enumerate(shapes)
    ]
    ranks = [pod for shape in shapes for pod in shape]
    traits = common_traits([pod.template for pod in ranks])
    gang: bool | GangSpec = GangSpec(affinity=traits.affinity) if traits.affinity else False
    if not id.startswith("default/"):
        view.note(
            "namespace",
            "is kept in the name and separates nothing; queues and quotas go by the name of a queue",
        )
    if len(groups) == 1:
        groups = [msgspec.structs.replace(groups[0], name="", indexes=[])]
    restart = RestartSpec(whole=False) if gang else None
    spec = JobSpec(groups, name=name, gang=gang, restart=restart, object="".join(object_names([id])))
    documents = tuple(
        pod.template.view.around.content for pod in ranks if pod.template.view.around is not None
    )
    return msgspec.structs.replace(_found(with_traits(spec, traits), id, ranks), documents=documents)


def _group(shape: list[Pod], name: str, need: int, view: View) -> GroupSpec:
    return msgspec.structs.replace(
        shape[0].template.group,
        name=name,
        tasks=len(shape),
        min=0 if need == len(shape) else need,
        optional=need == 0,
        indexes=indexes(shape, view),
        objects=object_names([pod.name for pod in shape]),
        tags=_common_tags(shape),
    )


def _common_tags(shape: list[Pod]) -> dict[str, str]:
    """The tags that all of them have."""
    return dict(set.intersection(*(set(pod.template.tags.items()) for pod in shape)))


def _found(spec: JobSpec, id: str, ranks: list[Pod]) -> ParsedJob:
    placed = tuple(_placed(position, pod) for position, pod in enumerate(ranks) if pod.node)
    return ParsedJob(
        spec=spec,
        where=ranks[0].template.view.where(),
        id=id,
        names=tuple(pod.name for pod in ranks),
        placed=placed,
        nominated=tuple(
            (at, pod.nominated)
            for at, pod in enumerate(ranks)
            if pod.nominated and not pod.node and not pod.done
        ),
        done=tuple(position for position, pod in enumerate(ranks) if pod.done),
        tolerations=_tolerations(spec, ranks),
        asked=any(not pod.from_cluster for pod in ranks),
    )


def _tolerations(spec: JobSpec, ranks: list[Pod]) -> tuple[tuple[Toleration, ...], ...]:
    """The tolerations of each group: in a plan its members have the same ones, and elsewhere they are not used."""
    firsts = itertools.accumulate((group.tasks for group in spec.groups[:-1]), initial=0)
    return tuple(ranks[first].template.tolerations for first in firsts)


def _placed(position: int, pod: Pod) -> Placed:
    asked = pod.template.amounts
    gpus = asked.gpu_percent // 100
    return Placed(position, pod.node, asked.cores, asked.memory_bytes, gpus, pod.started_at, pod.ending)


def _name(gang: PodGang, gangs: list[PodGang], number: int | None, taken: set[str]) -> str:
    """The name of a group: that of its gang, with as much added as distinguishes it from the others."""
    bare = gang.name.rpartition("/")[2]
    alike = sum(each.name.rpartition("/")[2] == bare for each in gangs)
    name = gang.name.replace("/", ".") if alike > 1 else bare
    name = plain_name(name if number is None else f"{name}-{number}", gang.view)
    others = (f"{name[:56]}-{count}" for count in itertools.count(2))
    return next(each for each in itertools.chain([name], others) if each not in taken)
