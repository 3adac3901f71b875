"""Evictions beside promises, quotas and each other: what one draft may count on, and what it may not."""

from __future__ import annotations

from msgspec import structs

from phalanx.core.model.plan import GangPlacement, Policy
from phalanx.core.model.queues import Quota
from phalanx.core.placement.draft import Draft
from phalanx.core.placement.preempt.make_room import NoEvictions, make_room
from tests.support.full_cluster import LEAVING, NOW, FullCluster, a_gang, nodes_of, some, tasks


def full(*paths: str, gpus: int = 4, job: str = "low") -> FullCluster:
    """Every device of every node is held by a task of a separate job, low-n1-0 and so on."""
    cluster = FullCluster(*paths, gpus=gpus)
    for number in range(1, len(paths) + 1):
        for device in range(gpus):
            cluster.sits(f"{job}-n{number}-{device}", f"n{number}", device)
    return cluster


class TestPromises:
    def test_a_place_kept_for_a_less_urgent_job_is_taken_back(self):
        cluster = FullCluster("s/b/r1", "s/b/r2", gpus=1)
        cluster.is_promised("waiting", "n1", 0), cluster.is_promised("waiting", "n2", 0)
        gang_placement = cluster.placement_for(a_gang(some(1)))
        assert (gang_placement.victims, gang_placement.displaced) == ((), ("waiting",))

    def test_nothing_is_taken_back_from_a_more_urgent_job(self):
        cluster = FullCluster("s/b/r1", gpus=1)
        cluster.is_promised("waiting", "n1", 0, priority=10)
        assert cluster.refusal_of(a_gang(some(1))).code == "NoVictims"

    def test_a_promise_goes_before_work_is_lost(self):
        cluster = FullCluster("s/b/r1", "s/b/r2", gpus=1)
        cluster.sits("low", "n1", 0), cluster.is_promised("waiting", "n2", 0, priority=9)
        assert cluster.placement_for(a_gang(some(1))).victims == ()

    def test_a_device_that_is_still_held_is_taken_over_with_its_promise_and_its_holder_waited_for(self):
        cluster = FullCluster("s/b/r1", gpus=1)
        leaving = cluster.sits("leaving", "n1", 0, until=LEAVING)
        cluster.is_promised("waiting", "n1", 0)
        gang_placement = cluster.placement_for(a_gang(some(1)))
        assert (gang_placement.victims, gang_placement.displaced, gang_placement.awaited) == (
            (),
            ("waiting",),
            (leaving,),
        )

    def test_a_device_that_is_still_held_is_not_free_when_its_promise_cannot_be_taken_over(self):
        cluster = FullCluster("s/b/r1", gpus=2)
        cluster.sits("leaving", "n1", 0, until=LEAVING), cluster.sits("low", "n1", 1)
        cluster.is_promised("waiting", "n1", 0, priority=99)
        assert cluster.refusal_of(a_gang(some(2))).code == "EvictionsNotEnough"

    def test_only_those_on_their_way_out_are_waited_for_whose_place_is_needed(self):
        cluster = FullCluster("s/b/r1", gpus=2)
        cluster.sits("leaving", "n1", 0, until=LEAVING)
        unclaimed = cluster.sits("gone", "n1", 1, until=LEAVING)
        cluster.is_promised("waiting", "n1", 0)
        gang_placement = cluster.placement_for(a_gang(some(1)))
        assert (gang_placement.displaced, gang_placement.awaited) == ((), (unclaimed,))


