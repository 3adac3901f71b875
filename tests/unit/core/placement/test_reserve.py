"""EASY backfill: the reservation of the first that found no room, and who may pass it."""

from __future__ import annotations

from math import inf

import pytest

from phalanx.core.explain.reserved import forecast, held_back
from phalanx.core.model.plan import Policy
from phalanx.core.model.reason import Tier
from phalanx.core.model.resources import Grant
from phalanx.core.placement.draft import Draft
from phalanx.core.placement.reserve import head
from phalanx.core.placement.reserve.reservation import reserve
from tests.unit.core.yard import Yard

DAY = 86_400.0


def a_busy_yard(until: float | None = 2000.0) -> Yard:
    """Four cores, two of them free, and a job before all others that wants all four; it is now 1000."""
    yard = Yard(n1=4)
    yard.runs("old", "n1", 2, until=until)
    yard.waits("large", cores=4)
    return yard


def test_one_that_has_ended_by_then_passes() -> None:
    yard = a_busy_yard()
    yard.waits("short", cores=2, limit=1000.0)
    assert yard.placed() == {"short": ["n1"]}


def test_one_that_would_still_run_then_is_held_back() -> None:
    yard = a_busy_yard()
    yard.waits("long", cores=2, limit=1000.1)
    assert yard.placed() == {}


def test_one_that_uses_what_the_head_does_not_need_passes_however_long_it_runs() -> None:
    yard = Yard(n1=4)
    yard.runs("old", "n1", 3, until=2000.0)
    yard.waits("large", cores=3)
    yard.waits("spare", cores=1, limit=1e6)
    assert yard.placed() == {"spare": ["n1"]}


def test_what_is_spare_is_given_out_once() -> None:
    yard = Yard(n1=6)
    yard.runs("old", "n1", 3, until=2000.0)
    yard.waits("large", cores=4)
    for number in range(3):
        yard.waits(f"spare-{number}", cores=1, limit=1e6)
    assert yard.placed() == {"spare-0": ["n1"], "spare-1": ["n1"]}


def test_what_ends_in_time_uses_up_nothing_that_is_spare() -> None:
    yard = Yard(n1=6)
    yard.runs("old", "n1", 3, until=2000.0)
    yard.waits("large", cores=5)
    yard.waits("short", cores=2, limit=900.0)
    yard.waits("spare", cores=1, limit=1e6)
    assert yard.placed() == {"short": ["n1"], "spare": ["n1"]}


def test_nodes_that_the_head_does_not_stand_on_are_free_for_all() -> None:
    yard = Yard(n1=4, n2=2)
    yard.runs("old", "n1", 2, until=2000.0)
    yard.waits("large", cores=4)
    yard.waits("long", cores=2, limit=1e6)
    assert yard.placed() == {"long": ["n2"]}


def test_a_long_one_leaves_the_fuller_node_that_is_kept_for_the_emptier_one() -> None:
    yard = Yard(n1=8, n2=3)
    yard.runs("old", "n1", 1, until=2000.0)
    yard.waits("large", cores=8)
    yard.waits("long", cores=1, limit=1e6)
    assert yard.placed() == {"long": ["n2"]}


def test_the_head_moves_to_another_node_that_is_free_at_the_same_time() -> None:
    yard = Yard(n1=4, n2=4)
    yard.runs("old-1", "n1", 4, until=2000.0)
    yard.runs("old-2", "n2", 3, until=2000.0)
    yard.waits("large", cores=4)
    yard.waits("long", cores=1, limit=1e6)
    assert yard.placed() == {"long": ["n2"]}


def test_the_head_is_not_moved_by_two() -> None:
    yard = Yard(n1=4, n2=4)
    yard.runs("old-1", "n1", 3, until=2000.0)
    yard.runs("old-2", "n2", 3, until=2000.0)
    yard.waits("large", cores=4)
    yard.waits("long", cores=1, tasks=2, limit=1e6)
    assert len(yard.placed()["long"]) == 1


def test_a_tenant_without_a_limit_is_taken_to_run_as_long_as_policy_says() -> None:
    yard = a_busy_yard(until=None)
    yard.waits("short", cores=2, limit=100.0)
    yard.waits("shorter", cores=2, limit=50.0)
    assert yard.placed(Policy(assumed_run_s=60.0)) == {"shorter": ["n1"]}


def test_a_waiting_job_without_a_limit_is_never_over_in_time() -> None:
    yard = a_busy_yard(until=1000.0 + DAY)
    yard.waits("unlimited", cores=2)
    assert yard.placed() == {}
    yard.waits("limited", cores=2, limit=DAY)
    assert yard.placed() == {"limited": ["n1"]}


