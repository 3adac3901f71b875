"""Priorities by name: PriorityClass documents, and the well-known names."""

from __future__ import annotations

from msgspec import Struct

from phalanx.core.model.job import PRIORITY_MAX
from phalanx.manifests.view import View

VALUE_MAX = 2_147_483_647


class Priority(Struct, frozen=True):
    """The meaning of a name."""

    value: int
    may_evict: bool = True


WELL_KNOWN = {
    "system-node-critical": Priority(2_000_001_000),
    "system-cluster-critical": Priority(2_000_000_000),
    "koord-prod": Priority(9000),
    "koord-mid": Priority(7000),
    "koord-batch": Priority(5000),
    "koord-free": Priority(3000),
}


class Priorities:
    """The classes that the files declare."""

    def __init__(self) -> None:
        self._declared: dict[str, Priority] = {}
        self._default = Priority(0)

    def declare(self, document: View) -> None:
        """Read one PriorityClass."""
        name = document.view("metadata").text("name")
        value = document.number("value", 0, -VALUE_MAX, VALUE_MAX)
        never = (
            document.word("preemptionPolicy", ("PreemptLowerPriority", "Never"), "PreemptLowerPriority")
            == "Never"
        )
        document.skip("description")
        self._declared[name] = Priority(value, not never)
        if document.flag("globalDefault"):
            self._default = self._declared[name]

    def of(self, pod: View) -> Priority:
        """The priority of a pod spec, limited to our own highest."""
        found = self._named(pod)
        if "priority" in pod:
            found = Priority(pod.number("priority", 0, -VALUE_MAX - 1, VALUE_MAX), found.may_evict)
        policy = pod.word("preemptionPolicy", ("PreemptLowerPriority", "Never", ""), "")
        value = max(-PRIORITY_MAX, min(PRIORITY_MAX, found.value))
        if value != found.value:
            pod.note("priority", f"priorities end at {PRIORITY_MAX}, which is taken instead", found.value)
        return Priority(value, found.may_evict if policy == "" else policy != "Never")

    def _named(self, pod: View) -> Priority:
        name = pod.text("priorityClassName")
        if not name:
            return self._default
        found = self._declared.get(name) or WELL_KNOWN.get(name)
        if found is None:
            if "priority" not in pod:
                pod.note(
                    "priorityClassName",
                    "no PriorityClass of this name is in these files, so it is taken as 0",
                )
            return Priority(0)
        return found
