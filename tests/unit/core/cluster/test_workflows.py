"""Workflows: when stages begin, what they are given, and what the end of one means for the others."""

from __future__ import annotations

import msgspec
import pytest

from phalanx.coordinator import turn
from phalanx.coordinator.turn import Engine
from phalanx.core.cluster.decision import Accepted, Refused, Replayed
from phalanx.core.cluster.image import decode_state, encode_state
from phalanx.core.cluster.inputs import Cancel, Leave, SubmitWorkflow, Tick
from phalanx.core.cluster.invariants import check
from phalanx.core.cluster.state import Timers
from phalanx.core.cluster.workflow_events import WorkflowForgotten
from phalanx.core.cluster.workflow_image import decode_workflow, is_workflow
from phalanx.core.model.orders import Ended, Exit, Started, Status, Why
from phalanx.core.model.workflow import STAGES_MAX, stage_job_id, workflow_id
from tests.support.builders import Cluster, a_job
from tests.support.workflow_cluster import WorkflowCluster, a_graph, a_workflow

DIAMOND = a_graph(a="", b="a", c="a", d="b, c")
CHAIN = """
apiVersion: flowmesh/v1
spec:
  stages:
    - {name: a, spec: {command: [make, a], max_attempts: 1}}
    - {name: b, spec: {command: [make, "${a.result.name}", "n=${a.result.n}"], env: {N: "${a.result.n}"}}}
"""


def test_a_stage_begins_in_the_turn_in_which_its_last_input_completed():
    cluster = WorkflowCluster(DIAMOND)
    assert cluster.begun() == {"a"}
    cluster.finish("a")
    assert cluster.begun() == {"a", "b", "c"}
    cluster.finish("b")
    assert cluster.begun() == {"a", "b", "c"}
    cluster.finish("c")
    assert cluster.begun() == {"a", "b", "c", "d"}
    names = [type(event).__name__ for event in cluster.turns[-1].events]
    assert names == ["AttemptEnded", "StagesEnded", "JobSubmitted", "TaskPlaced"]
    cluster.finish("d")
    assert cluster.outcome() == Status.COMPLETED
    assert list(cluster.state.ended_workflows) == [cluster.workflow.id]


def test_ids_of_jobs_follow_from_workflow_stage_and_retry():
    id = workflow_id(10**12, (1 << 79) - 1)
    made = {stage_job_id(id, stage, retries) for stage in (0, 1, STAGES_MAX - 1) for retries in (0, 1, 1000)}
    assert len(made) == 9
    assert all(each > id and each[:21] == id[:21] and len(each) == 26 for each in made)
    assert stage_job_id(id, 0, 0) not in (id, stage_job_id(id, 1, 0))


def test_every_dependent_of_a_failure_fails_and_names_the_one_right_before_it():
    """C22."""
    cluster = WorkflowCluster(a_graph(a="", b="a", c="b", d="c", other=""))
    cluster.finish("a", code=3)
    assert cluster.statuses() == {
        "a": "Failed",
        "b": "Failed",
        "c": "Failed",
        "d": "Failed",
        "other": "Assigned",
    }
    ends, names = cluster.ends(), [stage.name for stage in cluster.workflow.stages]
    assert {name: names[end.parent] for name, end in ends.items() if end.parent is not None} == {
        "b": "a",
        "c": "b",
        "d": "c",
    }
    assert ends["c"].text == "it depends on stage b, which failed"
    assert cluster.begun() == {"a", "other"}
    cluster.finish("other")
    assert cluster.outcome() == Status.FAILED


def test_what_builds_on_a_cancelled_stage_is_cancelled():
    cluster = WorkflowCluster(DIAMOND)
    cluster.finish("a")
    cluster.give(Cancel(cluster.job_of("b")))
    assert cluster.statuses() == {"a": "Completed", "b": "Cancelled", "c": "Assigned", "d": "Cancelled"}


def test_values_reach_the_next_stage_as_they_are():
    cluster = WorkflowCluster(CHAIN)
    cluster.finish("a", result='{"name": "x; rm -rf ${a.result.n}", "n": 3}')
    command = cluster.command("b")
    assert command.argv == ("make", "x; rm -rf ${a.result.n}", "n=3")  # not read again for references
    assert command.env["N"] == "3"


