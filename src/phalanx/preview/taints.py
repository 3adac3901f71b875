"""Taints: nodes that only some jobs may use, translated into labels, which the scheduler knows.

A node whose taints no job of the files tolerates is closed. Otherwise each set of tolerations becomes a label that the
nodes it covers have and that its groups ask for. The plan shows taints, not these labels.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec import structs

from phalanx.api.schema.apply import PlanReason, PlanReply
from phalanx.api.schema.jobs import NodeReasons, ReasonView
from phalanx.core.model.job import Group, Job
from phalanx.core.model.resources import Capacity
from phalanx.manifests.nodes import NodeSpec
from phalanx.manifests.taints import Taint, Toleration, untolerated

LABEL = "only-tolerated-taints"
Tolerations = tuple[Toleration, ...]


class Tolerance:
    """Which jobs may use which nodes."""

    def __init__(self, nodes: Iterable[NodeSpec], tolerated: Iterable[tuple[Tolerations, ...]]) -> None:
        self._taints = {node.name: node.taints for node in nodes if node.taints}
        taints = set(self._taints.values())
        every = dict.fromkeys(tolerations for job in tolerated for tolerations in job or ((),))
        self._closed = {
            each for each in taints if all(untolerated(each, tolerations) for tolerations in every)
        }
        left = [each for each in taints if each not in self._closed]
        self._labels: dict[Tolerations, str] = {}
        for tolerations in every:
            if any(untolerated(each, tolerations) for each in left):
                self._labels[tolerations] = f"{LABEL}.{len(self._labels) + 1}"

    def closes(self, node: NodeSpec) -> str:
        """Why a node is closed to all jobs, or ""."""
        if node.taints not in self._closed:
            return ""
        return f"no job tolerates its taint {_spelled(node.taints)}"

    def marked(self, node: NodeSpec) -> Capacity:
        """The node's capacity, with a label for every set of tolerations that covers it."""
        labels = {
            label: "yes"
            for tolerations, label in self._labels.items()
            if not untolerated(node.taints, tolerations)
        }
        return structs.replace(node.capacity, labels={**node.capacity.labels, **labels})

    def aimed(self, job: Job, tolerations: tuple[Tolerations, ...]) -> Job:
        """The job, each of its groups asking for nodes whose taints it tolerates."""
        of_each = tolerations or ((),) * len(job.groups)
        groups = tuple(self._aimed(group, own) for group, own in zip(job.groups, of_each, strict=True))
        return structs.replace(job, groups=groups)

    def plain(self, reply: PlanReply) -> PlanReply:
        """The plan with taints in place of our labels."""
        return structs.replace(reply, reasons=[self._plain_reason(each) for each in reply.reasons])

    def _aimed(self, group: Group, tolerations: Tolerations) -> Group:
        label = self._labels.get(tolerations)
        if label is None:
            return group
        labels = tuple(sorted((*group.request.labels, (label, "yes"))))
        return structs.replace(group, request=structs.replace(group.request, labels=labels))

    def _plain_reason(self, no: PlanReason) -> PlanReason:
        nodes = [structs.replace(each, reason=self._plain_view(each)) for each in no.nodes]
        text, numbers = self._plain(no.text, no.numbers)
        return structs.replace(no, text=text, numbers=numbers, nodes=nodes)

    def _plain_view(self, said: NodeReasons) -> ReasonView:
        text, numbers = self._plain(said.reason.text, said.reason.numbers)
        return structs.replace(said.reason, text=text, numbers=numbers)

    def _plain(self, text: str, numbers: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        lacking: list[str] = numbers.get("lacking", [])
        ours = {each.removesuffix("=yes") for each in lacking if each.startswith(LABEL)}
        if not ours:
            return text, numbers
        node, others = numbers["host"], [each for each in lacking if not each.startswith(LABEL)]
        tolerations = next((own for own, label in self._labels.items() if label in ours), ())
        taints = list(map(str, untolerated(self._taints.get(node, ()), tolerations)))
        beside = f", and does not have {', '.join(others)}" if others else ""
        before = text.partition(node)[0]
        text = f"{before}{node} has a taint that it does not tolerate: {', '.join(taints)}{beside}"
        return text, numbers | {"lacking": others, "taints": taints}


def _spelled(taints: tuple[Taint, ...]) -> str:
    return ", ".join(map(str, taints))
