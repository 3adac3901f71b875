"""Workloads made from templates (Job, JobSet): how one becomes a gang when its templates say so.

The tasks of a workload belong to a gang if the pods made from its templates would. All groups of one job of ours start
together, so a gang and a workload have to be the same.
"""

from __future__ import annotations

import msgspec

from phalanx.api.schema.groupspec import GatherSpec
from phalanx.api.schema.jobspec import GangSpec, JobSpec
from phalanx.core.model.job import GANG_TASKS_MAX
from phalanx.manifests.gangs import GangBook, PodGang, with_gang
from phalanx.manifests.members import share_out
from phalanx.manifests.pods import Template

KUEUE_MUST = "kueue.x-k8s.io/podset-required-topology"
KUEUE_PREFER = "kueue.x-k8s.io/podset-preferred-topology"
KUEUE_EITHER_WAY = "kueue.x-k8s.io/podset-unconstrained-topology"


def with_gang_of(spec: JobSpec, templates: list[Template], book: GangBook, affinity: str) -> JobSpec | None:
    """The job as the gang its templates name; None if that gang lacks something, which has been reported."""
    if not any(template.gang for template in templates):
        return _with_kueue(spec, templates, affinity)
    of_gang: dict[str, list[Template]] = {}
    for template in templates:
        if template.gang:
            of_gang.setdefault(template.gang, []).append(template)
        else:
            template.view.caution("", "it is of no gang, but starts together with the gang of its job")
    gangs = book.partners(next(iter(of_gang)), of_gang)
    if gangs is None:
        return None
    for name in of_gang.keys() - {gang.name for gang in gangs}:
        raise of_gang[name][0].view.error(
            "", f"gang {name} and gang {gangs[0].name} are of one job, so they have to start together: name both in"
            " gang.scheduling.koordinator.sh/groups"
        )  # fmt: skip
    parts = {gang.name: [n for n, each in enumerate(templates) if each.gang == gang.name] for gang in gangs}
    sizes = [group.tasks for group in spec.groups]
    if sum(sizes) > GANG_TASKS_MAX:
        text = f"{sum(sizes)} tasks are too many for a gang, at most {GANG_TASKS_MAX} can start together"
        raise gangs[0].view.error("", text)
    ready = [book.has_all(gang, sum(sizes[n] for n in parts[gang.name])) for gang in gangs]
    if not all(ready):
        return None
    groups = list(spec.groups)
    for gang in gangs:
        for number, need in zip(parts[gang.name], _needs(gang, parts[gang.name], sizes), strict=True):
            least = 0 if need == sizes[number] else need
            groups[number] = msgspec.structs.replace(groups[number], min=least, optional=need == 0)
    return with_gang(msgspec.structs.replace(spec, groups=groups), gangs, affinity)


def _needs(gang: PodGang, numbers: list[int], sizes: list[int]) -> list[int]:
    own = [sizes[number] for number in numbers]
    order = [kind for kind, size in enumerate(own) for _ in range(size)]
    return share_out(gang.terms.min or len(order), order, own, gang.view)


def _with_kueue(spec: JobSpec, templates: list[Template], affinity: str) -> JobSpec:
    """Kueue admits a workload whole; where it asks for a topology, its pods are a gang that is placed together."""
    rules: list[GatherSpec] = []
    is_gang = bool(affinity)
    for template in templates:
        annotations = template.view.view("annotations")
        annotations.skip(KUEUE_EITHER_WAY)
        for key, must in ((KUEUE_MUST, True), (KUEUE_PREFER, False)):
            if layer := annotations.text(key):
                options = GatherSpec(layer, must)
                is_gang = True
                if options not in rules:
                    rules.append(options)
        is_gang = is_gang or KUEUE_EITHER_WAY in annotations
    if not is_gang:
        return spec
    if len(templates) > 1 and rules:
        templates[0].view.caution(
            "", "all groups of the job are placed together, not each by itself as in Kueue"
        )
    return msgspec.structs.replace(spec, gang=GangSpec(affinity=affinity), gather=rules)
