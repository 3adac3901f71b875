"""Planted bugs about dispatch modes: each is seen, by the checker that is meant to see it."""

from __future__ import annotations

import pytest

from phalanx.core.cluster.apply import gangs as apply_gangs
from phalanx.core.cluster.apply import workflows as apply_workflows
from phalanx.core.cluster.nodes import NodeState
from phalanx.core.cluster.state import ClusterState
from phalanx.core.model.bindings import Bindings
from phalanx.core.model.contexts import Contexts
from tests.simulation.seeds import must_find

Patch = pytest.MonkeyPatch
pytestmark = pytest.mark.timeout(300)


def test_a_bound_node_that_takes_the_work_of_others_is_found(monkeypatch: Patch) -> None:
    open_to_all = property(lambda self: self.could_work and not self.is_kept_away)
    monkeypatch.setattr(NodeState, "takes_work", open_to_all)
    monkeypatch.setattr(NodeState, "takes_work_of", lambda self, job: self.takes_work)
    must_find({"dispatch"}, within=60, begin=45)


def test_a_node_that_stays_bound_to_an_ended_workflow_is_found(monkeypatch: Patch) -> None:
    def never(state: ClusterState, key: str) -> None:
        """Nothing is let go."""

    monkeypatch.setattr(apply_workflows, "unbind", never)
    monkeypatch.setattr(apply_gangs, "unbind", never)
    must_find({"heals"}, within=60)


def test_a_node_that_is_preferred_for_what_it_never_had_is_found(monkeypatch: Patch) -> None:
    def any_node(self: Contexts, names: tuple[str, ...], now: float, within_s: float) -> dict[str, int]:
        return dict.fromkeys(("n1", "n2", "n3"), 1)

    monkeypatch.setattr(Contexts, "hits", any_node)
    must_find({"dispatch"}, within=60)


def test_a_binding_that_a_restart_forgets_is_found(monkeypatch: Patch) -> None:
    monkeypatch.setattr(Bindings, "image", lambda self: None)
    must_find({"replay", "dispatch"}, within=60)
