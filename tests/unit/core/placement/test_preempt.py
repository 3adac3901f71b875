"""Which tasks are evicted for more urgent ones, and when none is."""

from __future__ import annotations

from phalanx.core.model.plan import Policy
from phalanx.core.model.reason import Tier
from phalanx.core.model.tenants import NEVER
from phalanx.core.placement.draft import Draft
from phalanx.core.placement.preempt.make_room import make_room
from tests.support.full_cluster import LEAVING, NOW, FullCluster, a_gang, nodes_of, some, tasks


def full(*paths: str, gpus: int = 4, job: str = "low") -> FullCluster:
    """Every device of every node is held by a task of a separate job, low-n1-0 and so on."""
    cluster = FullCluster(*paths, gpus=gpus)
    for number in range(1, len(paths) + 1):
        for device in range(gpus):
            cluster.sits(f"{job}-n{number}-{device}", f"n{number}", device)
    return cluster


class TestWhoMayBeEvicted:
    def test_somebody_of_lower_priority(self):
        cluster = FullCluster("s/b/r", gpus=1)
        victim = cluster.sits("low", "n1", 0, priority=9)
        assert cluster.placement_for(a_gang(some(1), priority=10)).victims == (victim,)

    def test_nobody_of_the_same_priority(self):
        cluster = FullCluster("s/b/r", gpus=1)
        cluster.sits("low", "n1", 0, priority=10)
        assert cluster.refusal_of(a_gang(some(1), priority=10)).code == "NoVictims"

    def test_nobody_before_its_time(self):
        cluster = FullCluster("s/b/r", gpus=1)
        cluster.sits("low", "n1", 0, until=NOW + 1)
        no = cluster.refusal_of(a_gang(some(1)))
        assert no.code == "NoVictims" and no.numbers["protected"] == 1

    def test_nobody_who_says_never(self):
        cluster = FullCluster("s/b/r", gpus=1)
        cluster.sits("low", "n1", 0, until=NEVER)
        assert cluster.refusal_of(a_gang(some(1))).code == "NoVictims"

    def test_nobody_of_the_same_job(self):
        cluster = FullCluster("s/b/r", gpus=1)
        cluster.sits("urgent", "n1", 0)
        assert cluster.refusal_of(a_gang(some(1))).code == "NoVictims"

    def test_nobody_on_a_closed_node(self):
        cluster = FullCluster("s/b/r", gpus=1)
        cluster.sits("low", "n1", 0)
        cluster.nodes.set_open("n1", False)
        assert cluster.refusal_of(a_gang(some(1))).code == "NoVictims"

    def test_nobody_by_a_job_that_may_not(self):
        no = full("s/b/r").refusal_of(a_gang(some(1), may_evict=False))
        assert (no.code, no.tier) == ("EvictionForbidden", Tier.POLICY)

    def test_nobody_where_the_policy_forbids_it(self):
        assert full("s/b/r").refusal_of(a_gang(some(1)), Policy(evicts=False)).code == "EvictionForbidden"

    def test_nobody_for_members_that_are_not_needed(self):
        cluster = full("s/b/r")
        gang_placement = cluster.placement_for(a_gang(some(4, least=2)))
        assert len(gang_placement.members) == len(gang_placement.victims) == 2


