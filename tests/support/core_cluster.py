"""The cluster without placement: a test says where members go, and the invariants are asked after every input."""

from __future__ import annotations

from phalanx.core.cluster.decision import Answer, Send
from phalanx.core.cluster.events import BackoffsEnded, Event
from phalanx.core.cluster.inputs import Heartbeat, Hello, Input, Propose, ProposeGang, Redeem, Submit, Tell
from phalanx.core.cluster.invariants import check
from phalanx.core.cluster.jobs import JobState
from phalanx.core.cluster.state import ClusterState
from phalanx.core.cluster.transitions import apply, decide
from phalanx.core.model.job import Job
from phalanx.core.model.orders import (
    AttemptKey,
    Ended,
    Exit,
    Go,
    Order,
    Phase,
    Ready,
    Report,
    Started,
    Status,
    Stop,
    Why,
)
from phalanx.core.model.plan import GangPlacement, Placement
from phalanx.core.model.resources import Grant
from tests.support.builders import a_capacity


class CoreCluster:
    """A state, a time that the test sets, and the orders that were sent."""

    def __init__(self, **nodes: dict[str, int]) -> None:
        self.state = ClusterState()
        self.state.epoch = 1
        self.now = 100.0
        self.orders: list[tuple[str, Order]] = []
        self.events: list[Event] = []
        for name, has in nodes.items():
            self.give(Hello(name, "a", f"origin-{name}", a_capacity(**has), []))  # type: ignore[arg-type]

    def give(self, given: Input) -> Answer | None:
        """Decide and apply one input."""
        apply(self.state, BackoffsEnded(at=self.now))
        decision = decide(self.state, given, self.now)
        effects = [effect for event in decision.events for effect in apply(self.state, event)]
        assert self.state.skipped == 0
        self.events += decision.events
        self.orders += [
            (each.node, each.order) for each in [*effects, *decision.effects] if isinstance(each, Send)
        ]
        assert check(self.state) == []
        return decision.answer

    def submit(self, job: Job) -> JobState:
        self.give(Submit(job))
        return self.state.jobs[job.id]

    def gang_placement(self, job: Job, where: dict[int, str], **more: object) -> Answer | None:
        """Propose places for members: position → node."""
        return self.give(ProposeGang(GangPlacement(job.id, self.placements(job, where), **more)))  # type: ignore[arg-type]

    def evicting(self, job: Job, where: dict[int, str], victims: list[tuple[str, int]]) -> Answer | None:
        """Propose places that lanes have to be left for."""
        gone = [(self.state.nodes[node], self.state.nodes[node].lanes[lane].grant) for node, lane in victims]
        for node, grant in gone:
            self.state.table.give_back(node.row, grant)
        members = self.placements(job, where)
        for node, grant in gone:
            self.state.table.take(node.row, grant)
        return self.give(ProposeGang(GangPlacement(job.id, members, tuple(victims))))

    def place(self, job: Job, position: int, node: str) -> Answer | None:
        return self.give(Propose(self.placements(job, {position: node})[0]))

    def redeem(self, job: Job) -> Answer | None:
        return self.give(Redeem(job.id))

    def report(self, job: Job, position: int, report: type[Ready | Started] | Exit) -> Answer | None:
        """What the runner of a member says."""
        attempt = self.state.jobs[job.id].live[position]
        said: Report
        if isinstance(report, Exit):
            said = Ended(attempt.key, report)
        else:
            said = Ready(attempt.key) if report is Ready else Started(attempt.key, self.now)
        return self.give(Tell(attempt.node, "a", 1, said, 1))

    def ends(self, job: Job, position: int, code: int = 0, why: Why | None = None) -> Answer | None:
        reason = why if why is not None else Why.EXITED if code else Why.NONE
        return self.report(job, position, Exit(reason, code, self.now, self.now))

    def starts(self, job: Job, *positions: int) -> None:
        """Members go all the way: ready, released, running."""
        for position in positions:
            self.report(job, position, Ready)
        for position in positions:
            self.report(job, position, Started)

    def confirm_stops(self) -> None:
        """Every runner that was told to stop an attempt has stopped it."""
        for job in list(self.state.jobs.values()):
            for attempt in list(job.live.values()):
                if attempt.ending is not None:
                    said = Ended(attempt.key, Exit(attempt.ending, None, self.now, self.now))
                    self.give(Tell(attempt.node, "a", 1, said, 1))

    def beat(self, node: str, held: list[tuple[AttemptKey, Phase]]) -> Answer | None:
        return self.give(Heartbeat(node, "a", held, 1))

    def waits(self, job: JobState) -> bool:
        """Whether anything of the job stands in the queue."""
        return any(unit in self.state.waiting for unit in job.units)

    def statuses(self, job: Job) -> list[Status]:
        return [Status(each) for each in self.state.jobs[job.id].status]

    def told(self, kind: type[Go | Stop]) -> list[AttemptKey]:
        return [order.key for _, order in self.orders if isinstance(order, kind)]

    def placements(self, job: Job, where: dict[int, str]) -> tuple[Placement, ...]:
        found: list[tuple[int, Placement]] = []
        for position, node in where.items():
            row = self.state.nodes[node].row
            request = job.groups[job.group_at(position)[0]].request
            grant = self.state.table.ledgers[row].fit(request)
            assert isinstance(grant, Grant), grant
            self.state.table.take(row, grant)
            found.append((row, Placement(job.id, position, node, grant)))
        for row, placement in found:
            self.state.table.give_back(row, placement.grant)
        return tuple(placement for _, placement in found)
