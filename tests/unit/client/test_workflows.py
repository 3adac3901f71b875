"""Workflows built in code: what is refused before anything is sent."""

from __future__ import annotations

import json

import pytest

from phalanx.api.schema.workflows import RetryRequest
from phalanx.client.workflow_calls import retry_workflow, submit_workflow
from phalanx.client.workflows import Word, WorkflowBuilder
from phalanx.errors import PhalanxError


def test_a_text_is_no_command():
    flow = WorkflowBuilder("f")
    with pytest.raises(TypeError, match=r"'train': command = 'python train.py' is a text") as caught:
        flow.stage("train", "python train.py")
    assert "['python', 'train.py']" in str(caught.value)
    assert "shell='python train.py'" in str(caught.value)
    with pytest.raises(TypeError, match="is a text"):
        flow.stage("train", b"python train.py")  # type: ignore[arg-type]
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