class TestWholeOrNobody:
    def test_nobody_leaves_if_not_everybody_fits(self):
        cluster = full("s/b/r1", "s/b/r2")
        no = cluster.refusal_of(a_gang(some(3, gpus=4)))
        assert no.code == "EvictionsNotEnough" and no.tier is Tier.CAPACITY
        assert (no.numbers["wanted"], no.numbers["best"]) == (3, 2)

    def test_a_no_names_the_domain_that_comes_nearest(self):
        cluster = full("s/b1/r1", "s/b2/r2", "s/b2/r3")
        no = cluster.refusal_of(a_gang(some(3, gpus=4), must="block"))
        assert (no.numbers["best"], no.numbers["domain"]) == (2, ["s", "b2"])

    def test_a_place_is_given_to_one_member_only(self):
        """Koordinator's D1: several members were nominated to a node that holds one."""
        cluster = full("s/b/r1", "s/b/r2")
        gang_placement = cluster.placement_for(a_gang(some(2, gpus=4)))
        assert nodes_of(gang_placement) == ["n1", "n2"] and len(gang_placement.victims) == 8

    def test_the_draft_is_as_before_after_a_no(self):
        cluster = full("s/b/r1", "s/b/r2")
        draft = Draft(cluster.snapshot())
        before = [set(ledger.devices_free) for ledger in cluster.nodes]
        make_room(draft, a_gang(some(3, gpus=4)), Policy())
        assert before == [ledger.devices_free for ledger in cluster.nodes]
        assert draft.mark() == (0, 0, 0) and not draft.gone

    def test_the_draft_holds_members_instead_of_victims_after_a_yes(self):
        cluster = FullCluster("s/b/r", gpus=2)
        cluster.sits("low", "n1", 0)
        cluster.sits("other", "n1", 1, priority=99)
        draft = Draft(cluster.snapshot())
        make_room(draft, a_gang(some(1)), Policy())
        assert cluster.nodes.ledger("n1").devices_held == {0, 1}
        assert [
            gang_placement.members[0].grant.devices for gang_placement in draft.plan().gang_placements
        ] == [(0,)]


class TestFewest:
    def test_no_more_leave_than_have_to(self):
        """One device is needed, so one of eight leaves (volcano#5984: needed 1, evicted 10)."""
        cluster = FullCluster("s/b/r", gpus=8)
        for device in range(8):
            cluster.sits("low", "n1", device)
        assert len(cluster.placement_for(a_gang(some(1))).victims) == 1

    def test_a_free_node_is_as_good_as_any(self):
        """A node without victims counts too (volcano#3291)."""
        cluster = FullCluster("s/b/r1", "s/b/r2")
        for device in range(4):
            cluster.sits("low", "n1", device)
        gang_placement = cluster.placement_for(a_gang(some(2, gpus=4)))
        assert nodes_of(gang_placement) == ["n1", "n2"] and len(gang_placement.victims) == 4

    def test_nobody_leaves_for_one_that_fits(self):
        cluster = FullCluster("s/b/r1", "s/b/r2")
        cluster.sits("low", "n1", 0)
        assert cluster.placement_for(a_gang(some(4))).victims == ()

    def test_a_holder_stays_if_another_device_will_do(self):
        cluster = FullCluster("s/b/r", gpus=4)
        for device in (0, 1, 2):
            cluster.sits(f"low-{device}", "n1", device, ran=device)
        gang_placement = cluster.placement_for(a_gang(some(2)))
        assert sorted(member.grant.devices for member in gang_placement.members) == [(0,), (3,)]

    def test_one_job_is_broken_rather_than_two(self):
        cluster = FullCluster("s/b/r1", "s/b/r2", gpus=2)
        cluster.sits("one", "n1", 0), cluster.sits("two", "n1", 1)
        cluster.sits("same", "n2", 0, ran=9000), cluster.sits("same", "n2", 1, ran=9000)
        assert cluster.leaving(a_gang(some(1, gpus=2))) == ["same", "same"]

    def test_one_job_on_two_nodes_is_broken_rather_than_two_jobs_on_one(self):
        cluster = FullCluster("s/b/r1", "s/b/r2", gpus=2)
        cluster.sits("one", "n1", 0), cluster.sits("one", "n2", 0, ran=500)
        cluster.sits("two", "n1", 1), cluster.sits("three", "n2", 1)
        assert cluster.leaving(a_gang(some(2))) == ["one", "one"]

    def test_a_large_node_with_many_small_tasks_is_not_dear(self):
        """Koordinator's D3: its cost was that of all tasks which could leave, not of those which had to."""
        cluster = FullCluster("s/b/r1", "s/b/r2", gpus=8)
        for device in range(8):
            cluster.sits(f"small-{device}", "n1", device, priority=0)
            if device < 1:
                cluster.sits("large", "n2", *range(8), priority=5)
        assert cluster.leaving(a_gang(some(1)))[0].startswith("small")

    def test_the_least_urgent_leaves(self):
        cluster = FullCluster("s/b/r", gpus=3)
        cluster.sits("three", "n1", 0, priority=3), cluster.sits("two", "n1", 1, priority=2, ran=9000)
        cluster.sits("four", "n1", 2, priority=4)
        assert cluster.leaving(a_gang(some(1))) == ["two"]

    def test_of_equals_the_one_that_lost_least_leaves(self):
        cluster = FullCluster("s/b/r1", "s/b/r2", gpus=1)
        cluster.sits("long", "n1", 0, ran=500), cluster.sits("short", "n2", 0, ran=5)
        assert cluster.leaving(a_gang(some(1))) == ["short"]

    def test_lost_work_is_counted_in_devices(self):
        cluster = FullCluster("s/b/r1", "s/b/r2", gpus=4)
        cluster.sits("wide", "n1", 0, 1, 2, 3, ran=100), cluster.sits("narrow", "n2", 0, ran=300)
        for device in (1, 2, 3):
            cluster.sits("kept", "n2", device, priority=99)
        assert cluster.leaving(a_gang(some(1))) == ["narrow"]


