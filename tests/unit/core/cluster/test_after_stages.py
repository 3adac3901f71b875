"""Jobs that start after workflows and after stages, which may have no job yet, or end without one."""

from __future__ import annotations

import pytest

from phalanx.core.cluster.decision import Accepted, Refused
from phalanx.core.cluster.dependencies import predecessor
from phalanx.core.cluster.image import decode_state, encode_state
from phalanx.core.cluster.inputs import Submit
from phalanx.core.cluster.invariants import check
from phalanx.core.model.job import After, Job, JobId, When
from phalanx.core.model.orders import Status, Why
from phalanx.core.model.workflow import stage_job_id, stage_of_job, workflow_id, workflow_of_job
from tests.support.builders import a_job
from tests.support.workflow_cluster import WorkflowCluster, a_graph

CHAIN = a_graph(a="", b="a", c="b")
COMPLETED, FAILED, CANCELLED = Status.COMPLETED, Status.FAILED, Status.CANCELLED
SKIPS = """
apiVersion: flowmesh/v1
spec:
  stages:
    - {name: a, spec: {command: [make]}}
    - {name: b, spec: {command: [make], condition: {node: a, field: go, equals: "yes"}}}
"""


def following(cluster: WorkflowCluster, other: JobId, when: When = "ok") -> Job:
    job = a_job(after=(After(other, when),))
    assert isinstance(cluster.give(Submit(job))[0], Accepted)
    return job


def status(cluster: WorkflowCluster, job: Job) -> Status:
    return cluster.state.jobs[job.id].overall_status


def test_the_stage_is_known_by_the_id_of_its_job():
    flow = workflow_id(10**12, (1 << 79) - 1)
    for stage, retries in ((0, 0), (9_999, 3), (7, 1000)):
        job = stage_job_id(flow, stage, retries)
        assert (workflow_of_job(job), stage_of_job(flow, job)) == (flow, stage)


@pytest.mark.parametrize("when", ["ok", "any", "started"])
def test_a_job_waits_for_a_stage_that_has_no_job_yet(when: When):
    cluster = WorkflowCluster(CHAIN)
    job = following(cluster, cluster.job_of("b"), when)
    cluster.finish("a")
    assert "b" in cluster.begun()
    assert status(cluster, job) == Status.PENDING
    cluster.finish("b")
    assert status(cluster, job) == Status.ASSIGNED
    assert list(check(cluster.state)) == []


@pytest.mark.parametrize(
    ("when", "becomes"), [("ok", FAILED), ("any", Status.ASSIGNED), ("failed", Status.ASSIGNED)]
)
def test_a_stage_that_never_begins_counts_as_failed_with_what_it_builds_on(when: When, becomes: Status):
    cluster = WorkflowCluster(CHAIN)
    job = following(cluster, cluster.job_of("c"), when)
    cluster.finish("a", code=3)
    state = cluster.state.jobs[job.id]
    assert status(cluster, job) == becomes
    assert (Why(state.why[0]) == Why.DEPENDENCY) == (when == "ok")
    assert cluster.state.dependents == {}
    assert list(check(cluster.state)) == []


def test_a_stage_that_was_cancelled_before_it_began_cancels_what_starts_after_it():
    cluster = WorkflowCluster(CHAIN)
    job = following(cluster, cluster.job_of("c"))
    cluster.cancel()
    assert status(cluster, job) == CANCELLED
    assert Why(cluster.state.jobs[job.id].why[0]) == Why.DEPENDENCY


def test_a_stage_that_is_skipped_counts_as_completed():
    cluster = WorkflowCluster(SKIPS)
    ok, failed = (following(cluster, cluster.job_of("b"), when) for when in ("ok", "failed"))
    cluster.finish("a", result='{"go": "no"}')
    assert (status(cluster, ok), status(cluster, failed)) == (Status.ASSIGNED, CANCELLED)


@pytest.mark.parametrize(("code", "becomes"), [(0, Status.ASSIGNED), (3, FAILED)])
def test_a_job_waits_for_a_whole_workflow(code: int, becomes: Status):
    cluster = WorkflowCluster(a_graph(a="", b="a"))
    job = following(cluster, cluster.workflow.id)
    cluster.finish("a")
    assert status(cluster, job) == Status.PENDING
    cluster.finish("b", code=code)
    assert status(cluster, job) == becomes
    assert cluster.state.dependents == {}
    assert list(check(cluster.state)) == []


def test_an_image_keeps_who_waits_for_a_stage_and_for_a_workflow():
    cluster = WorkflowCluster(CHAIN)
    jobs = [following(cluster, id) for id in (cluster.job_of("c"), cluster.workflow.id)]
    again = decode_state(encode_state(cluster.state), cluster.state.rules)
    assert again.dependents == cluster.state.dependents
    assert all(again.jobs[each.id].awaits for each in jobs)
    assert list(check(again)) == []


def test_what_ended_while_it_was_not_told_is_told_after_an_image():
    cluster = WorkflowCluster(CHAIN)
    job = following(cluster, cluster.job_of("c"), "any")
    cluster.cancel()
    state = cluster.state
    state.jobs[job.id].awaits.add(job.after[0].job)
    again = decode_state(encode_state(state), state.rules)
    assert again.jobs[job.id].awaits == set()


def test_a_stage_that_begins_again_has_another_id():
    cluster = WorkflowCluster(CHAIN)
    before = cluster.job_of("c")
    cluster.cancel()
    cluster.retry()
    assert predecessor(cluster.state, before) is None
    assert predecessor(cluster.state, cluster.job_of("c")) is not None
    refused = cluster.give(Submit(a_job(after=(After(before),))))[0]
    assert isinstance(refused, Refused)
    assert refused.kind == "not_found"


def test_what_can_never_come_and_what_has_no_tasks_yet_are_refused():
    cluster = WorkflowCluster(CHAIN)
    stage = cluster.job_of("c")
    each = cluster.give(Submit(a_job(array="1-2", after=(After(stage, each=True),))))[0]
    assert isinstance(each, Refused)
    assert each.reason.code == "ArraysDiffer"
    cluster.cancel()
    for id in (stage, cluster.workflow.id):
        never = cluster.give(Submit(a_job(after=(After(id),))))[0]
        assert isinstance(never, Refused)
        assert never.reason.code == "DependencyNever"
