"""Fields that members of one job must agree on, since a job has them once: priority, queue, grace and the like."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from phalanx.api.schema.jobspec import JobSpec
from phalanx.manifests.pods import Template, Traits


def with_traits(spec: JobSpec, traits: Traits) -> JobSpec:
    """The job with what its members have in common."""
    return msgspec.structs.replace(
        spec,
        queue=traits.queue,
        priority=traits.priority,
        preemption="lower" if traits.may_evict else "never",
        evictable=traits.evictable,
        grace=traits.grace,
        time_limit=traits.time_limit,
        max_retries=None if traits.restarts else 0,
    )


def common_traits(templates: Sequence[Template]) -> Traits:
    """One value for all members of a job; where they differ, a caution says which was taken."""
    traits = templates[0].traits
    for field, text in _WORDS.items():
        values = {getattr(each.traits, field) for each in templates}
        if len(values) == 1:
            continue
        chosen = _chosen(field, values)
        traits = msgspec.structs.replace(traits, **{field: chosen})
        other = next(each for each in templates if getattr(each.traits, field) != chosen)
        taken = "none" if chosen is None else chosen
        other.view.note("", f"members of one job differ in {text}: {taken} is taken for all")
    return traits


def _chosen(field: str, values: set[Any]) -> Any:
    """The harmless choice: the lowest priority, the longest time, the protection that one of them asks for."""
    if field in ("may_evict", "evictable", "restarts"):
        return False
    if field == "time_limit":
        return None if None in values else max(values)
    return min(values) if field in ("priority", "queue") else max(values)


_WORDS = {
    "priority": "their priority",
    "may_evict": "whether they may evict",
    "evictable": "whether they may be evicted",
    "grace": "terminationGracePeriodSeconds",
    "time_limit": "activeDeadlineSeconds",
    "restarts": "restartPolicy",
    "queue": "their queue",
    "affinity": "network-topology-selector",
}
