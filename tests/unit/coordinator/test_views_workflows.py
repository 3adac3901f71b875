"""Views of workflows: made in pieces, with results as they were written."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from phalanx.api.server.limits import TimeSlices
from phalanx.coordinator.views import raw_json
from phalanx.coordinator.views_workflows import workflow_view
from tests.support.clocks import ManualClock
from tests.support.workflow_cluster import WorkflowCluster

MANY = "apiVersion: flowmesh/v1\nspec: {graph: {nodes: [" + "{spec: {command: [make]}}, " * 50 + "]}}"


def test_results_are_not_made_into_objects():
    cluster = WorkflowCluster(MANY)
    cluster.finish("node-1", '{"loss": 0.1}')
    cluster.finish("node-2", '{"loss":')
    view = asyncio.run(workflow_view(cluster.state, cluster.flow, 0.0, TimeSlices(ManualClock())))
    assert isinstance(view.stages[0].result, msgspec.Raw)
    assert b'"result":{"loss": 0.1}' in msgspec.json.encode(view)
    assert view.stages[1].result is None
    assert view.counts == {"Completed": 2, "Assigned": 48}


def test_a_stage_that_waits_for_a_place_says_where_the_reason_is():
    cluster = WorkflowCluster(MANY, cores=8)
    view = asyncio.run(workflow_view(cluster.state, cluster.flow, 0.0, TimeSlices(ManualClock())))
    waiting = [stage for stage in view.stages if stage.status == "Pending"]
    assert waiting and all(f"phalanx why {stage.job_id}" in stage.reason for stage in waiting)
    assert not any(stage.reason for stage in view.stages if stage.status == "Assigned")


class CountedSlices(TimeSlices):
    """Pieces that are over at once."""

    turns = 0

    async def turn(self):
        self.turns += 1
        return await super().turn()


def test_each_piece_of_the_loop_is_short():
    cluster = WorkflowCluster(MANY)
    slices = CountedSlices(ManualClock(), piece_s=0.0)
    asyncio.run(workflow_view(cluster.state, cluster.flow, 0.0, slices))
    assert slices.turns == 51


@pytest.mark.parametrize("text", ["[1,", "{'a': 1}", "NaN", "[" * 100_000, "", "1 2"])
def test_what_is_no_json_is_left_out(text: str):
    assert raw_json(text) is None
