"""A state made of what cluster files describe, by the events that would have led there.

What runs in the files is placed where it runs, with the grant that its node gives; what is being deleted is leaving;
places that are being freed for a job are promised to it. What does not fit is reported, and counted as far as there is
room.
"""

from __future__ import annotations

from phalanx.core.cluster.events import (
    AttemptEnded,
    AttemptStarted,
    Event,
    GangReleased,
    JobSubmitted,
    NodeDrained,
    NodeJoined,
    QuotaSet,
    RoomPromised,
    TaskPlaced,
    TasksEvicted,
    TermOpened,
    TopologySet,
)
from phalanx.core.cluster.nodes import NodeState
from phalanx.core.cluster.state import ClusterState
from phalanx.core.cluster.transitions import apply
from phalanx.core.model.job import Job
from phalanx.core.model.ledger import Ledger
from phalanx.core.model.orders import AttemptKey, Exit, Status, Why
from phalanx.core.model.resources import Grant, Request
from phalanx.core.model.tenants import NEVER
from phalanx.manifests.cluster import ClusterSpec
from phalanx.manifests.found import ParsedJob, Placed
from phalanx.preview.names import Names
from phalanx.preview.taints import Tolerance

CAUSE = "cluster file"
LEAVES = "it is being deleted"


class DescribedState:
    """The state, and what was found to be wrong with it."""

    def __init__(self, spec: ClusterSpec, tolerance: Tolerance, names: Names, now: float) -> None:
        self.state = ClusterState()
        self.warnings: list[str] = []
        self._names, self._now = names, now
        self._apply(TermOpened(at=now, cause=CAUSE, epoch=1))
        if spec.topology is not None:
            self._apply(TopologySet(at=now, cause=CAUSE, topology=spec.topology))
        for queue, quota in spec.queues.items():
            self._apply(QuotaSet(at=now, cause=CAUSE, queue=queue, quota=quota))
        for node in spec.nodes:
            has = tolerance.marked(node)
            self._apply(
                NodeJoined(
                    at=now, cause=CAUSE, node=node.name, incarnation=CAUSE, origin=node.name, capacity=has
                )
            )
            if why := node.closed or tolerance.closes(node):
                self._apply(NodeDrained(at=now, cause=CAUSE, node=node.name, reason=why))

    def enter(self, job: Job, found: ParsedJob) -> None:
        """Add a job of the cluster: its tasks hold their places, or wait."""
        self._apply(JobSubmitted(at=self._now, cause=CAUSE, job=job))
        keys = [self._place(job, each) for each in found.placed]
        for position in found.done:
            self._retire(job, position)
        if (keys or found.done) and job.gang is not None:
            self._apply(GangReleased(at=self._now, cause=CAUSE, job=job.id, formation=1))
        for key, placed in zip(keys, found.placed, strict=True):
            since = self._since(placed)
            self._apply(AttemptStarted(at=since, cause=CAUSE, key=key, started_at=since))
        leaving = tuple(key for key, placed in zip(keys, found.placed, strict=True) if placed.ending)
        if leaving:
            self._apply(TasksEvicted(at=self._now, cause=CAUSE, keys=leaving, text=LEAVES))

    def _place(self, job: Job, placed: Placed) -> AttemptKey:
        node, key = self.state.nodes[placed.node], (job.id, placed.position, 1)
        self._apply(
            TaskPlaced(
                at=self._since(placed),
                cause=CAUSE,
                key=key,
                node=node.name,
                lane=node.next_lane,
                grant=self._grant(job, placed, self.state.table.ledgers[node.row]),
                formation=0 if job.gang is None else 1,
            )
        )
        return key

    def _retire(self, job: Job, position: int) -> None:
        """A member that has succeeded: it holds nothing, and it is not placed again.

        A gang of ours ends with its members; one of Kubernetes may get new ones in their place. So they count as
        members that could come, only not now.
        """
        node = next(iter(self.state.nodes.values()), None)
        if node is not None:
            key = self._place(job, Placed(position, node.name, 0, 0, 0))
            well = Exit(Why.NONE, 0, self._now, self._now)
            ended = AttemptEnded(
                at=self._now, cause=CAUSE, key=key, exit=well, status=Status.PENDING, retry_at=NEVER
            )
            self._apply(ended)

    def _grant(self, job: Job, placed: Placed, ledger: Ledger) -> Grant:
        """What it holds; if its node has less left, what there is."""
        kind = job.groups[job.group_at(placed.position)[0]].request.gpu_type
        found = ledger.fit(Request(placed.cores, placed.memory_bytes, placed.gpus, kind))
        if isinstance(found, Grant):
            return found
        self.warnings.append(
            f"{self._names.task(job, placed.position)}: more is held on {ledger.name} than it has: {found.text}"
        )
        cores, memory = min(placed.cores, ledger.cores_free), min(placed.memory_bytes, ledger.memory_free)
        found = ledger.fit(Request(cores, memory, min(placed.gpus, len(ledger.devices_free))))
        return found if isinstance(found, Grant) else Grant(0, 0)

    def promise(self, job: Job, found: ParsedJob) -> None:
        """Promise it the nominated nodes, if the attempts that make way there are still leaving."""
        kept = [
            (position, self.state.nodes[node])
            for position, node in found.nominated
            if node in self.state.nodes
        ]
        victims = {key for _, node in kept for key in self._leaving(node, job)}
        if not victims:
            return
        members = tuple(self._freed(job, kept))
        if members:
            event = RoomPromised(
                at=self._now,
                cause=CAUSE,
                job=job.id,
                members=members,
                victims=tuple(sorted(victims)),
                displaced=(),
                trigger=members[0][0],
                until=self._now + self.state.rules.promise_s,
            )
            self._apply(event)

    def _leaving(self, node: NodeState, job: Job) -> list[AttemptKey]:
        """The leaving attempts of lower priority on a node."""
        return [
            key
            for key, attempt in node.attempts.items()
            if attempt.ending is not None and self.state.jobs[key[0]].job.priority < job.priority
        ]

    def _freed(self, job: Job, kept: list[tuple[int, NodeState]]) -> list[tuple[int, str, Grant]]:
        """What each member would get there once the leaving attempts have left."""
        ledgers = {node.name: self.state.table.ledgers[node.row].copied() for _, node in kept}
        left = {
            (node.name, attempt.lane): attempt.grant
            for _, node in kept
            for attempt in node.attempts.values()
            if attempt.ending is not None
        }
        for (name, _), grant in left.items():
            ledgers[name].give_back(grant)
        members: list[tuple[int, str, Grant]] = []
        for position, node in kept:
            found = ledgers[node.name].fit(job.groups[job.group_at(position)[0]].request)
            if isinstance(found, Grant):
                ledgers[node.name].take(found)
                members.append((position, node.name, found))
        return members

    def _since(self, placed: Placed) -> float:
        return self._now if placed.started_at is None else min(placed.started_at, self._now)

    def _apply(self, event: Event) -> None:
        apply(self.state, event)
