"""Fixes are for the asking user: what is printed was tried, is not refused, and is allowed to that user."""

from __future__ import annotations

import pytest

from phalanx.api.schema.apply import PlanReply
from phalanx.api.schema.jobs import WhyReply
from phalanx.api.server.auth import Bearer, Identity
from phalanx.coordinator.why import why_reply
from phalanx.core.cluster.decision import Accepted
from phalanx.core.cluster.inputs import Cancel, Disconnect, Drain, Tick, Undrain
from phalanx.core.explain.change import ADMIN, Asker
from phalanx.core.model.job import After, Job
from phalanx.core.model.orders import Status, Why
from phalanx.preview.plan import preview
from tests.support.builders import Cluster, a_cluster, a_gang, a_group, a_job

ADA = Asker("ada")


def why(cluster: Cluster, job: Job, position: int | None = 0, asker: Asker = ADMIN) -> WhyReply:
    state, memory = cluster.state, cluster.engine.memory
    return why_reply(state, state.jobs[job.id], position, cluster.now, memory=memory, asker=asker)


def plan(cluster: Cluster, *jobs: Job) -> PlanReply:
    seen = cluster.state.snapshot(cluster.now, cluster.engine.memory)
    return preview(cluster.state, jobs, cluster.engine.policy, seen)


def test_what_a_plan_says_of_the_rest_of_an_array_counts_those_of_it_that_start():
    cluster = a_cluster(**{f"n{at}": {"cores": 8, "gpus": 1} for at in range(1, 5)})
    reply = plan(cluster, a_job(array="1-16", gpus=1, gpu_type="h100"))
    assert len(reply.placements) == 4
    first = reply.reasons[0]
    assert (first.code, first.tasks, first.expected_at) == ("WaitingCapacity", 12, None)
    assert first.fix is None or "gpu_type" not in first.fix.change


def test_a_member_that_its_gang_needs_is_not_named_as_the_one_to_cancel():
    cluster = a_cluster(n1={"cores": 4})
    gang, other = a_gang(a_group(4)), a_job()
    cluster.submit(gang)
    cluster.submit(other)
    fix = why(cluster, other).fix
    assert fix is not None
    assert fix.command == f"phalanx cancel {gang.id}"
    live = list(cluster.state.jobs[gang.id].live.values())
    assert isinstance(cluster.give(Cancel(gang.id))[0], Accepted)
    for attempt in live:
        cluster.ended(attempt.node, attempt.key, why=Why.CANCELLED)
    assert cluster.status(other) == Status.ASSIGNED


def test_an_end_that_lets_others_go_first_is_not_named():
    cluster = a_cluster(n1={"cores": 4})
    first, other = a_job(cores=4), a_job(cores=4)
    cluster.submit(first)
    cluster.submit(a_job(cores=4, after=(After(first.id, "any"),)))
    cluster.submit(other)
    assert why(cluster, other).fix is None
    ahead = a_job(cores=4, priority=1, may_evict=False)
    cluster.submit(ahead)
    fix = why(cluster, ahead).fix
    assert fix is not None and first.id in fix.text
    assert fix.command == "", "the job that comes after it would start or end with it"


def test_no_command_cancels_a_job_that_others_come_after():
    cluster = a_cluster(n1={"cores": 4})
    cluster.submit(a_job(cores=2))
    job = a_job(cores=4, user="ada")
    cluster.submit(job)
    fix = why(cluster, job, asker=ADA).fix
    assert fix is not None and fix.command.startswith(f"phalanx cancel {job.id}")
    cluster.submit(a_job(after=(After(job.id, "ok"),)))
    fix = why(cluster, job, asker=ADA).fix
    assert fix is not None and (fix.change, fix.command) == ({"cores": 2}, "")


def test_no_command_cancels_an_array_of_which_a_part_has_run():
    cluster = a_cluster(n1={"cores": 4}, n2={"cores": 2})
    job = a_job(array="1-2", cores=4, user="ada")
    cluster.submit(job)
    cluster.give(Drain("n1", "it leaves"))
    cluster.ended("n1", cluster.state.jobs[job.id].live[0].key)
    cluster.now += 31.0
    cluster.beat("n2")
    cluster.give(Tick())
    assert list(cluster.state.nodes) == ["n2"]  # a drained node that is silent is removed
    fix = why(cluster, job, 1, asker=ADA).fix
    assert fix is not None and (fix.change, fix.command) == ({"cores": 2}, "")


def test_a_task_far_back_in_its_array_is_told_its_place_and_no_end_that_would_not_start_it():
    cluster = a_cluster(n1={"cores": 2})
    job = a_job(array="1-100%4")
    cluster.submit(job)
    last, following = why(cluster, job, 89), why(cluster, job, 2)
    assert (last.position, following.position) == (88, 1)
    assert [no.numbers["ahead"] for no in last.others if no.code == "PriorityBehind"] == [87]
    assert last.fix is None


@pytest.mark.parametrize(
    ("asker", "offered"),
    [(ADMIN, True), (Asker("ada"), True), (Asker("bo"), False), (Asker(), False)],
)
def test_a_command_to_cancel_is_offered_to_those_who_may_give_it(asker: Asker, offered: bool):
    cluster = a_cluster(n1={"cores": 1})
    held, other = a_job(user="ada"), a_job(user="bo")
    cluster.submit(held)
    cluster.submit(other)
    fix = why(cluster, other, asker=asker).fix
    assert fix is not None
    assert held.id in fix.text
    assert fix.command == (f"phalanx cancel {held.id}" if offered else "")


