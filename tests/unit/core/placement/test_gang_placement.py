"""A gang in a draft: all of it or none, every member with its exact grant, and one reason when there is no room."""

from __future__ import annotations

import pytest

from phalanx.core.explain.shortage import place_gang
from phalanx.core.model.job import Gather
from phalanx.core.model.plan import GangPlacement
from phalanx.core.model.queues import Quota
from phalanx.core.model.reason import Reason, Tier
from phalanx.core.model.resources import Cores, Grant
from phalanx.core.model.tenants import NEVER, Tenant
from phalanx.core.model.waiting import Ask
from phalanx.core.placement.draft import Draft
from phalanx.core.placement.gang import packing
from phalanx.core.placement.gang.grants import take_grants
from tests.support.topologies import a_draft, a_waiting_gang, some
from tests.support.waiting_units import FakeGang


def must(layer: str) -> tuple[Gather, ...]:
    return (Gather(layer, must=True),)


def placed(draft: Draft, owner: FakeGang, *, partial: bool = False) -> dict[int, str]:
    """The node of each position, in the order of the gang placement."""
    found = place_gang(draft, owner, partial=partial)
    assert isinstance(found, GangPlacement), found
    assert list(draft.gang_placements)[-1] == found
    return {member.position: member.node for member in found.members}


def refused(draft: Draft, owner: FakeGang, *, partial: bool = False) -> Reason:
    before = free(draft)
    found = place_gang(draft, owner, partial=partial)
    assert isinstance(found, Reason), found
    assert (free(draft), draft.size) == (before, 0), "the draft is as it was"
    return found


def free(draft: Draft) -> list[tuple[Cores, set[int]]]:
    return [(ledger.cores_free, set(ledger.devices_free)) for ledger in draft.nodes]


def test_all_members_get_a_grant_each_and_the_draft_holds_them():
    draft = a_draft("s1/b1/r1", "s1/b1/r1", cores=4, gpus="h100 h100")
    found = place_gang(draft, a_waiting_gang(some(4, cores=1, gpus=1), gather=must("rack")))
    assert isinstance(found, GangPlacement)
    assert [(each.node, each.grant) for each in found.members] == [
        ("n1", Grant(1, 0, (0,))),
        ("n1", Grant(1, 0, (1,))),
        ("n2", Grant(1, 0, (0,))),
        ("n2", Grant(1, 0, (1,))),
    ]
    assert free(draft) == [(2, set()), (2, set())]
    assert draft.size == 4


def test_none_is_placed_if_one_is_too_many():
    draft = a_draft("s1/b1/r1", "s1/b1/r1", cores=2)
    assert refused(draft, a_waiting_gang(some(5))).code == "ExceedsClusterTotal"
    draft.take(0, Grant(1, 0), ("default", ""))
    owner, before = a_waiting_gang(some(4)), free(draft)
    assert isinstance(place_gang(draft, owner), Reason)
    assert free(draft) == before


def test_devices_and_cores_of_a_member_lie_on_one_numa_node():
    draft = a_draft("s1/b1/r1", cores=8, gpus="h100 h100 h100 h100", numa=2)
    found = place_gang(draft, a_waiting_gang(some(2, cores=4, gpus=2)))
    assert isinstance(found, GangPlacement)
    assert [(each.grant.devices, each.grant.numa_cores) for each in found.members] == [
        ((0, 1), ((0, 4),)),
        ((2, 3), ((1, 4),)),
    ]


def test_neighbours_in_rank_are_neighbours_in_the_network():
    draft = a_draft(*["s1/b1/r1", "s1/b1/r2"] * 3, cores=2)
    nodes = list(placed(draft, a_waiting_gang(some(12))).values())
    assert nodes == ["n1", "n1", "n3", "n3", "n5", "n5", "n2", "n2", "n4", "n4", "n6", "n6"]


def test_members_are_laid_by_their_index_as_a_number():
    draft = a_draft("s1/b1/r1", "s1/b1/r1", cores=2)
    assert placed(draft, a_waiting_gang(some(4, indexes=(10, 2, 1, 9)))) == {
        2: "n1",
        1: "n1",
        3: "n2",
        0: "n2",
    }


def test_groups_that_ask_for_the_same_are_laid_together_by_index():
    draft = a_draft("s1/b1/r1", "s1/b1/r1", cores=3)
    owner = a_waiting_gang(some(2, indexes=(0, 3)), some(4, indexes=(1, 2, 4, 5)))
    assert placed(draft, owner) == {0: "n1", 2: "n1", 3: "n1", 1: "n2", 4: "n2", 5: "n2"}


