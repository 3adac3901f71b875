"""Requests that ask for a little less than what cannot start: their wording, the fields that change, the request.

Nothing is tried here but how much less it has to be; whether the change helps is asked by `fixes.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from functools import partial
from typing import TypeVar

from msgspec import structs

from phalanx.core.model import reason
from phalanx.core.model.amounts import format_bytes, plural
from phalanx.core.model.job import Gather, Group, Job
from phalanx.core.model.ledger import Ledger
from phalanx.core.model.resources import Cores, Request
from phalanx.core.model.table import NodeTable
from phalanx.core.model.topology import Topology

MIB, GIB = 1 << 20, 1 << 30
Holds = Callable[[Job], bool]
Changes = Iterator[tuple[str, dict[str, object], Job]]
Requests = Iterator[tuple[str, dict[str, object], Request]]

_Amount = TypeVar("_Amount", int, Cores)


def other_gangs(job: Job, topology: Topology, holds: Holds) -> Changes:
    """Gangs that ask for less, the smallest loss first; as much as `holds` says there is room for."""
    yield from _other_layers(job, topology)
    yield from _fewer_members(job, holds)
    yield from _smaller_members(job, holds)


def _other_layers(job: Job, topology: Topology) -> Changes:
    """A rule that must be kept, for a wider layer, and at last for none."""
    assert job.gang is not None
    names = topology.names()
    for rule in [each for each in job.gang.gather if each.must]:
        for layer in _instead_of(rule.layer, names):
            wider = _with_rule(job, rule, Gather(layer, True, rule.multiple))
            yield f"in one {layer} instead of one {rule.layer}", _gather_fields(wider), wider
        free = _with_rule(job, rule, None)
        yield f"if its members need not be in one {rule.layer}", _gather_fields(free), free


def _instead_of(layer: str, names: list[str]) -> list[str]:
    """The layers around one, the nearest first; if there is none of that name, from the one that may be meant."""
    if layer in names:
        return names[1 : names.index(layer)][::-1]
    near = reason.layer_unknown(layer, names).numbers["nearest"]
    return names[1 : names.index(near) + 1][::-1] if near else []


def _fewer_members(job: Job, holds: Holds) -> Changes:
    """A gang that needs fewer of one group, as many as there is room for."""
    for number, group in enumerate(job.groups):
        fewer = partial(_with_min, job, number)
        if count := _most(group.needed - 1, fewer, holds):
            of = f" of group {group.name}" if len(job.groups) > 1 else ""
            fields: dict[str, object] = {"min": count} if len(job.groups) == 1 else {}
            yield f"with a minimum of {count}{of} instead of {group.needed}", fields, fewer(count)


def _smaller_members(job: Job, holds: Holds) -> Changes:
    """Members that ask for less of one thing, for as much as there is room for."""
    for field, word, unit in (("gpus", "GPU", 1), ("cores", "core", 1), ("memory_bytes", "memory", MIB)):
        asked = max(getattr(group.request, field) for group in job.groups)
        smaller = partial(_capped, job, field, unit)
        if count := _most(int(-(-asked // unit)) - 1, smaller, holds):
            value = count * unit
            said = f"{plural(value, word)} each instead of {asked}"
            if field == "memory_bytes":
                said = f"{format_bytes(value)} of memory each"
            at_most = "" if len(job.groups) == 1 else "at most "
            yield f"with {at_most}{said}", _fields(job, field, value), smaller(count)


def _most(limit: int, make: Callable[[int], Job], holds: Holds) -> int:
    """The largest number up to a limit whose job holds, if with one that holds every smaller one does; 0: none."""
    if limit < 1 or not holds(make(1)):
        return 0
    low, high = 1, limit + 1  # it holds at `low`, and perhaps not at `high`
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(make(middle)) else (low, middle)
    return low


def _fields(job: Job, field: str, value: int) -> dict[str, object]:
    """The change in the words of a job file, where one word says it."""
    if len(job.groups) > 1:
        return {}
    return {"memory": format_bytes(value)} if field == "memory_bytes" else {field: value}


def smaller_requests(table: NodeTable, request: Request, closed: Collection[str], *, ever: bool) -> Requests:
    """Requests that ask for a little less, one field at a time, the smallest loss first.

    As much as some node that is not closed has (`ever`), or has free now.
    """
    nodes = [node for node in table.ledgers if node.name not in closed]
    replace = structs.replace
    for gpus in _values(nodes, lambda node: len(_devices(node, request, ever)), request.gpus):
        if not (request.target and request.target.devices):
            text = f"with {plural(gpus, 'GPU')} instead of {request.gpus}"
            yield text, {"gpus": gpus}, replace(request, gpus=gpus)
    cores_of: Callable[[Ledger], Cores] = lambda node: node.capacity.cores if ever else node.cores_free  # noqa: E731
    for cores in _values(nodes, cores_of, request.cores):
        text = f"with {plural(cores, 'core')} instead of {request.cores}"
        yield text, {"cores": cores}, replace(request, cores=cores)
    memory_of: Callable[[Ledger], int] = (  # noqa: E731
        lambda node: _typed(node.capacity.memory_bytes if ever else node.memory_free)
    )
    for memory in _values(nodes, memory_of, request.memory_bytes):
        size = format_bytes(memory)
        yield f"with {size} of memory", {"memory": size}, replace(request, memory_bytes=memory)
    if request.gpu_memory_bytes:
        yield "with any GPU memory", {"gpu_memory": 0}, replace(request, gpu_memory_bytes=0)
    if request.gpu_type:
        yield "with any GPU type", {"gpu_type": None}, replace(request, gpu_type=None)
    if request.target is not None:
        anywhere = replace(request, target=None)
        fields: dict[str, object] = {"targets": [], "gpus": request.gpus}
        yield "on another node, without a target", fields, anywhere


def _values(nodes: list[Ledger], value: Callable[[Ledger], _Amount], asked: _Amount) -> list[_Amount]:
    """What nodes could give instead of what was asked, the most first."""
    return sorted({offer for node in nodes if 0 < (offer := value(node)) < asked}, reverse=True)[:16]


def _typed(size: int) -> int:
    """A size as one would type it: in whole GiB from 8 GiB on, in whole MiB below."""
    return size - size % (GIB if size >= 8 * GIB else MIB)


def _devices(node: Ledger, request: Request, ever: bool) -> list[int]:
    return [d.index for d in node.matching(request) if ever or d.index in node.devices_free]


def _with_rule(job: Job, old: Gather, new: Gather | None) -> Job:
    assert job.gang is not None
    others = [
        rule for rule in job.gang.gather if rule is not old and (new is None or rule.layer != new.layer)
    ]
    gather = tuple(others if new is None else [*others, new])
    return structs.replace(job, gang=structs.replace(job.gang, gather=gather))


def _gather_fields(job: Job) -> dict[str, object]:
    assert job.gang is not None
    return {"gather": [structs.asdict(rule) for rule in job.gang.gather]}


def _with_min(job: Job, number: int, count: int) -> Job:
    return with_group(job, number, structs.replace(job.groups[number], min=count))


def _capped(job: Job, field: str, unit: int, count: int) -> Job:
    """The job with nobody asking for more of one thing than so many units."""
    value = count * unit
    groups = tuple(
        structs.replace(
            group,
            request=structs.replace(group.request, **{field: min(value, getattr(group.request, field))}),
        )
        for group in job.groups
    )
    return structs.replace(job, groups=groups)


def with_group(job: Job, number: int, group: Group) -> Job:
    return structs.replace(job, groups=(*job.groups[:number], group, *job.groups[number + 1 :]))
