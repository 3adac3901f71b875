"""Domains from labels: by path, with a place for nodes whose labels are missing."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from phalanx.core.model.topology import Layer, Topology
from phalanx.core.model.tree import TopologySurvey, Tree
from tests.support.topologies import THREE, a_tree, column, labels

paths = st.lists(
    st.builds("/".join, st.tuples(*[st.sampled_from(["", "a", "b", "c"])] * 3)), min_size=1, max_size=12
)


def domain_names(tree: Tree, layer: str) -> list[str]:
    level = tree.level(layer)
    assert level is not None
    return ["/".join(tree.path(level, number)) for number in range(tree.size(level))]


def neighbours(tree: Tree, layer: str) -> list[list[str]]:
    """The nodes of every domain of a layer."""
    level = tree.level(layer)
    assert level is not None
    return [[tree.nodes[row] for row in tree.rows(level, at)] for at in range(tree.size(level))]


def test_the_same_block_name_under_two_spines_is_two_domains():
    tree = a_tree("s1/b1/r1", "s2/b1/r1", "s1/b1/r1")
    assert domain_names(tree, "block") == ["s1/b1", "s2/b1"]
    assert neighbours(tree, "block") == [["n1", "n3"], ["n2"]]


def test_domains_and_nodes_stand_in_order_of_name_whatever_came_first():
    tree = a_tree("s2/b1/r1", "s1/b2/r1", "s1/b1/r9", "s1/b1/r1", names=["d", "c", "b", "a"])
    assert domain_names(tree, "rack") == ["s1/b1/r1", "s1/b1/r9", "s1/b2/r1", "s2/b1/r1"]
    assert [tree.nodes[row] for row in tree.order] == ["a", "b", "c", "d"]


def test_the_first_label_that_is_not_empty_names_the_domain():
    survey = TopologySurvey(Topology((Layer("rack", ("new", "old")),)))
    survey.note(0, {"new": "", "old": "r1"})
    survey.note(1, {"new": "r1", "old": "r9"})
    assert neighbours(survey.tree(["n1", "n2"]), "rack") == [["n1", "n2"]]


def test_nodes_of_one_block_share_it_though_nobody_knows_their_spine():
    tree = a_tree("s1/b1/r1", "/b7/r1", "/b7/r2")
    assert neighbours(tree, "block") == [["n2", "n3"], ["n1"]]
    assert neighbours(tree, "spine") == [["n2", "n3"], ["n1"]]
    assert tree.missing == {1: ("spine",), 2: ("spine",)}
    assert tree.virtual[0].tolist() == [True, False]


def test_a_virtual_domain_is_not_a_real_one_of_the_same_name():
    tree = a_tree("x/b1/r1", "/x/r1", "//x", "")
    assert len(domain_names(tree, "spine")) == 4


def test_a_node_without_the_innermost_label_is_alone_in_its_rack_and_not_in_its_block():
    tree = a_tree("s1/b1/r1", "s1/b1/", "s1/b1/")
    assert neighbours(tree, "block") == [["n2", "n3", "n1"]]
    assert neighbours(tree, "rack") == [["n2"], ["n3"], ["n1"]]
    assert domain_names(tree, "rack") == ["s1/b1/n2", "s1/b1/n3", "s1/b1/r1"]


def test_a_layer_that_no_node_has_a_label_for_is_left_out_but_known():
    tree = a_tree("s1//r1", "s1//r2")
    assert (tree.layers, tree.absent) == (("spine", "rack"), ("block",))
    assert tree.level("block") == tree.level("rack"), "it is as fine as the next inner layer"
    assert tree.level("node") == tree.node_level
    assert (tree.level("cluster"), tree.level("Rack")) == (0, None)
    assert tree.missing == {}


def test_without_any_label_there_is_the_cluster_and_its_nodes():
    tree = a_tree("", "")
    assert (tree.layers, tree.node_level) == ((), 1)
    assert tree.rows(0, 0).tolist() == [0, 1]
    assert tree.path(1, 1) == ("n2",)
    assert list(tree.walk()) == [(0, 0)]


def test_an_empty_cluster_has_a_tree():
    tree = TopologySurvey(THREE).tree([])
    assert list(tree.walk()) == [(0, 0)]
    assert tree.rows(0, 0).tolist() == []


def test_a_walk_goes_depth_first_in_order_of_name():
    tree = a_tree("s2/b4/r1", "s1/b2/r1", "s1/b1/r1", "s1/b1/r2")
    seen = [("/".join(tree.path(*each)), len(tree.rows(*each))) for each in tree.walk()]
    assert seen == [
        *(("", 4), ("s1", 3), ("s1/b1", 2), ("s1/b1/r1", 1), ("s1/b1/r2", 1), ("s1/b2", 1), ("s1/b2/r1", 1)),
        *(("s2", 1), ("s2/b4", 1), ("s2/b4/r1", 1)),
    ]


def test_a_tree_is_drawn_anew_only_when_a_label_has_changed():
    survey, names = TopologySurvey(THREE), ["n1", "n2"]
    for row in range(2):
        survey.note(row, labels("s1/b1/r1"))
    tree = survey.tree(names)
    survey.note(0, {**labels("s1/b1/r1"), "color": "red"})
    assert survey.tree(names) is tree
    survey.note(0, labels("s1/b1/r2"))
    assert neighbours(survey.tree(names), "rack") == [["n2"], ["n1"]]
    assert neighbours(tree, "rack") == [["n1", "n2"]], "the old one stays as it was"


def test_places_where_nobody_stands_any_more_are_forgotten():
    survey, names = TopologySurvey(THREE), ["n1", "n2"]
    survey.note(0, labels("s1/b1/r1"))
    for at in range(200):
        survey.note(1, labels(f"s1/b1/r{at}"))
        survey.tree(names)
    assert len(survey._places) == 2
    assert neighbours(survey.tree(names), "rack") == [["n1"], ["n2"]]


def test_a_node_that_joins_stands_in_the_next_tree():
    survey = TopologySurvey(THREE)
    survey.note(0, labels("s1/b1/r2"))
    assert survey.tree(["n1"]).size(3) == 1
    survey.note(1, labels("s1/b1/r1"))
    assert neighbours(survey.tree(["n1", "n2"]), "rack") == [["n2"], ["n1"]]


@given(paths, st.randoms(use_true_random=False))
def test_every_way_through_the_tree_leads_to_the_same_nodes(given_paths, chance):
    tree = a_tree(*given_paths)
    values = column(*(chance.randrange(9) for _ in given_paths))
    sums = tree.sums(values)
    for level in range(1, tree.node_level):
        for number in range(tree.size(level)):
            rows = tree.rows(level, number)
            assert sums[level - 1][number] == values[rows].sum()
            assert (tree.up(tree.node_level, rows, level) == number).all()
            for inner in range(level, tree.node_level):
                low, high = tree.span(level, number, inner)
                inside = [tree.rows(inner, each) for each in range(low, high)]
                assert np.concatenate(inside).tolist() == rows.tolist()
                assert (tree.up(inner, np.arange(low, high), level) == number).all()
    assert sorted(tree.order.tolist()) == list(range(len(given_paths)))
    walked = list(tree.walk())
    assert len(set(walked)) == len(walked) == sum(tree.size(level) for level in range(tree.node_level))
    for level, number in walked:
        low, high = tree.span(level, number, level + 1)
        children = tree.names[level][low:high] if level + 1 < tree.node_level else []
        assert children == sorted(children)
