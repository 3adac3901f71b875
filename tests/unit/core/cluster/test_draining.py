"""A node is taken out of service: what runs there goes on, or is asked to leave, gangs whole (M14)."""

from __future__ import annotations

from phalanx.core.cluster.decision import Accepted, Refused
from phalanx.core.cluster.inputs import Drain
from phalanx.core.model.orders import Stop
from phalanx.core.model.status import Status
from tests.support.builders import a_gang, a_group
from tests.unit.core.stage import Stage

TWO = {"n1": {"cores": 4}, "n2": {"cores": 4}}


def drained(stage: Stage, *, evict: bool) -> set[int]:
    """The positions of those who are told to stop."""
    before = len(stage.told(Stop))
    stage.give(Drain("n1", "a fan is broken", evict))
    return {key[1] for key in stage.told(Stop)[before:]}


def a_running_gang(stage: Stage, needed: int) -> None:
    gang = a_gang(a_group(3, min=needed))
    stage.submit(gang)
    stage.gang_placement(gang, {0: "n1", 1: "n2", 2: "n2"})
    stage.starts(gang, 0, 1, 2)


def test_without_evict_what_runs_goes_on():
    stage = Stage(**TWO)
    a_running_gang(stage, 3)
    assert drained(stage, evict=False) == set()


def test_a_gang_that_needs_its_member_there_leaves_whole():
    stage = Stage(**TWO)
    a_running_gang(stage, 3)
    assert drained(stage, evict=True) == {0, 1, 2}


def test_a_gang_that_can_do_without_its_member_there_goes_on():
    stage = Stage(**TWO)
    a_running_gang(stage, 2)
    assert drained(stage, evict=True) == {0}


def test_who_was_evicted_waits_again_and_is_told_why():
    stage = Stage(**TWO)
    gang = a_gang(a_group(2))
    job = stage.submit(gang)
    stage.gang_placement(gang, {0: "n1", 1: "n2"})
    stage.starts(gang, 0, 1)
    drained(stage, evict=True)
    assert "n1 is drained: a fan is broken" in job.conditions[1].message
    stage.confirm_stops()
    assert stage.statuses(gang) == [Status.PENDING] * 2
    assert job.charged == {}
    assert stage.waits(job)


def test_an_empty_node_is_drained_all_the_same():
    stage = Stage(**TWO)
    assert isinstance(stage.give(Drain("n2", "x", evict=True)), Accepted)
    assert isinstance(stage.give(Drain("n9", "x", evict=True)), Refused)
