"""The barrier and nodes that go away: before the release no member runs, after it the gang restarts whole (XW15)."""

from __future__ import annotations

from phalanx.coordinator.why import why_reply
from phalanx.core.cluster.events import GangRecalled, GangReleased, JobRestarted
from phalanx.core.cluster.inputs import Disconnect, Hello, Tick
from phalanx.core.model.job import Job
from phalanx.core.model.orders import Go, Phase, Ready, Started, Status, Stop
from tests.support.builders import a_capacity, a_gang, a_group
from tests.support.core_cluster import CoreCluster


def a_gang_of_two(cluster: CoreCluster) -> Job:
    gang = a_gang(a_group(2))
    cluster.submit(gang)
    cluster.gang_placement(gang, {0: "n1", 1: "n2"})
    return gang


def a_core_cluster() -> CoreCluster:
    return CoreCluster(n1={"cores": 4}, n2={"cores": 4})


def released(cluster: CoreCluster) -> bool:
    return any(isinstance(event, GangReleased) for event in cluster.events)


def beats(cluster: CoreCluster, gang: Job, position: int, phase: Phase) -> None:
    attempt = cluster.state.jobs[gang.id].live[position]
    cluster.beat(attempt.node, [(attempt.key, phase)])


def test_nobody_is_released_while_the_node_of_a_member_is_away():
    cluster = a_core_cluster()
    gang = a_gang_of_two(cluster)
    cluster.report(gang, 1, Ready)
    cluster.give(Disconnect("n2", "a"))
    cluster.report(gang, 0, Ready)
    assert not released(cluster) and cluster.told(Go) == []
    said = why_reply(cluster.state, cluster.state.jobs[gang.id], 0, cluster.now).dominant
    assert said.code == "BarrierWait" and "n2, which is not connected" in said.text
    key = cluster.state.jobs[gang.id].live[1].key
    cluster.give(Hello("n2", "a", "origin-n2", a_capacity(cores=4), [(key, Phase.READY)]))
    beats(cluster, gang, 1, Phase.READY)
    assert released(cluster) and len(cluster.told(Go)) == 2


def test_a_node_that_is_lost_before_the_release_recalls_its_gang_and_nobody_has_run():
    cluster = a_core_cluster()
    gang = a_gang_of_two(cluster)
    cluster.report(gang, 1, Ready)
    cluster.give(Disconnect("n2", "a"))
    cluster.report(gang, 0, Ready)
    for _ in range(2):
        cluster.now += 20.0
        beats(cluster, gang, 0, Phase.READY)
    cluster.give(Tick())
    assert any(isinstance(event, GangRecalled) for event in cluster.events)
    assert not released(cluster) and cluster.told(Go) == []


def test_a_member_that_is_lost_after_the_release_and_before_its_start_restarts_its_gang_whole():
    cluster = a_core_cluster()
    gang = a_gang_of_two(cluster)
    for position in (0, 1):
        cluster.report(gang, position, Ready)
    assert released(cluster)
    cluster.report(gang, 0, Started)
    cluster.give(Disconnect("n2", "a"))
    for _ in range(2):
        cluster.now += 20.0
        beats(cluster, gang, 0, Phase.RUNNING)
    cluster.give(Tick())
    assert [type(event) for event in cluster.events].count(JobRestarted) == 1
    assert cluster.told(Stop) == [(gang.id, 0, 1)], "the one that had started is stopped in the same step"
    assert cluster.statuses(gang) == [Status.RUNNING, Status.PENDING]


def test_a_formation_whose_member_is_away_lets_go_in_time_and_says_who_was_missing():
    cluster = a_core_cluster()
    gang = a_gang(a_group(2), wait_s=10.0)
    cluster.submit(gang)
    cluster.gang_placement(gang, {0: "n1", 1: "n2"})
    cluster.report(gang, 1, Ready)
    cluster.give(Disconnect("n2", "a"))
    cluster.report(gang, 0, Ready)
    cluster.now += 11.0
    cluster.give(Tick())
    (recalled,) = [event for event in cluster.events if isinstance(event, GangRecalled)]
    assert "1 of 2 members were not ready" in recalled.text
