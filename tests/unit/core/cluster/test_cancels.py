"""Who cancelled a job is kept with it, and told instead of what became of its attempts afterwards."""

from __future__ import annotations

import pytest

from phalanx.coordinator.views import task_view
from phalanx.coordinator.why import why_reply
from phalanx.core.cluster import events as e
from phalanx.core.cluster.image import decode_state, encode_state
from phalanx.core.cluster.inputs import Cancel
from phalanx.core.cluster.jobs import DETAILS_MAX
from phalanx.core.explain.story import sentence
from phalanx.core.model.job import Job
from phalanx.core.model.orders import Status, Why
from tests.support.builders import Cluster, a_cluster, a_job


def told(cluster: Cluster, job: Job, position: int = 0) -> tuple[str, str]:
    """What `why` and `show` say of a task, also after its coordinator has read its state again."""
    state = decode_state(encode_state(cluster.state), cluster.state.rules)
    assert state.jobs[job.id].status[position] == Status.CANCELLED
    reply = why_reply(state, state.jobs[job.id], position, cluster.now)
    return reply.dominant.text, task_view(state, state.jobs[job.id], position).message


def test_who_cancelled_a_job_before_it_started_is_told():
    cluster, job = a_cluster(), a_job(user="ann")
    cluster.submit(job)
    cluster.give(Cancel(job.id, by="olga"))
    assert told(cluster, job) == ("by olga, before it started", "cancelled by olga")


@pytest.mark.parametrize("why", [Why.CANCELLED, Why.LOST])
def test_the_cancel_stays_the_cause_whatever_became_of_the_attempt(why: Why):
    cluster, job = a_cluster(n1={}), a_job(user="ann")
    cluster.submit(job)
    cluster.started("n1", (job.id, 0, 1))
    cluster.give(Cancel(job.id, by="olga"))
    assert told(cluster, job) == ("by olga", "cancelled by olga")
    cluster.ended("n1", (job.id, 0, 1), why=why)
    assert not cluster.state.jobs[job.id].live
    assert told(cluster, job) == ("by olga", "cancelled by olga")


def test_one_task_may_be_cancelled_by_another_than_the_rest():
    cluster, job = a_cluster(), a_job(array="0-2")
    cluster.submit(job)
    cluster.give(Cancel(job.id, 1, by="ann"))
    cluster.give(Cancel(job.id, by="olga"))
    assert [told(cluster, job, at)[1] for at in range(3)] == [
        "cancelled by olga", "cancelled by ann", "cancelled by olga",
    ]  # fmt: skip


def test_who_cancelled_the_rest_is_told_however_many_were_cancelled_one_by_one():
    cluster, job = a_cluster(), a_job(array=f"0-{DETAILS_MAX + 1}")
    cluster.submit(job)
    for at in range(DETAILS_MAX):
        cluster.give(Cancel(job.id, at, by="ann"))
    cluster.give(Cancel(job.id, by="olga"))
    assert told(cluster, job, DETAILS_MAX + 1)[1] == "cancelled by olga"
    assert len(cluster.state.jobs[job.id].cancelled_by) == DETAILS_MAX + 1


@pytest.mark.parametrize(
    ("positions", "by", "text"),
    [
        (None, "olga", "cancelled by olga"),
        ((1, 2), "olga", "2 tasks cancelled by olga"),
        (None, "", "cancelled"),
    ],
)
def test_the_story_names_who_cancelled(positions: tuple[int, ...] | None, by: str, text: str):
    event = e.TasksCancelled(at=0.0, cause="user", job="j", positions=positions, by=by)
    assert sentence(event) == text
