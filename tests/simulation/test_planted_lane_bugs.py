"""Planted bugs about lanes that stages share: each is seen, by the checker that is meant to see it."""

from __future__ import annotations

from collections.abc import Hashable

import pytest

from phalanx.core.cluster.apply import grants
from phalanx.core.cluster.state import ClusterState
from phalanx.core.model import lanes
from phalanx.core.model.job import Job
from phalanx.core.model.lanes import Lane, lane_kind
from tests.simulation.seeds import must_find

Patch = pytest.MonkeyPatch
pytestmark = pytest.mark.timeout(300)


def test_a_lane_shared_by_stages_of_different_requests_is_found(monkeypatch: Patch):
    def any_request(job: Job) -> Hashable | None:
        return None if lane_kind(job) is None else job.user

    monkeypatch.setattr(lanes, "lane_kind", any_request)
    must_find({"lanes"}, within=60)


def test_a_lane_shared_by_whole_arrays_is_found(monkeypatch: Patch):
    """Each of their tasks would count as the only one of its job."""

    def any_job(job: Job) -> Hashable | None:
        return None if job.gang is not None else (job.user, job.queue, job.groups[0].request)

    monkeypatch.setattr(lanes, "lane_kind", any_job)
    must_find({"lanes"}, within=60)


def test_a_lane_that_is_held_by_a_stage_that_has_ended_is_found(monkeypatch: Patch):
    def nobody(state: ClusterState, lane: Lane, at: float) -> None:
        """The tenant stays the job that opened the lane."""

    monkeypatch.setattr(grants, "_pass_on", nobody)
    must_find({"ledger"}, within=60)
