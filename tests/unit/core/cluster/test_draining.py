"""A node is taken out of service: what runs there goes on, or is evicted, gangs whole (M14)."""

from __future__ import annotations

from phalanx.core.cluster.decision import Accepted, Refused
from phalanx.core.cluster.inputs import Drain
from phalanx.core.model.orders import Status, Stop
from tests.support.builders import a_gang, a_group
from tests.support.core_cluster import CoreCluster

TWO = {"n1": {"cores": 4}, "n2": {"cores": 4}}


def drained(cluster: CoreCluster, *, evict: bool) -> set[int]:
    """The positions of the attempts that are ordered to stop."""
    before = len(cluster.told(Stop))
    cluster.give(Drain("n1", "a fan is broken", evict))
    return {key[1] for key in cluster.told(Stop)[before:]}


def a_running_gang(cluster: CoreCluster, needed: int) -> None:
    gang = a_gang(a_group(3, min=needed))
    cluster.submit(gang)
    cluster.gang_placement(gang, {0: "n1", 1: "n2", 2: "n2"})
    cluster.starts(gang, 0, 1, 2)


def test_without_evict_what_runs_goes_on():
    cluster = CoreCluster(**TWO)
    a_running_gang(cluster, 3)
    assert drained(cluster, evict=False) == set()


def test_a_gang_that_needs_its_member_there_leaves_whole():
    cluster = CoreCluster(**TWO)
    a_running_gang(cluster, 3)
    assert drained(cluster, evict=True) == {0, 1, 2}


def test_a_gang_that_can_do_without_its_member_there_goes_on():
    cluster = CoreCluster(**TWO)
    a_running_gang(cluster, 2)
    assert drained(cluster, evict=True) == {0}


def test_who_was_evicted_waits_again_and_is_told_why():
    cluster = CoreCluster(**TWO)
    gang = a_gang(a_group(2))
    job = cluster.submit(gang)
    cluster.gang_placement(gang, {0: "n1", 1: "n2"})
    cluster.starts(gang, 0, 1)
    drained(cluster, evict=True)
    assert "n1 is drained: a fan is broken" in job.conditions[1].message
    cluster.confirm_stops()
    assert cluster.statuses(gang) == [Status.PENDING] * 2
    assert job.charged == {}
    assert cluster.waits(job)


def test_an_empty_node_is_drained_all_the_same():
    cluster = CoreCluster(**TWO)
    assert isinstance(cluster.give(Drain("n2", "x", evict=True)), Accepted)
    assert isinstance(cluster.give(Drain("n9", "x", evict=True)), Refused)
