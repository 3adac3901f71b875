"""Queues: where jobs wait, what their tasks may hold at most, and what they hold now."""

from __future__ import annotations

from msgspec import Struct

from phalanx.core.model import reason
from phalanx.core.model.reason import Reason
from phalanx.core.model.resources import Grant, Request

DEFAULT = "default"
QUEUES_MAX = 1000


class Quota(Struct, frozen=True, omit_defaults=True):
    """A queue as it was declared: the most that its tasks may hold together, and the highest priority of its jobs. None
    sets no limit; for the priority, that of whoever submits holds."""

    tasks: int | None = None
    cores: int | None = None
    memory_bytes: int | None = None
    gpus: int | None = None
    priority_max: int | None = None


class Usage:
    """What the tasks of one queue hold."""

    __slots__ = ("cores", "gpus", "memory_bytes", "tasks")

    def __init__(self) -> None:
        self.tasks = 0
        self.cores = 0
        self.memory_bytes = 0
        self.gpus = 0

    def add(self, grant: Grant, sign: int = 1) -> None:
        self.tasks += sign
        self.cores += sign * grant.cores
        self.memory_bytes += sign * grant.memory_bytes
        self.gpus += sign * len(grant.devices)


class Queues:
    """Quotas and usage by queue. Who has a quota is declared, and `default` always is; jobs of older stores may wait in
    others, which have no limit."""

    def __init__(self) -> None:
        self.quotas: dict[str, Quota] = {}
        self.usage: dict[str, Usage] = {}

    def unwelcome(self, queue: str, priority: int, priority_max: int) -> Reason | None:
        """Why nobody may submit there, or not so urgently, or None. The queue's own limit beats the submitter's."""
        quota = self.quotas.get(queue)
        if quota is None and queue != DEFAULT:
            return reason.queue_not_found(queue, sorted({DEFAULT, *self.quotas}))
        limit = priority_max if quota is None or quota.priority_max is None else quota.priority_max
        return None if priority <= limit else reason.priority_too_high(queue, priority, limit)

    def take(self, queue: str, grant: Grant) -> None:
        self.usage.setdefault(queue, Usage()).add(grant)

    def give_back(self, queue: str, grant: Grant) -> None:
        self.usage[queue].add(grant, -1)

    def room(self, queue: str, request: Request) -> int | None:
        """How many more tasks with this request the quota admits now, or None if it sets no limit."""
        quota = self.quotas.get(queue)
        if quota is None:
            return None
        used = self.usage.get(queue) or Usage()
        rooms = [
            (limit - held) // asked
            for limit, held, asked in _terms(quota, used, request)
            if limit is not None and asked > 0
        ]
        return max(0, min(rooms)) if rooms else None

    def refuses(self, queue: str, request: Request, count: int = 1) -> Reason | None:
        """Why the quota admits no `count` more tasks with this request now, or None if it does."""
        quota = self.quotas.get(queue)
        if quota is None:
            return None
        used = self.usage.get(queue) or Usage()
        for word, (limit, held, asked) in zip(_WORDS, _terms(quota, used, request), strict=True):
            if limit is not None and held + count * asked > limit:
                return reason.quota_exhausted(queue, word, count * asked, held, limit)
        return None

    def never(self, queue: str, request: Request, count: int = 1) -> Reason | None:
        """Why even an unused quota would not admit this, or None if it would."""
        quota = self.quotas.get(queue)
        if quota is None:
            return None
        for word, (limit, _, asked) in zip(_WORDS, _terms(quota, Usage(), request), strict=True):
            if limit is not None and count * asked > limit:
                return reason.exceeds_quota(queue, word, count * asked, limit)
        return None


_WORDS = ("tasks", "cores", "bytes of memory", "GPUs")


def _terms(quota: Quota, used: Usage, request: Request) -> list[tuple[int | None, int, int]]:
    return [
        (quota.tasks, used.tasks, 1),
        (quota.cores, used.cores, request.cores),
        (quota.memory_bytes, used.memory_bytes, request.memory_bytes),
        (quota.gpus, used.gpus, request.gpus),
    ]
