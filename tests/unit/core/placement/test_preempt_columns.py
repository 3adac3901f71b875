"""Preemption over columns: what could leave, what becomes free then, what it costs, which jobs give way."""

from __future__ import annotations

import numpy as np

from phalanx.core.model.resources import Grant, Request
from phalanx.core.model.waiting import Part
from phalanx.core.placement.draft import Draft
from phalanx.core.placement.preempt.free import FreeAfter, Measure, Offers
from phalanx.core.placement.preempt.victim_search import VictimSearch, _Ranking
from phalanx.core.placement.preempt.victims import Loss, Price, Victims, bundled, total
from tests.support.full_cluster import FullCluster, a_gang, some

H100 = Request(cores=0, gpus=1)


def victims_of(cluster: FullCluster) -> Victims:
    return Victims(Draft(cluster.snapshot()), a_gang(some(1)).job)


def room_of(cluster: FullCluster, need: int = 4, request: Request = H100) -> FreeAfter:
    victims = victims_of(cluster)
    measure = Measure(cluster.nodes, [Part(request, need, need)], victims)
    return FreeAfter.over(measure, np.flatnonzero(cluster.nodes.open), np.arange(len(victims)))


class TestVictims:
    def test_a_job_without_a_minimum_loses_work(self):
        cluster = FullCluster("s/b/r")
        cluster.sits("low", "n1", 0)
        assert victims_of(cluster).losses(np.ones(1, dtype=np.int64)).tolist() == [Loss.WORK]

    def test_a_member_that_is_of_no_use_is_not_given_up(self):
        cluster = FullCluster("s/b/r")
        cluster.sits("old", "n1", 0), cluster.sits("old", "n1", 1)
        cluster.is_gang("old", 1)
        assert victims_of(cluster).losses(np.array([0, 1])).tolist() == [Loss.WORK, Loss.SURPLUS]

    def test_as_many_members_as_a_gang_can_spare_are_surplus(self):
        cluster = FullCluster("s/b/r")
        for device, ran in enumerate((30, 10, 20)):
            cluster.sits("old", "n1", device, ran=ran)
        cluster.is_gang("old", 2)
        losses = victims_of(cluster).losses(np.ones(3, dtype=np.int64))
        assert losses.tolist() == [Loss.WORK, Loss.SURPLUS, Loss.WORK]

    def test_the_most_useful_member_is_given_up(self):
        cluster = FullCluster("s/b/r")
        cluster.sits("old", "n1", 0, ran=5), cluster.sits("old", "n1", 1, ran=900)
        cluster.is_gang("old", 1)
        assert victims_of(cluster).losses(np.array([1, 2])).tolist() == [Loss.WORK, Loss.SURPLUS]

    def test_lost_work_is_nothing_for_a_promise(self):
        cluster = FullCluster("s/b/r")
        cluster.is_promised("waiting", "n1", 0, 1)
        assert victims_of(cluster).lost.tolist() == [0.0]

    def test_lost_work_is_counted_in_devices_or_else_in_cores(self):
        cluster = FullCluster("s/b/r")
        cluster.sits("low", "n1", 0, 1, ran=50), cluster.sits("cores", "n1", cores=3, ran=7)
        assert victims_of(cluster).lost.tolist() == [100.0, 21.0]


class TestPrice:
    def test_fewer_broken_jobs_are_cheaper_than_anything(self):
        assert Price(1, 9, 9, (9,), 9e9) < Price(2, 0, 0, (0, 0), 0.0)

    def test_lower_priorities_are_cheaper_than_less_lost_work(self):
        assert Price(2, priorities=(4, 4), lost=9.0) < Price(2, priorities=(5, 0), lost=1.0)

    def test_bundles_cost_what_their_tenants_do(self):
        cluster = FullCluster("s/b/r1", "s/b/r2")
        cluster.sits("alone", "n1", 0, priority=2), cluster.sits("old", "n1", 1), cluster.sits("old", "n2", 0)
        (
            cluster.sits("spare", "n1", 2),
            cluster.sits("spare", "n2", 1),
            cluster.is_promised("waiting", "n1", 3),
        )
        cluster.is_gang("old", 2)
        cluster.is_gang("spare", 1)
        victims = victims_of(cluster)
        places = np.flatnonzero(victims.node == 0)
        alone, others = bundled(victims, victims.losses((victims.node == 0).astype(np.int64)), places)
        bundles = [*alone.values(), *others]
        assert (total(bundles).broken, total(bundles).shrunk, total(bundles).displaced) == (2, 1, 1)


class TestRoom:
    def test_slots_grow_with_those_who_leave(self):
        cluster = FullCluster("s/b/r1", "s/b/r2", gpus=2)
        cluster.sits("a", "n1", 0), cluster.sits("b", "n2", 0, 1)
        room = room_of(cluster)
        assert room.slots()[0].tolist() == [1, 0]
        assert room.slots(np.array([False, True]))[0].tolist() == [1, 2]

    def test_more_than_is_promised_away_is_no_room(self):
        cluster = FullCluster("s/b/r1", gpus=2, cores=2)
        cluster.sits("a", "n1", cores=2)
        cluster.nodes.promise(0, Grant(2, 0))
        assert room_of(cluster).slots()[0].tolist() == [0]

    def test_a_promise_on_a_held_device_frees_nothing(self):
        cluster = FullCluster("s/b/r1", gpus=1)
        cluster.sits("a", "n1", 0, priority=99), cluster.is_promised("waiting", "n1", 0)
        room = room_of(cluster)
        assert room.slots(np.ones(1, dtype=np.bool_))[0].tolist() == [0]

    def test_nodes_that_could_never_take_it_have_no_slots(self):
        cluster = FullCluster("s/b/r1", gpus=2)
        room = room_of(cluster, request=Request(cores=0, gpus=1, labels=(("zone", "a"),)))
        assert room.slots()[0].tolist() == [0]


