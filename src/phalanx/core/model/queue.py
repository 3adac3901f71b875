"""Queues: where jobs wait, what their tasks may hold at most, and what they hold now."""

from __future__ import annotations

from msgspec import Struct

from phalanx.core.model import reason
from phalanx.core.model.reason import Reason
from phalanx.core.model.resources import Grant, Request

DEFAULT = "default"
QUEUES_MAX = 1000


class Quota(Struct, frozen=True, omit_defaults=True):
    """The most that tasks of one queue may hold together; None sets no limit."""

    tasks: int | None = None
    cores: int | None = None
    memory_bytes: int | None = None
    gpus: int | None = None


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
    """Quotas and usage by queue. A queue without a quota has no limit and need not be known."""

    def __init__(self) -> None:
        self.quotas: dict[str, Quota] = {}
        self.usage: dict[str, Usage] = {}

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
