"""Whose files may still be needed: those of stages, as long as their workflow goes on."""

from __future__ import annotations

from phalanx.coordinator.file_retention import FileUse, use_of_files
from phalanx.core.model.workflow import stage_job_id, workflow_id, workflow_of_job
from tests.support.builders import a_job
from tests.support.workflow_cluster import WorkflowCluster

CHAIN = """
apiVersion: flowmesh/v1
spec:
  stages:
    - {name: a, spec: {command: [make, a]}}
    - {name: b, spec: {command: [make, b]}}
"""


def test_files_of_an_ended_stage_are_needed_until_its_workflow_has_ended():
    cluster = WorkflowCluster(CHAIN)
    cluster.finish("a")
    first = cluster.job_of("a")
    assert use_of_files(cluster.state, first) == FileUse.WORKFLOW_GOES_ON
    record = cluster.state.jobs.pop(first)  # to the history
    assert use_of_files(cluster.state, first) == FileUse.WORKFLOW_GOES_ON
    cluster.state.jobs[first] = record
    cluster.finish("b")
    assert use_of_files(cluster.state, first) == FileUse.JOB_ENDED


def test_jobs_of_no_workflow_and_what_is_no_job():
    cluster = WorkflowCluster(CHAIN)
    plain = a_job()
    cluster.submit(plain)
    assert use_of_files(cluster.state, plain.id) == FileUse.JOB_GOES_ON
    assert use_of_files(cluster.state, "lost+found") == FileUse.JOB_ENDED


def test_the_workflow_follows_from_the_id_of_a_stage():
    for chance in (0, (1 << 79) - 1, 1 << 24, 3 << 23):
        flow = workflow_id(1_700_000_000_000, chance)
        for stage, retries in ((0, 0), (9999, 1000), (17, 512)):
            assert workflow_of_job(stage_job_id(flow, stage, retries)) == flow