def test_a_whole_reference_keeps_its_type_in_the_spec():
    """C23, the second half."""
    text = """
apiVersion: flowmesh/v1
spec:
  stages:
    - {name: a, spec: {taskType: echo}}
    - {name: b, spec: {taskType: echo, data: {n: "${a.result.list.1}", said: "<${a.result.list}>", id: "${a.task_id}"}}}
"""
    cluster = WorkflowCluster(text)
    cluster.finish("a", result='{"list": [1, 2.5, true]}')
    spec = msgspec.json.decode(cluster.command("b").env["PHALANX_SPEC"])
    assert spec["data"] == {"n": 2.5, "said": "<[1,2.5,true]>", "id": cluster.job_of("a")}


@pytest.mark.parametrize(
    ("result", "told"),
    [
        ("", "the stage gave no result"),
        ('{"other": 1}', "the result has no value at name"),
        ('{"name": null}', "the value at name of the result is null"),
        ("[1]", "'name' is not an index"),
        ('"text"', "the result has no value at name"),
    ],
)
def test_a_value_that_is_not_there_fails_the_stage_without_a_try(result: str, told: str):
    cluster = WorkflowCluster(CHAIN)
    cluster.finish("a", result=result)
    assert cluster.statuses() == {"a": "Completed", "b": "Failed"}
    assert told in cluster.ends()["b"].text
    assert cluster.begun() == {"a"}


def test_a_value_that_no_program_can_be_given_fails_the_stage():
    cluster = WorkflowCluster(CHAIN)
    cluster.finish("a", result='{"name": "a\\u0000b", "n": 1}')
    assert "NUL byte" in cluster.ends()["b"].text


CONDITION = """
apiVersion: flowmesh/v1
spec:
  graph:
    nodes:
      - {name: judge, spec: {taskType: echo}}
      - name: publish
        dependsOn: [judge]
        spec: {taskType: echo, condition: {node: judge, field: items.0.output, equals: EQUALS}}
      - {name: tell, dependsOn: [publish], spec: {taskType: echo}}
"""


@pytest.mark.parametrize(
    ("equals", "value", "runs"),
    [
        ("pass", '"pass"', True),
        ("pass", '"fail"', False),
        ("3", "3", True),
        ("true", "true", True),
        ('"True"', "true", True),  # as FlowMesh writes it
        ("pass", "null", False),
        ("null", "null", True),
    ],
)
def test_a_condition_that_does_not_hold_skips_the_stage_and_no_other(equals: str, value: str, runs: bool):
    """C24."""
    cluster = WorkflowCluster(CONDITION.replace("EQUALS", equals))
    cluster.finish("judge", result=f'{{"items": [{{"output": {value}}}]}}')
    if runs:
        cluster.finish("publish")
    else:
        assert cluster.statuses()["publish"] == "Skipped"
        assert cluster.ends()["publish"].text.startswith("its condition does not hold")
    cluster.finish("tell")
    assert cluster.outcome() == Status.COMPLETED


def test_a_condition_on_a_value_that_is_not_there_says_so():
    cluster = WorkflowCluster(CONDITION.replace("items.0.output", "itms.0.output"))
    cluster.finish("judge", result='{"items": []}')
    told = "its condition does not hold: the result of judge has no value at itms.0.output"
    assert cluster.ends()["publish"].text == told


def test_a_reference_to_a_null_says_so():
    cluster = WorkflowCluster(CHAIN)
    cluster.finish("a", result='{"name": null, "n": 1}')
    assert cluster.ends()["b"].text == "${a.result.name}: the value at name of the result is null"


def test_a_reference_to_a_stage_that_was_skipped_fails():
    text = CONDITION.replace("EQUALS", "pass").replace(
        "[publish], spec: {taskType: echo}", '[publish], spec: {taskType: echo, data: "${publish.result.x}"}'
    )
    cluster = WorkflowCluster(text)
    cluster.finish("judge", result='{"items": [{"output": "no"}]}')
    assert "the stage was skipped" in cluster.ends()["tell"].text


def test_a_reference_waits_for_its_stage_and_is_never_charged():
    """C21, the second half: there is no edge between the two but the reference."""
    text = """
apiVersion: flowmesh/v1
spec:
  graph:
    nodes:
      - {name: slow, spec: {taskType: echo}}
      - {name: user, spec: {taskType: echo, data: "${slow.result.x}"}}
"""
    cluster = WorkflowCluster(text)
    for _ in range(100):
        cluster.now += 1
        cluster.beat("n1", (cluster.job_of("slow"), 0, 1))
    assert cluster.begun() == {"slow"}
    cluster.finish("slow", result='{"x": 1}')
    assert cluster.state.jobs[cluster.job_of("user")].attempts[0] == 1
    assert cluster.state.jobs[cluster.job_of("user")].charged == {}


