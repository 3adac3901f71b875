"""Planted bugs about elastic nodes: each is seen, by the checker that is meant to see it."""

from __future__ import annotations

import pytest

from phalanx.core.cluster import events as e
from phalanx.core.cluster.apply import grants
from phalanx.core.cluster.apply import jobs as apply_jobs
from phalanx.core.cluster.apply import nodes as apply_nodes
from phalanx.core.cluster.decide import scaling
from phalanx.core.cluster.decide.scaling import ReadyQueue
from phalanx.core.cluster.jobs import JobState
from phalanx.core.cluster.nodes import NodeState
from phalanx.core.cluster.state import ClusterState
from phalanx.core.cluster.transitions import CHANGES
from phalanx.core.cluster.units import Attempt
from phalanx.core.model.elastic import ElasticRules
from tests.simulation.seeds import must_find

Patch = pytest.MonkeyPatch
pytestmark = pytest.mark.timeout(300)


def test_a_disabled_node_that_takes_work_is_found(monkeypatch: Patch):
    monkeypatch.setattr(NodeState, "could_work", property(lambda self: self.is_fit))
    must_find({"elastic"}, within=20)


def test_a_cooldown_that_is_not_kept_is_found(monkeypatch: Patch):
    monkeypatch.setattr(scaling, "_has_cooled", lambda rules, node, now: True)
    must_find({"elastic"}, within=20)


def test_a_toggle_by_hand_that_does_not_count_for_the_cooldown_is_found(monkeypatch: Patch):
    disabled = apply_nodes.disabled

    def unstamped(state: ClusterState, event: e.NodeDisabled) -> None:
        former = state.nodes[event.node].toggled_at
        disabled(state, event)
        if not event.automatic:
            state.nodes[event.node].toggled_at = former

    monkeypatch.setitem(CHANGES, e.NodeDisabled, unstamped)
    must_find({"elastic"}, within=60)


def test_a_pool_that_shrinks_to_nothing_is_found(monkeypatch: Patch):
    monkeypatch.setattr(ElasticRules, "stays", property(lambda self: 0))
    must_find({"elastic"}, within=20)


def test_a_node_that_counts_as_idle_from_its_first_task_on_is_found(monkeypatch: Patch):
    end_attempt = grants.end_attempt

    def forgetful(state: ClusterState, job: JobState, attempt: Attempt, at: float) -> None:
        end_attempt(state, job, attempt, at)
        node = state.nodes[attempt.node]
        if node.idle_since is not None:
            node.idle_since = 0.0

    monkeypatch.setattr(apply_jobs, "end_attempt", forgetful)
    must_find({"elastic"}, within=20)


def test_a_busy_node_that_is_disabled_is_found(monkeypatch: Patch):
    monkeypatch.setattr(scaling, "_idle_s", lambda state, node, now: 1e9)
    must_find({"elastic"}, within=20)


def test_two_nodes_enabled_in_one_poll_are_found(monkeypatch: Patch):
    enabled = scaling._enabled

    def all_at_once(state: ClusterState, queue: ReadyQueue, now: float) -> list[e.Event]:
        found = enabled(state, queue, now)
        others = (node for node in state.nodes.values() if node.is_only_disabled)
        again = [
            e.NodeEnabled(at=now, node=node.name, reason="too", automatic=True)
            for node in others
            if found and node.name != found[0].on_node and scaling._has_cooled(state.rules.elastic, node, now)
        ]
        return found + again

    monkeypatch.setattr(scaling, "_enabled", all_at_once)
    must_find({"elastic"}, within=150)
