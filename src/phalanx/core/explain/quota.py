"""A quota in the way: how far it would have to be raised, what it leaves, and which other queues would take the job.

Nothing is tried here; `fixes.py` asks whether it helps.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import inf

from msgspec import Struct, structs

from phalanx.core.cluster.units import GangState, GroupState
from phalanx.core.explain.smaller import Requests
from phalanx.core.model.amounts import WORDS, describe_bytes, format_bytes, plural, written
from phalanx.core.model.job import Job, QueueUser
from phalanx.core.model.queues import DEFAULT, Asked, Queues, Quota, UserLimits
from phalanx.core.model.resources import Cores, Request
from phalanx.core.model.waiting import Unit, Waiting

_FIELDS = ("tasks", "cores", "memory_bytes", "gpus")  # of a quota, as the rows of `WORDS`
_USER_FIELDS = ("running", "cores", "memory_bytes", "gpus")  # of the limits of a user


def asked_by(unit: Unit, ahead: int = 0) -> list[Asked]:
    """What a unit needs of its quota to start; of a group, the task that has so many before it."""
    if isinstance(unit, GangState):
        return [(part.request, part.need) for part in unit.wanted()]
    return [(unit.request, 1 + ahead)] if isinstance(unit, GroupState) else []


def asked_before(waiting: Waiting, unit: Unit) -> list[Asked]:
    """What those need who wait in the same queue and go first."""
    found: list[Asked] = []
    for kind in waiting.classes.values():
        for rank in kind.ranks:
            first = kind.units[rank]
            if rank < unit.rank and first.job.queue == unit.job.queue:
                ready = first.pending_count - 1 if isinstance(first, GroupState) else 0
                found += asked_by(first, ready)
    return found


def raised(queues: Queues, held_by: QueueUser, asked: Sequence[Asked], *, ever: bool = False) -> Quota:
    """The quota of a queue, raised as far as these tasks of a user need it beside what is held; `ever`: beside nothing.

    Where the limit of the user is in the way, his own is raised and not that of the others.
    """
    queue, user = held_by
    quota = queues.quotas[queue]
    unused = Queues()
    unused.quotas = queues.quotas
    for whose, left in (unused if ever else queues).left(held_by, asked):
        if whose is None:
            quota = structs.replace(quota, **_more(_FIELDS, quota.limits, left))
        elif more := _more(_USER_FIELDS, quota.of_user(user).limits, left):
            own = structs.replace(quota.by_user.get(user, UserLimits()), **more)
            quota = structs.replace(quota, by_user={**quota.by_user, user: own})
    return quota


def _more(fields: Sequence[str], limits: Sequence[int | None], left: Sequence[float]) -> dict[str, Cores]:
    """The limits that leave too little, raised by what they lack."""
    more: dict[str, Cores] = {}
    for field, limit, short in zip(fields, limits, left, strict=True):
        if limit is not None and short < 0:
            amount = limit - int(short)
            more[field] = written(amount) if field == "cores" else amount
    return more


def command(queue: str, quota: Quota, old: Quota) -> str:
    """What an admin types; what is left out stays as it is."""
    words = [f"--{name} {value}" for name, value in _changed(_FIELDS, old, quota)]
    for user, limits in quota.by_user.items():
        before = old.by_user.get(user, UserLimits())
        if terms := [f"{name}={value}" for name, value in _changed(_USER_FIELDS, before, limits)]:
            words.append(f"--for-user {user}:{','.join(terms)}")
    return " ".join(["phalanx queue set", queue, *words])


def _changed(fields: Sequence[str], old: Struct, new: Struct) -> Iterator[tuple[str, str]]:
    for field in fields:
        if (amount := getattr(new, field)) != getattr(old, field):
            is_memory = field == "memory_bytes"
            yield ("memory", format_bytes(amount)) if is_memory else (field, str(amount))


def differs(old: Quota, new: Quota, queue: str) -> str:
    """The limits that are higher: `the quota of lab to 3 GPUs and 12 cores`."""
    terms = _differing(_FIELDS, old, new)
    said = [f"the quota of {queue} to {' and '.join(terms)}"] if terms else []
    for user, limits in new.by_user.items():
        if terms := _differing(_USER_FIELDS, old.of_user(user), limits):
            said.append(f"the limit of {user} in {queue} to {' and '.join(terms)}")
    return ", and ".join(said)


def _differing(fields: Sequence[str], old: Struct, new: Struct) -> list[str]:
    terms = []
    for field, word in zip(fields, WORDS, strict=True):
        amount = getattr(new, field)
        if amount is not None and amount != getattr(old, field):
            is_memory = field == "memory_bytes"
            terms.append(f"{describe_bytes(amount)} of memory" if is_memory else plural(amount, word[:-1]))
    return terms


def requests_within(queues: Queues, held_by: QueueUser, request: Request, *, ever: bool) -> Requests:
    """Requests for as much of one thing as the limits leave for one more task; `ever`: if nothing of it were used."""
    if held_by[0] not in queues.quotas:
        return
    left = queues.free(held_by, ever=ever)
    if 0 < left[3] < request.gpus and not (request.target and request.target.devices):
        gpus = int(left[3])
        text = f"with {plural(gpus, 'GPU')} instead of {request.gpus}"
        yield text, {"gpus": gpus}, structs.replace(request, gpus=gpus)
    if left[1] != inf and 0 < (cores := written(int(left[1]))) < request.cores:
        text = f"with {plural(cores, 'core')} instead of {request.cores}"
        yield text, {"cores": cores}, structs.replace(request, cores=cores)
    if 0 < left[2] < request.memory_bytes:
        memory = int(left[2])
        text = f"with {describe_bytes(memory)} of memory instead of {describe_bytes(request.memory_bytes)}"
        yield text, {"memory": format_bytes(memory)}, structs.replace(request, memory_bytes=memory)


def elsewhere(queues: Queues, job: Job) -> Iterator[Job]:
    """The job in each other queue that takes it and its priority; in `default` first."""
    for queue in [DEFAULT, *sorted(queues.quotas.keys() - {DEFAULT})]:
        quota = queues.quotas.get(queue, Quota())
        if queue == job.queue or not quota.admits(job.user, "user"):
            continue
        if quota.priority_max is None or job.priority <= quota.priority_max:
            yield structs.replace(job, queue=queue)
