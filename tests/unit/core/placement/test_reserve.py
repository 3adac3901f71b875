"""EASY backfill: the reservation of the first unit that found no room, and which units may pass it."""

from __future__ import annotations

from math import inf

import pytest

from phalanx.core.explain.reserved import forecast, held_back
from phalanx.core.model.plan import Policy
from phalanx.core.model.reason import Tier
from phalanx.core.model.resources import Grant
from phalanx.core.placement.draft import Draft
from phalanx.core.placement.reserve import reservation
from phalanx.core.placement.reserve.reservation import reserve
from tests.support.planned_cluster import PlannedCluster

DAY = 86_400.0


def a_busy_cluster(until: float | None = 2000.0) -> PlannedCluster:
    """Four cores, two of them free, and a job before all others that wants all four; it is now 1000."""
    cluster = PlannedCluster(n1=4)
    cluster.runs("old", "n1", 2, until=until)
    cluster.waits("large", cores=4)
    return cluster


def test_one_that_has_ended_by_then_passes() -> None:
    cluster = a_busy_cluster()
    cluster.waits("short", cores=2, limit=1000.0)
    assert cluster.placed() == {"short": ["n1"]}


def test_one_that_would_still_run_then_is_held_back() -> None:
    cluster = a_busy_cluster()
    cluster.waits("long", cores=2, limit=1000.1)
    assert cluster.placed() == {}


def test_one_that_uses_what_the_head_does_not_need_passes_however_long_it_runs() -> None:
    cluster = PlannedCluster(n1=4)
    cluster.runs("old", "n1", 3, until=2000.0)
    cluster.waits("large", cores=3)
    cluster.waits("spare", cores=1, limit=1e6)
    assert cluster.placed() == {"spare": ["n1"]}


def test_what_is_spare_is_given_out_once() -> None:
    cluster = PlannedCluster(n1=6)
    cluster.runs("old", "n1", 3, until=2000.0)
    cluster.waits("large", cores=4)
    for number in range(3):
        cluster.waits(f"spare-{number}", cores=1, limit=1e6)
    assert cluster.placed() == {"spare-0": ["n1"], "spare-1": ["n1"]}


def test_what_ends_in_time_uses_up_nothing_that_is_spare() -> None:
    cluster = PlannedCluster(n1=6)
    cluster.runs("old", "n1", 3, until=2000.0)
    cluster.waits("large", cores=5)
    cluster.waits("short", cores=2, limit=900.0)
    cluster.waits("spare", cores=1, limit=1e6)
    assert cluster.placed() == {"short": ["n1"], "spare": ["n1"]}


def test_nodes_that_the_head_does_not_stand_on_are_free_for_all() -> None:
    cluster = PlannedCluster(n1=4, n2=2)
    cluster.runs("old", "n1", 2, until=2000.0)
    cluster.waits("large", cores=4)
    cluster.waits("long", cores=2, limit=1e6)
    assert cluster.placed() == {"long": ["n2"]}


def test_a_long_one_leaves_the_fuller_node_that_is_kept_for_the_emptier_one() -> None:
    cluster = PlannedCluster(n1=8, n2=3)
    cluster.runs("old", "n1", 1, until=2000.0)
    cluster.waits("large", cores=8)
    cluster.waits("long", cores=1, limit=1e6)
    assert cluster.placed() == {"long": ["n2"]}


def test_the_head_moves_to_another_node_that_is_free_at_the_same_time() -> None:
    cluster = PlannedCluster(n1=4, n2=4)
    cluster.runs("old-1", "n1", 4, until=2000.0)
    cluster.runs("old-2", "n2", 3, until=2000.0)
    cluster.waits("large", cores=4)
    cluster.waits("long", cores=1, limit=1e6)
    assert cluster.placed() == {"long": ["n2"]}


def test_the_head_is_not_moved_by_two() -> None:
    cluster = PlannedCluster(n1=4, n2=4)
    cluster.runs("old-1", "n1", 3, until=2000.0)
    cluster.runs("old-2", "n2", 3, until=2000.0)
    cluster.waits("large", cores=4)
    cluster.waits("long", cores=1, tasks=2, limit=1e6)
    assert len(cluster.placed()["long"]) == 1


def test_a_tenant_without_a_limit_is_taken_to_run_as_long_as_policy_says() -> None:
    cluster = a_busy_cluster(until=None)
    cluster.waits("short", cores=2, limit=100.0)
    cluster.waits("shorter", cores=2, limit=50.0)
    assert cluster.placed(Policy(assumed_run_s=60.0)) == {"shorter": ["n1"]}


def test_a_waiting_job_without_a_limit_is_never_over_in_time() -> None:
    cluster = a_busy_cluster(until=1000.0 + DAY)
    cluster.waits("unlimited", cores=2)
    assert cluster.placed() == {}
    cluster.waits("limited", cores=2, limit=DAY)
    assert cluster.placed() == {"limited": ["n1"]}


