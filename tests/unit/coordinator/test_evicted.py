"""What a job says that was evicted: when, by whom and for whom, in `ps`, `show` and `why`, until it has ended."""

from __future__ import annotations

from msgspec import structs

from phalanx.coordinator.views import job_view, task_view
from phalanx.coordinator.why import why_reply
from phalanx.core.cluster.conditions import preemptor
from phalanx.core.cluster.events import RoomPromised
from phalanx.core.cluster.inputs import Evict
from phalanx.core.explain.story import sentence
from phalanx.core.model.job import Job
from phalanx.core.model.orders import Exit, Started, Why
from tests.support.builders import a_gang, a_group, a_job
from tests.support.core_cluster import CoreCluster


def an_evicted_job(cluster: CoreCluster) -> tuple[Job, Job, float]:
    """One that left for another, which one, and when."""
    victim, urgent = a_job(gpus=2), a_gang(a_group(1, gpus=2), priority=10, name="urgent", user="bob")
    cluster.submit(victim)
    cluster.place(victim, 0, "n1")
    cluster.report(victim, 0, Started)
    cluster.submit(urgent)
    at = cluster.now
    cluster.evicting(urgent, {0: "n1"}, [("n1", 1)])
    cluster.report(victim, 0, Exit(Why.EVICTED, -15, message="evicted"))
    return victim, urgent, at


def test_while_it_waits_again_it_says_when_by_whom_and_for_whom():
    cluster = CoreCluster(n1={"cores": 8, "gpus": 2})
    victim, _, at = an_evicted_job(cluster)
    state, job = cluster.state, cluster.state.jobs[victim.id]
    shown = job_view(state, job)
    assert (shown.status, shown.reason, shown.evicted_at) == ("Pending", "evicted", at)
    assert shown.evicted == "phalanx: preempted to make room for urgent (job 2 of bob, priority 10)"
    task = task_view(state, job, 0)
    assert (task.reason, task.message) == ("evicted", shown.evicted)
    reply = why_reply(state, job, None, cluster.now + 5)
    (said,) = [each for each in reply.others if each.code == "WasEvicted"]
    assert said.numbers["at"] == at
    assert shown.evicted.removeprefix("phalanx: ") in said.text
    assert reply.dominant.code != "WasEvicted"


def test_the_story_of_the_victim_names_the_job_that_preempted_it():
    cluster = CoreCluster(n1={"cores": 8, "gpus": 2})
    victim, _, _ = an_evicted_job(cluster)
    (promised,) = [event for event in cluster.events if isinstance(event, RoomPromised)]
    assert victim.id in promised.jobs
    assert "make room for 1 task of urgent (job 2 of bob, priority 10) on n1" in sentence(promised)


def test_a_preemptor_without_a_name_is_called_by_its_number():
    job = a_job(user="bob", priority=7)
    assert preemptor(structs.replace(job, name=""), 12) == "job 12 of bob (priority 7)"
    assert preemptor(structs.replace(job, name="x", user=""), 12) == "x (priority 7)"


def test_once_it_runs_again_why_still_says_it_and_ps_no_longer():
    cluster = CoreCluster(n1={"cores": 8, "gpus": 2})
    victim = a_job()
    cluster.submit(victim)
    cluster.place(victim, 0, "n1")
    cluster.report(victim, 0, Started)
    cluster.give(Evict(victim.id, cause="user ada"))
    cluster.report(victim, 0, Exit(Why.EVICTED, -15, message="evicted"))
    cluster.place(victim, 0, "n1")
    cluster.report(victim, 0, Started)
    state, job = cluster.state, cluster.state.jobs[victim.id]
    shown = job_view(state, job)
    assert (shown.status, shown.reason, shown.evicted, shown.evicted_at) == ("Running", "", "", None)
    reply = why_reply(state, job, None, cluster.now)
    assert [each.code for each in reply.others] == ["WasEvicted"]
    assert "evicted by user ada" in reply.others[0].text
