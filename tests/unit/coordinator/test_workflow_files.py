"""Workflows sent as text: what is read from them, where a refusal points, and where their commands run."""

from __future__ import annotations

import json
from typing import Any

import pytest

from phalanx.api.schema.apply import PlanFile
from phalanx.api.schema.workflow_files import WorkflowFilesRequest
from phalanx.api.schema.workflows import SubmittedWorkflow
from phalanx.core.cluster.state import ClusterState
from phalanx.errors import PhalanxError
from tests.unit.coordinator.test_declarations import a_coordinator, anyio_backend

pytestmark = pytest.mark.anyio
__all__ = ["anyio_backend"]

CHAIN = "spec:\n  stages:\n  - {name: a, spec: {command: [make]}}\n  - {name: b, spec: {command: [x], cwd: /srv}}\n"


async def sent(
    *texts: str, name: str = "flow.yaml", times: int = 1, **more: Any
) -> tuple[ClusterState, list[SubmittedWorkflow]]:
    request = WorkflowFilesRequest([PlanFile(name, text) for text in texts], **more)
    async with a_coordinator() as coordinator:
        replies = [await coordinator.commands.submit_workflow_files(request, "ada") for _ in range(times)]
        return coordinator.leadership.state, replies


async def refused(*texts: str, **more: Any) -> str:
    with pytest.raises(PhalanxError) as caught:
        await sent(*texts, **more)
    return caught.value.detail


@pytest.mark.parametrize(
    ("text", "stages"),
    [
        ("spec: {taskType: sft, command: [make]}", 1),
        (CHAIN, 2),
        (json.dumps({"spec": {"graph": {"nodes": [{"name": "x", "spec": {"shell": "true"}}]}}}), 1),
    ],
)
async def test_all_shapes_as_yaml_and_as_json(text: str, stages: int):
    state, [reply] = await sent(text)
    assert len(reply.jobs) == stages
    assert state.workflows[reply.id].workflow.user == "ada"


async def test_commands_run_in_the_folder_of_who_sends_them_unless_they_name_one():
    for cwd, expected in (("/home/ada", ["/home/ada", "/srv"]), (None, [None, "/srv"])):
        state, [reply] = await sent(CHAIN, cwd=cwd)
        stages = state.workflows[reply.id].workflow.stages
        assert [stage.job.groups[0].command.cwd for stage in stages] == expected


async def test_the_same_request_is_answered_once():
    state, replies = await sent(CHAIN, times=2, request_id="r-1")
    assert [reply.replayed for reply in replies] == [False, True]
    assert replies[0].id == replies[1].id and len(state.workflows) == 1


async def test_limits_of_the_request_are_stronger_than_those_of_the_file():
    text = CHAIN.replace("spec:\n", "spec:\n  budget: 3\n", 1)
    for budget, expected in ((None, 3.0), (5.0, 5.0)):
        state, [reply] = await sent(text, budget=budget)
        assert state.workflows[reply.id].workflow.budget == expected


async def test_what_is_not_read_is_a_warning_or_refused():
    text = "metadata: {owner: bob}\n" + CHAIN
    _, [reply] = await sent(text)
    assert any("owner" in warning for warning in reply.warnings)
    assert "owner" in await refused(text, strict=True)


async def test_refusals_point_to_the_file():
    assert "flow.yaml:1: stages[0] (a): task_type: " in await refused(
        "spec:\n  stages:\n  - {name: a, spec: {taskType: ecco}}\n"
    )
    assert "flow.yaml" in await refused("spec: [\n")
    assert "there are 2 workflows in them, expected one" in await refused(CHAIN, CHAIN)
    assert "other things in them than a workflow" in await refused("groups: [{command: [x]}]")
    assert "none is given" in await refused()
    assert "cwd" in await refused(CHAIN, cwd="not/absolute")
