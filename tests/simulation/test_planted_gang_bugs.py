"""Planted bugs about gangs, preemption, promises and restarts: each is seen, by the checker that is meant to see it.

The first three were asked for. Further down are mistakes that the simulator found in our own code, put back. Each has
the number of seeds that may pass before it is found.
"""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from phalanx.coordinator.loop import Loop
from phalanx.coordinator.turn import Engine, Turn
from phalanx.core.cluster import image, transitions
from phalanx.core.cluster.apply import gangs as apply_gangs
from phalanx.core.cluster.apply import grants
from phalanx.core.cluster.apply import jobs as apply_jobs
from phalanx.core.cluster.decide import endings, nodes, reports
from phalanx.core.cluster.decide import gangs as decide_gangs
from phalanx.core.cluster.decide.endings import Endings
from phalanx.core.cluster.decision import Accepted, Decision, Effect, Send
from phalanx.core.cluster.events import Event, JobRestarted, TasksCancelled, TasksEvicted
from phalanx.core.cluster.jobs import JobState
from phalanx.core.cluster.state import ClusterState
from phalanx.core.cluster.units import Attempt, GangState
from phalanx.core.model.job import Group
from phalanx.core.model.ledger import Ledger
from phalanx.core.model.orders import Exit, Go, Phase, Stop, Why
from phalanx.core.model.plan import GangPlacement
from phalanx.core.model.tenants import Tenant
from phalanx.core.placement import engine
from phalanx.core.placement.preempt import make_room as preempt_make_room
from phalanx.core.runner.effects import Release
from phalanx.core.runner.state import RunnerState
from tests.simulation.seeds import must_find

Patch = pytest.MonkeyPatch
pytestmark = pytest.mark.timeout(300)
AT_THE_BARRIER = ["death-at-barrier", "crash-with-release", "dying-node"]


# Evict before place.


def test_victims_that_leave_without_a_promise_are_found(monkeypatch: Patch):
    promise = decide_gangs._promise

    def evict_first(
        state: ClusterState, job: JobState, gang_placement: GangPlacement, now: float
    ) -> Decision:
        keys = decide_gangs._victims(state, job, gang_placement)
        if not keys:
            return promise(state, job, gang_placement, now)
        return Decision([TasksEvicted(at=now, cause="plan", keys=keys)], [], Accepted())

    monkeypatch.setattr(decide_gangs, "_promise", evict_first)
    must_find({"preemption"}, within=20)


def test_victims_that_leave_for_one_that_does_not_fit_even_then_are_found(monkeypatch: Patch):
    make_room = preempt_make_room.make_room

    def one_too_few(*arguments: Any, **more: Any) -> Any:
        found = make_room(*arguments, **more)
        if isinstance(found, GangPlacement) and len(found.victims) > 1:
            found = structs.replace(found, victims=found.victims[1:])
            arguments[0].gang_placements[-1] = found
        return found

    monkeypatch.setattr(engine, "make_most_room", one_too_few)
    monkeypatch.setattr(decide_gangs, "_fits_after", lambda state, gang_placement: True)
    # Where the one left out is of a gang, the same plan is refused again.
    must_find({"preemption", "assertion", "plan"}, within=20)


# Count a dead member.


def test_a_dead_member_that_counts_as_ready_is_found(monkeypatch: Patch):
    """The formation continues without a member whose node was lost, as if it were there."""
    # Not counted: it may be found before a formation would be recalled.
    monkeypatch.setattr(Endings, "_recall", staticmethod(lambda job, text: None))
    monkeypatch.setattr(GangState, "is_whole", True)
    must_find({"gang-whole"}, within=40, faults=AT_THE_BARRIER, begin=20)


# Off by one.


def test_a_gang_that_is_placed_with_one_member_too_few_is_found(monkeypatch: Patch):
    needed = property(lambda self: max(1, (self.min or self.tasks) - 1))
    monkeypatch.setattr(Group, "needed", needed)
    must_find({"gang-whole"}, within=10)


def test_a_gang_that_is_released_with_one_member_too_few_is_found(monkeypatch: Patch):
    ready = decide_gangs.ready

    def hasty(state: ClusterState, attempts: list[Attempt], now: float, cause: str) -> list[Event]:
        for forming in [state.jobs[attempt.key[0]].forming for attempt in attempts]:
            if forming is not None and (missing := forming.positions - forming.ready):
                forming.ready.add(max(missing))
        return ready(state, attempts, now, cause)

    for module in (nodes, reports):
        monkeypatch.setattr(module, "ready", hasty)
    must_find({"gang-whole"}, within=10)


# The barrier.


def test_a_word_to_go_before_the_release_is_durable_is_found(monkeypatch: Patch):
    turning: list[Loop] = []
    loop_turn, engine_turn = Loop._turn, Engine.turn

    async def marked(self: Loop) -> None:
        turning[:] = [self]
        await loop_turn(self)

    def hasty(self: Engine, inputs: Any, now: float) -> Turn:
        turn = engine_turn(self, inputs, now)
        words = [each for each in turn.effects if isinstance(each, Send) and isinstance(each.order, Go)]
        turning[0]._hearers.links.dispatch(words)  # type: ignore[attr-defined]
        return turn

    monkeypatch.setattr(Loop, "_turn", marked)
    monkeypatch.setattr(Engine, "turn", hasty)
    must_find({"durable"}, within=20)


