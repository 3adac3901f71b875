"""Queues over REST: what each may hold and what it holds now, and how a `QuotaSpec` becomes a `Quota`."""

from __future__ import annotations

from msgspec import Struct

from phalanx.api.schema.fields import check_number, read_size
from phalanx.core.model.job import PRIORITY_MAX
from phalanx.core.model.queue import Quota

COUNT_MAX = 1_000_000_000


class QuotaSpec(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A queue: the most that its tasks may hold together, and its highest priority. What is left out has no limit."""

    tasks: int | None = None
    cores: int | None = None
    memory: int | str | None = None  # bytes, or "2TiB"
    gpus: int | None = None
    priority_max: int | None = None  # else 1,000 for users and 1,000,000 for operators


class UsageView(Struct):
    """What tasks of a queue hold, places that are promised to them included."""

    tasks: int
    cores: int
    memory_bytes: int
    gpus: int


class QuotaView(Struct):
    """The limits of a queue; null is none."""

    tasks: int | None
    cores: int | None
    memory_bytes: int | None
    gpus: int | None
    priority_max: int | None = None


class QueueView(Struct):
    """One queue. Without a quota it was not declared (unless it is `default`), and has no limits."""

    name: str
    quota: QuotaView | None
    used: UsageView
    waiting: int  # jobs that wait for a place, each group counted where a job is no gang


def to_quota(spec: QuotaSpec, field: str = "") -> Quota:
    """The quota a spec describes, or a refusal that names the field."""
    memory_bytes = None if spec.memory is None else read_size(f"{field}memory", spec.memory)
    for name, limit in (("tasks", spec.tasks), ("cores", spec.cores), ("gpus", spec.gpus)):
        if limit is not None:
            check_number(f"{field}{name}", limit, 0, COUNT_MAX)
    if spec.priority_max is not None:
        check_number(f"{field}priority_max", spec.priority_max, -PRIORITY_MAX, PRIORITY_MAX)
    return Quota(spec.tasks, spec.cores, memory_bytes, spec.gpus, spec.priority_max)