def test_a_muster_of_several_shapes_stands_in_the_order_of_the_index():
    draft = a_draft("s1/b1/r1", cores=6)
    owner = a_waiting_gang(some(2, cores=2, indexes=(1, 3)), some(2, cores=1, indexes=(0, 2)))
    assert list(placed(draft, owner)) == [2, 0, 3, 1]


def test_a_layout_that_one_node_cannot_hold_is_not_seated_at_all():
    draft = a_draft("s1/b1/r1", "s1/b1/r1", cores=5)
    owner = a_waiting_gang(some(2, cores=2), some(3, cores=3))
    before = free(draft)
    seats = [[(0, 1), (1, 1)], [(0, 1), (1, 2)]]
    ask = Ask(owner)
    assert take_grants(draft, ask, ask.parts, seats) is None
    assert free(draft) == before


def test_when_not_all_find_a_place_each_group_has_what_it_needs():
    draft = a_draft("s1/b1/r1", cores=4)
    owner = a_waiting_gang(some(3, least=1, indexes=(0, 1, 2)), some(3, least=2, indexes=(3, 4, 5)))
    assert list(placed(draft, owner)) == [0, 1, 3, 4], (
        "one and two are needed, and then the lowest index goes first"
    )


def test_a_target_is_honoured():
    draft = a_draft("s1/b1/r1", "s1/b1/r1", "s1/b1/r2", cores=2)
    owner = a_waiting_gang(some(1, target="n2"), some(2), gather=must("rack"))
    nodes = placed(draft, owner)
    assert nodes[0] == "n2"
    assert set(nodes.values()) <= {"n1", "n2"}
    assert refused(a_draft("s1/b1/r1"), a_waiting_gang(some(1, target="n9"))).code == "TargetNotFound"
    assert refused(a_draft("s1/b1/r1"), a_waiting_gang(some(2, target="n1:3"))).code == "NumaNotFound"


def test_bound_members_keep_the_rest_in_their_rack():
    draft = a_draft("s1/b1/r1", "s1/b1/r2", "s1/b1/r2", cores=2)
    assert placed(draft, a_waiting_gang(some(2), bound={2: 1}, gather=must("rack"))) == {0: "n3", 1: "n3"}
    full = refused(
        a_draft("s1/b1/r1", "s1/b1/r2", "s1/b1/r2"),
        a_waiting_gang(some(5), bound={0: 1}, gather=must("rack")),
    )
    assert full.numbers["domains"] == {"s1/b1/r1": 4}, "room elsewhere is of no use to them"
    apart = refused(
        a_draft("s1/b1/r1", "s1/b1/r2"), a_waiting_gang(some(1), bound={0: 1, 1: 1}, gather=must("rack"))
    )
    assert (apart.code, apart.tier) == ("MustGatherImpossible", Tier.NEVER)
    assert apart.numbers["domains"] == ["s1/b1/r1", "s1/b1/r2"]


def test_a_gang_with_an_affinity_stands_near_those_of_the_same_key():
    draft = a_draft("s1/b1/r1", "s1/b1/r2", "s1/b2/r1", "s1/b2/r2", cores=4)
    runs = Tenant(("n4", 1), "other", "default", 0, 3, Grant(2, 0), 0, 0.0, NEVER, 0.0, affinity="exp")
    draft.nodes.take(3, runs.grant)
    draft.tenants.add(runs)
    near, anywhere = a_waiting_gang(some(3), affinity="exp"), a_waiting_gang(some(3))
    mark = draft.mark()
    assert set(placed(draft, near).values()) == {"n3"}, "the same block; its own node has no room"
    draft.rollback(mark)
    assert set(placed(draft, anywhere).values()) == {"n3"}, "the tightest"
    draft.rollback(mark)
    draft.nodes.take(0, Grant(1, 0))
    assert set(placed(draft, anywhere).values()) == {"n1"}
    draft.rollback(mark)
    assert set(placed(draft, near).values()) == {"n3"}
    draft.tenants.remove(runs.key)
    assert draft.tenants.near == {}