def test_a_tenant_that_is_overdue_may_leave_at_any_moment() -> None:
    yard = a_busy_yard(until=900.0)
    found = forecast(yard.snapshot(), yard.units["large"], Policy())
    assert found is not None and found.at == yard.now
    yard.waits("short", cores=2, limit=0.1)
    assert yard.placed() == {}


def test_those_before_the_head_are_not_asked_to_wait_for_it() -> None:
    yard = Yard(n1=4)
    yard.runs("old", "n1", 2, until=2000.0)
    yard.waits("urgent", cores=1, limit=1e6, priority=1)
    yard.waits("large", cores=4)
    assert yard.placed() == {"urgent": ["n1"]}


def test_what_the_same_plan_started_before_the_head_is_reckoned_with() -> None:
    yard = Yard(n1=4)
    yard.waits("first", cores=2, limit=500.0)
    yard.waits("large", cores=4)
    yard.waits("late", cores=2, limit=501.0)
    yard.waits("in-time", cores=1, limit=500.0)
    assert yard.placed() == {"first": ["n1"], "in-time": ["n1"]}


def test_who_was_evicted_in_the_same_plan_does_not_leave_once_more() -> None:
    yard = Yard(n1=5)
    yard.runs("low", "n1", 2, until=2000.0)
    yard.runs("other", "n1", 2, until=3000.0, priority=9)
    yard.waits("urgent", cores=2, priority=8)
    yard.waits("large", cores=3)
    yard.waits("in-time", cores=1, limit=1500.0)
    assert yard.placed() == {"urgent": ["n1"], "in-time": ["n1"]}