class TestQuotas:
    def test_leaving_frees_quota_of_the_same_queue(self):
        cluster = FullCluster("s/b/r1", gpus=4)
        mine = cluster.sits("mine", "n1", 0, ran=900)
        cluster.sits("other", "n1", 1, queue="other")
        cluster.queues.quotas["default"] = Quota(gpus=1)
        assert cluster.placement_for(a_gang(some(1))).victims == (mine,)

    def test_quota_that_nobody_can_free_is_the_reason(self):
        cluster = FullCluster("s/b/r1", gpus=4)
        cluster.sits("mine", "n1", 0, priority=99), cluster.sits("low", "n1", 1, queue="other")
        cluster.queues.quotas["default"] = Quota(gpus=1)
        assert cluster.refusal_of(a_gang(some(1))).code == "QuotaExhausted"

    def test_quota_is_freed_on_closed_nodes_too(self):
        cluster = FullCluster("s/b/r1", "s/b/r2", gpus=1)
        mine = cluster.sits("mine", "n1", 0)
        cluster.nodes.set_open("n1", False)
        cluster.queues.quotas["default"] = Quota(gpus=1)
        assert cluster.placement_for(a_gang(some(1))).victims == (mine,)

    def test_one_leaves_for_the_quota_and_another_for_the_room(self):
        cluster = FullCluster("s/b/r1", "s/b/r2", gpus=2)
        cluster.sits("mine", "n1", 0), cluster.sits("kept", "n1", 1, priority=99, queue="other")
        cluster.sits("other", "n2", 0, 1, queue="other")
        cluster.queues.quotas["default"] = Quota(tasks=1)
        assert cluster.leaving(a_gang(some(1, gpus=2))) == ["mine", "other"]

    def test_a_queue_over_its_quota_holds_up_nobody_who_asks_for_none_of_it(self):
        """Found by the simulator (seed 830000886), as a coordinator that could not continue."""
        cluster = FullCluster("s/b/r1", gpus=2, cores=4)
        (
            cluster.sits("low", "n1", 0, 1, priority=99, cores=3),
            cluster.sits("other", "n1", cores=1, queue="other"),
        )
        cluster.queues.quotas["default"] = Quota(gpus=1)
        assert cluster.leaving(a_gang(some(1, gpus=0, cores=1))) == ["other"]


class TestOneDraft:
    def test_nobody_is_evicted_twice(self):
        cluster = FullCluster("s/b/r1", gpus=2)
        cluster.sits("low", "n1", 0), cluster.sits("low", "n1", 1)
        draft = Draft(cluster.snapshot())
        for _ in range(2):
            make_room(draft, a_gang(some(1)), Policy())
        victims = [key for gang_placement in draft.plan().gang_placements for key in gang_placement.victims]
        assert len(victims) == len(set(victims)) == 2

    def test_nobody_who_was_just_given_places_is_evicted(self):
        cluster = FullCluster("s/b/r1", "s/b/r2", gpus=1)
        cluster.sits("other", "n1", 0, priority=5)
        cluster.is_gang("other", 2)
        cluster.sits("low", "n2", 0)
        draft = Draft(cluster.snapshot())
        first = a_gang(some(1), priority=5)
        first.job = structs.replace(first.job, id="other")
        answers = [make_room(draft, unit, Policy()) for unit in (first, a_gang(some(1), priority=9))]
        assert isinstance(answers[0], GangPlacement) and isinstance(answers[1], NoEvictions)

    def test_surplus_is_given_up_once(self):
        cluster = FullCluster("s/b/r1", gpus=3)
        for device in range(3):
            cluster.sits("old", "n1", device, until=NOW + 50 if device == 2 else 0.0)
        cluster.is_gang("old", 2)
        draft = Draft(cluster.snapshot())
        answers = [make_room(draft, a_gang(some(1)), Policy()) for _ in range(2)]
        assert len(draft.plan().gang_placements) == 1, answers

    def test_the_answer_does_not_depend_on_who_came_first(self):
        answers = []
        for order in (range(8), reversed(range(8))):
            cluster = FullCluster("s/b/r1", "s/b/r2", gpus=4)
            for at in order:
                cluster.sits(f"job-{at}", f"n{at // 4 + 1}", at % 4)
            answers.append(
                (cluster.leaving(a_gang(some(3))), nodes_of(cluster.placement_for(a_gang(some(3)))))
            )
        assert answers[0] == answers[1]


class TestNothingThere:
    def test_an_empty_cluster_has_nobody_to_evict(self):
        assert FullCluster().refusal_of(a_gang(some(1))).code == "NoVictims"

    def test_a_group_without_a_ready_task_evicts_nobody(self):
        assert full("s/b/r").refusal_of(tasks(some(2), done=2)).code == "EvictionForbidden"

    def test_victims_that_are_of_no_use_are_counted_in_the_reason(self):
        cluster = FullCluster("s/b/r", gpus=2)
        cluster.sits("low", "n1", 0), cluster.sits("low", "n1", 1, until=NOW + 9)
        no = cluster.refusal_of(a_gang(some(3)))
        assert (no.numbers["victims"], no.numbers["protected"], no.numbers["best"]) == (1, 1, 1)
