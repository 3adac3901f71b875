"""Which jobs and nodes have changed since a revision: what goes to pages, and what their indexes look at again.

Noted from durable turns, of this coordinator and of another whose log it follows, so a page may go on at the next one.
It costs a few microseconds an event. While no browser is logged in and nobody asks, only lost nodes are noted.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterator

from phalanx.api.schema.pages import AlarmView
from phalanx.coordinator.naming import in_numbers
from phalanx.coordinator.turn import Turn
from phalanx.coordinator.views import task_number
from phalanx.core.cluster import events as e
from phalanx.core.cluster.event_kinds import WorkflowEvent
from phalanx.core.cluster.state import ClusterState
from phalanx.core.explain.story import sentence
from phalanx.core.model.orders import Status

KEPT_MAX = 20_000  # subjects of each kind
STALE_MAX = 100_000
ALARMS_KEPT = 100
LIVE_LOOKED_AT = (
    64  # attempts of a job whose nodes are looked at again because the job has changed as a whole
)
_DECLARED = (e.QuotaSet, e.TopologySet)


class Changed:
    """The last change of each job, workflow and node, by revision."""

    def __init__(self) -> None:
        self.jobs: OrderedDict[str, int] = OrderedDict()
        self.nodes: OrderedDict[str, int] = OrderedDict()
        self.workflows: OrderedDict[str, int] = OrderedDict()
        self.declared_at = 0
        self.floor = 0  # what changed up to here is not known
        self.revision = 0
        self.alarms: deque[tuple[int, AlarmView]] = deque(maxlen=ALARMS_KEPT)
        self.is_on = False
        self.stale: set[str] = set()  # jobs that indexes have to look at again
        self.resets = 0

    def note(self, turn: Turn, state: ClusterState) -> None:
        """A turn is durable."""
        self.revision = turn.revision
        if not self.is_on and not state.logins.by_id:
            self.floor = turn.revision
            for event in turn.events:
                if type(event) is e.NodeLost:
                    self._note_alarm(event, turn.revision, state)
            return
        for event in turn.events:
            if type(event) not in e.VOLATILE:
                self._note(event, turn.revision, state)

    def reset(self, state: ClusterState) -> None:
        """The state was read anew: nothing is known of what changed."""
        self.jobs.clear()
        self.nodes.clear()
        self.workflows.clear()
        self.stale.clear()
        self.floor = self.revision = state.revision
        self.resets += 1

    def since(self, revision: int, among: OrderedDict[str, int]) -> Iterator[str]:
        """What changed after a revision, the newest first."""
        for subject in reversed(among):
            if among[subject] <= revision:
                return
            yield subject

    def alarms_since(self, revision: int) -> list[AlarmView]:
        return [alarm for at, alarm in self.alarms if at > revision]

    def _note(self, event: e.Event, revision: int, state: ClusterState) -> None:
        key = getattr(event, "key", None)
        for job in event.jobs:
            self._touch(self.workflows if isinstance(event, WorkflowEvent) else self.jobs, job, revision)
            self._make_stale(job)
            known = state.jobs.get(job)
            if known is None:
                continue
            if known.job.workflow is not None:
                self._touch(self.workflows, known.job.workflow[0], revision)
            if key is None:
                self._touch_nodes_of(job, revision, state)
        job_state = None if key is None else state.jobs.get(key[0])
        if key is not None and job_state is not None and key[1] < len(job_state.attempts):
            at = job_state.node_number(key[1], key[2])
            if at is not None and at < len(state.known_names):
                self._touch(self.nodes, state.known_names[at], revision)
        if event.on_node is not None:
            self._touch(self.nodes, event.on_node, revision)
        if isinstance(event, _DECLARED):
            self.declared_at = revision
        self._note_alarm(event, revision, state)

    def _make_stale(self, job: str) -> None:
        self.stale.add(job)
        if len(self.stale) > STALE_MAX:  # nobody asks: whoever does again begins anew
            self.stale.clear()
            self.resets += 1

    def _touch_nodes_of(self, job: str, revision: int, state: ClusterState) -> None:
        live = state.jobs[job].live
        if len(live) <= LIVE_LOOKED_AT:
            for node in {attempt.node for attempt in live.values()}:
                self._touch(self.nodes, node, revision)

    def _touch(self, among: OrderedDict[str, int], subject: str, revision: int) -> None:
        among[subject] = revision
        among.move_to_end(subject)
        if len(among) > KEPT_MAX:
            _, gone = among.popitem(last=False)
            self.floor = max(self.floor, gone)

    def _note_alarm(self, event: e.Event, revision: int, state: ClusterState) -> None:
        if isinstance(event, e.NodeLost):
            text = sentence(event).removeprefix(f"{event.node} is ")
            self.alarms.append((revision, AlarmView("critical", "node", event.node, text, event.at)))
        elif isinstance(event, e.AttemptEnded) and event.status is Status.FAILED:
            job = state.jobs.get(event.key[0])
            if job is not None and event.key[1] < len(job.attempts):
                text = in_numbers(state, sentence(event))
                subject = task_number(job, event.key[1])
                self.alarms.append((revision, AlarmView("notice", "job", subject, text, event.at)))
