"""Workflows built in code: what is refused before anything is sent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import pytest

from phalanx.api.schema.groupspec import GatherSpec, GroupSpec
from phalanx.api.schema.jobspec import JobSpec
from phalanx.api.schema.submission import AcceptedTask, SubmitReply
from phalanx.api.schema.workflows import RetryRequest, StageView, SubmittedWorkflow, WorkflowView
from phalanx.client import workflow_calls
from phalanx.client.job_handles import JobHandle, job_handle
from phalanx.client.stage_fields import StageFields
from phalanx.client.workflow_calls import retry_workflow, submit_workflow
from phalanx.client.workflow_handles import WorkflowHandle
from phalanx.client.workflows import Word, WorkflowBuilder
from phalanx.errors import JobFailed, NotFound, PhalanxError
from tests.support.fake_client import ID, FakeClient, a_job, a_task


def test_a_text_is_no_command():
    flow = WorkflowBuilder("f")
    with pytest.raises(TypeError, match=r"'train': command = 'python train.py' is a text") as caught:
        flow.stage("train", "python train.py")
    assert "['python', 'train.py']" in str(caught.value)
    assert "shell='python train.py'" in str(caught.value)
    with pytest.raises(TypeError, match="is a text"):
        flow.stage("train", b"python train.py")
    assert flow.spec().stages == []


def test_a_function_is_no_command():
    with pytest.raises(TypeError, match=r"command = print is a function: .* phalanx\.Executor"):
        WorkflowBuilder("f").stage("train", print)  # type: ignore[arg-type]


def test_commands_run_in_the_folder_of_the_program(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    flow = WorkflowBuilder("f")
    flow.stage("here", ["python", "prep.py"])
    flow.stage("text", shell="ls")
    flow.stage("there", ["ls"], cwd="/srv")
    flow.stage("site", task_type="sft")
    sent = json.loads(submit_workflow(flow.spec()).body or b"")
    folders = [stage["job"]["groups"][0].get("cwd") for stage in sent["workflow"]["stages"]]
    assert folders == [str(tmp_path), str(tmp_path), "/srv", None]


def test_one_stage_is_no_list_of_stages():
    flow = WorkflowBuilder("f")
    one = flow.stage("one", ["true"])
    for given in ("one", one):
        with pytest.raises(
            TypeError, match=r"after = 'one' is one stage: expected a list of stages, \['one'\]"
        ):
            flow.stage("two", ["true"], after=given)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="when = 'one'"):
        flow.stage("two", ["true"], when="one")  # type: ignore[arg-type]


def test_a_stage_of_another_workflow_is_refused_wherever_it_is_used():
    other = WorkflowBuilder("other").stage("one", ["true"])
    flow = WorkflowBuilder("mine")
    flow.stage("one", ["true"])
    uses = {
        "after": {"after": [other]},
        "when": {"when": (other, "n", 1)},
        "command": {"command": ["echo", other.result["n"]]},
        "shell": {"shell": other.artifact("run.sh")},
        "env.ID": {"command": ["true"], "env": {"ID": other.job_id}},
        "spec.data.0.path": {"task_type": "echo", "spec": {"data": [{"path": other.result["n"]}]}},
    }
    for field, fields in uses.items():
        with pytest.raises(ValueError, match="of another workflow") as caught:
            flow.stage("two", **fields)  # type: ignore[arg-type]
        assert f"stage 'two': {field} uses stage 'one' of another workflow ('other')" in str(caught.value)
    assert [stage.name for stage in flow.spec().stages] == ["one"]


def test_stages_of_the_same_workflow_are_written_as_references():
    flow = WorkflowBuilder("f")
    one = flow.stage("one", ["true"])
    words: list[Word] = ["echo", one.result["a"][0], one.job_id, one.artifact("m.pt", task=2)]
    flow.stage("two", words, after=[one], when=(one, "n", 20))
    stage = flow.spec().stages[1]
    assert stage.job.groups[0].command == [
        "echo",
        "${one.result.a.0}",
        "${one.task_id}",
        "${one.artifacts.2.m.pt}",
    ]
    assert all(type(word) is str for word in stage.job.groups[0].command)
    assert stage.after == ["one"]


@pytest.mark.parametrize(
    "limits", [{"budget": float("nan")}, {"budget": float("inf")}, {"deadline": float("nan")}]
)
def test_limits_that_json_cannot_say_are_refused_before_they_are_sent(limits: dict[str, float]) -> None:
    flow = WorkflowBuilder("x", **limits)  # type: ignore[arg-type]
    flow.stage("a", ["true"])
    with pytest.raises(PhalanxError, match="out of range"):
        submit_workflow(flow.spec())
    with pytest.raises(PhalanxError, match="out of range"):
        retry_workflow("0" * 26, RetryRequest(**limits))  # type: ignore[arg-type]


def job_of(**fields: Any) -> JobSpec:
    flow = WorkflowBuilder("f")
    flow.stage("one", ["true"], **fields)
    return flow.spec().stages[0].job


def test_a_stage_takes_the_fields_of_jobs_and_groups():
    job = job_of(
        gpus=2, image="python:3.12", mounts=["/data"], tasks=4, gang=True, gather="rack:must", tags={"a": "b"}
    )
    group = job.groups[0]
    assert (group.gpus, group.image, group.mounts, group.tasks) == (2, "python:3.12", ["/data"], 4)
    assert (job.gang, job.gather, job.tags) == (True, [GatherSpec("rack", must=True)], {"a": "b"})


def test_runs_of_a_stage_are_counted_as_those_of_a_job_are():
    assert [job_of(**given).max_retries for given in ({}, {"retries": 2}, {"max_attempts": 2})] == [
        None,
        2,
        1,
    ]
    with pytest.raises(TypeError, match="retries and max_attempts are about the same"):
        job_of(retries=1, max_attempts=2)
    with pytest.raises(PhalanxError, match="max_attempts: 0 is out of range"):
        job_of(max_attempts=0)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"gpu": 1}, r"stage\(\) has no argument 'gpu', did you mean 'gpus'\?"),
        ({"depends_on": ["a"]}, r"write after=\["),
        ({"needs": ["a"]}, r"write after=\["),
        ({"params": {"lr": 1}}, r"its spec=\{"),
    ],
)
def test_an_argument_that_a_stage_has_not_names_what_is_meant(given: dict[str, Any], told: str):
    with pytest.raises(TypeError, match=told):
        job_of(**given)


def test_every_keyword_of_a_stage_is_a_field_of_its_job():
    fields = {*JobSpec.__struct_fields__, *GroupSpec.__struct_fields__, "retries", "max_attempts"}
    assert set(StageFields.__annotations__) - fields == set()


def test_two_stages_of_one_name_are_refused():
    flow = WorkflowBuilder("f")
    flow.stage("one", ["true"])
    with pytest.raises(ValueError, match=r"stage 'one' is already in this workflow \('f'\)"):
        flow.stage("one", ["false"])


def test_what_is_built_shows_what_it_is():
    flow = WorkflowBuilder("tune")
    one = flow.stage("one", ["true"])
    assert [repr(each) for each in (flow, one, one.result["loss"])] == [
        "WorkflowBuilder('tune', one)",
        "StageHandle('one')",
        "ResultReference('${one.result.loss}')",
    ]


class EndedWorkflow:
    """A client whose only workflow is over, or not."""

    def __init__(self, status: Any, *stages: StageView, reason: str = "") -> None:
        self.ended = WorkflowView(
            "w1", "tune", "ada", status, 0.0, {}, stages=list(stages), reason=reason, number=7
        )
        self.error: NotFound | None = None
        self.jobs = FakeClient()
        self.jobs.ends = [a_job(number=9, status="Failed", name="tune.fit", exit_code=3)]
        self.jobs.kept_tasks = [
            a_task(number="9", status="Failed", message="exited with code 3", exit_code=3)
        ]
        self.jobs.output["stdout"] = [b"no data\n"]

    def wait_workflow(
        self, id: str | int, timeout: float | None = None, *, must_end: bool = True
    ) -> WorkflowView:
        if must_end:
            workflow_calls.check_ended(self.ended)
        return self.ended

    def handle(self, id: str | int) -> JobHandle:
        if self.error is not None:
            raise self.error
        return job_handle(SubmitReply([ID], ID, [AcceptedTask(ID, number=9)]), cast(Any, self.jobs))


def handle_on(client: EndedWorkflow) -> WorkflowHandle:
    return WorkflowHandle(
        cast(Any, client), SubmittedWorkflow("w1", "tune", {"fit": ID, "test": "j2"}, number=7)
    )


def test_a_workflow_that_failed_raises_what_its_first_failed_stage_says():
    fit = StageView("fit", "Failed", ID, number=9)
    handle = handle_on(EndedWorkflow("Failed", StageView("test", "Failed", "j2", parent="fit"), fit))
    assert (repr(handle), handle.wait().status) == ("WorkflowHandle(7, tune)", "Failed")
    with pytest.raises(JobFailed) as failed:
        handle.wait(check=True)
    assert (failed.value.code, failed.value.log_tail, failed.value.job.number) == (3, "no data", 9)
    assert str(failed.value).startswith("workflow tune (7) is Failed, stage 'fit': tune.fit (9) is Failed")


def test_a_workflow_that_was_stopped_raises_why():
    late = EndedWorkflow(
        "Failed", StageView("fit", "Cancelled", ID, number=9), reason="the deadline has passed"
    )
    with pytest.raises(JobFailed, match=r"^workflow tune \(7\) is Failed: the deadline has passed\b"):
        handle_on(late).wait(check=True)
    with pytest.raises(TimeoutError, match="has not ended: it is Running"):
        handle_on(EndedWorkflow("Running")).wait(0.1, check=True)
    handle_on(EndedWorkflow("Completed")).wait(check=True)


def test_the_job_of_a_stage_is_asked_by_its_name():
    handle = handle_on(EndedWorkflow("Failed"))
    assert handle.stage("fit").logs() == "no data\n"
    with pytest.raises(KeyError, match="has no stage 'fitt': it has fit, test"):
        handle.stage("fitt")


def test_of_a_workflow_at_its_limit_the_limit_is_the_reason():
    fit = StageView("fit", "Failed", ID, number=9, reason="cancelled")
    with pytest.raises(JobFailed, match=r"^workflow tune \(7\) is Failed: the deadline has passed\b"):
        handle_on(EndedWorkflow("Failed", fit, reason="the deadline has passed")).wait(check=True)


def test_a_stage_that_never_began_is_told_by_its_name():
    client = EndedWorkflow("Failed", StageView("fit", "Failed", ID, reason="${a.result.x}: no"))
    with pytest.raises(JobFailed, match=r"is Failed: stage 'fit': \$\{a\.result\.x\}: no"):
        handle_on(client).wait(check=True)
    client.error = NotFound("no job")
    with pytest.raises(NotFound, match=r"^stage 'fit' of workflow tune \(7\) has no job") as told:
        handle_on(client).stage("fit")
    assert told.value.reason == "StageNotBegun"


def test_words_are_texts_numbers_paths_and_references():
    flow = WorkflowBuilder("f")
    one = flow.stage("one", ["python", Path("/a.py"), 1, 0.5], env={"SEED": 3})
    group = flow.spec().stages[0].job.groups[0]
    assert (group.command, group.env) == (["python", "/a.py", "1", "0.5"], {"SEED": "3"})
    wrong: list[Any] = ["echo", one]
    with pytest.raises(TypeError, match="stage 'two': command has stage 'one' itself"):
        flow.stage("two", wrong)
    with pytest.raises(TypeError, match="stage 'two': spec has what JSON does not have"):
        flow.stage("two", task_type="sft", spec={"x": object()})
