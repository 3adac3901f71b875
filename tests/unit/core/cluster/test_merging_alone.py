"""Tasks that may be merged and run by themselves: what they share with others then, and what their programs write."""

from __future__ import annotations

import json

import pytest
from msgspec import structs

from phalanx.core.cluster.decide.merging import split
from phalanx.core.cluster.image import decode_state, encode_state
from phalanx.core.cluster.inputs import Update
from phalanx.core.cluster.invariants import check
from phalanx.core.cluster.units import kind_of
from phalanx.core.model import lanes
from phalanx.core.model.job import Job
from phalanx.core.model.orders import Exit, Start, Why
from phalanx.core.model.task_results import PartResult
from tests.support.dispatch_cluster import DispatchCluster, a_flow, a_machine, a_task
from tests.unit.core.cluster.test_merging import ready, stage


def test_those_that_run_alone_are_one_class_and_are_not_merged() -> None:
    cluster = ready()
    cluster.finish(stage(cluster, 0), json.dumps({"result": 1, "children": {}}))
    jobs = [cluster.state.jobs[stage(cluster, at)].job for at in (1, 2, 3)]
    assert len({job.dispatch.merge_key for job in jobs if job.dispatch is not None}) == 3
    assert {kind_of(job, job.groups[0].request) for job in jobs} == {
        (jobs[0].queue, jobs[0].groups[0].request)
    }
    for at in (1, 2, 3):
        attempt = cluster.attempt(stage(cluster, at))
        assert attempt is not None and not attempt.merged
        cluster.finish(stage(cluster, at), json.dumps({"result": at, "children": {}}))
        assert cluster.state.jobs[stage(cluster, at)].results[0] == str(at)
    assert not check(cluster.state)


def test_one_that_was_changed_still_answers_for_several() -> None:
    cluster = ready()
    changed = stage(cluster, 5)
    cluster.give(Update(changed, "ada", priority=1))
    cluster.finish(stage(cluster, 0), "1")
    start = next(order for _, order in reversed(cluster.orders) if isinstance(order, Start))
    assert (start.key[0], start.merged) == (changed, "[]")
    cluster.finish(changed, json.dumps({"result": {"x": 1}, "children": {}}))
    assert cluster.state.jobs[changed].results[0] == '{"x":1}'


def test_lanes_that_they_share_in_an_image_of_an_earlier_version_are_sound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kind = lanes.lane_kind

    def former(job: Job) -> object:
        found = kind(job)
        return (job.user, job.queue, job.groups[0].request) if found is None else found

    cluster = DispatchCluster(None, {"w1": a_machine(1)})
    with monkeypatch.context() as before:
        before.setattr(lanes, "lane_kind", former)
        for at in range(8):
            cluster.at_once(a_task("inference", data={"items": [at]}), "1")
        stages: list[dict[str, object]] = [
            {"name": f"s{at}", "spec": {"taskType": "inference", "data": {"items": [at]}, "n": at}}
            for at in range(2)
        ]
        cluster.flow = cluster.run(a_flow(*stages))
        assert [cluster.where(stage(cluster, at)) for at in range(2)] == ["w1"] * 2
        image = encode_state(cluster.state)
    state = decode_state(image, cluster.state.rules)
    assert not check(state)


def test_an_answer_that_the_coordinator_takes_apart_has_results_within_their_limit() -> None:
    long = f"[{','.join(['1e15'] * 300)}]"
    exit = Exit(Why.NONE, 0, result=f'{{"result":1,"children":{{"a":{long},"b":2}}}}')
    own, parts = split(exit)
    assert (own.result, parts) == ("1", {"b": PartResult("b", "2")})
    exit = structs.replace(exit, result=f'{{"result":{long},"children":{{}}}}')
    assert split(exit) == (exit, {})
