"""Gangs: combines what PodGroup objects and pods say about them, and finds what they lack.

A pod's annotations win over its PodGroup; contradictions are refused. Pods become jobs in `assembly.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from phalanx.api.schema.jobspec import GangSpec, JobSpec
from phalanx.manifests.found import Incomplete, gang_lacks
from phalanx.manifests.load import Map
from phalanx.manifests.podgroups import WAIT_S, PodGroup, Terms
from phalanx.manifests.pods import Template
from phalanx.manifests.view import View


class PodGang(Struct, frozen=True):
    """One gang with everything that is known about it."""

    name: str  # namespace/name
    terms: Terms
    view: View  # where errors about it point to
    asked: bool  # whether it is to be run or planned, rather than only part of the cluster


class GangBook:
    """The gangs that the files declare, by PodGroup objects or by annotations, and what they lack."""

    def __init__(self, podgroups: Iterable[PodGroup]) -> None:
        self.podgroups = {each.name: each for each in podgroups}
        self.incomplete: list[Incomplete] = []
        self.keeps = False  # what a gang lacks may come later, and is no error
        self.handled: set[str] = set()  # gangs that have become a job, or that have been reported

    def gang(self, name: str, templates: Sequence[Template]) -> PodGang:
        """The terms of one gang: from its PodGroup, overridden by its pods."""
        podgroup = self.podgroups.get(name)
        view = podgroup.view if podgroup is not None else templates[0].view
        terms = podgroup.terms if podgroup is not None else Terms()
        for field in Terms.__struct_fields__:
            agreed = _agreed([(getattr(each.terms, field), each.view) for each in templates], name, field)
            if agreed is not None:
                terms = msgspec.structs.replace(terms, **{field: agreed})
        asked = any(not each.view.source.lenient for each in templates) or not view.source.lenient
        return PodGang(name, terms, view, asked)

    def partners(self, name: str, templates: dict[str, list[Template]]) -> list[PodGang] | None:
        """The gangs that start together with this one; None if some are missing, which has been reported."""
        gang = self.gang(name, templates.get(name, []))
        names = gang.terms.groups or (name,)
        self.handled.update((name, *names))
        if name not in names:
            gang.view.refuse(
                "", f"it names {', '.join(names)} as its groups, but not itself ({name})", "taken alone"
            )
            return [gang]
        absent = [each for each in names if each not in self.podgroups and each not in templates]
        if absent:
            self._lacks(gang, f"starts together with {', '.join(absent)}, which is in none of these files")
            return None
        gangs = [self.gang(each, templates.get(each, [])) for each in names]
        for each in gangs:
            if set(each.terms.groups or (each.name,)) != set(names):
                named = ", ".join(each.terms.groups or ("none",))
                each.view.refuse(
                    "", f"{name} starts together with it, but it names {named}", "taken as agreed"
                )
        return gangs

    def has_all(self, gang: PodGang, members: int, placed: bool = False) -> bool:
        """Whether a gang has a minimum and the members for it; what it lacks is reported."""
        minimum = gang.terms.min
        if minimum is None:
            self._lacks(gang, _no_minimum(gang, self.podgroups))
        elif minimum > members and not placed:
            self._lacks(gang, f"needs {_members(minimum)} and has {members}", minimum, members)
        else:
            return True
        return False

    def _lacks(self, gang: PodGang, text: str, needed: int = 0, members: int = 0) -> None:
        source = gang.view.source
        if not (source.lenient or source.for_plan or self.keeps):
            raise gang.view.error("", f"gang {gang.name} {text}", reason="GangIncomplete")
        reason = gang_lacks(gang.name, text, needed, members)
        self.incomplete.append(Incomplete(gang.name, gang.view.where(), reason, gang.asked))

    def alone(self, name: str, templates: Sequence[Template]) -> PodGang:
        """A gang whose partners are missing; the id names all gangs it would start with."""
        gang = self.gang(name, templates)
        return PodGang(
            ",".join(sorted({name, *(gang.terms.groups or ())})), gang.terms, gang.view, gang.asked
        )

    def documents_of(self, document: View, spec: JobSpec) -> tuple[Map, ...]:
        """A workload and the PodGroups of its gang, as they were written."""
        names = spec.gang.id.split(",") if isinstance(spec.gang, GangSpec) else []
        views = [self.podgroups[name].view.around for name in names if name in self.podgroups]
        return tuple(view.content for view in (*views, document) if view is not None)

    def left_out(self) -> None:
        """Report PodGroups without members."""
        for name, podgroup in self.podgroups.items():
            if name not in self.handled:
                terms = podgroup.terms
                gang = PodGang(name, terms, podgroup.view, not podgroup.view.source.lenient)
                if gang.asked:
                    self._lacks(gang, f"needs {_members(terms.min or 1)} and has 0", terms.min or 0)


def gang_id(gangs: Iterable[PodGang]) -> str:
    return ",".join(sorted(gang.name for gang in gangs))


def with_gang(spec: JobSpec, gangs: list[PodGang], affinity: str = "") -> JobSpec:
    """The job as a gang, with the terms that all of `gangs` agree on."""
    wait = _agreed_by_all(gangs, "wait_s")
    gather = _agreed_by_all(gangs, "gather")
    for gang in gangs:
        if gather and gang.terms.gather is None:
            gang.view.note("", "it has no network-topology-spec, and takes that of the groups it starts with")
    terms = GangSpec(
        strict=_agreed_by_all(gangs, "strict") is not False,
        match=_agreed_by_all(gangs, "match") or "once-satisfied",
        wait=WAIT_S if wait is None else wait,
        affinity=affinity,
        id=gang_id(gangs),
    )
    return msgspec.structs.replace(spec, gang=terms, gather=list(gather or ()))


def _agreed(values: list[tuple[object, View]], name: str, field: str) -> object:
    """The value that members give for their gang, if any; they must not contradict each other."""
    agreed: object = None
    for value, view in values:
        if value is None or value == agreed:
            continue
        if agreed is not None:
            view.refuse(
                "",
                f"members of gang {name} contradict each other about {_WORDS[field]}",
                "the first is taken",
            )
            continue
        agreed = value
    return agreed


def _agreed_by_all(gangs: list[PodGang], field: str) -> Any:
    agreed = None
    for gang in gangs:
        value = getattr(gang.terms, field)
        if value is None or value == agreed:
            continue
        if agreed is not None:
            text = f"{gang.name} contradicts the groups it starts together with about {_WORDS[field]}"
            gang.view.refuse("", f"{text}; write the same on each", "the first is taken")
            continue
        agreed = value
    return agreed


_WORDS = {
    "min": "the minimum of members",
    "total": "total-number",
    "strict": "the mode",
    "match": "the match policy",
    "wait_s": "the waiting time",
    "groups": "the groups that start together",
    "gather": "the network topology spec",
}


def _members(count: int) -> str:
    return f"{count} member" if count == 1 else f"{count} members"


def _no_minimum(gang: PodGang, podgroups: dict[str, PodGroup]) -> str:
    if gang.name in podgroups:
        return "has no minMember: say how many members it needs"
    bare = gang.name.rpartition("/")[2]
    elsewhere = [name for name in podgroups if name.rpartition("/")[2] == bare]
    if elsewhere:
        return (
            f"has no PodGroup in its namespace, only {', '.join(elsewhere)} has that name: a gang's members are of one"
            " namespace, and gangs of several are joined by the annotation gang.scheduling.koordinator.sh/groups"
        )
    return "has neither a PodGroup nor the annotation gang.scheduling.koordinator.sh/min-available"