def test_a_tenant_that_is_overdue_may_leave_at_any_moment() -> None:
    cluster = a_busy_cluster(until=900.0)
    found = forecast(cluster.snapshot(), cluster.units["large"], Policy())
    assert found is not None and found.at == cluster.now
    cluster.waits("short", cores=2, limit=0.1)
    assert cluster.placed() == {}


def test_those_before_the_head_are_not_asked_to_wait_for_it() -> None:
    cluster = PlannedCluster(n1=4)
    cluster.runs("old", "n1", 2, until=2000.0)
    cluster.waits("urgent", cores=1, limit=1e6, priority=1)
    cluster.waits("large", cores=4)
    assert cluster.placed() == {"urgent": ["n1"]}


def test_what_the_same_plan_started_before_the_head_is_reckoned_with() -> None:
    cluster = PlannedCluster(n1=4)
    cluster.waits("first", cores=2, limit=500.0)
    cluster.waits("large", cores=4)
    cluster.waits("late", cores=2, limit=501.0)
    cluster.waits("in-time", cores=1, limit=500.0)
    assert cluster.placed() == {"first": ["n1"], "in-time": ["n1"]}


def test_who_was_evicted_in_the_same_plan_does_not_leave_once_more() -> None:
    cluster = PlannedCluster(n1=5)
    cluster.runs("low", "n1", 2, until=2000.0)
    cluster.runs("other", "n1", 2, until=3000.0, priority=9)
    cluster.waits("urgent", cores=2, priority=8)
    cluster.waits("large", cores=3)
    cluster.waits("in-time", cores=1, limit=1500.0)
    assert cluster.placed() == {"urgent": ["n1"], "in-time": ["n1"]}


