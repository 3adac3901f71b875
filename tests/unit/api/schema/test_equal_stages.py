"""Stages in a row that ask for the same are read once; each still gets what it asks for."""

from __future__ import annotations

import pytest

from phalanx.api.schema.groupspec import GroupSpec
from phalanx.api.schema.jobspec import JobSpec
from phalanx.api.schema.workflows import StageSpec, WorkflowSpec, to_workflow
from phalanx.core.model.job import Job
from phalanx.core.model.workflow import SPEC_VARIABLE
from phalanx.errors import BadRequest


def test_stages_that_ask_for_the_same_have_names_of_their_own():
    a, b, c = made(a_stage("a"), a_stage("b"), a_stage("c", priority=3))
    assert [job.name for job in (a, b, c)] == ["flow.a", "flow.b", "flow.c"]
    assert [job.priority for job in (a, b, c)] == [0, 0, 3]
    assert a.groups == b.groups == c.groups


def test_equal_parameters_of_other_types_are_not_the_same():
    jobs = made(a_stage("a", params={"x": [1]}), a_stage("b", params={"x": [True]}))
    texts = [repr(job.params) for job in jobs]
    assert texts[0] != texts[1]


def test_what_a_stage_adds_is_checked_also_where_its_job_is_known():
    group = GroupSpec(command=["true"], env={SPEC_VARIABLE: "{}"})
    plain = StageSpec("a", JobSpec([group]))
    with pytest.raises(BadRequest, match=SPEC_VARIABLE):
        made(plain, StageSpec("b", JobSpec([group]), spec={"x": 1}))


def a_stage(name: str, **fields: object) -> StageSpec:
    return StageSpec(name, JobSpec([GroupSpec(command=["true"])], **fields))  # type: ignore[arg-type]


def made(*stages: StageSpec) -> list[Job]:
    flow = to_workflow(
        WorkflowSpec(list(stages), "flow"),
        id="w",
        now=0.0,
        user="ada",
        default_retries=2,
        command_of=lambda _: None,
    )
    return [stage.job for stage in flow.stages]
