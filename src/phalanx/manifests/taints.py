"""Taints of nodes and tolerations of pods: which nodes a pod may use.

Our own nodes have no taints, so a toleration has no effect when a job is run. In a plan over Kubernetes nodes it
decides which of them are open.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from phalanx.manifests.view import View

CLOSING = ("NoSchedule", "NoExecute")


class Taint(Struct, frozen=True):
    """A mark on a node that excludes pods."""

    key: str
    value: str = ""
    effect: str = "NoSchedule"

    def __str__(self) -> str:
        value = f"={self.value}" if self.value else ""
        return f"{self.key}{value}:{self.effect}"


class Toleration(Struct, frozen=True):
    """A taint that a pod tolerates."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""  # empty: any

    def covers(self, taint: Taint) -> bool:
        if self.effect and self.effect != taint.effect:
            return False
        if self.key and self.key != taint.key:
            return False
        if self.operator == "Exists":
            return True
        return bool(self.key) and self.value == taint.value


def read_tolerations(spec: View) -> tuple[Toleration, ...]:
    found = []
    for each in spec.views("tolerations"):
        operator = each.word("operator", ("Equal", "Exists"), "Equal")
        found.append(Toleration(each.text("key"), operator, each.text("value"), each.text("effect")))
        each.skip("tolerationSeconds")
    return tuple(dict.fromkeys(found))


def read_taints(spec: View) -> tuple[Taint, ...]:
    """The taints of a node that exclude pods for certain."""
    taints = [
        Taint(each.text("key"), each.text("value"), each.text("effect", "NoSchedule"))
        for each in spec.views("taints")
    ]
    return tuple(taint for taint in taints if taint.effect in CLOSING)


def untolerated(taints: Iterable[Taint], tolerations: Iterable[Toleration]) -> list[Taint]:
    """The taints that none of the tolerations covers."""
    every = tuple(tolerations)
    return [taint for taint in taints if not any(each.covers(taint) for each in every)]