def test_a_quota_that_admits_less_than_is_needed_is_the_reason():
    draft = a_draft("s1/b1/r1", cores=8, quotas={"lab": Quota(cores=4)})
    draft.queues.take(("lab", ""), Grant(2, 0))
    no = refused(draft, a_waiting_gang(some(3), queue="lab"))
    assert (no.code, no.tier) == ("QuotaExhausted", Tier.POLICY)
    assert no.numbers == {"wanted": 3, "used": 2, "limit": 4}
    assert refused(draft, a_waiting_gang(some(5), queue="lab")).code == "ExceedsQuotaMax"


def test_a_quota_bounds_how_many_more_than_needed_are_placed():
    draft = a_draft("s1/b1/r1", cores=8, quotas={"lab": Quota(tasks=4, cores=6)})
    owner = a_waiting_gang(some(3, least=1, cores=2), some(3, least=1), queue="lab")
    assert sorted(placed(draft, owner)) == [0, 1, 3, 4], "two with two cores and two with one"
    assert draft.queues.usage["lab"][1] == 6000


def test_part_of_a_gang_can_be_placed_where_the_most_of_it_fits():
    draft = a_draft("s1/b1/r1", "s1/b1/r2", "s1/b1/r2", cores=3)
    for row in range(3):
        draft.take(row, Grant(1, 0), ("default", ""))
    owner = a_waiting_gang(some(5), gather=must("rack"))
    assert placed(draft, owner, partial=True) == {0: "n2", 1: "n2", 2: "n3", 3: "n3"}
    draft.take(0, Grant(2, 0), ("default", ""))
    assert isinstance(place_gang(draft, owner, partial=True), Reason), "nothing is left, and that is a no"


def test_part_of_a_gang_of_several_shapes_can_be_placed():
    draft = a_draft("s1/b1/r1", "s1/b1/r1", cores=4)
    draft.nodes.take(1, Grant(4, 0))
    gang = a_waiting_gang(some(1, cores=3), some(4, cores=1))
    assert placed(draft, gang, partial=True) == {0: "n1", 1: "n1"}


def test_no_part_of_a_gang_is_placed_where_its_parts_could_never_stand_together():
    draft = a_draft("s1/b1/r1", cores=4)
    assert isinstance(
        place_gang(draft, a_waiting_gang(some(1, cores=3), some(4, cores=1)), partial=True), Reason
    )


def test_shapes_that_only_fit_one_way_are_found():
    """Seven cores are 3 + 2 + 2, twice; putting 3 + 3 on the first node leaves four of 2."""
    draft = a_draft("s1/b1/r1", "s1/b1/r1", cores=7)
    placed(draft, a_waiting_gang(some(4, cores=2), some(2, cores=3)))
    assert free(draft) == [(0, set()), (0, set())]


def test_devices_of_one_kind_are_left_for_those_who_need_them():
    draft = a_draft("s1/b1/r1", cores=8, gpus="h100 a100 a100")
    found = place_gang(
        draft, a_waiting_gang(some(2, cores=1, gpus=1), some(1, cores=1, gpus=1, gpu_type="h100"))
    )
    assert isinstance(found, GangPlacement)
    assert {each.position: each.grant.devices for each in found.members} == {0: (1,), 1: (2,), 2: (0,)}


