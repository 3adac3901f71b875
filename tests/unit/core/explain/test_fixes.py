"""A fix that is offered was tried: a job changed so starts now, or could run here."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from phalanx.api.schema.apply import PlanReply
from phalanx.coordinator.why import why_reply
from phalanx.core.cluster.decide.jobs import why_never
from phalanx.core.cluster.inputs import Drain
from phalanx.core.explain.change import ADMIN, Asker
from phalanx.core.explain.fixes import change_to_fit
from tests.support.builders import a_cluster, a_gang, a_group, a_job
from tests.unit.preview.files import plan

LAYERS = "topology: [{layer: spine, labels: [spine]}, {layer: rack, labels: [rack]}]\n"
Doc = dict[str, Any]


def the_fix(reply: PlanReply) -> Doc:
    """What to ask for instead, by the fields of a job file."""
    fixes = [each.fix for each in reply.reasons if each.fix is not None]
    return fixes[0].change if fixes else {}


def test_a_wider_layer_is_offered_first():
    nodes = """
nodes:
  - {name: "a[1-2]", cores: 1, labels: {spine: s1, rack: a}}
  - {name: b1, cores: 1, labels: {spine: s1, rack: b}}
"""
    job = "name: train\ngang: true\ntasks: 3\ncores: 1\ngather: [{layer: rack, must: true}]\n"
    reply = plan(LAYERS + nodes, job=job)
    assert (reply.exit, the_fix(reply)) == (4, {"gather": [{"layer": "spine", "must": True, "multiple": 1}]})


def test_as_many_members_as_there_is_room_for_are_offered():
    running = "running: [{name: busy, cores: 1, priority: 9, places: [n1]}]\n"
    reply = plan(
        "nodes: [{name: 'n[1-8]', cores: 1}]\n" + running, job="name: train\ngang: true\ntasks: 8\ncores: 1\n"
    )
    assert (reply.exit, the_fix(reply)) == (3, {"min": 7})


def test_memory_is_offered_in_a_size_that_one_would_type():
    for has, offered in ((24684100 << 10, "23GiB"), ((4 << 30) + 12345, "4GiB"), ((3 << 30) - 1, "3071MiB")):
        nodes = f"nodes: [{{name: n1, cores: 1, memory: {has}}}]\n"
        assert the_fix(plan(nodes, job="name: large\nmemory: 64GiB\n")) == {"memory": offered}


def test_the_smallest_job_whose_end_makes_room_is_named():
    text = """
    nodes: [{name: "n[1-2]", cores: 2}]
    running:
      - {name: large, array: 1-2, cores: 2, priority: 9, places: [n1]}
      - {name: small, cores: 2, priority: 9, places: [n2]}
    """
    text = text.replace("array: 1-2, cores: 2", "tasks: 2, cores: 1").replace(
        "places: [n1]", "places: [n1, n1]"
    )
    reply = plan(text, job="name: train\ngang: true\ntasks: 2\ncores: 1\n")
    assert reply.reasons[0].fix is not None
    assert "small" in reply.reasons[0].fix.text


def test_what_a_node_could_hold_that_takes_work_comes_before_what_one_could_that_is_away():
    cluster = a_cluster(n1={"cores": 8, "gpus": 4}, n2={"cores": 8, "gpus": 8})
    cluster.give(Drain("n2", "repair"))
    job = a_job(gpus=12)
    fix = change_to_fit(cluster.state, job)
    assert fix is not None
    no = why_never(cluster.state, job)
    assert no is not None
    assert fix.fields["gpus"] == no.numbers["total"] == 4
    fix = change_to_fit(cluster.state, a_job(cores=1, gpus=8, memory_bytes=1))
    assert fix is None or "gpus" not in fix.fields, "n2 could hold it"


@pytest.mark.parametrize("asker", [Asker("ada"), ADMIN])
def test_of_a_gang_that_need_not_be_smaller_once_a_node_is_resumed_that_is_said_too(asker: Asker):
    cluster = a_cluster(n1={"cores": 1}, n2={"cores": 1})
    cluster.give(Drain("n2", "new disk"))
    gang = a_gang(a_group(2, cores=1), user="ada")
    cluster.submit(gang)
    state, memory = cluster.state, cluster.engine.memory
    fix = why_reply(state, state.jobs[gang.id], None, cluster.now, memory=memory, asker=asker).fix
    assert fix is not None
    who = "if n2 were resumed" if asker.operates else "if an operator resumed n2"
    command = ": `phalanx node resume n2`" if asker.operates else ""
    assert "a minimum of 1 instead of 2" in fix.text
    assert fix.text.endswith(f"; or {who} (drained: new disk){command}")


def test_what_keeps_its_place_whatever_is_preempted_is_named():
    cluster = a_cluster(n1={"cores": 1}, n2={"cores": 1}, n3={"cores": 1})
    low, kept, urgent = a_job(), a_job(evictable=False), a_job(priority=9)
    for job in (low, kept, urgent):
        cluster.submit(job)
        cluster.started(node := f"n{1 + (low, kept, urgent).index(job)}", (job.id, 0, 1))
        assert cluster.state.jobs[job.id].live[0].node == node
    gang = a_gang(a_group(3, cores=1), priority=9)
    cluster.submit(gang)
    state, memory = cluster.state, cluster.engine.memory
    reply = why_reply(state, state.jobs[gang.id], None, cluster.now, memory=memory, asker=ADMIN)
    (text,) = [each.text for each in reply.others if each.code == "EvictionsNotEnough"]
    assert text == (
        "Preempting the 1 task of lower priority would make room for 1 of 3 members;"
        f" 1 other task of lower priority may not be evicted ({kept.id});"
        f" 1 task of the same or a higher priority keeps its place ({urgent.id})"
    )


HELD_BACK = """
nodes: [{name: "n[1-2]", cores: 8}]
running: [{name: busy, cores: 8, places: [n1], time_limit: LIMIT, started_at: 0}]
waiting: [{name: first, gang: true, tasks: 2, cores: 8}]
now: NOW
"""


@pytest.mark.parametrize(("limit", "offered"), [(500, 450), (200, 170), (31, 1)])
def test_who_is_held_back_is_offered_a_time_limit_that_still_lets_it_pass_a_little_later(
    limit: int, offered: int
):
    text = HELD_BACK.replace("LIMIT", str(limit))
    reply = plan(text.replace("NOW", "0"), job="name: second\ncores: 8\n")
    assert the_fix(reply) == {"time_limit": offered}
    fix = reply.reasons[0].fix
    assert fix is not None
    assert f"leaves {limit - offered} s to submit it" in fix.text
    assert f"at most {limit} s would" in reply.reasons[0].text
    for later in (0, 10, 30):
        job = f"name: second\ncores: 8\ntime_limit: {offered}\n"
        assert plan(text.replace("NOW", str(later)), job=job).exit == 0


def test_no_time_limit_is_offered_that_would_be_too_long_by_the_time_it_is_typed():
    reply = plan(HELD_BACK.replace("LIMIT", "30").replace("NOW", "0"), job="name: second\ncores: 8\n")
    assert (reply.exit, reply.reasons[0].code, reply.reasons[0].fix) == (3, "ReservedForOther", None)


@st.composite
def clusters(draw: st.DrawFn) -> tuple[str, Doc]:
    """A small cluster that is partly taken, and a gang that may be too much for it."""
    nodes: list[Doc] = [
        {
            "name": f"n{number}",
            "cores": draw(st.integers(1, 8)),
            "gpus": draw(st.integers(0, 4)),
            "labels": {
                "spine": draw(st.sampled_from(["s1", "s2"])),
                "rack": draw(st.sampled_from(["r1", "r2"])),
            },
        }
        for number in range(draw(st.integers(1, 6)))
    ]
    running = [
        {"name": f"busy{number}", "priority": 9, "cores": cores, "places": [node["name"]]}
        for number, node in enumerate(nodes)
        if (cores := draw(st.integers(0, node["cores"])))
    ]
    job = {
        "name": "train",
        "gang": True,
        "tasks": draw(st.integers(1, 8)),
        "cores": draw(st.integers(0, 6)),
        "gpus": draw(st.integers(0, 3)),
        "gather": draw(
            st.lists(
                st.builds(
                    lambda layer, must, multiple: {"layer": layer, "must": must, "multiple": multiple},
                    st.sampled_from(["spine", "rack"]),
                    st.booleans(),
                    st.sampled_from([1, 1, 2]),
                ),
                max_size=2,
                unique_by=lambda rule: rule["layer"],
            )
        ),
    }
    return LAYERS + yaml.safe_dump({"nodes": nodes, "running": running}), job


@settings(max_examples=150, deadline=None)
@given(clusters())
def test_doing_what_the_fix_says_helps(case: tuple[str, Doc]):
    cluster, job = case
    reply = plan(cluster, job=yaml.safe_dump(job))
    change = the_fix(reply)
    if not change:
        return
    helped = plan(cluster, job=yaml.safe_dump({**job, **change}))
    assert helped.exit < reply.exit
    if reply.exit == 3:
        assert helped.placements


@st.composite
def queues_with_a_head(draw: st.DrawFn) -> tuple[Doc, Doc]:
    """A cluster whose tasks have time limits, a gang for which room is kept, and a job that may pass it."""
    limits = st.sampled_from([None, 35, 60, 100, 500])
    sizes = draw(st.lists(st.integers(2, 8), min_size=1, max_size=4))
    nodes = [{"name": f"n{number}", "cores": cores} for number, cores in enumerate(sizes)]
    running = [
        {"name": f"busy{number}", "priority": 9, "cores": cores, "places": [f"n{number}"], "started_at": 0}
        | ({"time_limit": limit} if (limit := draw(limits)) else {})
        for number, size in enumerate(sizes)
        if (cores := draw(st.integers(0, size)))
    ]
    head = {"name": "head", "gang": True, "tasks": len(nodes), "cores": draw(st.integers(1, 8))}
    job: Doc = {"name": "late", "cores": draw(st.integers(1, 9))}
    if limit := draw(limits):
        job["time_limit"] = limit
    return {"nodes": nodes, "running": running, "waiting": [head], "now": 0}, job


@settings(max_examples=150, deadline=None)
@given(queues_with_a_head())
def test_a_fix_still_works_when_it_has_been_read_and_typed(case: tuple[Doc, Doc]):
    cluster, job = case
    reply = plan(yaml.safe_dump(cluster), job=yaml.safe_dump(job))
    change = the_fix(reply)
    if not change or reply.exit != 3:
        return
    for now in (0, 10, 30):
        helped = plan(yaml.safe_dump(cluster | {"now": now}), job=yaml.safe_dump({**job, **change}))
        assert any(each.job == "late" for each in helped.placements), (now, change)


@settings(max_examples=100, deadline=None)
@given(clusters())
def test_there_is_a_reason_exactly_if_it_does_not_start(case: tuple[str, Doc]):
    cluster, job = case
    reply = plan(cluster, job=yaml.safe_dump(job))
    waiting = [each for each in reply.reasons if each.waits]
    assert bool(waiting) == bool(reply.exit)
    assert all(each.text and each.code for each in reply.reasons)
    assert (reply.exit == 4) == bool(waiting and waiting[0].tier == "never")
    if reply.exit:
        assert reply.placements == []


@pytest.mark.parametrize("free", [1, 2, 4])
def test_less_for_each_member_is_offered_as_little_less_as_possible(free: int):
    running = f"running: [{{name: busy, gpus: {8 - free}, priority: 9, places: [n1]}}]\n"
    reply = plan("nodes: [{name: n1, cores: 8, gpus: 8}]\n" + running, job="name: a\ngang: true\ngpus: 8\n")
    assert the_fix(reply) == {"gpus": free}


def test_no_task_of_its_own_job_is_proposed_to_be_cancelled():
    cluster = a_cluster(n1={"cores": 2})
    job = a_job(array="1-3", max_retries=1)
    cluster.submit(job)
    fix = why_reply(cluster.state, cluster.state.jobs[job.id], 2, cluster.now).fix
    assert fix is not None
    assert "ends" in fix.text and fix.command == ""