def test_one_that_could_never_run_is_looked_at_once_until_room_appears(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked: list[str] = []
    real = reserve

    def spy(draft, unit, policy, runs_s, kept):
        looked.append(unit.job.id)
        return real(draft, unit, policy, runs_s, kept)

    monkeypatch.setattr(head, "reserve", spy)
    yard = Yard(n1=4)
    yard.waits("giant", cores=64)
    yard.waits("a", cores=1)
    yard.go()
    yard.waits("b", cores=1)
    yard.go()
    assert looked == ["giant"]


def test_memory_and_devices_are_kept_as_cores_are() -> None:
    yard = Yard()
    yard.add_node("n1", 16, gpus=4)
    yard.runs("old", "n1", 1, gpus=(0,), until=2000.0)
    yard.waits("large", cores=1, gpus=4)
    yard.waits("one", cores=1, gpus=1, limit=1e6)
    yard.waits("none", cores=1, limit=1e6)
    assert yard.placed() == {"none": ["n1"]}


def test_devices_of_another_kind_are_not_kept() -> None:
    yard = Yard()
    yard.add_node("n1", 16, gpus="a100 a100 h100 h100")
    yard.runs("old", "n1", 1, gpus=(2,), until=2000.0)
    yard.waits("large", cores=1, gpus=2, kind="h100")
    yard.waits("same", cores=1, gpus=1, kind="h100", limit=1e6)
    yard.waits("other", cores=1, gpus=2, kind="a100", limit=1e6)
    assert yard.placed() == {"other": ["n1"]}


def test_a_tenant_of_another_kind_of_device_does_not_make_room() -> None:
    yard = Yard()
    yard.add_node("n1", 16, gpus="a100 h100")
    yard.runs("early", "n1", 1, gpus=(0,), until=1500.0)
    yard.runs("late", "n1", 1, gpus=(1,), until=2000.0)
    found = forecast(yard.snapshot(), yard.waits("large", gpus=1, kind="h100"), Policy())
    assert found is not None and found.at == 2000.0


def test_a_node_with_another_kind_of_device_does_not_make_room() -> None:
    yard = Yard()
    yard.add_node("n1", 16, gpus="a100")
    yard.add_node("n2", 16, gpus="h100")
    yard.runs("early", "n1", 1, gpus=(0,), until=1500.0)
    yard.runs("late", "n2", 1, gpus=(0,), until=2000.0)
    found = forecast(yard.snapshot(), yard.waits("large", gpus=1, kind="h100"), Policy())
    assert found is not None and (found.at, found.nodes) == (2000.0, ("n2",))


def test_a_head_with_named_devices_waits_for_those_who_hold_them() -> None:
    yard = Yard()
    yard.add_node("n1", 16, gpus=2)
    yard.add_node("n2", 16, gpus=2)
    yard.runs("early", "n1", 1, gpus=(1,), until=1500.0)
    yard.runs("late", "n1", 1, gpus=(0,), until=2000.0)
    unit = yard.waits("named", gpus=1, target="n1::0")
    found = forecast(yard.snapshot(), unit, Policy())
    assert found is not None and (found.at, found.nodes) == (2000.0, ("n1",))
    yard.waits("long", gpus=1, limit=1e6)
    yard.waits("in-time", cores=1, target="n1", limit=1000.0)
    assert yard.placed() == {"long": ["n2"], "in-time": ["n1"]}


def test_the_node_of_a_head_with_named_devices_is_kept_whole() -> None:
    yard = Yard()
    yard.add_node("n1", 16, gpus=3)
    yard.runs("old", "n1", 1, gpus=(1,), until=2000.0)
    yard.waits("named", gpus=2, target="n1::0,1")
    yard.waits("long", gpus=1, limit=1e6)
    yard.waits_whole("gang", 1, gpus=1, limit=1e6)
    yard.waits("cores", limit=1e6)
    assert yard.placed() == {}


def test_the_forecast_says_when_and_where() -> None:
    yard = Yard(n1=4, n2=4)
    yard.runs("old-1", "n1", 4, until=5000.0)
    yard.runs("old-2", "n2", 2, since=900.0)
    yard.runs("old-3", "n2", 2, since=950.0)
    found = forecast(yard.snapshot(), yard.waits("large", cores=4), Policy())
    assert found is not None
    assert (found.at, found.nodes, found.passes_s) == (5000.0, ("n1",), 4000.0)


def test_a_forecast_without_limits_says_where_and_what_lacks() -> None:
    yard = Yard(n1=4, n2=4)
    yard.runs("old-1", "n1", 4)
    yard.runs("old-2", "n2", 3)
    found = forecast(yard.snapshot(), yard.waits("large", cores=4), Policy(assumed_run_s=60.0))
    assert found is not None
    assert (found.at, found.nodes, found.passes_s) == (inf, ("n2",), 60.0)
    assert (found.lacks, found.unlimited) == ((("cores", 3, 4),), 1)


def test_there_is_no_forecast_for_what_never_fits() -> None:
    yard = Yard(n1=4)
    assert forecast(yard.snapshot(), yard.waits("giant", cores=5), Policy()) is None


def test_places_that_are_promised_are_reckoned_with() -> None:
    yard = Yard(n1=4)
    yard.runs("victim", "n1", 4, until=1500.0)
    yard.promise("preemptor", "n1", 4, until=3000.0)
    found = forecast(yard.snapshot(), yard.waits("large", cores=4), Policy())
    assert found is not None and found.at == 3000.0


def test_promised_devices_are_not_counted_twice() -> None:
    yard = Yard()
    yard.add_node("n1", 16, gpus=2)
    yard.runs("victim", "n1", 1, gpus=(0,), until=1500.0)
    yard.runs("old", "n1", 1, gpus=(1,), until=5000.0)
    yard.promise("preemptor", "n1", 1, gpus=(0,), until=3000.0)
    found = forecast(yard.snapshot(), yard.waits("one", gpus=1), Policy())
    assert found is not None and found.at == 3000.0


def test_one_that_is_held_back_is_told_for_whom_and_until_when() -> None:
    yard = a_busy_yard()
    unit = yard.waits("long", cores=2, limit=1e6)
    yard.plan()
    why = held_back(yard.snapshot(), unit, Policy())
    assert why is not None
    assert (why.code, why.tier) == ("ReservedForOther", Tier.POLICY)
    assert why.numbers == {"job": "large", "nodes": ["n1"], "at": 2000.0, "seconds": 1000.0}
    assert "large" in why.text and "at most 1000 s" in why.text


def test_without_backfill_it_is_told_that_nobody_passes() -> None:
    yard = a_busy_yard()
    unit = yard.waits("short", cores=2, limit=1.0)
    policy = Policy(backfill="none")
    yard.plan(policy)
    why = held_back(yard.snapshot(), unit, policy)
    assert why is not None and "nobody passes" in why.text


def test_the_head_itself_and_those_without_room_are_not_held_back() -> None:
    yard = a_busy_yard()
    other = yard.waits("other", cores=3)
    yard.plan()
    assert held_back(yard.snapshot(), yard.units["large"], Policy()) is None
    assert held_back(yard.snapshot(), other, Policy()) is None


def test_members_that_hold_a_part_already_count_for_the_multiple_of_the_head() -> None:
    """Two of four members stand on n1: the two that are left complete the multiple of four."""
    yard = Yard()
    yard.add_node("n1", 2, rack="r1")
    yard.add_node("n2", 2, rack="r1")
    yard.runs("old", "n2", 2, until=2000.0)
    gang = yard.waits_whole("gang", 4, must="rack", multiple=4, strict=False)
    gang.stands, gang.left = {0: 2}, [2, 3]
    yard.nodes.take(0, Grant(2, 0))
    with Draft(yard.snapshot()) as draft:
        found = reserve(draft, gang, Policy(), {})
    assert found is not None
    assert (found.at, found.nodes) == (2000.0, ("n2",))