def test_a_recalled_member_that_runs_is_found(monkeypatch: Patch):
    stop = RunnerState._stop

    def deaf(self: RunnerState, order: Stop, now: float) -> Any:
        held = self.held.get(order.key)
        if order.why == Why.RECALLED and held is not None and held.phase == Phase.READY:
            return [Release(order.key)]
        return stop(self, order, now)

    monkeypatch.setattr(RunnerState, "_stop", deaf)
    must_find({"gang-whole"}, within=40, faults=AT_THE_BARRIER)


# Victims.


def test_a_victim_gang_that_is_left_too_small_is_found(monkeypatch: Patch):
    open_lane = grants.open_lane

    def forgetful(state: ClusterState, job: JobState, attempt: Attempt, at: float) -> Any:
        lane = open_lane(state, job, attempt, at)
        state.tenants.needed.clear()  # as if its members were independent
        return lane

    monkeypatch.setattr(apply_jobs, "open_lane", forgetful)
    monkeypatch.setattr(decide_gangs, "_breaks_a_gang", lambda state, keys: False)
    must_find({"preemption"}, within=60, faults=[])


def test_a_protected_victim_is_found(monkeypatch: Patch):
    tenant = grants.tenant

    def unprotected(job: JobState, attempt: Attempt, at: float) -> Tenant:
        return structs.replace(tenant(job, attempt, at), evictable_at=at)

    for module in (grants, image):
        monkeypatch.setattr(module, "tenant", unprotected)
    must_find({"preemption"}, within=20)


# Promises.


def test_a_promise_that_outlives_its_cancelled_job_is_found(monkeypatch: Patch):
    cancelled = apply_jobs.cancelled

    def leaky(state: ClusterState, event: TasksCancelled) -> list[Effect]:
        with monkeypatch.context() as patch:
            patch.setattr(apply_gangs, "drop_promise", lambda state, job: None)
            return cancelled(state, event)

    monkeypatch.setitem(transitions.CHANGES, TasksCancelled, leaky)
    must_find({"nomination"}, within=100, faults=[])


def test_a_promised_place_that_is_given_to_another_is_found(monkeypatch: Patch):
    monkeypatch.setattr(Ledger, "promise", lambda self, grant: None)
    # Not counted: it is found before anything is withdrawn, if the place is promised twice.
    monkeypatch.setattr(Ledger, "withdraw", staticmethod(lambda grant: None))
    must_find({"nomination", "preemption"}, within=60, faults=[])


def test_a_promise_that_never_ends_is_found(monkeypatch: Patch):
    monkeypatch.setattr(nodes, "overdue", lambda state, now: [])
    must_find({"nomination"}, within=60)


# Restarts.


def test_a_member_that_is_done_and_does_not_run_again_is_found(monkeypatch: Patch):
    restarted = transitions.CHANGES[JobRestarted]

    def lazy(state: ClusterState, event: JobRestarted) -> list[Effect] | None:
        job = state.jobs[event.job]
        done, job.done = job.done, set()
        effects = restarted(state, event)
        job.done = done
        return effects

    monkeypatch.setitem(transitions.CHANGES, JobRestarted, lazy)
    must_find({"restarts", "heals", "one-commit"}, within=20)


def test_one_restart_too_many_is_found(monkeypatch: Patch):
    restart = Endings._restart

    def generous(self: Endings, job: JobState, *arguments: Any, **more: Any) -> None:
        job.restarts -= 1
        restart(self, job, *arguments, **more)
        job.restarts += 1

    monkeypatch.setattr(Endings, "_restart", generous)
    must_find({"restarts"}, within=20)


def test_one_restart_too_few_is_found(monkeypatch: Patch):
    restart = Endings._restart

    def mean(self: Endings, job: JobState, *arguments: Any, **more: Any) -> None:
        job.restarts += 1
        restart(self, job, *arguments, **more)
        job.restarts -= 1

    monkeypatch.setattr(Endings, "_restart", mean)
    must_find({"restarts"}, within=20)


def test_a_job_that_is_completed_too_early_is_found(monkeypatch: Patch):
    monkeypatch.setattr(endings, "_has_done_its_work", lambda job, attempt: job.restarts_whole)
    must_find({"restarts"}, within=10)


def test_a_lost_member_that_nobody_answers_for_is_found(monkeypatch: Patch):
    def nothing_follows(
        self: Endings, job: JobState, attempt: Attempt, exit: Exit, *_: bool, **more: bool
    ) -> None:
        self._end(attempt, exit, loss=more.get("loss", False))

    monkeypatch.setattr(Endings, "_restart", nothing_follows)
    must_find({"restarts", "heals"}, within=20)


# Waiting in vain.


def test_room_that_appears_and_nobody_looks_is_found(monkeypatch: Patch):
    end_attempt = grants.end_attempt

    def unnoticed(state: ClusterState, job: JobState, attempt: Attempt, at: float) -> None:
        gain = state.gain
        end_attempt(state, job, attempt, at)
        state.gain = gain

    monkeypatch.setattr(apply_jobs, "end_attempt", unnoticed)
    must_find({"heals"}, within=10)


def test_an_urgent_job_that_evicts_nobody_is_found(monkeypatch: Patch):
    monkeypatch.setattr(engine._Pass, "_may_evict", lambda self, kind, unit: False)
    must_find({"heals"}, within=20)


# Mistakes that the simulator found in our own code.


def test_a_protection_that_counts_from_the_clock_of_the_node_is_found(monkeypatch: Patch):
    def from_its_clock(state: ClusterState, job: JobState, attempt: Attempt, at: float) -> None:
        grants.note_start(state, job, attempt, attempt.started_at or at)

    monkeypatch.setattr(apply_jobs, "note_start", from_its_clock)
    must_find({"preemption"}, within=40)
