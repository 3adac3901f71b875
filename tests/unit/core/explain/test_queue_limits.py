"""Who stands ahead is named, and the limit that is offered gives others a turn."""

from __future__ import annotations

import pytest

from phalanx.api.schema.jobs import WhyReply
from phalanx.coordinator.why import why_reply
from phalanx.core.cluster.inputs import SetQuota
from phalanx.core.explain.change import ADMIN, Asker
from phalanx.core.model.job import Job
from phalanx.core.model.orders import Status
from phalanx.core.model.queues import DEFAULT, Quota
from tests.support.builders import Cluster, a_cluster, a_job
from tests.support.quota_command import quota_set


def why(cluster: Cluster, job: Job, asker: Asker = ADMIN) -> WhyReply:
    state, memory = cluster.state, cluster.engine.memory
    return why_reply(state, state.jobs[job.id], None, cluster.now, memory=memory, asker=asker)


def crowded(*before: Job, cores: int = 4) -> tuple[Cluster, Job, Job]:
    """One user's array fills the node and the queue; another user's task comes last."""
    cluster = a_cluster(n1={"cores": cores})
    cluster.give(SetQuota(DEFAULT, Quota()))
    flood, late = a_job(array="1-200", user="ann", name="flood"), a_job(user="olga")
    for job in (flood, *before, late):
        cluster.submit(job)
    return cluster, flood, late


def test_the_job_and_the_user_that_stand_ahead_most_are_named():
    cluster, flood, late = crowded(a_job(user="bob"))
    said = next(no for no in why(cluster, late).others if no.code == "PriorityBehind")
    assert (said.numbers["job"], said.numbers["user"]) == (flood.id, "ann")
    assert said.numbers["ahead"] == said.numbers["of_job"] + 1
    assert f"of job {flood.id} flood of user ann" in said.text


def test_ones_own_tasks_that_go_first_need_no_name():
    cluster, flood, _ = crowded()
    state, memory = cluster.state, cluster.engine.memory
    reply = why_reply(state, state.jobs[flood.id], 199, cluster.now, memory=memory)
    said = next(no for no in (reply.dominant, *reply.others) if no.code == "PriorityBehind")
    assert "user" not in said.numbers


def test_an_admin_is_offered_the_limit_with_which_another_user_is_the_next():
    cluster, flood, late = crowded()
    fix = why(cluster, late).fix
    assert fix is not None
    assert fix.command == f"phalanx queue set {DEFAULT} --user-running 3"
    cluster.give(quota_set(fix.command, Quota()))
    assert cluster.status(late) == Status.PENDING
    cluster.started("n1", (flood.id, 0, 1))
    cluster.ended("n1", (flood.id, 0, 1))
    assert cluster.status(late) != Status.PENDING


def test_others_are_told_what_an_admin_can_set():
    cluster, _, late = crowded()
    fix = why(cluster, late, Asker("olga")).fix
    assert fix is not None
    assert fix.command == ""
    assert "an admin" in fix.text


def test_without_room_for_it_by_a_single_end_no_limit_is_offered():
    assert why(*crowded(cores=1)[::2]).fix is None, "a limit of 0 would be needed"


@pytest.mark.parametrize("count", [1, 20])
def test_no_limit_is_offered_if_a_third_user_goes_first_anyway(count: int):
    others = [a_job(user=f"u{number}") for number in range(count)]
    cluster, _, late = crowded(*others)
    fix = why(cluster, late).fix
    assert fix is None or "--user-running" not in fix.command