def test_one_that_could_never_run_is_looked_at_once_until_room_appears(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked: list[str] = []
    real = reserve

    def spy(draft, unit, policy, runs_s, kept):
        looked.append(unit.job.id)
        return real(draft, unit, policy, runs_s, kept)

    monkeypatch.setattr(reservation, "reserve", spy)
    cluster = PlannedCluster(n1=4)
    cluster.waits("giant", cores=64)
    cluster.waits("a", cores=1)
    cluster.go()
    cluster.waits("b", cores=1)
    cluster.go()
    assert looked == ["giant"]


def test_memory_and_devices_are_kept_as_cores_are() -> None:
    cluster = PlannedCluster()
    cluster.add_node("n1", 16, gpus=4)
    cluster.runs("old", "n1", 1, gpus=(0,), until=2000.0)
    cluster.waits("large", cores=1, gpus=4)
    cluster.waits("one", cores=1, gpus=1, limit=1e6)
    cluster.waits("none", cores=1, limit=1e6)
    assert cluster.placed() == {"none": ["n1"]}


def test_devices_of_another_kind_are_not_kept() -> None:
    cluster = PlannedCluster()
    cluster.add_node("n1", 16, gpus="a100 a100 h100 h100")
    cluster.runs("old", "n1", 1, gpus=(2,), until=2000.0)
    cluster.waits("large", cores=1, gpus=2, kind="h100")
    cluster.waits("same", cores=1, gpus=1, kind="h100", limit=1e6)
    cluster.waits("other", cores=1, gpus=2, kind="a100", limit=1e6)
    assert cluster.placed() == {"other": ["n1"]}


def test_a_tenant_of_another_kind_of_device_does_not_make_room() -> None:
    cluster = PlannedCluster()
    cluster.add_node("n1", 16, gpus="a100 h100")
    cluster.runs("early", "n1", 1, gpus=(0,), until=1500.0)
    cluster.runs("late", "n1", 1, gpus=(1,), until=2000.0)
    found = forecast(cluster.snapshot(), cluster.waits("large", gpus=1, kind="h100"), Policy())
    assert found is not None and found.at == 2000.0


def test_a_node_with_another_kind_of_device_does_not_make_room() -> None:
    cluster = PlannedCluster()
    cluster.add_node("n1", 16, gpus="a100")
    cluster.add_node("n2", 16, gpus="h100")
    cluster.runs("early", "n1", 1, gpus=(0,), until=1500.0)
    cluster.runs("late", "n2", 1, gpus=(0,), until=2000.0)
    found = forecast(cluster.snapshot(), cluster.waits("large", gpus=1, kind="h100"), Policy())
    assert found is not None and (found.at, found.nodes) == (2000.0, ("n2",))


def test_a_head_with_named_devices_waits_for_those_who_hold_them() -> None:
    cluster = PlannedCluster()
    cluster.add_node("n1", 16, gpus=2)
    cluster.add_node("n2", 16, gpus=2)
    cluster.runs("early", "n1", 1, gpus=(1,), until=1500.0)
    cluster.runs("late", "n1", 1, gpus=(0,), until=2000.0)
    unit = cluster.waits("named", gpus=1, target="n1::0")
    found = forecast(cluster.snapshot(), unit, Policy())
    assert found is not None and (found.at, found.nodes) == (2000.0, ("n1",))
    cluster.waits("long", gpus=1, limit=1e6)
    cluster.waits("in-time", cores=1, target="n1", limit=1000.0)
    assert cluster.placed() == {"long": ["n2"], "in-time": ["n1"]}


def test_the_node_of_a_head_with_named_devices_is_kept_whole() -> None:
    cluster = PlannedCluster()
    cluster.add_node("n1", 16, gpus=3)
    cluster.runs("old", "n1", 1, gpus=(1,), until=2000.0)
    cluster.waits("named", gpus=2, target="n1::0,1")
    cluster.waits("long", gpus=1, limit=1e6)
    cluster.waits_whole("gang", 1, gpus=1, limit=1e6)
    cluster.waits("cores", limit=1e6)
    assert cluster.placed() == {}


def test_the_forecast_says_when_and_where() -> None:
    cluster = PlannedCluster(n1=4, n2=4)
    cluster.runs("old-1", "n1", 4, until=5000.0)
    cluster.runs("old-2", "n2", 2, since=900.0)
    cluster.runs("old-3", "n2", 2, since=950.0)
    found = forecast(cluster.snapshot(), cluster.waits("large", cores=4), Policy())
    assert found is not None
    assert (found.at, found.nodes, found.passes_s) == (5000.0, ("n1",), 4000.0)


def test_a_forecast_without_limits_says_where_and_what_lacks() -> None:
    cluster = PlannedCluster(n1=4, n2=4)
    cluster.runs("old-1", "n1", 4)
    cluster.runs("old-2", "n2", 3)
    found = forecast(cluster.snapshot(), cluster.waits("large", cores=4), Policy(assumed_run_s=60.0))
    assert found is not None
    assert (found.at, found.nodes, found.passes_s) == (inf, ("n2",), 60.0)
    assert (found.lacks, found.unlimited) == ((("cores", 3, 4),), 1)


def test_there_is_no_forecast_for_what_never_fits() -> None:
    cluster = PlannedCluster(n1=4)
    assert forecast(cluster.snapshot(), cluster.waits("giant", cores=5), Policy()) is None


def test_places_that_are_promised_are_reckoned_with() -> None:
    cluster = PlannedCluster(n1=4)
    cluster.runs("victim", "n1", 4, until=1500.0)
    cluster.promise("preemptor", "n1", 4, until=3000.0)
    found = forecast(cluster.snapshot(), cluster.waits("large", cores=4), Policy())
    assert found is not None and found.at == 3000.0


def test_promised_devices_are_not_counted_twice() -> None:
    cluster = PlannedCluster()
    cluster.add_node("n1", 16, gpus=2)
    cluster.runs("victim", "n1", 1, gpus=(0,), until=1500.0)
    cluster.runs("old", "n1", 1, gpus=(1,), until=5000.0)
    cluster.promise("preemptor", "n1", 1, gpus=(0,), until=3000.0)
    found = forecast(cluster.snapshot(), cluster.waits("one", gpus=1), Policy())
    assert found is not None and found.at == 3000.0


def test_one_that_is_held_back_is_told_for_whom_and_until_when() -> None:
    cluster = a_busy_cluster()
    unit = cluster.waits("long", cores=2, limit=1e6)
    cluster.plan()
    why = held_back(cluster.snapshot(), unit, Policy())
    assert why is not None
    assert (why.code, why.tier) == ("ReservedForOther", Tier.POLICY)
    assert why.numbers == {"job": "large", "nodes": ["n1"], "at": 2000.0, "seconds": 1000.0}
    assert "large" in why.text and "at most 1000 s" in why.text


def test_without_backfill_it_is_told_that_nobody_passes() -> None:
    cluster = a_busy_cluster()
    unit = cluster.waits("short", cores=2, limit=1.0)
    policy = Policy(backfill="none")
    cluster.plan(policy)
    why = held_back(cluster.snapshot(), unit, policy)
    assert why is not None and (why.code, why.numbers["job"]) == ("ReservedForOther", "large")


def test_the_head_itself_and_those_without_room_are_not_held_back() -> None:
    cluster = a_busy_cluster()
    other = cluster.waits("other", cores=3)
    cluster.plan()
    assert held_back(cluster.snapshot(), cluster.units["large"], Policy()) is None
    assert held_back(cluster.snapshot(), other, Policy()) is None


def test_members_that_hold_a_part_already_count_for_the_multiple_of_the_head() -> None:
    """Two of four members stand on n1: the two that are left complete the multiple of four."""
    cluster = PlannedCluster()
    cluster.add_node("n1", 2, rack="r1")
    cluster.add_node("n2", 2, rack="r1")
    cluster.runs("old", "n2", 2, until=2000.0)
    gang = cluster.waits_whole("gang", 4, must="rack", multiple=4, strict=False)
    gang.stands, gang.left = {0: 2}, [2, 3]
    cluster.nodes.take(0, Grant(2, 0))
    with Draft(cluster.snapshot()) as draft:
        found = reserve(draft, gang, Policy(), {})
    assert found is not None
    assert (found.at, found.nodes) == (2000.0, ("n2",))
