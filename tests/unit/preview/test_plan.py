"""A preview is the scheduler's own pass, and nothing of it stays behind."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec import structs

from phalanx.api.schema.apply import PlanReply, PlanRequest
from phalanx.api.schema.submission import SubmitRequest
from phalanx.core.cluster.inputs import SetQuota, Submit
from phalanx.core.explain.change import Asker
from phalanx.core.explain.trial import QUESTION_MAX
from phalanx.core.model.job import After, Gather, Job
from phalanx.core.model.orders import Status
from phalanx.core.model.plan import Policy
from phalanx.core.model.queues import Approval, Quota
from phalanx.preview.names import Names
from phalanx.preview.online import Question, plan_online
from phalanx.preview.plan import preview
from phalanx.preview.submission import Submitter
from tests.support.builders import Cluster, a_cluster, a_gang, a_group, a_job
from tests.support.state_image import memory_image, state_image


def look(cluster: Cluster, *jobs: Job, names: Names | None = None) -> PlanReply:
    seen = cluster.state.snapshot(cluster.now, cluster.engine.memory)
    return preview(cluster.state, jobs, Policy(), seen, names=names or Names())


def a_busy_cluster() -> Cluster:
    """Two nodes with a running job on each, and a job that waits."""
    cluster = a_cluster(n1={"cores": 8, "gpus": 4}, n2={"cores": 8, "gpus": 4})
    cluster.submit(a_job(cores=4, gpus=3))
    cluster.submit(a_job(cores=4, gpus=3))
    cluster.submit(a_gang(a_group(2, gpus=4)))
    return cluster


@pytest.mark.parametrize(
    "job",
    [
        a_job(cores=1),
        a_job(cores=100),
        a_job(gpus=4, priority=9),
        a_gang(a_group(2, gpus=4), priority=9),
        a_gang(a_group(2, gpus=4), may_evict=False),
        a_gang(a_group(2, gpus=2), gather=(Gather("rack", must=True),)),
        a_gang(a_group(5, cores=4, min=2), strict=False),
    ],
)
def test_nothing_changes(job: Job):
    cluster = a_busy_cluster()
    before = state_image(cluster.state), memory_image(cluster.engine.memory)
    look(cluster, job)
    assert (state_image(cluster.state), memory_image(cluster.engine.memory)) == before


def test_what_is_previewed_is_what_happens():
    cluster = a_busy_cluster()
    job = a_gang(a_group(2, cores=2, gpus=1), time_limit_s=60.0)  # it delays no other
    foreseen = {each.task: (each.node, tuple(each.devices)) for each in look(cluster, job).placements}
    cluster.submit(job)
    happened = {
        job.task_id(position): (attempt.node, attempt.grant.devices)
        for position, attempt in cluster.state.jobs[job.id].live.items()
    }
    assert foreseen == happened
    assert len(happened) == 2


def test_evictions_that_are_previewed_are_those_that_happen():
    cluster = a_busy_cluster()
    job = a_gang(a_group(2, gpus=4), priority=9)
    reply = look(cluster, job)
    cluster.submit(job)
    promise = cluster.state.jobs[job.id].promise
    assert promise is not None
    victims = {cluster.state.jobs[id].job.task_id(position) for id, position, _ in promise.victims}
    assert {each.id for each in reply.evictions} == victims
    assert {each.task for each in reply.evictions} == {"1", "2"}
    assert {each.node for each in reply.placements} == {node for node, _ in promise.members.values()}
    told = {cluster.state.jobs[id].conditions[position].message for id, position, _ in promise.victims}
    assert {each.why for each in reply.evictions} == told


def test_the_job_stands_behind_those_that_wait():
    cluster = a_cluster(n1={"cores": 4}, n2={"cores": 4})
    cluster.submit(a_job(cores=4))
    cluster.submit(a_gang(a_group(2, cores=4)))
    cluster.now += 10.0  # by as much it would outstay the one that runs
    reply = look(cluster, a_job(cores=4))
    assert (reply.exit, reply.reasons[0].code) == (3, "ReservedForOther")


def test_several_jobs_are_planned_in_order_and_the_worst_exit_counts():
    cluster = a_cluster(n1={"cores": 4})
    names = Names()
    first, second, third = a_job(cores=3), a_job(cores=3), a_job(cores=30)
    for job, name in ((first, "first"), (second, "second"), (third, "third")):
        names.call(job, name)
    assert look(cluster, first, second, names=names).exit == 3
    reply = look(cluster, first, second, third, names=names)
    assert reply.exit == 4
    assert [each.job for each in reply.placements] == ["first"]
    assert [each.job for each in reply.reasons if each.dominant] == ["second", "third"]


def test_the_second_is_explained_with_the_first_in_its_place():
    cluster = a_cluster(n1={"cores": 4})
    reply = look(cluster, a_job(cores=3), a_job(cores=3))
    assert reply.reasons[0].numbers == {"wanted": 3, "free": 1, "total": 4}


def test_tasks_without_a_gang_start_as_far_as_there_is_room():
    cluster = a_cluster(n1={"cores": 2})
    reply = look(cluster, a_job(array="1-5", cores=1))
    assert (reply.exit, len(reply.placements), reply.reasons[0].tasks) == (3, 2, 3)


def test_an_array_that_runs_few_at_once_waits_for_nothing():
    cluster = a_cluster(n1={"cores": 2})
    reply = look(cluster, a_job(array="1-5%2", cores=1))
    assert (reply.exit, len(reply.placements)) == (0, 2)
    assert [(no.code, no.waits, no.tasks) for no in reply.reasons] == [("ArrayLimit", False, 3)]


def test_a_group_that_begins_after_another_says_so():
    cluster = a_cluster(n1={"cores": 8})
    first, then = a_group(2, name="first"), a_group(1, name="then", after=(("first", "completed"),))
    reply = look(cluster, structs.replace(a_job(), groups=(first, then)))
    assert (reply.exit, len(reply.placements)) == (0, 2)
    assert [(each.code, each.waits) for each in reply.reasons] == [("WaitingDependency", False)]


def test_a_gang_that_may_hold_a_part_shows_it_and_waits():
    cluster = a_cluster(n1={"cores": 2})
    cluster.submit(a_job(cores=1))
    reply = look(cluster, a_gang(a_group(2, cores=1), strict=False), a_job(cores=0))
    assert (reply.exit, len(reply.placements)) == (3, 2)
    assert reply.reasons[0].code == "GangIncomplete"


def test_nobody_takes_the_part_that_a_gang_holds():
    cluster = a_cluster(n1={"cores": 2})
    cluster.submit(a_job(cores=1))
    gang = a_gang(a_group(2, cores=1), strict=False)
    reply = look(cluster, gang, a_job(cores=1, time_limit_s=1.0))
    assert [each.job for each in reply.placements] == [gang.id]


def test_a_cluster_without_nodes_says_so():
    reply = look(Cluster(), a_job(), a_gang(a_group(2)))
    assert (reply.exit, {each.code for each in reply.reasons if each.dominant}) == (3, {"NoNodes"})


def test_a_pass_with_more_evictions_than_one_turn_makes_reaches_the_job():
    nodes = {f"n{number}": {"cores": 1} for number in range(8)}
    cluster = a_cluster(**nodes)
    for _ in range(8):
        cluster.submit(a_job(cores=1, priority=-1))
    reply = look(cluster, *(a_job(cores=1, priority=5) for _ in range(8)))
    assert (reply.exit, len(reply.evictions)) == (0, 8)
    assert len({each.task for each in reply.evictions}) == 8


def test_ids_become_names():
    cluster = a_cluster(n1={"cores": 8, "gpus": 1})
    held = a_job(gpus=1)
    cluster.submit(held)
    names = Names()
    job = a_job(gpus=1)
    names.call(job, "train", ["train-0"])
    names.call(held, "notebook")
    reply = look(cluster, job, names=names)
    assert reply.reasons[0].job == "train"
    assert reply.reasons[0].fix is not None
    assert "job notebook, which runs on n1, ends" in reply.reasons[0].fix.text


def test_domains_are_numpy_free():
    """The answer travels as JSON, so every number is a plain one."""
    cluster = a_busy_cluster()
    reply = look(cluster, a_gang(a_group(2, gpus=4), gather=(Gather("node", must=True),), may_evict=False))

    def plain(value: object) -> bool:
        if isinstance(value, dict):
            return all(map(plain, value.values()))
        if isinstance(value, list):
            return all(map(plain, value))
        return not isinstance(value, np.generic)

    assert all(plain(each.numbers) for each in reply.reasons)


def test_a_question_plans_so_many_placements_and_says_what_it_did_not_look_at():
    cluster = a_cluster(n1={"cores": 40})
    seen = cluster.state.snapshot(cluster.now, cluster.engine.memory)
    array, gangs = a_job(array="1-30"), [a_gang(a_group(6)) for _ in range(3)]
    reply = preview(cluster.state, [array], Policy(), seen, most=10)
    assert (len(reply.placements), reply.exit) == (10, 0)
    assert [(no.code, no.tasks, no.numbers["most"]) for no in reply.reasons] == [("Evaluating", 20, 10)]
    reply = preview(cluster.state, gangs, Policy(), seen, most=10)
    assert (len(reply.placements), reply.exit) == (12, 3)
    assert [(no.code, no.job) for no in reply.reasons] == [("Evaluating", gangs[2].id)]


def test_a_coordinator_answers_a_plan_of_a_million_tasks_with_the_first_ones():
    cluster = a_cluster(n1={"cores": 4})
    seen = cluster.state.snapshot(cluster.now, cluster.engine.memory)
    asked = PlanRequest(submit=SubmitRequest(command=["x"], array="1-1000000", cores=0))
    reply = plan_online(cluster.state, Question(asked, "ada", 3), Policy(), seen)
    assert len(reply.placements) == QUESTION_MAX
    assert [no.tasks for no in reply.reasons] == [1_000_000 - QUESTION_MAX]


def by_alice(cluster: Cluster, *jobs: Job, role: str = "user", held: bool = False) -> PlanReply:
    """What alice is told of jobs that she would submit."""
    seen = cluster.state.snapshot(cluster.now, cluster.engine.memory)
    ids = frozenset(job.id for job in jobs) if held else frozenset[str]()
    by = Submitter(Asker("alice"), role, ids)
    return preview(cluster.state, jobs, cluster.engine.policy, seen, by=by)


def happens(cluster: Cluster, job: Job, role: str = "user", *, held: bool = False) -> int:
    """How many tasks of a job start when it is submitted."""
    cluster.give(Submit(job, role=role, hold=held))
    return cluster.state.jobs[job.id].counts[Status.ASSIGNED]


@pytest.mark.parametrize(("role", "exit", "code"), [("user", 3, "WaitingApproval"), ("operator", 0, "")])
def test_a_plan_knows_whose_jobs_a_queue_wants_approved(role: str, exit: int, code: str):
    cluster = a_cluster(n1={"cores": 4})
    cluster.give(SetQuota("lab", Quota(approval=Approval())))
    job = a_job(queue="lab", user="alice")
    reply = by_alice(cluster, job, role=role)
    assert (reply.exit, "".join(no.code for no in reply.reasons)) == (exit, code)
    assert len(reply.placements) == happens(cluster, job, role)


@pytest.mark.parametrize(
    ("job", "code"),
    [
        (a_job(array="1-3", user="alice", begin_at=1000.0), "BeginTime"),
        (a_job(user="alice", begin_at=1.0), ""),  # which has passed
        (a_gang(a_group(2), user="alice", begin_at=1000.0), "BeginTime"),
    ],
)
def test_a_job_of_which_nothing_starts_yet_must_wait(job: Job, code: str):
    cluster = a_cluster(n1={"cores": 4})
    reply = by_alice(cluster, job)
    assert (reply.exit, "".join(no.code for no in reply.reasons)) == (3 if code else 0, code)
    assert [no.waits for no in reply.reasons] == [True] * len(reply.reasons)
    assert len(reply.placements) == happens(cluster, job)


def test_a_job_that_is_submitted_held_must_wait():
    cluster = a_cluster(n1={"cores": 4})
    job = a_job(user="alice")
    reply = by_alice(cluster, job, held=True)
    assert (reply.exit, [no.code for no in reply.reasons]) == (3, ["Held"])
    assert reply.reasons[0].fix is None, "there is nothing to release yet"
    assert happens(cluster, job, held=True) == 0


def test_a_job_that_comes_after_another_must_wait_for_it():
    cluster = a_cluster(n1={"cores": 4})
    first = a_job()
    cluster.submit(first)
    job = a_job(after=(After(first.id, "ok"),))
    reply = by_alice(cluster, job)
    assert (reply.exit, [no.code for no in reply.reasons]) == (3, ["WaitingDependency"])
    assert happens(cluster, job) == 0


def test_tasks_that_come_after_others_one_by_one_are_planned_one_by_one():
    cluster = a_cluster(n1={"cores": 8})
    first = a_job(array="1-4", max_retries=0)
    cluster.submit(first)
    for position, code in ((0, 0), (2, 1)):
        cluster.ended("n1", (first.id, position, 1), code=code)
    job = a_job(array="1-4", after=(After(first.id, "ok", each=True),))
    reply = by_alice(cluster, job)
    assert [each.task for each in reply.placements] == [f"{job.id}.1"]
    assert [(no.code, no.tasks) for no in reply.reasons] == [("WaitingDependency", 3)]
    assert happens(cluster, job) == 1
    for position in (1, 3):
        cluster.ended("n1", (first.id, position, 1), code=0)
    job = structs.replace(job, id=a_job().id)
    reply = by_alice(cluster, job)
    assert [each.task for each in reply.placements] == [f"{job.id}.{index}" for index in (1, 2, 4)]
    assert [(no.code, no.tier, no.tasks) for no in reply.reasons] == [("DependencyNever", "never", 1)]
    assert happens(cluster, job) == 3


def test_a_quota_that_is_offered_for_an_array_is_no_higher_than_the_next_task_needs():
    cluster = a_cluster(n1={"cores": 8})
    cluster.give(SetQuota("lab", Quota(tasks=2)))
    seen = cluster.state.snapshot(cluster.now, cluster.engine.memory)
    reply = preview(cluster.state, [a_job(array="1-6", queue="lab")], cluster.engine.policy, seen)
    assert len(reply.placements) == 2
    assert reply.reasons[0].fix is not None
    assert reply.reasons[0].fix.command == "phalanx queue set lab --tasks 3"


def test_no_job_is_named_that_is_not_there():
    cluster = a_cluster(n1={"cores": 1})
    cluster.submit(a_job())
    (evicted,) = by_alice(cluster, a_job(user="alice", priority=9, name="urgent")).evictions
    assert evicted.why == "phalanx: preempted to make room for urgent (priority 9)"


def test_a_gate_of_the_whole_job_is_told_once():
    groups = a_group(1, name="prep"), a_group(2, name="train", after=(("prep", "started"),))
    job = structs.replace(a_job(user="alice", begin_at=1000.0), groups=groups)
    reply = by_alice(a_cluster(n1={"cores": 4}), job)
    begins = [(no.code, no.tasks, no.dominant) for no in reply.reasons if no.code == "BeginTime"]
    assert begins == [("BeginTime", 3, True)]
