"""Objects of Kubernetes that are applied again while a job of them is not over: nothing changes, or it is refused.

An object is known by its user, kind, namespace and name, and whether it is as it was by a digest of its text. Names
are looked up in the state's index; what was never applied from objects is of no concern here.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from msgspec import structs

from phalanx.core.cluster.decision import Refused, Unchanged
from phalanx.core.cluster.jobs import JobState
from phalanx.core.cluster.names import NAMESAKES_MAX
from phalanx.core.cluster.state import ClusterState
from phalanx.core.model.job import Command, Group, Job, JobId
from phalanx.core.model.reason import Reason, Tier

TOLD_MAX = 5
_OF_SUBMISSION = frozenset({"id", "batch", "submitted_at", "user", "draft", "applied", "groups"})


def applied_before(state: ClusterState, job: Job, *, amends: bool = False) -> Unchanged | Refused | None:
    """What to answer if a job that is not over has some of these objects; None if there is none.

    Who amends a gang gives all of it again, perhaps with gangs that wait for members as it does.
    """
    if not job.applied:
        return None
    given = dict(job.applied)
    for old in _namesakes(state, job, given):
        if not (amends and (old.job.id == job.id or old.job.draft is not None)):
            return _compared(old, job, given)
    before = state.jobs.get(job.id)
    if not amends or before is None or before.is_over or job.draft is None or not all(map(_is_named, given)):
        return None
    return Unchanged(job.id) if dict(before.job.applied) == given else None


def _namesakes(state: ClusterState, job: Job, given: dict[str, str]) -> Iterator[JobState]:
    """The user's jobs that are not over and have one of these objects, or are of the same gang."""
    gangs = _gangs(job)
    seen: set[JobId] = set()
    for name in dict.fromkeys([*sorted(gangs), *(key.partition(" ")[2] for key in given)]):
        for id in islice(reversed(state.names.objects.get(name, {}).get(job.user, {})), NAMESAKES_MAX):
            old = state.jobs[id]
            if id in seen:
                continue
            seen.add(id)
            if old.is_over or not old.job.applied:
                continue
            if gangs & _gangs(old.job) or any(key in given for key, _ in old.job.applied if _is_named(key)):
                yield old


def _compared(old: JobState, job: Job, given: dict[str, str]) -> Unchanged | Refused:
    known = dict(old.job.applied)
    new = [key for key in given if key not in known or not _is_named(key)]
    changed = [key for key in given if key not in new and known[key] != given[key]]
    differing = [] if new or len(given) < len(known) or job.draft is not None else _differing(old.job, job)
    if changed and (differing or new or len(given) < len(known) or job.draft is not None):
        fields = f" (in {', '.join(differing)})" if differing else ""
        text = f"{_some(changed)} was applied before with another content{fields}, as job {old.job.id}"
        text += ", which is not over"
        return Refused(Reason("AppliedOtherwise", Tier.NEVER, text), "conflict")
    if not new:
        return Unchanged(old.job.id)
    name = old.job.object_name
    if old.job.draft is not None:
        text = f"{name} waits for members as job {old.job.id}: read it again, and amend it"
        return Refused(Reason("Amended", Tier.PROGRESS, text), "conflict")
    how = "has started" if any(old.attempts) else "has all its members, and waits to start,"
    text = f"{name} {how} as job {old.job.id}, and takes no more members: {_some(new)}"
    return Refused(Reason("GangWhole", Tier.NEVER, text), "conflict")


def _gangs(job: Job) -> frozenset[str]:
    """The PodGroups of a job, whether it was applied with them or they are only named by its pods."""
    return job.whole_objects & frozenset(job.gang.id.split(",")) if job.gang is not None else frozenset()


def _is_named(key: str) -> bool:
    """Whether it is always the same object; one of generateName is another each time."""
    return " " in key


def _differing(old: Job, job: Job) -> list[str]:
    """The fields in which two jobs ask for different things; in which folder they run does not count."""
    found = [
        field
        for field in Job.__struct_fields__
        if field not in _OF_SUBMISSION and getattr(old, field) != getattr(job, field)
    ]
    if len(old.groups) != len(job.groups):
        return [*found, "groups"]
    pairs = [(_anywhere(before), _anywhere(now)) for before, now in zip(old.groups, job.groups, strict=True)]
    return found + [
        field
        for field in Group.__struct_fields__
        if any(getattr(before, field) != getattr(now, field) for before, now in pairs)
    ]


def _anywhere(group: Group) -> Group:
    return structs.replace(group, command=Command(group.command.argv, group.command.env))


def _some(keys: list[str]) -> str:
    more = f", and {len(keys) - TOLD_MAX} more" if len(keys) > TOLD_MAX else ""
    return ", ".join(keys[:TOLD_MAX]) + more
