"""The nodes of a gang, by example: the lowest domain, the tightest one, the fewest children."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phalanx.core.model.job import Gather
from phalanx.core.model.table import Tally
from phalanx.core.model.tree import Tree
from phalanx.core.placement.gang.search import GangSearch, PartSlots
from tests.support.topologies import a_tree, asking, column

# Two spines of two blocks of two racks of two nodes, n1 to n16.
SIXTEEN = [f"s{s}/b{b}/r{r}" for s in (1, 2) for b in (1, 2) for r in (1, 2) for _ in (1, 2)]


def must(layer: str, multiple: int = 1) -> Gather:
    return Gather(layer, True, multiple)


def prefer(layer: str, multiple: int = 1) -> Gather:
    return Gather(layer, False, multiple)


class Laid(NamedTuple):
    """A layout, and the domain for which it was made."""

    counts: list[list[tuple[int, int]]]
    layer: str
    domain: tuple[str, ...]


def layouts(tree: Tree, parts: Sequence[PartSlots], rules: tuple[Gather, ...], **more) -> Iterator[Laid]:
    search = GangSearch(tree, parts, rules, **more)
    for each in search.candidates():
        for layout in search.fill(each):
            counts = [list(part) for part in layout]
            yield Laid(counts, tree.layer(each.level), tree.path(each.level, each.number))


def best(tree: Tree, ask: PartSlots, *rules: Gather, **more) -> Laid | None:
    return next(layouts(tree, [ask], rules, **more), None)


def stands(tree: Tree, ask: PartSlots, *rules: Gather, **more) -> dict[str, int] | None:
    """The best layout as members by node, in the order in which they are laid."""
    found = best(tree, ask, *rules, **more)
    return None if found is None else {tree.nodes[row]: count for row, count in found.counts[0]}


def test_a_gang_that_fits_on_one_node_stands_on_one_node():
    tree = a_tree("s1/b1/r1", "s1/b1/r1", "s1/b1/r2")
    found = best(tree, asking(4, 2, 2, 4))
    assert found == Laid([[(2, 4)]], "node", ("s1", "b1", "r2", "n3"))


def test_the_lowest_domain_that_holds_all_is_taken():
    tree = a_tree(*SIXTEEN)
    found = best(tree, asking(4, *[0, 2, 0, 2, 1, 1, 1, 1] * 2))
    assert found is not None
    assert (found.layer, found.domain) == ("block", ("s1", "b1")), "no rack holds four"
    found = best(tree, asking(9, *[1] * 16))
    assert found is not None
    assert (found.layer, found.domain) == ("cluster", ())


def test_of_equal_domains_the_tightest_is_taken_and_then_the_one_in_the_fuller_parent():
    tree = a_tree("s1/b1/r1", "s1/b1/r1", "s1/b2/r1", "s1/b2/r1")
    assert stands(tree, asking(3, 4, 8, 3, 8)) == {"n3": 3}
    assert stands(tree, asking(4, 4, 8, 4, 1)) == {"n3": 4}, "its rack has less to lose"
    assert stands(tree, asking(4, 4, 0, 4, 0)) == {"n1": 4}, "then the earlier name"


def test_a_must_rule_bounds_the_search_and_the_deepest_counts():
    tree = a_tree(*SIXTEEN)
    spread_out = [1, 1, 1, 1] * 4
    assert stands(tree, asking(4, *spread_out), must("rack")) is None
    found = best(tree, asking(4, *spread_out), must("spine"), must("block"))
    assert found is not None and found.layer == "block"
    assert stands(tree, asking(5, *spread_out), must("spine"), must("block")) is None
    assert stands(tree, asking(16, *spread_out), must("cluster")) is not None


def test_the_same_name_under_two_parents_is_not_one_domain():
    tree = a_tree("s1/b1/r1", "s2/b1/r1")
    assert stands(tree, asking(4, 2, 2), must("rack")) is None


def test_a_must_rule_of_an_unknown_layer_has_no_layout_and_a_prefer_rule_of_one_is_ignored():
    tree = a_tree("s1/b1/r1")
    assert stands(tree, asking(1, 1), must("Rack")) is None
    assert stands(tree, asking(1, 1), prefer("Rack")) == {"n1": 1}


def test_a_layer_without_labels_is_as_fine_as_what_lies_inside_it():
    tree = a_tree("s1/b1/", "s1/b1/")
    assert stands(tree, asking(2, 1, 1), must("rack")) is None
    assert stands(tree, asking(2, 2, 1), must("rack")) == {"n1": 2}


def test_the_fewest_children_are_used_and_the_last_is_the_smallest_that_holds_the_rest():
    tree = a_tree(*["s1/b1/r1"] * 5)
    assert stands(tree, asking(10, 3, 8, 2, 4, 1)) == {"n2": 8, "n3": 2}
    assert stands(tree, asking(13, 3, 8, 2, 4, 1)) == {"n2": 8, "n4": 4, "n5": 1}


def test_racks_are_filled_one_after_another():
    tree = a_tree("s1/b1/r1", "s1/b1/r2", "s1/b1/r1", "s1/b1/r2")
    assert stands(tree, asking(7, 2, 3, 2, 2)) == {"n2": 3, "n4": 2, "n1": 2}


def test_nodes_with_members_come_first_and_the_domains_nearest_to_them():
    tree = a_tree(*SIXTEEN)
    slots = [1] * 16
    existing = column(*[0] * 15, 2)
    assert stands(tree, asking(1, *slots), existing=existing) == {"n16": 1}
    slots[15] = 0
    assert stands(tree, asking(1, *slots), existing=existing) == {"n15": 1}, "the same rack"
    slots[14] = 0
    assert stands(tree, asking(1, *slots), bound=[15]) == {"n13": 1}, "the same block"


def test_bound_members_pin_the_rest_to_their_domain():
    tree = a_tree(*SIXTEEN)
    slots = [0, 1, *[4] * 14]
    assert stands(tree, asking(1, *slots), must("rack"), bound=[0]) == {"n2": 1}
    assert stands(tree, asking(2, *slots), must("rack"), bound=[0]) is None
    assert stands(tree, asking(1, *slots), must("rack"), bound=[0, 8]) is None, "they stand in two already"
    assert stands(tree, asking(2, *slots), bound=[0]) == {"n3": 2}, "without a rule as near as possible"


def test_a_prefer_rule_chooses_the_domain_that_spans_the_fewest_though_another_is_tighter():
    tree = a_tree("s1/b1/r1", "s1/b1/r2", "s1/b1/r3", "s1/b2/r1", "s1/b2/r2", "s1/b2/r3")
    slots = [2, 2, 2, 5, 1, 1]
    assert stands(tree, asking(6, *slots)) == {"n1": 2, "n2": 2, "n3": 2}
    assert stands(tree, asking(6, *slots), prefer("rack")) == {"n4": 5, "n5": 1}


def test_a_preferred_layer_counts_before_one_without_a_rule():
    tree = a_tree("s1/b1/r1", "s1/b1/r2", "s1/b1/r3", "s1/b2/r1", "s1/b3/r1")
    slots = [3, 3, 3, 5, 4]
    assert stands(tree, asking(10, *slots)) == {"n1": 3, "n2": 3, "n3": 3, "n5": 1}, "two blocks, four racks"
    assert stands(tree, asking(10, *slots), prefer("rack")) == {"n1": 1, "n4": 5, "n5": 4}, "three racks"
    assert stands(tree, asking(10, *slots), prefer("rack"), prefer("block")) == stands(
        tree, asking(10, *slots)
    )


def test_members_stay_in_one_neighbourhood_though_racks_of_several_are_chosen_by_size():
    tree = a_tree("s1/b1/r1", "s1/b2/r1", "s1/b1/r2")
    found = best(tree, asking(15, 5, 6, 4), prefer("rack"))
    assert found is not None
    assert found.counts[0] == [(0, 5), (2, 4), (1, 6)], "both racks of b1, then that of b2"


def test_a_preference_never_turns_a_gang_away_and_never_raises_its_level():
    tree = a_tree(*SIXTEEN)
    rules = [prefer("node"), prefer("rack"), prefer("spine")]
    found = best(tree, asking(16, *[1] * 16), *rules)
    assert found is not None and found.layer == "cluster"
    found = best(tree, asking(4, *[1] * 16), *rules)
    assert found is not None and found.layer == "block"


def test_every_domain_of_the_layer_holds_a_multiple():
    tree = a_tree("s1/b1/r1", "s1/b1/r2", "s1/b1/r3")
    assert stands(tree, asking(8, 7, 3, 5), prefer("rack", 4)) == {"n1": 4, "n3": 4}
    assert stands(tree, asking(8, 7, 3, 3), prefer("rack", 4)) is None
    assert stands(tree, asking(6, 7, 7, 7), prefer("rack", 4)) is None, "six is no multiple of four"


def test_multiples_of_several_layers_hold_together():
    tree = a_tree("s1/b1/r1", "s1/b1/r2", "s1/b2/r1", "s1/b2/r2")
    found = stands(tree, asking(12, 5, 5, 5, 5), prefer("rack", 2), prefer("block", 6))
    assert found == {"n1": 4, "n2": 2, "n3": 4, "n4": 2}


def test_a_multiple_of_an_outer_layer_is_one_of_the_inner_layer_too():
    tree = a_tree("s1/b1/r1", "s1/b1/r2", "s1/b2/r1")
    found = stands(tree, asking(24, 8, 12, 12), prefer("rack", 4), prefer("block", 6))
    assert found == {"n2": 12, "n3": 12}, "18 in the first block could not be divided into fours"


def test_members_who_are_there_already_are_part_of_the_multiple():
    tree = a_tree("s1/b1/r1", "s1/b1/r2")
    assert stands(tree, asking(1, 4, 4), prefer("rack", 4), bound=[1, 1, 1]) == {"n2": 1}


def test_members_in_domains_that_get_no_more_need_not_make_a_multiple():
    tree = a_tree("s1/b1/r1", "s1/b1/r1", "s1/b1/r2")
    found = stands(tree, asking(5, 3, 0, 1, need=4), prefer("node", 3), bound=[1, 2, 2])
    assert found == {"n3": 1, "n1": 3}, "n2 keeps its one member, and its rack then holds four"


def test_full_size_wherever_the_rules_allow_it_and_else_what_is_needed_where_the_most_fits():
    tree = a_tree("s1/b1/r1", "s1/b1/r1", "s1/b1/r2", "s1/b1/r2")
    assert stands(tree, asking(6, 2, 2, 2, 1, need=3)) == {"n1": 2, "n2": 2, "n3": 2}
    assert stands(tree, asking(8, 2, 2, 2, 1, need=3), must("rack")) == {"n1": 2, "n2": 2}
    assert stands(tree, asking(8, 2, 2, 2, 1, need=5), must("rack")) is None


def test_slots_that_cost_less_go_before_a_tighter_fit():
    tree = a_tree("s1/b1/r1", "s1/b1/r2")
    assert stands(tree, asking(4, 4, 8), cost=column(3, 0)) == {"n2": 4}
    assert stands(tree, asking(4, 4, 8), cost=column(3, 6)) == {"n1": 4}, (
        "half of six costs as much, and it is tighter"
    )


def test_inside_a_domain_the_cheapest_slots_are_used():
    tree = a_tree(*["s1/b1/r1"] * 4)
    assert stands(tree, asking(6, 4, 4, 2, 3), cost=column(9, 1, 0, 0)) == {"n2": 1, "n4": 3, "n3": 2}


def test_the_next_layout_is_the_next_best():
    tree = a_tree("s1/b1/r1", "s1/b1/r1", "s1/b1/r2")
    found = [(each.layer, *each.domain[-1:]) for each in layouts(tree, [asking(2, 2, 3, 2)], ())]
    assert found[:5] == [("node", "n3"), ("node", "n1"), ("node", "n2"), ("rack", "r2"), ("rack", "r1")]
    assert found[5:] == [("block", "b1"), ("spine", "s1"), ("cluster",)]


def test_of_groups_that_share_nodes_the_first_layout_of_a_domain_is_sure_to_fit():
    tree = a_tree("s1/b1/r1", "s1/b1/r1")
    found = list(layouts(tree, [asking(1, 1, 1), asking(8, 8, 8)], (must("rack"),)))
    in_rack = [each.counts for each in found if each.layer == "rack"]
    assert in_rack[0] == [[(0, 1)], [(1, 8)]], "the first node is full"
    assert in_rack[1] == [[(0, 1)], [(0, 8)]], "unless they do not ask for the same things"


def test_groups_that_do_not_compete_are_laid_onto_one_node_too():
    tree = a_tree("s1/b1/r1")
    found = [each.counts for each in layouts(tree, [asking(8, 8), asking(4, 4)], ())]
    assert found[0] == [[(0, 8)], [(0, 4)]], "what the one takes may be no loss to the other"


def test_a_group_that_wants_nothing_gets_nothing():
    tree = a_tree("s1/b1/r1", "s1/b1/r1")
    assert next(layouts(tree, [asking(0, 4, 4), asking(2, 1, 2)], ())).counts == [[], [(1, 2)]]


def test_there_is_no_layout_without_nodes():
    assert stands(a_tree(), asking(1)) is None


@pytest.mark.parametrize("count", [1, 5, 16, 64])
def test_sums_that_are_known_lead_to_the_same_answer(count: int):
    tree = a_tree(*SIXTEEN)
    slots = column(*[3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3])
    bare, known = PartSlots(count, count, slots), PartSlots(count, count, slots, tree.sums(slots))
    tally = PartSlots(count, count, slots, tree.sums(slots), Tally(slots, tree))
    expected = [list(islice(layouts(tree, [ask], ()), 20)) for ask in (bare, known, tally)]
    assert expected[0] == expected[1] == expected[2]


@settings(max_examples=200)
@given(
    st.lists(st.tuples(st.sampled_from(SIXTEEN), st.integers(0, 4)), min_size=1, max_size=10),
    st.integers(1, 12),
    st.sampled_from(["cluster", "spine", "block", "rack", "node"]),
)
def test_every_layout_is_whole_within_its_slots_and_in_one_domain(nodes, count, layer):
    tree, slots = a_tree(*(path for path, _ in nodes)), [room for _, room in nodes]
    levels = []
    for layout in layouts(tree, [asking(count, *slots)], (must(layer),)):
        (counts,) = layout.counts
        assert sum(members for _, members in counts) == count
        assert all(0 < members <= slots[row] for row, members in counts)
        level = tree.level(layout.layer)
        assert level is not None
        assert {tree.path(tree.node_level, row)[: len(layout.domain)] for row, _ in counts} == {layout.domain}
        levels.append(level)
    assert levels == sorted(levels, reverse=True)
    top = tree.level(layer)
    assert top is not None
    room = [sum(slots[row] for row in tree.rows(top, at)) for at in range(tree.size(top))]
    assert bool(levels) == (max(room) >= count)
