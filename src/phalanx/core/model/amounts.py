"""What is counted, as rows of one vector: cores in thousandths, bytes of memory, then devices of each kind asked for.

Requests, grants, capacities and quotas become vectors here and nowhere else, and what follows from vectors alone is
computed here: slots, headroom under a quota, what a grant holds of a kind of device. A further resource is one more
fixed row: `fixed` reads it, `WORDS` names it. One node is counted here, in plain integers; all of them at once are
counted in `columns.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf
from typing import Protocol, TypeVar

from phalanx.core.model.quantity import MILLI
from phalanx.core.model.resources import Cores, Device, Grant, Request

CORES = 0  # the row of
FIXED = 2  # rows that every vector has: cores, memory
WORDS = ("tasks", "cores", "bytes of memory", "GPUs")  # of the rows of a quota
SLOTS_MAX = 1_000_000  # tasks that ask for nothing fit anywhere without end; this is where we stop counting

Vector = tuple[int, ...]
_Number = TypeVar("_Number", int, float)
DeviceKind = tuple[str | None, int]  # type asked for, memory asked for
ANY: DeviceKind = (None, 0)


class _Sized(Protocol):
    """A request, a grant or a capacity."""

    @property
    def cores(self) -> Cores: ...

    @property
    def memory_bytes(self) -> int: ...


def fixed(of: _Sized) -> tuple[int, int]:
    """The rows that every vector has."""
    cores = of.cores
    return cores * MILLI if cores.__class__ is int else round(cores * MILLI), of.memory_bytes


def holds(free: list[int], of: _Sized) -> bool:
    """Whether so much is free. This and what follows is asked for every task, so the rows are written out."""
    cores = of.cores
    millis = cores * MILLI if cores.__class__ is int else round(cores * MILLI)
    return millis <= free[0] and of.memory_bytes <= free[1]


def take(free: list[int], of: _Sized) -> bool:
    """Take so much if it is free; else nothing is taken."""
    cores, memory = of.cores, of.memory_bytes
    millis = cores * MILLI if cores.__class__ is int else round(cores * MILLI)
    if millis > free[0] or memory > free[1]:
        return False
    free[0] -= millis
    free[1] -= memory
    return True


def add(free: list[int], of: _Sized, sign: int) -> None:
    """Give so much back, or take it."""
    cores = of.cores
    free[0] += sign * (cores * MILLI if cores.__class__ is int else round(cores * MILLI))
    free[1] += sign * of.memory_bytes


def slots(free: Sequence[int], of: _Sized, most: int) -> int:
    """How often so much can be taken from what is free on one node, up to `most`.

    More than everything may be promised: then less than nothing is free, and nobody fits.
    """
    millis, memory = free
    if millis < 0 or memory < 0:
        return 0
    if cores := of.cores:
        most = min(most, millis // (cores * MILLI if cores.__class__ is int else round(cores * MILLI)))
    return min(most, memory // of.memory_bytes) if of.memory_bytes else most


def device_kind(request: Request) -> DeviceKind:
    return request.gpu_type, request.gpu_memory_bytes


def matching(devices: Sequence[Device], kind: DeviceKind) -> Sequence[Device]:
    """The devices, free or not, that are of the type and size asked for."""
    type_, size = kind
    if type_ is None and not size:
        return devices
    return [each for each in devices if (type_ is None or each.kind == type_) and each.memory_bytes >= size]


class Rows:
    """Which rows vectors have for some requests: the fixed ones, then one for each kind of device that they ask for.

    With `others` devices of any kind have a row before those, in which requests for further kinds are counted, too.
    """

    def __init__(self, requests: Iterable[Request], *, others: bool = False) -> None:
        kinds = dict.fromkeys(device_kind(each) for each in requests if each.gpus)
        self._others = others and bool(kinds)
        self.kinds: tuple[DeviceKind, ...] = tuple({ANY: None, **kinds} if self._others else kinds)

    def ask(self, request: Request) -> Vector:
        """A request as a vector."""
        kind, gpus = device_kind(request), request.gpus
        is_mine = (each == kind or (self._others and each == ANY) for each in self.kinds)
        return (*fixed(request), *(gpus if mine else 0 for mine in is_mine))

    def of_grant(self, grant: Grant, devices: Sequence[Device]) -> Vector:
        """A grant as a vector; `devices` are those of its node."""
        held = set(grant.devices)
        counts = (sum(each.index in held for each in matching(devices, kind)) for kind in self.kinds)
        return (*fixed(grant), *(counts if held else (0 for _ in self.kinds)))


def use(held: list[_Number], grant: Grant, sign: int) -> None:
    """Count a task for a quota, or no longer; the rows are those of `WORDS`."""
    cores = grant.cores
    held[0] += sign
    held[1] += sign * (cores * MILLI if cores.__class__ is int else round(cores * MILLI))
    held[2] += sign * grant.memory_bytes
    held[3] += sign * len(grant.devices)


def total(asked: Iterable[tuple[Request, int]]) -> list[int]:
    """What so many tasks of each request use of a quota."""
    found = [0] * len(WORDS)
    for request, count in asked:
        one = (1, *fixed(request), request.gpus)
        found = [each + count * amount for each, amount in zip(found, one, strict=True)]
    return found


def headroom(limits: Sequence[int | None], used: Sequence[int], needed: Sequence[int]) -> list[float]:
    """What a quota leaves of each row when what is needed is taken; less than nothing where it is too much.

    A queue that is over its quota of something holds up nobody who asks for none of it.
    """
    return [
        inf if limit is None or not wanted else limit - now - wanted
        for limit, now, wanted in zip(limits, used, needed, strict=True)
    ]