def test_a_search_that_gave_up_says_so(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(packing, "DEPTH_MAX", 0)
    draft = a_draft("s1/b1/r1", "s1/b1/r1", cores=7)
    no = refused(draft, a_waiting_gang(some(4, cores=2), some(2, cores=3)))
    assert (no.code, no.numbers["gave_up"]) == ("GangIncomplete", True)


def test_too_few_slots_now_are_told_with_the_best_domain():
    draft = a_draft("s1/b1/r1", "s1/b2/r1", "s1/b2/r2", cores=4)
    draft.nodes.take(0, Grant(3, 0))
    draft.nodes.take(1, Grant(1, 0))
    no = refused(draft, a_waiting_gang(some(9)))
    assert (no.code, no.tier) == ("GangIncomplete", Tier.CAPACITY)
    assert (no.numbers["needed"], no.numbers["slots"]) == (9, 8)
    assert (no.numbers["layer"], no.numbers["best"], no.numbers["best_slots"]) == ("spine", "s1", 8)


def test_enough_slots_but_in_no_single_domain_are_told_domain_by_domain():
    draft = a_draft("s1/b1/r1", "s1/b2/r1", "s2/b1/r1", cores=4)
    for row, cores in ((0, 1), (1, 2), (2, 1)):
        draft.nodes.take(row, Grant(cores, 0))
    no = refused(draft, a_waiting_gang(some(4), gather=must("block")))
    assert (no.code, no.tier) == ("TopologyFragmented", Tier.CAPACITY)
    assert no.numbers["domains"] == {"s1/b1": 3, "s2/b1": 3, "s1/b2": 2}
    assert (no.numbers["layer"], no.numbers["best"], no.numbers["slots"]) == ("block", "s1/b1", 8)
    assert no.numbers["best_slots"] == 3


@pytest.mark.parametrize(
    ("asked", "meant"), [("Rack", "rack"), ("rak", "rack"), ("spineLayer", "spine"), ("column", None)]
)
def test_an_unknown_layer_is_never_met_and_the_nearest_is_named(asked: str, meant: str | None):
    no = refused(a_draft("s1/b1/r1"), a_waiting_gang(some(1), gather=must(asked)))
    assert (no.code, no.tier, no.numbers["nearest"]) == ("MustGatherImpossible", Tier.NEVER, meant)
    assert ("did you mean" in no.text) == (meant is not None)


def test_what_no_domain_could_hold_even_empty_is_never():
    draft = a_draft("s1/b1/r1", "s1/b1/r2", "s1/b1/r2", cores=4)
    draft.nodes.set_open("n2", False)
    no = refused(draft, a_waiting_gang(some(9), gather=must("rack")))
    assert (no.code, no.tier, no.numbers["most"]) == ("MustGatherImpossible", Tier.NEVER, 8)
    assert refused(draft, a_waiting_gang(some(8), gather=must("rack"))).tier == Tier.CAPACITY, (
        "a closed node may come back"
    )


def test_a_layer_without_labels_is_named_as_the_cause():
    no = refused(a_draft("s1", "s1", cores=4), a_waiting_gang(some(5), gather=must("rack")))
    assert no.code == "MustGatherImpossible"
    assert no.numbers["unlabelled"]


def test_what_all_nodes_together_do_not_have_is_never():
    no = refused(a_draft("s1/b1/r1", cores=4), a_waiting_gang(some(5)))
    assert (no.code, no.tier) == ("ExceedsClusterTotal", Tier.NEVER)
    no = refused(a_draft("s1/b1/r1", cores=4), a_waiting_gang(some(3), some(1, cores=2)))
    assert (no.code, no.numbers["what"]) == ("ExceedsClusterTotal", "cores")


def test_what_no_node_could_hold_is_said_by_the_largest():
    draft = a_draft("s1/b1/r1", cores=4, gpus="h100")
    assert refused(draft, a_waiting_gang(some(2, cores=5))).code == "ExceedsLargestNode"
    assert refused(draft, a_waiting_gang(some(2, gpus=2))).code == "ExceedsLargestNode"
    assert refused(draft, a_waiting_gang(some(2, labels=(("disk", "fast"),)))).code == "NoMatchingLabels"


def test_a_number_that_makes_no_multiple_is_never():
    no = refused(a_draft("s1/b1/r1", cores=8), a_waiting_gang(some(6), gather=(Gather("rack", multiple=4),)))
    assert (no.code, no.tier, no.numbers["multiple"]) == ("MustGatherImpossible", Tier.NEVER, 4)


def test_multiples_that_do_not_come_together_now_are_fragments():
    draft = a_draft("s1/b1/r1", "s1/b1/r1", "s1/b2/r1", cores=4)
    draft.nodes.take(0, Grant(1, 0))
    no = refused(draft, a_waiting_gang(some(8), gather=(Gather("block", must=True, multiple=4),)))
    assert (no.code, no.tier) == ("TopologyFragmented", Tier.CAPACITY)
    assert no.numbers["domains"] == {"s1/b1": 4, "s1/b2": 4}, "of seven slots four can be used"


def test_a_gang_that_wants_nothing_more_has_it_all():
    draft = a_draft("s1/b1/r1")
    assert place_gang(draft, a_waiting_gang()) == GangPlacement("gang", ())


def test_without_any_node_that_is_the_reason():
    assert refused(a_draft(), a_waiting_gang(some(1))).code == "NoNodes"


def test_domains_beyond_the_first_sixty_four_are_counted_and_not_listed():
    draft = a_draft(*(f"s1/b{at}/r1" for at in range(70)), cores=1)
    draft.nodes.take(0, Grant(1, 0))
    no = refused(draft, a_waiting_gang(some(1), some(1), gather=must("block")))
    assert (len(no.numbers["domains"]), no.numbers["domains_total"]) == (64, 70)