class TestGangsThatAreInTheWay:
    def test_a_gang_leaves_whole(self):
        cluster = FullCluster("s/b/r1", "s/b/r2", gpus=1)
        keys = [cluster.sits("old", "n1", 0), cluster.sits("old", "n2", 0)]
        cluster.is_gang("old", 2)
        assert cluster.placement_for(a_gang(some(1))).victims == tuple(keys)

    def test_a_gang_leaves_closed_nodes_too(self):
        cluster = FullCluster("s/b/r1", "s/b/r2", gpus=1)
        keys = [cluster.sits("old", "n1", 0), cluster.sits("old", "n2", 0)]
        cluster.is_gang("old", 2)
        cluster.nodes.set_open("n2", False)
        assert cluster.placement_for(a_gang(some(1))).victims == tuple(keys)

    def test_only_members_that_it_can_do_without_leave(self):
        cluster = FullCluster("s/b/r", gpus=4)
        for device in range(4):
            cluster.sits("old", "n1", device, ran=device)
        cluster.is_gang("old", 2)
        assert len(cluster.placement_for(a_gang(some(2))).victims) == 2

    def test_a_gang_is_not_left_under_its_minimum(self):
        cluster = FullCluster("s/b/r", gpus=4)
        for device in range(4):
            cluster.sits("old", "n1", device)
        cluster.is_gang("old", 2)
        assert len(cluster.placement_for(a_gang(some(3))).victims) == 4

    def test_each_group_keeps_its_minimum(self):
        cluster = FullCluster("s/b/r1", "s/b/r2", gpus=2)
        keys = [cluster.sits("old", "n1", device, group=0) for device in range(2)]
        keys += [cluster.sits("old", "n2", device, group=1) for device in range(2)]
        cluster.is_gang("old", 2, 1)
        victims = cluster.placement_for(a_gang(some(1))).victims
        assert len(victims) == 1 and victims[0] in keys[2:]

    def test_which_member_a_gang_gives_up_is_tried_node_by_node_if_it_cannot_leave_whole(self):
        """The member on n1 would make room for more, but only the one on n2 makes room for the task that names n2."""
        cluster = FullCluster(*["s1/b1/r1"] * 4, gpus=2)
        cluster.is_gang("gang", 2)
        cluster.sits("gang", "n1", 0, 1)
        given_up = cluster.sits("gang", "n2", 0)
        cluster.sits("gang", "n4", 0, 1, until=NOW + 100)
        cluster.sits("equal", "n2", 1, priority=10)
        task = cluster.sits("task", "n3", 0, 1)
        gang_placement = cluster.placement_for(a_gang(some(1, target="n2"), some(2)))
        assert gang_placement.victims == (given_up, task)

    def test_a_gang_with_a_protected_member_gives_up_surplus_only(self):
        cluster = FullCluster("s/b/r", gpus=3)
        cluster.sits("old", "n1", 0, until=NOW + 50)
        cluster.sits("old", "n1", 1), cluster.sits("old", "n1", 2)
        cluster.is_gang("old", 2)
        assert len(cluster.placement_for(a_gang(some(1))).victims) == 1
        assert cluster.refusal_of(a_gang(some(2))).code == "EvictionsNotEnough"

    def test_a_surplus_member_leaves_where_it_is_of_use(self):
        cluster = FullCluster("s/b/r1", "s/b/r2", gpus=2)
        cluster.sits("old", "n1", 0, ran=1), cluster.sits("old", "n2", 0, ran=900)
        cluster.sits("old", "n1", 1, ran=1, until=NOW + 50)
        cluster.is_gang("old", 2)
        assert nodes_of(cluster.placement_for(a_gang(some(1, gpus=2)))) == ["n2"]

    def test_of_two_members_the_one_with_the_fitting_device_leaves(self):
        cluster = FullCluster("s/b/r", kinds="a100 h100 h100")
        for device in range(2):
            cluster.sits("old", "n1", device, ran=9 * device)
        cluster.sits("alone", "n1", 2)
        cluster.is_gang("old", 1)
        (victim,) = cluster.placement_for(a_gang(some(1, kind="h100"))).victims
        assert victim == ("n1", 2)

    def test_another_member_is_spared_where_the_first_choice_does_not_do(self):
        cluster = FullCluster("s/b/r1", "s/b/r2", gpus=4)
        cluster.sits("old", "n1", 0, 1, ran=1), cluster.sits("old", "n1", 2, 3, ran=1)
        cluster.sits("old", "n2", 0, 1, ran=900), cluster.sits("old", "n2", until=NOW + 50)
        cluster.sits("alone", "n2", 2), cluster.sits("kept", "n2", 3, priority=99)
        cluster.is_gang("old", 3)
        assert (
            nodes_of(cluster.placement_for(a_gang(some(1, gpus=3), some(1, gpus=0, cores=1)))).count("n2") > 0
        )

    def test_a_member_in_nobodys_way_stays(self):
        cluster = FullCluster("s/b/r1", "s/b/r2", gpus=2)
        (
            cluster.sits("old", "n1", cores=1),
            cluster.sits("old", "n2", 0),
            cluster.sits("old", "n2", until=NOW + 50),
        )
        cluster.sits("kept", "n2", 1, priority=99)
        cluster.is_gang("old", 2)
        assert nodes_of(cluster.placement_for(a_gang(some(3)))) == ["n1", "n1", "n2"]

    def test_surplus_leaves_before_a_job_is_broken(self):
        cluster = FullCluster("s/b/r1", "s/b/r2", gpus=2)
        cluster.sits("old", "n1", 0, ran=900, priority=8), cluster.sits("old", "n1", 1, ran=900, priority=8)
        cluster.sits("alone", "n2", 0, ran=1), cluster.sits("kept", "n2", 1, priority=99)
        cluster.is_gang("old", 1)
        assert cluster.leaving(a_gang(some(1))) == ["old"]

    def test_members_that_were_told_to_go_do_not_count_for_the_minimum(self):
        cluster = FullCluster("s/b/r1", gpus=4)
        for device in range(4):
            cluster.sits("old", "n1", device, until=LEAVING if device > 1 else 0.0)
        cluster.is_gang("old", 2)
        assert cluster.leaving(a_gang(some(1))) == ["old", "old"]