def test_no_command_ends_a_job_of_higher_priority_for_one_that_waits():
    cluster = a_cluster(n1={"cores": 1})
    urgent, other = a_job(user="ada", priority=10), a_job(user="ada")
    cluster.submit(urgent)
    cluster.submit(other)
    fix = why(cluster, other, asker=Asker("ada")).fix
    assert fix is not None
    assert (urgent.id in fix.text, fix.command) == (True, "")


def test_only_an_operator_is_told_how_to_resume_a_node():
    cluster = a_cluster(n1={"cores": 1})
    cluster.give(Drain("n1", "new fans"))
    job = a_job()
    cluster.submit(job)
    fixes = [
        fix
        for asker in (ADMIN, Asker("op", controls_all=True, operates=True), ADA)
        if (fix := why(cluster, job, asker=asker).fix) is not None
    ]
    assert [fix.command for fix in fixes] == ["phalanx node resume n1", "phalanx node resume n1", ""]
    assert ["an operator" in fix.text for fix in fixes] == [False, False, True], "ada is told whom to ask"


def test_an_operator_brings_back_the_node_of_anothers_job_and_a_user_goes_elsewhere():
    cluster = a_cluster(n1={"cores": 1}, n2={"cores": 1})
    cluster.give(Disconnect("n1", "a"))
    job = a_job(target="n1", user="ada")
    cluster.submit(job)
    fixes = [why(cluster, job, asker=asker).fix for asker in (Asker("op", operates=True), ADA)]
    assert fixes[0] is not None and fixes[1] is not None
    assert fixes[0].command == "phalanx runner --join HOST:7434 --name n1"
    assert fixes[1].change["targets"] == []


def test_devices_in_use_are_told_with_who_holds_them_and_whose_end_helps():
    cluster = a_cluster(n1={"cores": 8, "gpus": 1}, n2={"cores": 8, "gpus": 1})
    gang = a_gang(a_group(2, gpus=1), user="bo")
    cluster.submit(gang)
    job = a_job(target="n2::0", user="ada")
    cluster.submit(job)
    (holder,) = [each for each, live in cluster.state.jobs[gang.id].live.items() if live.node == "n2"]
    operator = Asker("op", controls_all=True, operates=True)
    reply = why(cluster, job, asker=operator)
    assert reply.dominant.code == "TargetBusy"
    assert reply.dominant.text.endswith(f"[0] on n2 are in use by {gang.id}.{holder}")
    assert reply.fix is not None
    assert reply.fix.command == f"phalanx cancel {gang.id}"


def excluded() -> Cluster:
    """A cluster in which n1 is excluded, since tasks of two users failed there."""
    cluster = a_cluster(n1={"cores": 4}, n2={"cores": 1})
    for number in range(9):
        if not cluster.state.nodes["n1"].is_kept_away:
            job = a_job(target="n1", max_retries=0, user=("ada", "bo")[number % 2])
            cluster.submit(job)
            cluster.ended("n1", (job.id, 0, 1), code=1)
    assert cluster.state.nodes["n1"].is_kept_away
    return cluster


def test_an_operator_is_told_to_resume_a_node_that_is_excluded_after_failures():
    cluster = excluded()
    pinned, gang = a_job(target="n1", user="ada"), a_gang(a_group(4), user="ada")
    cluster.submit(pinned)
    cluster.submit(gang)
    operator = Asker("op", controls_all=True, operates=True)
    for job, code in ((pinned, "NodeExcluded"), (gang, "GangIncomplete")):
        reply = why(cluster, job, None, asker=operator)
        assert reply.dominant.code == code
        assert reply.fix is not None
        assert reply.fix.command == "phalanx node resume n1"
    fix = why(cluster, pinned, None, asker=ADA).fix
    assert fix is not None
    assert fix.command == "phalanx story n1"
    fix = why(cluster, gang, None, asker=ADA).fix
    assert fix is not None
    assert fix.text == "it would start once n1 is included again; `phalanx nodes` says when"
    cluster.give(Undrain("n1"))
    assert cluster.status(pinned) == cluster.status(gang) == Status.ASSIGNED


def test_a_runner_that_is_cut_off_is_not_said_to_run_its_tasks():
    cluster = a_cluster(n1={"cores": 1}, n2={"cores": 1}, n3={"cores": 1})
    job = a_job(target="n1")
    cluster.submit(job)
    cluster.started("n1", (job.id, 0, 1))
    assert why(cluster, job).dominant.code == "Running"
    cluster.give(Disconnect("n1", "a"))
    assert why(cluster, job).dominant.code == "NodeUnreachable"


@pytest.mark.parametrize(
    ("role", "asker"),
    [
        ("viewer", Asker()),
        ("user", Asker("ada")),
        ("operator", Asker("ada", controls_all=True, operates=True)),
        ("admin", Asker("ada", controls_all=True, operates=True, declares=True)),
    ],
)
def test_what_may_be_offered_follows_from_the_role(role: Bearer, asker: Asker):
    assert Identity("ada", role, "f").asker == asker


def test_a_job_that_runs_on_several_nodes_names_them_all():
    cluster = a_cluster(n1={"cores": 1}, n2={"cores": 1}, n3={"cores": 1})
    job = a_job(array="1-3", cores=1)
    cluster.submit(job)
    for position in range(2):
        node = cluster.state.jobs[job.id].live[position].node
        cluster.started(node, (job.id, position, 1))
    first, second = (cluster.state.jobs[job.id].live[position].node for position in range(2))
    assert why(cluster, job, None).dominant.text == f"2 tasks running on {first}, {second}"
    assert why(cluster, job, 0).dominant.text == f"Running on {first}"
