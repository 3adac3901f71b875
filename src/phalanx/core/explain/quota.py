"""A quota in the way: how far it would have to be raised, what it leaves, and which other queues would take the job.

Nothing is tried here; `fixes.py` asks whether it helps.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import inf

from msgspec import structs

from phalanx.core.cluster.units import GangState, GroupState
from phalanx.core.explain.smaller import Requests
from phalanx.core.model.amounts import WORDS, describe_bytes, format_bytes, plural, written
from phalanx.core.model.job import Job
from phalanx.core.model.resources import Request
from phalanx.core.model.waiting import DEFAULT, Asked, Queues, Quota, Unit, Waiting

_FIELDS = ("tasks", "cores", "memory_bytes", "gpus")  # of a quota, as the rows of `WORDS`


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


def raised(queues: Queues, queue: str, asked: Sequence[Asked], *, ever: bool = False) -> Quota:
    """The quota of a queue, raised as far as these tasks need it beside what is held; `ever`: beside nothing."""
    quota = queues.quotas[queue]
    unused = Queues()
    unused.quotas = queues.quotas
    left = (unused if ever else queues).left(queue, asked) or []
    more: dict[str, object] = {}
    for field, limit, short in zip(_FIELDS, quota.limits, left, strict=True):
        if limit is not None and short < 0:
            amount = limit - int(short)
            more[field] = written(amount) if field == "cores" else amount
    return structs.replace(quota, **more)


def command(queue: str, quota: Quota) -> str:
    """What an admin types: whatever is left out would be unlimited."""
    memory = None if quota.memory_bytes is None else format_bytes(quota.memory_bytes)
    limits = {
        "--tasks": quota.tasks,
        "--cores": quota.cores,
        "--memory": memory,
        "--gpus": quota.gpus,
        "--priority-max": quota.priority_max,
        "--dispatch-mode": quota.dispatch_mode,
        "--selection": quota.selection,
    }
    words = [f"{option} {limit}" for option, limit in limits.items() if limit is not None]
    return " ".join(["phalanx queue set", queue, *words])


def differs(old: Quota, new: Quota) -> str:
    """The limits that are higher: `3 GPUs and 12 cores`."""
    terms = []
    for field, word in zip(_FIELDS, WORDS, strict=True):
        amount = getattr(new, field)
        if amount != getattr(old, field):
            is_memory = field == "memory_bytes"
            terms.append(f"{describe_bytes(amount)} of memory" if is_memory else plural(amount, word[:-1]))
    return " and ".join(terms)


def requests_within(queues: Queues, queue: str, request: Request, *, ever: bool) -> Requests:
    """Requests for as much of one thing as the quota leaves for one more task; `ever`: if nothing of it were used."""
    quota, used = queues.quotas.get(queue), queues.usage.get(queue)
    if quota is None:
        return
    held = [0] * len(WORDS) if ever or used is None else used
    left = [inf if most is None else most - has for most, has in zip(quota.limits, held, strict=True)]
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
    """The job in each other queue that takes its priority; in `default` first."""
    for queue in [DEFAULT, *sorted(queues.quotas.keys() - {DEFAULT})]:
        quota = queues.quotas.get(queue, Quota())
        if queue != job.queue and (quota.priority_max is None or job.priority <= quota.priority_max):
            yield structs.replace(job, queue=queue)
