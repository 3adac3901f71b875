"""Planted bugs about workflows: each is seen, by the checker that is meant to see it."""

from __future__ import annotations

import pytest

from phalanx.coordinator.turn import Engine, Turn
from phalanx.core.cluster import events as e
from phalanx.core.cluster import image, invariants, stages
from phalanx.core.cluster import workflow_events as w
from phalanx.core.cluster.apply import workflows as applied
from phalanx.core.cluster.decide import deadlines, nodes
from phalanx.core.cluster.decide import workflows as decided
from phalanx.core.cluster.decision import Decision
from phalanx.core.cluster.inputs import Abandon
from phalanx.core.cluster.state import ClusterState
from phalanx.core.cluster.workflow_image import WorkflowImage, workflow_state
from phalanx.core.cluster.workflows import StagePhase, WorkflowState
from phalanx.core.model.orders import Status
from tests.simulation.seeds import must_find

Patch = pytest.MonkeyPatch
pytestmark = pytest.mark.timeout(300)


def test_a_stage_that_begins_after_a_failure_is_found(monkeypatch: Patch):
    phases = {**applied._PHASES, Status.FAILED: StagePhase.COMPLETED}
    monkeypatch.setattr(applied, "_PHASES", phases)
    monkeypatch.setattr(decided, "_with_followers", alone)
    must_find({"workflow"}, within=30)


def alone(flow: WorkflowState, ends: list[w.StageEnd], begun: list[e.Event], now: float) -> Decision:
    events = list(begun)
    if ends:
        events.append(w.StagesEnded(at=now, workflow=flow.workflow.id, ends=tuple(ends)))
    return Decision(events)


def test_a_failure_that_reaches_only_the_next_stage_is_found(monkeypatch: Patch):
    """As FlowMesh had it: those behind the next one waited for ever."""

    def one_level(flow: WorkflowState, ends: list[w.StageEnd], begun: list[e.Event], now: float) -> Decision:
        found = list(ends)
        for end in ends:
            if end.status != Status.COMPLETED:
                waiting = [
                    each for each in flow.dependents[end.stage] if flow.phases[each] == StagePhase.WAITING
                ]
                found += [decided._follower(flow, each, end) for each in waiting]
        return alone(flow, list({end.stage: end for end in found}.values()), begun, now)

    monkeypatch.setattr(decided, "_with_followers", one_level)
    must_find({"workflow"}, within=60)


def test_stages_that_never_begin_are_found(monkeypatch: Patch):
    def only_abandon(self: Engine, now: float, turn: Turn) -> None:
        while self.state.abandoned or self.state.abandoned_tasks:
            self._propose(Abandon(next(iter(self.state.abandoned or self.state.abandoned_tasks))), now, turn)

    monkeypatch.setattr(Engine, "_follow", only_abandon)
    must_find({"workflow"}, within=20)


def test_an_image_that_loses_results_is_found(monkeypatch: Patch):
    def forgetful(kept: WorkflowImage) -> WorkflowState:
        kept.results.clear()
        return workflow_state(kept)

    monkeypatch.setattr(image, "workflow_state", forgetful)
    must_find({"replay", "workflow"}, within=30)


def test_a_value_of_the_wrong_stage_is_found(monkeypatch: Patch):
    monkeypatch.setattr(stages._Results, "of", lambda self, stage: "another")
    must_find({"workflow"}, within=30)


def test_a_counter_that_is_wrong_is_found(monkeypatch: Patch):
    def end(self: WorkflowState, stage: int, phase: StagePhase, at: float) -> None:
        whole(self, stage, phase, at)
        self.missing = [max(0, count - 1) for count in self.missing]

    whole = WorkflowState.end
    monkeypatch.setattr(WorkflowState, "end", end)
    must_find({"ledger", "workflow"}, within=20)
    assert invariants.stages_begin_in_order in invariants.SENTENCES


def test_a_workflow_that_begins_stages_after_its_deadline_is_found(monkeypatch: Patch):
    def only_jobs(state: ClusterState, now: float) -> list[e.Event]:
        events = overrun(state, now)
        return [event for event in events if not isinstance(event, w.StagesEnded)]

    overrun = deadlines.overrun
    monkeypatch.setattr(nodes, "overrun", only_jobs)
    must_find({"workflow", "workflow limit"}, within=60)


def test_a_workflow_that_is_stopped_too_early_is_found(monkeypatch: Patch):
    def early(state: ClusterState, flow: WorkflowState, now: float) -> str:
        return "soon" if flow.workflow.deadline_at is not None else ""

    monkeypatch.setattr(deadlines, "_reached", early)
    must_find({"workflow limit"}, within=60)
