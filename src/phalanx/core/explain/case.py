"""One unit that waits, and everything that is needed to try what would help it."""

from __future__ import annotations

from msgspec import Struct

from phalanx.core.cluster.jobs import JobState
from phalanx.core.cluster.state import ClusterState
from phalanx.core.cluster.units import GangState, GroupState
from phalanx.core.explain.change import Asker, Change
from phalanx.core.explain.shortage import place_gang
from phalanx.core.explain.submit_command import submit_line
from phalanx.core.explain.trial import Trials
from phalanx.core.model.job import Job, JobId
from phalanx.core.model.orders import Status
from phalanx.core.model.plan import GangPlacement
from phalanx.core.model.reason import Reason
from phalanx.core.placement.best_node import BestNode
from phalanx.core.placement.draft import Draft
from phalanx.core.placement.node_limits import counted, spot_within

NAMES_SHOWN = 5


class Case(Struct):
    """A unit, what keeps it from starting, and who asks."""

    state: ClusterState
    draft: Draft
    job: JobState
    unit: GroupState | GangState
    no: Reason  # what keeps it from starting
    ahead: int  # tasks of its own group that go first, and have no place in the draft
    closed: dict[str, Reason]  # nodes that take no work, and why
    trials: Trials
    asker: Asker

    @property
    def is_submitted(self) -> bool:
        """Whether it waits in the cluster; otherwise somebody plans it."""
        return self.job.job.id in self.state.jobs

    @property
    def may_change(self) -> bool:
        """Whether something else could be asked for instead: of a job that waits in the cluster, all of it waits."""
        return not self.is_submitted or self.job.counts[Status.PENDING] == self.job.job.tasks

    def followers(self, id: JobId) -> list[JobState]:
        """The jobs that start after this one, and have not ended: its cancellation ends them, or lets them start."""
        jobs = (self.state.jobs[each] for each in self.state.dependents.get(id, ()))
        return [job for job in jobs if not job.is_over]

    def has_room(self, ended: JobState | None = None) -> bool:
        """Whether the draft has room for a whole gang, or for one task of a group, and the next pass would give it."""
        return self.fits(self.unit) and self.trials.starts_with_room(self.unit, self.ahead, ended)

    def fits(self, unit: GroupState | GangState) -> bool:
        """Whether the draft has room for a unit, whoever goes first. It is left as it was."""
        mark = self.draft.mark()
        try:
            if isinstance(unit, GangState):
                return isinstance(place_gang(self.draft, unit), GangPlacement)
            nodes, queues = self.draft.nodes, self.draft.queues
            has_quota = queues.room(unit.job.queue_user, counted(nodes, queues, unit)) != 0
            spot = BestNode(nodes, unit.request).best() if has_quota else None
            return spot is not None and spot_within(nodes, queues, unit, spot) is not None
        finally:
            self.draft.rollback(mark)

    def would_fit(self, changed: Job) -> bool:
        """Whether there is room if the job asks for this, whoever goes first."""
        return self.fits(JobState(changed, 0, [0] * 6).units[self.unit.rank[2]])

    def starts(self, changed: Job) -> bool:
        """Whether it would start now if the job asked for this."""
        return self.would_fit(changed) and self.trials.starts_changed(
            self.job, self.unit, changed, self.ahead
        )

    def asking_for(self, text: str, fields: dict[str, object], changed: Job) -> Change:
        """A fix that changes what the job asks for, with the command that submits it so."""
        line = submit_line(changed) or ""
        return self.submitted_so(text, fields, line) if self.is_submitted else Change(text, fields, line)

    def submitted_so(self, text: str, fields: dict[str, object], line: str) -> Change:
        """What was submitted has to be cancelled before it is submitted again."""
        job, asker = self.job.job, self.asker
        if asker.user != job.user or not asker.may_cancel(job):
            return Change(f"{text} (its user would have to cancel it and submit it so)", fields)
        if not self.may_change:
            return Change(
                f"{text} (of its other tasks some run or have ended: submit those so that wait)", fields
            )
        if others := self.followers(job.id):
            names = ", ".join(each.job.id for each in others[:NAMES_SHOWN])
            more = ", …" if len(others) > NAMES_SHOWN else ""
            again = f"what comes after it has to be submitted again: {names}{more}"
            return Change(f"{text} (cancel it, then submit it so; {again})", fields)
        cancel = f"phalanx cancel {job.id}"
        return Change(
            f"{text} (cancel it, then submit it so)", fields, f"{cancel} && {line}" if line else cancel
        )
