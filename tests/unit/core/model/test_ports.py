"""Ports that tasks are told to meet at: the same for all members of a gang, and nobody else's on that node (M2)."""

from __future__ import annotations

from phalanx.core.cluster.start_orders import roll
from phalanx.core.model.job import Job
from phalanx.core.model.orders import Roll
from phalanx.core.model.ports import GANG_PORTS, LONE_PORTS, LonePorts
from tests.support.builders import a_gang, a_group
from tests.unit.core.stage import Stage


def told(stage: Stage, gang: Job, formation: int = 1) -> Roll:
    return roll(stage.state, stage.state.jobs[gang.id], formation)


def test_gangs_that_meet_on_one_node_have_ports_of_their_own():
    stage = Stage(n1={"cores": 500})
    gangs = [a_gang(a_group(2)) for _ in range(200)]
    for gang in gangs:
        stage.submit(gang)
        stage.gang_placement(gang, {0: "n1", 1: "n1"})
    ports = {told(stage, gang).port for gang in gangs}
    assert len(ports) == 200 and ports <= set(GANG_PORTS)


def test_a_gang_that_starts_anew_meets_at_a_fresh_port():
    stage = Stage(n1={"cores": 8})
    gang = a_gang(a_group(2), limit=1)
    stage.submit(gang)
    stage.gang_placement(gang, {0: "n1", 1: "n1"})
    before = told(stage, gang).port
    stage.starts(gang, 0, 1)
    stage.ends(gang, 0, code=1)
    stage.confirm_stops()
    stage.gang_placement(gang, {0: "n1", 1: "n1"})
    assert told(stage, gang, 2).port != before


def test_a_member_that_joins_later_is_sent_where_the_others_meet():
    stage = Stage(n1={"cores": 8})
    gang = a_gang(a_group(3, min=2))
    stage.submit(gang)
    stage.gang_placement(gang, {0: "n1", 1: "n1"})
    first = told(stage, gang)
    stage.starts(gang, 0, 1)
    stage.gang_placement(gang, {2: "n1"})
    later = told(stage, gang, 2)
    assert (later.port, later.meeting) == (first.port, 1)


def test_the_roll_says_how_many_devices_any_member_has():
    stage = Stage(n1={"cores": 8, "gpus": 4})
    gang = a_gang(a_group(1, name="chief"), a_group(1, name="worker", gpus=2))
    stage.submit(gang)
    stage.gang_placement(gang, {0: "n1", 1: "n1"})
    assert told(stage, gang).most_devices == 2


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