def test_three_attempts_are_three_runs():
    """C21, the first half."""
    cluster = WorkflowCluster("apiVersion: flowmesh/v1\nspec: {taskType: echo, max_attempts: 3}")
    for _ in range(3):
        cluster.finish("task", code=1)
        cluster.now += 60
        cluster.give()
    assert cluster.statuses() == {"task": "Failed"}
    assert cluster.state.jobs[cluster.job_of("task")].attempts[0] == 3


def test_a_cancelled_workflow_begins_nothing_more():
    cluster = WorkflowCluster(DIAMOND)
    answer = cluster.cancel()
    assert answer == Accepted(4, 1)
    assert set(cluster.statuses().values()) == {"Cancelled"}
    assert cluster.outcome() == Status.CANCELLED
    assert cluster.begun() == {"a"}
    assert isinstance(cluster.cancel(), Refused)


def test_a_retry_runs_what_did_not_complete_and_keeps_the_rest():
    cluster = WorkflowCluster(DIAMOND)
    cluster.finish("a", result='{"x": 1}')
    cluster.finish("b", code=1)
    cluster.finish("c")
    assert cluster.outcome() == Status.FAILED
    first = cluster.job_of("b")
    assert cluster.retry() == Accepted(2)
    assert cluster.job_of("b") != first
    assert cluster.statuses() == {"a": "Completed", "b": "Assigned", "c": "Completed", "d": "Waiting"}
    cluster.finish("b")
    cluster.finish("d")
    assert cluster.outcome() == Status.COMPLETED
    assert cluster.flow.results == {0: '{"x": 1}'}
    assert cluster.state.jobs[first].overall_status == Status.FAILED  # final is final


def test_a_retry_from_a_stage_runs_all_that_builds_on_it():
    cluster = WorkflowCluster(DIAMOND)
    for stage in "abcd":
        cluster.finish(stage)
    answer = cluster.retry()
    assert isinstance(answer, Refused)
    assert answer.reason.code == "NothingToRetry"
    assert cluster.retry("b") == Accepted(2)
    assert cluster.statuses() == {"a": "Completed", "b": "Assigned", "c": "Completed", "d": "Waiting"}
    again = cluster.retry()
    assert isinstance(again, Refused)
    assert again.reason.code == "NotEnded"


def test_a_retry_from_a_stage_whose_input_is_missing_is_refused():
    cluster = WorkflowCluster(a_graph(a="", b="a"))
    cluster.finish("a", code=1)
    answer = cluster.retry("b")
    assert isinstance(answer, Refused)
    assert "begin with a" in answer.reason.text


def test_a_stage_can_be_retried_a_thousand_times():
    cluster = WorkflowCluster(a_graph(a=""))
    cluster.finish("a", code=1)
    cluster.flow.retries[0] = 1000
    answer = cluster.retry()
    assert isinstance(answer, Refused)
    assert answer.reason.code == "RetriedTooOften"


def test_a_workflow_is_accepted_once_for_a_request_id():
    cluster = WorkflowCluster(DIAMOND)
    other = a_workflow(DIAMOND)
    [first] = cluster.give(SubmitWorkflow(other, "key"))
    [again] = cluster.give(SubmitWorkflow(a_workflow(DIAMOND), "key"))
    assert first == Accepted(4)
    assert again == Replayed((other.id,))
    assert len(cluster.state.workflows) == 2


def test_a_workflow_with_a_stage_that_fits_nowhere_is_refused_whole():
    cluster = WorkflowCluster(DIAMOND)
    stages = "[{name: a, spec: {taskType: echo}}, {name: big, spec: {taskType: echo, cores: 4000}}]"
    text = f"apiVersion: flowmesh/v1\nspec: {{stages: {stages}}}"
    [answer] = cluster.give(SubmitWorkflow(a_workflow(text)))
    assert isinstance(answer, Refused)
    assert answer.kind == "never"
    assert answer.reason.text.startswith("stage big: ")
    assert len(cluster.state.workflows) == 1


def test_stages_without_a_job_count_as_a_users_tasks():
    cluster = WorkflowCluster(DIAMOND)
    assert cluster.state.stages_of == {"ada": 3}
    cluster.state.rules = Timers(pending_max=1)
    answers = [cluster.give(SubmitWorkflow(a_workflow(DIAMOND)))[0]]
    assert isinstance(answers[0], Refused)
    assert answers[0].reason.code == "QueueFull"
    cluster.finish("a", code=1)
    assert cluster.state.stages_of == {}


