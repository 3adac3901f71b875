"""The barrier and nodes that go away: before the release nobody runs, after it the gang starts anew whole (XW15)."""

from __future__ import annotations

from phalanx.coordinator.why import why_reply
from phalanx.core.cluster.events import GangRecalled, GangReleased, JobRestarted
from phalanx.core.cluster.inputs import Disconnect, Hello, Tick
from phalanx.core.model.job import Job
from phalanx.core.model.orders import Go, Phase, Ready, Started, Stop
from phalanx.core.model.status import Status
from tests.support.builders import a_capacity, a_gang, a_group
from tests.unit.core.stage import Stage


def a_gang_of_two(stage: Stage) -> Job:
    gang = a_gang(a_group(2))
    stage.submit(gang)
    stage.gang_placement(gang, {0: "n1", 1: "n2"})
    return gang


def a_stage() -> Stage:
    return Stage(n1={"cores": 4}, n2={"cores": 4})


def released(stage: Stage) -> bool:
    return any(isinstance(event, GangReleased) for event in stage.events)


def beats(stage: Stage, gang: Job, position: int, phase: Phase) -> None:
    attempt = stage.state.jobs[gang.id].live[position]
    stage.beat(attempt.node, [(attempt.key, phase)])


def test_nobody_is_released_while_the_node_of_a_member_is_away():
    stage = a_stage()
    gang = a_gang_of_two(stage)
    stage.report(gang, 1, Ready)
    stage.give(Disconnect("n2", "a"))
    stage.report(gang, 0, Ready)
    assert not released(stage) and stage.told(Go) == []
    said = why_reply(stage.state, stage.state.jobs[gang.id], 0, stage.now).dominant
    assert said.code == "BarrierWait" and "n2, which is not connected" in said.text
    key = stage.state.jobs[gang.id].live[1].key
    stage.give(Hello("n2", "a", "origin-n2", a_capacity(cores=4), [(key, Phase.READY)]))
    beats(stage, gang, 1, Phase.READY)
    assert released(stage) and len(stage.told(Go)) == 2


def test_a_node_that_is_lost_before_the_release_recalls_its_gang_and_nobody_has_run():
    stage = a_stage()
    gang = a_gang_of_two(stage)
    stage.report(gang, 1, Ready)
    stage.give(Disconnect("n2", "a"))
    stage.report(gang, 0, Ready)
    for _ in range(2):
        stage.now += 20.0
        beats(stage, gang, 0, Phase.READY)
    stage.give(Tick())
    assert any(isinstance(event, GangRecalled) for event in stage.events)
    assert not released(stage) and stage.told(Go) == []


def test_a_member_that_is_lost_after_the_release_and_before_its_start_restarts_its_gang_whole():
    stage = a_stage()
    gang = a_gang_of_two(stage)
    for position in (0, 1):
        stage.report(gang, position, Ready)
    assert released(stage)
    stage.report(gang, 0, Started)
    stage.give(Disconnect("n2", "a"))
    for _ in range(2):
        stage.now += 20.0
        beats(stage, gang, 0, Phase.RUNNING)
    stage.give(Tick())
    assert [type(event) for event in stage.events].count(JobRestarted) == 1
    assert stage.told(Stop) == [(gang.id, 0, 1)], "the one that had started is stopped in the same step"
    assert stage.statuses(gang) == [Status.RUNNING, Status.PENDING]


def test_a_formation_whose_member_is_away_lets_go_in_time_and_says_who_was_missing():
    stage = a_stage()
    gang = a_gang(a_group(2), wait_s=10.0)
    stage.submit(gang)
    stage.gang_placement(gang, {0: "n1", 1: "n2"})
    stage.report(gang, 1, Ready)
    stage.give(Disconnect("n2", "a"))
    stage.report(gang, 0, Ready)
    stage.now += 11.0
    stage.give(Tick())
    (recalled,) = [event for event in stage.events if isinstance(event, GangRecalled)]
    assert "1 of 2 members were not ready" in recalled.text
