"""`why` of a workflow, and of a stage that has no job: what it waits for, or why it never got one."""

from __future__ import annotations

from phalanx.api.schema.jobs import WhyReply
from phalanx.coordinator.why import stage_reply, workflow_reply
from phalanx.core.cluster.decision import Accepted
from phalanx.core.cluster.inputs import GiveInputs, SubmitWorkflow
from phalanx.core.explain.change import ADMIN, NOBODY, Asker
from phalanx.core.model.orders import Ended, Exit, Started, Why
from tests.support.workflow_cluster import WorkflowCluster, a_graph, a_workflow

USES = """
apiVersion: flowmesh/v1
spec:
  graph:
    nodes:
      - {name: a, spec: {command: [make, a], max_attempts: 1}}
      - {name: b, dependsOn: [a], spec: {command: [make, "${a.result.n}"]}}
      - {name: c, dependsOn: [b], spec: {command: [make, c], condition: {node: b, field: ok, equals: yes}}}
"""


def why(cluster: WorkflowCluster, stage: str = "", asker: Asker = ADMIN) -> WhyReply:
    if stage:
        return stage_reply(cluster.state, cluster.flow, cluster.flow.numbers[stage], cluster.now, asker)
    engine = cluster.engine
    return workflow_reply(cluster.state, cluster.flow, cluster.now, engine.policy, engine.memory, asker)


def others(reply: WhyReply) -> list[tuple[str, str]]:
    return [(each.code, each.text) for each in reply.others]


def test_a_stage_names_what_it_waits_for_and_the_state_of_each():
    cluster = WorkflowCluster(USES)
    reply = why(cluster, "b")
    assert (reply.id, reply.status) == (f"{cluster.workflow.id}:b", "Pending")
    assert (reply.dominant.code, reply.dominant.text) == ("WaitingDependency", "Waits for a (Assigned)")
    assert reply.dominant.numbers == {"stages": {"a": "Assigned"}, "count": 1}
    assert others(reply) == [("WaitingReference", "Uses what these stages give: a")]
    last = why(cluster, "c")
    assert last.dominant.text == "Waits for b (Waiting)"
    assert others(last) == [
        ("WaitingDependency", "Waits for a (Assigned)"),  # on which those wait
        ("WaitingCondition", "Runs only if ok of stage b is 'yes'"),
    ]


def test_many_stages_are_counted_and_some_are_named():
    names = [f"s{number}" for number in range(8)]
    cluster = WorkflowCluster(a_graph(**dict.fromkeys(names, ""), last=", ".join(names)))
    reply = why(cluster, "last")
    assert reply.dominant.text.endswith("s4 (Assigned) and 3 more")
    assert len(reply.dominant.numbers["stages"]) == 8


def test_a_stage_that_never_ran_names_its_parent_and_the_first_failure():
    cluster = WorkflowCluster(a_graph(a="", b="a", c="b", d="c"))
    cluster.finish("a", code=3)
    reply = why(cluster, "d", NOBODY)
    assert (reply.status, reply.dominant.code) == ("Failed", "EndedFailed")
    assert reply.dominant.text == "It depends on stage c, which failed"
    assert others(reply) == [("EndedFailed", "The first that did not complete is stage a, which is Failed")]
    assert others(why(cluster, "b")) == []
    whole = why(cluster)
    assert (whole.status, whole.dominant.text) == ("Failed", "0 of 4 stages completed")
    assert others(whole) == [
        ("EndedFailed", f"Stage a is Failed; `phalanx why {cluster.workflow.id}:a` says why")
    ]


def test_values_are_only_for_those_who_may_see_inside():
    cluster = WorkflowCluster(USES)
    cluster.finish("a", result='{"n": 1}')
    cluster.finish("b", result='{"ok": "secret"}')
    reply = why(cluster, "c")
    assert (reply.status, reply.dominant.code) == ("Completed", "EndedCompleted")
    assert reply.dominant.text == "Its condition does not hold: ok of b is not 'yes'"
    for asker in (NOBODY, Asker("bob")):
        assert why(cluster, "c", asker).dominant.text == "It was skipped: its condition does not hold"


def test_a_stage_whose_values_are_fetched_says_so():
    cluster = WorkflowCluster(USES)
    key = (cluster.job_of("a"), 0, 1)
    cluster.tell("n1", Started(key, cluster.now))
    exit = Exit(Why.NONE, 0, cluster.now, cluster.now, result_bytes=9000, result_sha256="ab" * 32)
    cluster.tell("n1", Ended(key, exit))
    said = "Waits for the result of a from the place for files"
    assert (why(cluster, "b").dominant.code, why(cluster, "b").dominant.text) == ("WaitingFiles", said)
    whole = why(cluster)
    assert whole.dominant.text == "Stages wait for values from the place for files: b"
    gone = GiveInputs(cluster.workflow.id, 1, cluster.job_of("b"), trouble="it does not answer")
    assert isinstance(cluster.give(gone)[0], Accepted)
    assert why(cluster, "b").dominant.text == f"{said}: it does not answer"


def test_a_workflow_names_what_runs_and_what_waits_for_others():
    cluster = WorkflowCluster(a_graph(a="", b="a", c="b"))
    reply = why(cluster)
    assert (reply.id, reply.status) == (cluster.workflow.id, "Running")
    assert (reply.dominant.code, reply.dominant.text) == (
        "StagesRunning",
        "1 of 3 stages under way: a (Assigned)",
    )
    assert others(reply) == [("WaitingDependency", "2 of 3 stages waiting for others: b, c")]


def test_a_workflow_of_which_nothing_runs_gives_the_reason_of_its_first_job():
    text = USES.replace("command: [make, a]", "command: [make, a], cores: 64")
    cluster = WorkflowCluster(text, cores=64)
    cluster.workflow = a_workflow(text)
    cluster.give(SubmitWorkflow(cluster.workflow))
    reply = why(cluster)
    assert (reply.status, reply.dominant.code) == ("Running", "WaitingCapacity")
    assert reply.dominant.text.startswith("Stage a: ")
    assert reply.nodes
    assert ("WaitingDependency", "2 of 3 stages waiting for others: b, c") in others(reply)