class TestWhere:
    def test_a_must_rule_holds_among_the_evictions(self):
        cluster = full("s/b1/r1", "s/b1/r1", "s/b2/r2", "s/b2/r2")
        gang_placement = cluster.placement_for(a_gang(some(2, gpus=4), must="rack"))
        assert nodes_of(gang_placement) in (["n1", "n2"], ["n3", "n4"])

    def test_bound_members_pin_the_domain(self):
        cluster = full("s/b1/r1", "s/b2/r2")
        assert nodes_of(cluster.placement_for(a_gang(some(1), must="rack", bound={1: 1}))) == ["n2"]

    def test_the_domain_that_costs_fewer_jobs_is_taken(self):
        """Koordinator's D2: among equal domains the more costly one was preferred."""
        cluster = FullCluster("s/b1/r1", "s/b2/r2", gpus=2)
        cluster.sits("one", "n1", 0), cluster.sits("two", "n1", 1)
        cluster.sits("three", "n2", 0), cluster.sits("three", "n2", 1)
        assert cluster.leaving(a_gang(some(2), must="rack")) == ["three", "three"]

    def test_fewer_evictions_win_over_standing_closer(self):
        cluster = FullCluster("s/b1/r1", "s/b2/r2", gpus=2)
        cluster.sits("one", "n1", 0), cluster.sits("two", "n2", 0), cluster.sits("three", "n2", 1)
        gang_placement = cluster.placement_for(a_gang(some(2), prefer="rack"))
        assert len(gang_placement.victims) == 1

    def test_of_equal_prices_the_closer_domain_is_taken(self):
        cluster = FullCluster("s/b1/r1", "s/b2/r2", "s/b2/r2", gpus=2)
        for node in ("n1", "n2", "n3"):
            cluster.sits(f"low-{node}", node, 0), cluster.sits(f"kept-{node}", node, 1, priority=99)
        assert nodes_of(cluster.placement_for(a_gang(some(2), prefer="rack"))) == ["n2", "n3"]

    def test_an_unknown_must_layer_is_said(self):
        no = full("s/b/r").refusal_of(a_gang(some(1), must="Rack"))
        assert no.code == "MustGatherImpossible" and no.numbers["nearest"] == "rack"

    def test_multiples_are_kept(self):
        cluster = full("s/b/r1", "s/b/r2", gpus=3)
        counts = sorted(map(nodes_of(cluster.placement_for(a_gang(some(4), multiple=2))).count, ("n1", "n2")))
        assert counts == [2, 2]


