"""Ports at which tasks meet: the same for all members of a gang, and no other's on that node (M2)."""

from __future__ import annotations

from phalanx.core.cluster.decision import roll
from phalanx.core.model.job import Job
from phalanx.core.model.orders import GANG_PORTS, LONE_PORTS, LonePorts, Roll
from tests.support.builders import a_gang, a_group
from tests.support.core_cluster import CoreCluster


def told(cluster: CoreCluster, gang: Job, formation: int = 1) -> Roll:
    return roll(cluster.state, cluster.state.jobs[gang.id], formation)


def test_gangs_that_meet_on_one_node_have_ports_of_their_own():
    cluster = CoreCluster(n1={"cores": 500})
    gangs = [a_gang(a_group(2)) for _ in range(200)]
    for gang in gangs:
        cluster.submit(gang)
        cluster.gang_placement(gang, {0: "n1", 1: "n1"})
    ports = {told(cluster, gang).port for gang in gangs}
    assert len(ports) == 200 and ports <= set(GANG_PORTS)


def test_a_gang_that_starts_anew_meets_at_a_fresh_port():
    cluster = CoreCluster(n1={"cores": 8})
    gang = a_gang(a_group(2), limit=1)
    cluster.submit(gang)
    cluster.gang_placement(gang, {0: "n1", 1: "n1"})
    before = told(cluster, gang).port
    cluster.starts(gang, 0, 1)
    cluster.ends(gang, 0, code=1)
    cluster.confirm_stops()
    cluster.gang_placement(gang, {0: "n1", 1: "n1"})
    assert told(cluster, gang, 2).port != before


def test_a_member_that_joins_later_is_sent_where_the_others_meet():
    cluster = CoreCluster(n1={"cores": 8})
    gang = a_gang(a_group(3, min=2))
    cluster.submit(gang)
    cluster.gang_placement(gang, {0: "n1", 1: "n1"})
    first = told(cluster, gang)
    cluster.starts(gang, 0, 1)
    cluster.gang_placement(gang, {2: "n1"})
    later = told(cluster, gang, 2)
    assert (later.port, later.meeting) == (first.port, 1)


def test_the_roll_says_how_many_devices_any_member_has():
    cluster = CoreCluster(n1={"cores": 8, "gpus": 4})
    gang = a_gang(a_group(1, name="chief"), a_group(1, name="worker", gpus=2))
    cluster.submit(gang)
    cluster.gang_placement(gang, {0: "n1", 1: "n1"})
    assert told(cluster, gang).most_devices == 2


def test_those_who_stand_alone_have_ports_of_their_own_and_none_is_given_again_at_once():
    ports = LonePorts("n1/life")
    given = [ports.take(("j1", position, 1)) for position in range(100)]
    assert len(set(given)) == 100 and set(given) <= set(LONE_PORTS)
    assert ports.take(("j1", 0, 1)) == given[0]
    ports.give_back(("j1", 0, 1))
    assert ports.take(("j1", 0, 2)) not in given


def test_a_port_in_use_is_passed_over_when_the_range_has_been_gone_through():
    ports = LonePorts("n1/life")
    kept = ports.take(("long", 0, 1))
    for number in range(2 * len(LONE_PORTS)):
        key = ("short", number, 1)
        assert ports.take(key) != kept
        ports.give_back(key)


def test_with_more_tasks_than_ports_somebody_still_gets_one():
    ports = LonePorts("n1/life")
    given = [ports.take(("j1", position, 1)) for position in range(len(LONE_PORTS) + 10)]
    assert set(given) == set(LONE_PORTS)
