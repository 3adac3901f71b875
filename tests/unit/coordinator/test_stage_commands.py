"""The command of a stage for those who may not inspect it: as it was written, without values of results."""

from __future__ import annotations

from typing import Any

from phalanx.api.server.auth import Identity
from phalanx.api.server.routes.jobs import seen_job
from phalanx.coordinator.views import job_view
from phalanx.core.cluster.events import JobSubmitted
from phalanx.core.explain.story import sentence
from phalanx.core.explain.submit_command import submit_line
from tests.support.builders import a_job
from tests.support.workflow_cluster import WorkflowCluster

FLOW = """
apiVersion: flowmesh/v1
metadata: {name: ft}
spec:
  stages:
    - {name: a, spec: {command: [make, a]}}
    - {name: b, spec: {command: [make, "${a.result.key}"], env: {KEY: "${a.result.key}"}}}
"""


class Visit:
    """A request of a user with this role."""

    def __init__(self, name: str, role: Any = "user") -> None:
        self.identity = Identity(name, role, "f" * 16)


def test_others_see_the_command_as_it_was_written():
    cluster = WorkflowCluster(FLOW)
    cluster.finish("a", '{"key": "hush"}')
    job = cluster.state.jobs[cluster.job_of("b")]
    view = job_view(cluster.state, job)
    assert view.workflow == f"{cluster.workflow.id}:b"
    for name, role in ((job.job.user, "user"), ("root", "operator")):
        assert seen_job(Visit(name, role), view).command == ["make", "hush"]  # type: ignore[arg-type]
    for role in ("user", "viewer"):
        other = seen_job(Visit("bob", role), view)  # type: ignore[arg-type]
        assert other.command == other.groups[0].command == ["make", "${a.result.key}"]
        assert "hush" not in str(other)


def test_of_a_workflow_that_left_the_memory_nothing_is_shown():
    cluster = WorkflowCluster(FLOW)
    cluster.finish("a", '{"key": "hush"}')
    job = cluster.state.jobs[cluster.job_of("b")]
    del cluster.state.workflows[cluster.workflow.id]
    other = seen_job(Visit("bob"), job_view(cluster.state, job))  # type: ignore[arg-type]
    assert (other.command, other.groups[0].command) == (["(hidden)"], ["(hidden)"])


def test_stories_and_fixes_have_no_values_either():
    cluster = WorkflowCluster(FLOW)
    cluster.finish("a", '{"key": "hush"}')
    job = cluster.state.jobs[cluster.job_of("b")].job
    assert "hush" not in sentence(JobSubmitted(at=1.0, job=job))
    assert "ft.b" in sentence(JobSubmitted(at=1.0, job=job))
    assert submit_line(job) is None
    assert "/bin/true" in sentence(JobSubmitted(at=1.0, job=a_job()))