class TestRequests:
    def test_room_is_made_on_the_node_that_is_named(self):
        cluster = full("s/b/r1", "s/b/r2")
        assert nodes_of(cluster.placement_for(tasks(some(1, target="n2")))) == ["n2"]

    def test_the_holder_of_a_named_device_leaves(self):
        cluster = full("s/b/r1")
        assert cluster.leaving(tasks(some(1, target="n1::2"))) == ["low-n1-2"]

    def test_only_a_fitting_device_is_of_use(self):
        cluster = FullCluster("s/b/r", kinds="a100 h100")
        cluster.sits("a", "n1", 0), cluster.sits("h", "n1", 1, ran=900)
        assert cluster.leaving(a_gang(some(1, kind="h100"))) == ["h"]

    def test_shapes_that_share_a_node_get_the_devices_they_need(self):
        cluster = FullCluster("s/b/r", kinds="a100 h100 h100")
        for device in range(3):
            cluster.sits(f"low-{device}", "n1", device)
        gang_placement = cluster.placement_for(a_gang(some(1, gpus=2), some(1, kind="a100")))
        assert [member.grant.devices for member in gang_placement.members] == [(1, 2), (0,)]

    def test_cores_alone_may_be_what_is_lacking(self):
        cluster = FullCluster("s/b/r", gpus=2, cores=4)
        cluster.sits("cores", "n1", cores=4)
        assert cluster.leaving(a_gang(some(1, cores=2))) == ["cores"]

    def test_of_a_group_the_first_ready_task_gets_room(self):
        gang_placement = full("s/b/r").placement_for(tasks(some(5), done=3))
        assert [member.position for member in gang_placement.members] == [3]

    def test_a_gang_that_has_all_it_needs_evicts_nobody(self):
        unit = a_gang(some(2))
        unit.wanted = lambda: ()  # type: ignore[method-assign]
        assert full("s/b/r").refusal_of(unit).code == "EvictionForbidden"

    def test_the_trigger_is_the_first_without_room(self):
        cluster = FullCluster("s/b/r", gpus=4)
        cluster.sits("low", "n1", 0), cluster.sits("low", "n1", 1)
        assert cluster.placement_for(a_gang(some(3))).trigger == 2