class TestOffers:
    def test_the_cheapest_slots_of_all_nodes_are_taken(self):
        cluster = FullCluster("s/b/r1", "s/b/r2", gpus=2)
        for node, device, ran in (("n1", 0, 50), ("n1", 1, 10), ("n2", 0, 40), ("n2", 1, 20)):
            cluster.sits(f"{node}-{ran}", node, device, ran=ran)
        room = room_of(cluster)
        offers = Offers(room, np.ones(4, dtype=np.bool_), room.measure.victims.lost)
        assert offers.cheapest(2).tolist() == [1, 1]
        assert offers.cheapest(3).tolist() == [1, 2]

    def test_slots_that_come_together_are_priced_together(self):
        cluster = FullCluster("s/b/r1", "s/b/r2", gpus=2)
        cluster.sits("wide", "n1", 0, 1, ran=30)
        cluster.sits("a", "n2", 0, ran=45), cluster.sits("b", "n2", 1, ran=45)
        room = room_of(cluster)
        offers = Offers(room, np.ones(3, dtype=np.bool_), room.measure.victims.lost)
        assert offers.cheapest(2).tolist() == [2, 0]

    def test_free_slots_cost_nothing(self):
        cluster = FullCluster("s/b/r1", "s/b/r2", gpus=2)
        cluster.sits("a", "n1", 0, 1)
        room = room_of(cluster)
        assert Offers(room, np.ones(1, dtype=np.bool_), np.ones(1)).cheapest(2).tolist() == [0, 2]


class TestClearance:
    def choices(self, cluster: FullCluster, need: int) -> list[set[str]]:
        room = room_of(cluster, need)
        victims = room.measure.victims
        losses = victims.losses(np.ones(len(victims), dtype=np.int64))
        fits = lambda leaving: int(room.slots(leaving)[0].sum()) >= need  # noqa: E731
        found = VictimSearch(room, losses, fits).choices()
        return [{victims.id(int(victims.job[at])) for at in room.at[each.leaving]} for each in found]

    def test_the_job_that_is_enough_alone_gives_way(self):
        cluster = FullCluster("s/b/r1", gpus=4)
        cluster.sits("one", "n1", 0), cluster.sits("two", "n1", 1), cluster.sits("three", "n1", 2, 3)
        assert self.choices(cluster, 2) == [{"three"}]

    def test_every_choice_of_the_fewest_jobs_is_given(self):
        cluster = FullCluster("s/b/r1", gpus=3)
        for device in range(3):
            cluster.sits(f"job-{device}", "n1", device, ran=30 - device)
        assert self.choices(cluster, 1) == [{"job-2"}, {"job-1"}, {"job-0"}]

    def test_nobody_loses_work_where_surplus_is_enough(self):
        cluster = FullCluster("s/b/r1", gpus=3)
        cluster.sits("old", "n1", 0), cluster.sits("old", "n1", 1), cluster.sits("alone", "n1", 2)
        cluster.is_gang("old", 1)
        assert self.choices(cluster, 1) == [{"old"}]

    def test_surplus_that_is_not_needed_in_the_end_is_let_off(self):
        cluster = FullCluster("s/b/r1", "s/b/r2", gpus=2)
        cluster.sits("old", "n1", 0), cluster.sits("old", "n1", 1), cluster.sits("big", "n2", 0, 1)
        cluster.is_gang("old", 1)
        assert self.choices(cluster, 2)[0] == {"big"}

    def test_the_most_helpful_job_comes_first(self):
        cluster = FullCluster("s/b/r1", gpus=8)
        cluster.sits("one", "n1", 0), cluster.sits("three", "n1", 1, 2, 3), cluster.sits("two", "n1", 4, 5)
        cluster.sits("kept", "n1", 6, 7, priority=99)
        room = room_of(cluster, 8)
        victims = room.measure.victims
        clearance = VictimSearch(room, victims.losses(np.zeros(3, dtype=np.int64)), lambda _: True)
        nobody = np.zeros((len(Loss), victims.jobs), dtype=np.bool_)
        ranking = _Ranking(clearance, nobody, Loss.WORK)
        assert [victims.id(int(job)) for job in ranking.after([])] == ["three", "two", "one"]
        assert [victims.id(int(job)) for job in ranking.after([int(ranking.after([])[0])])] == ["two", "one"]

    def test_nothing_is_chosen_where_nothing_is_enough(self):
        cluster = FullCluster("s/b/r1", gpus=2)
        cluster.sits("one", "n1", 0)
        assert self.choices(cluster, 3) == []
