"""The limits of waiting tasks and of a user's unfinished ones: one count for jobs, workflows and their retries."""

from __future__ import annotations

import pytest

from phalanx.core.cluster.decide import limits
from phalanx.core.cluster.decide.limits import USER_TASKS_MIN
from phalanx.core.cluster.decision import Accepted, Refused
from phalanx.core.cluster.image import decode_state, encode_state
from phalanx.core.cluster.inputs import Cancel, Submit, SubmitWorkflow, Tick
from phalanx.core.cluster.state import Timers
from phalanx.core.model.job import Job
from tests.support.builders import a_job
from tests.support.workflow_cluster import WorkflowCluster, a_graph, a_workflow

CHAIN = a_graph(a="", b="a", c="b", d="c")


def a_full_cluster(text: str = CHAIN, pending_max: int = 10) -> WorkflowCluster:
    cluster = WorkflowCluster(text)
    cluster.state.rules = Timers(pending_max=pending_max)
    return cluster


def told(answer: object) -> str:
    return answer.reason.text if isinstance(answer, Refused) and answer.kind == "too_many" else ""


def test_stages_without_a_job_count_for_jobs_as_for_workflows():
    """Three stages wait; the fourth runs."""
    cluster = a_full_cluster()
    assert told(cluster.submit(a_job(array="1-8"))) == "3 tasks are waiting, the maximum is 10"
    assert told(cluster.give(SubmitWorkflow(a_workflow(a_graph(**dict.fromkeys("abcdefgh", "")))))[0])
    assert isinstance(cluster.submit(a_job(array="1-7", cores=64)), Accepted)
    assert told(cluster.submit(a_job()))


def test_a_retry_counts_like_a_submission():
    cluster = a_full_cluster()
    cluster.finish("a", code=3)
    assert cluster.state.waiting_tasks == 0
    assert isinstance(cluster.submit(a_job(array="1-7", cores=65), allow_infeasible=True), Accepted)
    assert told(cluster.retry()) == "7 tasks are waiting, the maximum is 10"
    assert cluster.flow.is_over
    cluster.state.rules = Timers(pending_max=11)
    assert isinstance(cluster.retry(), Accepted)


@pytest.mark.parametrize("way", ["submit", "workflow", "retry"])
def test_the_share_of_one_user_counts_stages_without_a_job(way: str):
    many = a_graph(a="").replace("max_attempts: 1", f"max_attempts: 1, array: 1-{USER_TASKS_MIN - 5}")
    cluster = a_full_cluster(CHAIN, pending_max=10_000)
    cluster.state.rules = Timers(pending_max=2 * USER_TASKS_MIN)
    cluster.finish("a", code=3)
    gated = a_workflow(many.replace("dependsOn: []", "dependsOn: [x]") + XNODE)
    assert isinstance(cluster.give(SubmitWorkflow(gated))[0], Accepted)
    assert cluster.state.stages_of == {"ada": USER_TASKS_MIN - 5}
    assert cluster.state.unfinished_tasks("ada") == USER_TASKS_MIN - 4
    others = {
        "submit": lambda: cluster.submit(a_job(array="1-5", user="ada")),
        "workflow": lambda: cluster.give(SubmitWorkflow(a_workflow(a_graph(**dict.fromkeys("abcde", "")))))[
            0
        ],
        "retry": cluster.retry,
    }
    if way == "retry":
        cluster.submit(a_job(user="ada", cores=64, array="1-2"))
    text = told(others[way]())
    assert "unfinished tasks, the maximum per user is" in text
    assert isinstance(cluster.submit(a_job(array="1-5", user="bob")), Accepted)


XNODE = "    - {name: x, spec: {taskType: echo, max_attempts: 1}}\n"


def test_jobs_and_workflows_of_one_user_in_memory_have_a_limit(monkeypatch: pytest.MonkeyPatch):
    cluster = WorkflowCluster(CHAIN)

    def large(user: str) -> Job:
        return a_job(user=user, object="x" * 2000)

    held = cluster.state.bytes_of["ada"]
    monkeypatch.setattr(limits, "USER_BYTES_MAX", held + 2500)
    first = large("ada")
    assert isinstance(cluster.give(Submit(first, hold=True))[0], Accepted)
    for given in (Submit(hold=True, job=large("ada")), SubmitWorkflow(a_workflow(CHAIN))):
        [answer] = cluster.give(given)
        assert isinstance(answer, Refused)
        assert (answer.reason.code, answer.kind) == ("JobsTooLarge", "too_many")
    assert isinstance(cluster.give(Submit(hold=True, job=large("bob")))[0], Accepted)
    cluster.give(Cancel(first.id))
    [answer] = cluster.give(Submit(hold=True, job=large("ada")))
    assert isinstance(answer, Refused)
    cluster.state.rules = Timers(ended_jobs_max=0)  # it leaves memory
    cluster.give(Tick())
    assert cluster.state.bytes_of["ada"] == held
    assert isinstance(cluster.give(Submit(hold=True, job=large("ada")))[0], Accepted)


def test_a_workflow_counts_until_it_leaves_memory():
    cluster = WorkflowCluster(CHAIN)
    assert cluster.state.bytes_of["ada"] > cluster.state.workflows[cluster.workflow.id].size_bytes
    again = decode_state(encode_state(cluster.state), cluster.state.rules)
    assert again.bytes_of == cluster.state.bytes_of
    cluster.finish("a", code=1)
    cluster.state.rules = Timers(ended_jobs_max=0, ended_workflows_max=0)
    cluster.give(Tick())
    cluster.give(Tick())
    assert cluster.state.bytes_of == {}