def test_a_restart_in_the_middle_goes_on_where_it_was():
    cluster = WorkflowCluster(DIAMOND)
    cluster.finish("a", result='{"x": 1}')
    cluster.finish("b")
    cluster.engine = Engine(decode_state(encode_state(cluster.state), cluster.state.rules))
    assert check(cluster.state) == []
    assert cluster.state.due == {}
    cluster.add_node("n1", "b", held=((cluster.job_of("c"), 0, 1),), cores=64)
    key = (cluster.job_of("c"), 0, 1)
    cluster.ended("n1", key, life="b")
    assert cluster.begun() == {"a", "b", "c", "d"}


def test_what_is_due_when_an_image_is_made_is_due_again(monkeypatch: pytest.MonkeyPatch):
    cluster = WorkflowCluster(DIAMOND)
    monkeypatch.setattr(turn, "FOLLOWED_MAX", 0)  # the turn ends before anything follows from it
    cluster.finish("a")
    assert cluster.begun() == {"a"}
    assert cluster.turns[-1].more
    cluster.engine = Engine(decode_state(encode_state(cluster.state), cluster.state.rules))
    assert list(cluster.state.due) == [cluster.workflow.id]
    monkeypatch.undo()
    cluster.give()
    assert cluster.begun() == {"a", "b", "c"}


def test_old_workflows_leave_memory_for_the_history():
    cluster = WorkflowCluster(a_graph(a=""))
    cluster.finish("a", result='{"x": 1}')
    cluster.state.rules = Timers(ended_workflows_max=0)
    cluster.give(Tick())
    last = cluster.turns[-1]
    assert [type(event) for event in last.events] == [WorkflowForgotten]
    assert not cluster.state.workflows
    assert not cluster.state.ended_workflows
    [record] = last.history
    assert is_workflow(record.body)
    kept = decode_workflow(record.body)
    assert (kept.overall_status, kept.results) == (Status.COMPLETED, {0: '{"x": 1}'})


@pytest.mark.parametrize(("when", "begins"), [("any", True), ("ok", False)])
def test_a_stage_does_not_wait_for_a_job_that_left_memory(when: str, begins: bool):
    cluster = Cluster()
    cluster.add_node("n1", cores=8)
    job = a_job()
    cluster.submit(job)
    nodes = f"[{{name: a}}, {{name: b, dependsOn: [a, '{job.id}:{when}']}}]"
    flow = a_workflow(f"apiVersion: flowmesh/v1\nspec: {{taskType: echo, graph: {{nodes: {nodes}}}}}")
    cluster.give(SubmitWorkflow(flow))
    cluster.ended("n1", (job.id, 0, 1))
    cluster.state.rules = Timers(ended_jobs_max=0)
    cluster.give(Tick())
    assert job.id not in cluster.state.jobs
    cluster.ended("n1", (stage_job_id(flow.id, 0, 0), 0, 1))
    state = cluster.state.workflows[flow.id]
    assert (stage_job_id(flow.id, 1, 0) in cluster.state.jobs) == begins
    assert state.phase(1).name == ("RELEASED" if begins else "FAILED")


def test_a_large_workflow_begins_in_pieces():
    text = a_graph(**{f"s{number}": "" for number in range(1200)})
    cluster = WorkflowCluster(text)
    assert 0 < len(cluster.begun()) < 1200, "others are heard before the rest"
    while cluster.turns[-1].more:
        cluster.give()
    assert len(cluster.begun()) == 1200
    assert max(len(each.events) for each in cluster.turns) <= 300
    assert cluster.state.due == {}


def test_a_stage_on_a_lost_node_runs_elsewhere_once_and_uncharged():
    """C30."""
    cluster = WorkflowCluster(a_graph(a="", b="a"))
    key = (cluster.job_of("a"), 0, 1)
    cluster.tell("n1", Started(key, cluster.now))
    cluster.add_node("n2", cores=64)
    cluster.now += cluster.state.rules.lost_after_s + 1.0
    cluster.beat("n2")
    cluster.give(Tick())
    job = cluster.state.jobs[key[0]]
    assert (job.live[0].node, job.attempts[0], job.charged) == ("n2", 2, {})
    assert job.job.max_retries == 0, "a charged attempt would have failed the stage"
    cluster.give(Leave("n1", "a", 1))
    cluster.tell("n1", Ended(key, Exit(Why.NONE, 0, 1.0, 2.0)), generation=1)
    assert (job.live[0].node, job.attempts[0]) == ("n2", 2), "neither its leave nor its late report is heard"
    assert cluster.begun() == {"a"}
    again = (key[0], 0, 2)
    cluster.tell("n2", Started(again, cluster.now))
    cluster.tell("n2", Ended(again, Exit(Why.NONE, 0, cluster.now, cluster.now)))
    assert cluster.begun() == {"a", "b"}
