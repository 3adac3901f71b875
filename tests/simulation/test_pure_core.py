"""`plan` and `decide` change nothing: in simulated clusters under faults every image is the same before and after.

The first of both looks at what a snapshot shows, the memory of plans included; the second at the whole state.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from phalanx.coordinator import turn
from phalanx.core.cluster.decision import Decision
from phalanx.core.cluster.inputs import Heartbeat, Input, Submit
from phalanx.core.cluster.state import ClusterState
from phalanx.core.cluster.transitions import decide
from phalanx.core.model.plan import Plan, Policy, Snapshot
from phalanx.core.placement.engine import plan
from phalanx.sim.report import describe_failure
from phalanx.sim.trial import run
from tests.support.state_image import snapshot_image, state_image

SEEDS = range(5)
MOST = 40  # of decisions about one kind of input that are looked at, for each seed
MOST_PLANS = 200

PlanCall = Callable[[Snapshot, Policy], Plan]
DecideCall = Callable[[ClusterState, Input, float], Decision]


def unchanging_plan(planned: PlanCall, seen: Counter[str]) -> PlanCall:
    def watched(snapshot: Snapshot, policy: Policy) -> Plan:
        seen["plan"] += 1
        if seen["plan"] > MOST_PLANS:
            return planned(snapshot, policy)
        before = snapshot_image(snapshot)
        found = planned(snapshot, policy)
        assert snapshot_image(snapshot) == before, "a plan has changed its snapshot"
        return found

    return watched


def unchanging_decide(decided: DecideCall, seen: Counter[str]) -> DecideCall:
    def watched(state: ClusterState, given: Input, now: float) -> Decision:
        kind = type(given).__name__
        seen[kind] += 1
        if seen[kind] > MOST:
            return decided(state, given, now)
        before = state_image(state)
        found = decided(state, given, now)
        assert state_image(state) == before, f"the decision about {kind} has changed the state"
        return found

    return watched


def watch_plan(monkeypatch: pytest.MonkeyPatch, seen: Counter[str]) -> None:
    monkeypatch.setattr(turn, "plan", unchanging_plan(vars(turn)["plan"], seen))


def watch_decide(monkeypatch: pytest.MonkeyPatch, seen: Counter[str]) -> None:
    monkeypatch.setattr(turn, "decide", unchanging_decide(vars(turn)["decide"], seen))


@pytest.mark.timeout(120)
def test_neither_plan_nor_decide_changes_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    kinds, seen = Counter[str](), Counter[str]()
    watch_plan(monkeypatch, seen)
    watch_decide(monkeypatch, seen)
    for seed in SEEDS:
        result = run(seed)
        assert result.is_good, describe_failure(result, None)
        kinds.update(seen)
        seen.clear()
    assert kinds["plan"] > 500, kinds
    assert {
        "Submit",
        "Tell",
        "Heartbeat",
        "Tick",
        "Propose",
        "ProposeGang",
        "Redeem",
        "Hello",
    } <= kinds.keys()


def test_a_plan_that_writes_into_the_queue_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def careless(snapshot: Snapshot, policy: Policy) -> Plan:
        for kind in snapshot.waiting.classes.values():
            kind.last_entry += 1
        return plan(snapshot, policy)

    monkeypatch.setattr(turn, "plan", careless)
    watch_plan(monkeypatch, Counter())
    assert "a plan has changed its snapshot" in told()


def test_a_plan_that_writes_into_the_memory_it_was_given_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def careless(snapshot: Snapshot, policy: Policy) -> Plan:
        found = plan(snapshot, policy)
        snapshot.memory.notes.update(found.memory.notes)
        return found

    monkeypatch.setattr(turn, "plan", careless)
    watch_plan(monkeypatch, Counter())
    assert "a plan has changed its snapshot" in told()


@pytest.mark.parametrize("kind", [Submit, Heartbeat])
def test_a_decision_that_changes_the_state_is_seen(
    monkeypatch: pytest.MonkeyPatch, kind: type[Submit | Heartbeat]
) -> None:
    def careless(state: ClusterState, given: Input, now: float) -> Decision:
        if isinstance(given, kind):
            for node in state.nodes.values():
                node.heard_at = now + 1.0
        return decide(state, given, now)

    monkeypatch.setattr(turn, "decide", careless)
    watch_decide(monkeypatch, Counter())
    assert f"the decision about {kind.__name__} has changed the state" in told()


def told() -> str:
    """What a check of it finds."""
    results = (run(seed) for seed in SEEDS)
    return next((describe_failure(result, None) for result in results if not result.is_good), "nothing")
