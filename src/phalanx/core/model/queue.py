"""Queues: where jobs wait, what their tasks may hold at most, and what they hold now."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import inf
from typing import TYPE_CHECKING

from msgspec import Struct

from phalanx.core.model import reason
from phalanx.core.model.amounts import WORDS, headroom, total, use
from phalanx.core.model.quantity import millicores, written
from phalanx.core.model.reason import Reason
from phalanx.core.model.resources import Cores, Grant, Request

if TYPE_CHECKING:  # clients know quotas, and need no numpy for that
    from phalanx.core.model.waiting import Part

DEFAULT = "default"
QUEUES_MAX = 1000


class Quota(Struct, frozen=True, omit_defaults=True):
    """A queue as it was declared: the most that its tasks may hold together, and the highest priority of its jobs. None
    sets no limit; for the priority, that of whoever submits holds."""

    tasks: int | None = None
    cores: Cores | None = None
    memory_bytes: int | None = None
    gpus: int | None = None
    priority_max: int | None = None

    @property
    def limits(self) -> tuple[int | None, ...]:
        """As a vector."""
        return (
            self.tasks,
            None if self.cores is None else millicores(self.cores),
            self.memory_bytes,
            self.gpus,
        )


class Usage:
    """What the tasks of one queue hold."""

    __slots__ = ("held",)

    def __init__(self) -> None:
        self.held = [0] * len(WORDS)

    @property
    def written(self) -> tuple[int, Cores, int, int]:
        """Tasks, cores, bytes of memory and GPUs, for people."""
        tasks, millis, memory_bytes, gpus = self.held
        return tasks, written(millis), memory_bytes, gpus


_UNUSED = Usage()
Asked = tuple[Request, int]  # so many tasks with this request


class Queues:
    """Quotas and usage by queue. Who has a quota is declared, and `default` always is; jobs of older stores may wait in
    others, which have no limit."""

    def __init__(self) -> None:
        self.quotas: dict[str, Quota] = {}
        self.usage: dict[str, Usage] = {}

    def with_quotas(self, quotas: Mapping[str, Quota]) -> Queues:
        """The same usage under these quotas as well."""
        other = Queues()
        other.quotas, other.usage = {**self.quotas, **quotas}, self.usage
        return other

    def unwelcome(self, queue: str, priority: int, priority_max: int) -> Reason | None:
        """Why nobody may submit there, or not so urgently, or None. The queue's own limit beats the submitter's."""
        quota = self.quotas.get(queue)
        if quota is None and queue != DEFAULT:
            return reason.queue_not_found(queue, sorted({DEFAULT, *self.quotas}))
        limit = priority_max if quota is None or quota.priority_max is None else quota.priority_max
        return None if priority <= limit else reason.priority_too_high(queue, priority, limit)

    def take(self, queue: str, grant: Grant) -> None:
        used = self.usage.get(queue)
        if used is None:
            used = self.usage[queue] = Usage()
        use(used.held, grant, 1)

    def give_back(self, queue: str, grant: Grant) -> None:
        use(self.usage[queue].held, grant, -1)

    def room(self, queue: str, request: Request, beside: Iterable[Asked] = ()) -> int | None:
        """How many tasks with this request the quota admits now beside others, or None if it sets no limit."""
        quota = self.quotas.get(queue)
        if quota is None:
            return None
        used = [each + more for each, more in zip(self._held(queue), total(beside), strict=True)]
        ask = total([(request, 1)])
        left = headroom(quota.limits, used, ask)
        counts = [1 + int(each) // asked for each, asked in zip(left, ask, strict=True) if each != inf]
        return max(0, min(counts)) if counts else None

    def refuses(self, queue: str, request: Request, count: int = 1) -> Reason | None:
        """Why the quota admits no `count` more tasks with this request now, or None if it does."""
        return self.lacks(queue, [(request, count)])

    def never(self, queue: str, request: Request, count: int = 1) -> Reason | None:
        """Why even an unused quota would not admit this, or None if it would."""
        return self.lacks(queue, [(request, count)], ever=True)

    def lacks(self, queue: str, asked: Iterable[Asked], *, ever: bool = False) -> Reason | None:
        """Why the quota does not admit these tasks together; `ever`: even if it were unused."""
        quota = self.quotas.get(queue)
        if quota is None:
            return None
        needed, used, limits = total(asked), _UNUSED.held if ever else self._held(queue), quota.limits
        for row, left in enumerate(headroom(limits, used, needed)):
            limit = limits[row]
            if left < 0 and limit is not None:
                shown = [_shown(row, amount) for amount in (needed[row], used[row], limit)]
                if ever:
                    return reason.exceeds_quota(queue, WORDS[row], shown[0], shown[2])
                return reason.quota_exhausted(queue, WORDS[row], *shown)
        return None

    def admitted(self, queue: str, parts: Sequence[Part]) -> list[int] | Reason:
        """How many members of each part the quota admits, or why it does not admit what is needed."""
        needed = [(part.request, part.need) for part in parts]
        if queue not in self.quotas:
            return [part.most for part in parts]
        no = self.lacks(queue, needed, ever=True) or self.lacks(queue, needed)
        if no is not None:
            return no
        most: list[int] = []
        for at, part in enumerate(parts):
            # Those of the parts before are counted as admitted, those of the others as needed.
            beside = [(each.request, count) for each, count in zip(parts, most, strict=False)] + needed[at:]
            left, more = self.room(queue, part.request, beside), part.most - part.need
            most.append(part.need + (more if left is None else min(more, left)))
        return most

    def left(self, queue: str, asked: Iterable[Asked]) -> list[float] | None:
        """What the quota leaves of each row beside these tasks, or None if it sets no limit."""
        quota = self.quotas.get(queue)
        return None if quota is None else headroom(quota.limits, self._held(queue), total(asked))

    def _held(self, queue: str) -> list[int]:
        return self.usage.get(queue, _UNUSED).held


def _shown(row: int, amount: int) -> Cores:
    return written(amount) if WORDS[row] == "cores" else amount
