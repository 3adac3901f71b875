"""Who stands ahead is named, and the order that is offered gives others a turn."""

from __future__ import annotations

import pytest

from phalanx.api.schema.jobs import WhyReply
from phalanx.coordinator.why import why_reply
from phalanx.core.cluster.inputs import SetQuota
from phalanx.core.explain.change import ADMIN, Asker
from phalanx.core.explain.explain import place_in_queue
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


def test_an_admin_is_offered_the_order_with_which_another_user_is_the_next():
    cluster, flood, late = crowded()
    fix = why(cluster, late).fix
    assert fix is not None
    assert fix.command == f"phalanx queue set {DEFAULT} --order fair"
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


def test_where_no_single_end_makes_room_no_order_is_offered():
    cluster, _, _ = crowded()
    large = a_job(user="uwe", cores=2)
    cluster.submit(large)
    fix = why(cluster, large).fix
    assert fix is None or "--order" not in fix.command


@pytest.mark.parametrize("count", [1, 20])
def test_no_order_is_offered_if_a_third_user_goes_first_anyway(count: int):
    others = [a_job(user=f"u{number}") for number in range(count)]
    cluster, _, late = crowded(*others)
    fix = why(cluster, late).fix
    assert fix is None or "--order" not in fix.command


def test_of_who_shares_a_fair_queue_only_those_tasks_are_ahead_that_go_first():
    cluster, flood, late = crowded()
    cluster.give(SetQuota(DEFAULT, Quota(order="fair")))
    said = why(cluster, late)
    assert all(no.numbers.get("ahead", 0) == 0 for no in said.others if no.code == "PriorityBehind")
    third = a_job(user="ann", name="more")
    cluster.submit(third)
    found = next(no for no in why(cluster, third).others if no.code == "PriorityBehind")
    assert (found.numbers["job"], found.numbers["ahead"]) == (flood.id, 197), "196 of her own, and olga's"


@pytest.mark.parametrize("came_first", ["ann", "olga"])
def test_so_many_tasks_of_another_user_go_first_until_both_hold_as_much(came_first: str):
    cluster = a_cluster(n1={"cores": 4})
    cluster.give(SetQuota(DEFAULT, Quota(order="fair")))
    cluster.submit(a_job(array="1-3", user="olga"))
    cluster.submit(a_job(user="ann"))
    waiting = {"ann": a_job(array="1-200", user="ann"), "olga": a_job(user="olga")}
    for job in sorted(waiting.values(), key=lambda each: each.user != came_first):
        cluster.submit(job)
    said = next(no for no in why(cluster, waiting["olga"]).others if no.code == "PriorityBehind")
    assert said.numbers["ahead"] == 2
    state, memory = cluster.state, cluster.engine.memory
    assert place_in_queue(state, state.jobs[waiting["olga"].id], 0, cluster.now, memory) == 3


def test_jobs_of_one_user_go_first_together_until_he_holds_as_much():
    cluster = a_cluster(n1={"cores": 4})
    cluster.give(SetQuota(DEFAULT, Quota(order="fair")))
    cluster.submit(a_job(array="1-4", user="uwe"))
    for _ in range(10):
        cluster.submit(a_job(user="bob"))
    olga = a_job(array="1-3", user="olga")
    cluster.submit(olga)
    state, memory = cluster.state, cluster.engine.memory
    places = [place_in_queue(state, state.jobs[olga.id], at, cluster.now, memory) for at in range(3)]
    assert places == [2, 4, 6], "bob, olga, bob, olga, bob, olga"
