"""Taints: nodes that only some jobs may use, said with labels, which the scheduler knows.

A node that nobody of the files tolerates is closed. Where some do, each set of tolerations becomes a label that the
nodes it covers carry and that its jobs ask for.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import structs

from phalanx.core.model.job import Job
from phalanx.core.model.resources import Capacity
from phalanx.manifests.nodes import NodeSpec
from phalanx.manifests.taints import Taint, Toleration, untolerated

LABEL = "only-tolerated-taints"
Tolerations = tuple[Toleration, ...]


class Tolerance:
    """Which jobs may use which nodes."""

    def __init__(self, nodes: Iterable[NodeSpec], said: Iterable[Tolerations]) -> None:
        taints = {node.taints for node in nodes if node.taints}
        every = dict.fromkeys(said)
        self._closed = {
            each: each for each in taints if all(untolerated(each, tolerations) for tolerations in every)
        }
        left = [each for each in taints if each not in self._closed]
        self._labels: dict[Tolerations, str] = {}
        for tolerations in every:
            if any(untolerated(each, tolerations) for each in left):
                self._labels[tolerations] = f"{LABEL}.{len(self._labels) + 1}"

    def closes(self, node: NodeSpec) -> str:
        """Why a node is closed to everybody, or nothing."""
        if node.taints not in self._closed:
            return ""
        return f"no job tolerates its taint {_spelled(node.taints)}"

    def marked(self, node: NodeSpec) -> Capacity:
        """What the node has, with a label for everybody who may use it."""
        labels = {
            label: "yes"
            for tolerations, label in self._labels.items()
            if not untolerated(node.taints, tolerations)
        }
        return structs.replace(node.capacity, labels={**node.capacity.labels, **labels})

    def aimed(self, job: Job, tolerations: Tolerations) -> Job:
        """The job, asking for nodes whose taints it tolerates."""
        label = self._labels.get(tolerations)
        if label is None:
            return job
        groups = tuple(
            structs.replace(
                group,
                request=structs.replace(
                    group.request, labels=tuple(sorted((*group.request.labels, (label, "yes"))))
                ),
            )
            for group in job.groups
        )
        return structs.replace(job, groups=groups)


def _spelled(taints: tuple[Taint, ...]) -> str:
    return ", ".join(map(str, taints))
