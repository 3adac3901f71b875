"""A fix that is offered was tried: a job changed so starts now, or could run here."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from phalanx.api.schema.apply import PlanReply
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


def test_who_is_held_back_is_offered_the_time_limit_that_lets_it_pass():
    text = """
    nodes: [{name: "n[1-2]", cores: 8}]
    running: [{name: busy, cores: 8, places: [n1], time_limit: 500, started_at: 0}]
    waiting: [{name: first, gang: true, tasks: 2, cores: 8}]
    now: 0
    """
    reply = plan(text, job="name: second\ncores: 8\n")
    assert the_fix(reply) == {"time_limit": 500}
    assert plan(text, job="name: second\ncores: 8\ntime_limit: 500\n").exit == 0


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
