"""Explanations are tried before they are offered: whatever is suggested would really help."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from phalanx.core.explain.nodes import (
    Change,
    Holder,
    nearest_change,
    nearest_end,
    nearest_request,
    verdict,
)
from phalanx.core.model import reason
from phalanx.core.model.quantity import parse_bytes
from phalanx.core.model.reason import Reason, Tier
from phalanx.core.model.resources import Grant, Request
from phalanx.core.model.table import NodeTable
from phalanx.core.model.target import Target
from tests.property.strategies import HOSTS, requests, used_tables
from tests.support.builders import GIB, a_capacity

Used = tuple[NodeTable, list[tuple[str, Grant]]]
closed_hosts = st.sets(st.sampled_from(HOSTS)).map(
    lambda names: {name: reason.offline(name) for name in names}
)


def a_table(**nodes: dict[str, int]) -> NodeTable:
    table = NodeTable()
    for name, has in nodes.items():
        table.put(name, a_capacity(**has))  # type: ignore[arg-type]
        table.set_open(name, True)
    return table


def changed(asked: Request, change: Change) -> Request:
    """The request after the change, read from its fields as the command line would give them."""
    fields = dict(change.fields)
    if "memory" in fields:
        fields["memory_bytes"] = parse_bytes(str(fields.pop("memory")))
    if "gpu_memory" in fields:
        fields["gpu_memory_bytes"] = fields.pop("gpu_memory")
    if fields.pop("targets", None) == []:
        fields["target"] = None
    return structs.replace(asked, **fields)


def fits_now(table: NodeTable, asked: Request, closed: dict[str, Reason]) -> list[str]:
    named = [node for node in table if asked.target is None or asked.target.host == node.name]
    return [node.name for node in named if node.name not in closed and isinstance(node.fit(asked), Grant)]


@given(used_tables(), requests())
def test_a_change_that_would_fit_some_day_does_fit_an_empty_node(used: Used, asked: Request) -> None:
    table, _ = used
    change = nearest_change(table, asked, {}, ever=True)
    if change is not None:
        assert table.could_ever(changed(asked, change))
    assert nearest_request(table, asked) == (change.text if change else "")


@given(used_tables(), requests(), closed_hosts)
def test_a_change_that_would_start_now_is_granted_now(
    used: Used, asked: Request, closed: dict[str, Reason]
) -> None:
    table, _ = used
    change = nearest_change(table, asked, closed, ever=False)
    if change is not None:
        assert fits_now(table, changed(asked, change), closed)


@given(used_tables(), requests(), closed_hosts)
def test_the_end_that_is_named_makes_room(used: Used, asked: Request, closed: dict[str, Reason]) -> None:
    table, held = used
    holders = [Holder(f"task-{n}", node, grant) for n, (node, grant) in enumerate(held)]
    before = [(each.cores_free, each.memory_free, set(each.devices_free)) for each in table]
    change = nearest_end(table, asked, closed, holders)
    assert [(each.cores_free, each.memory_free, set(each.devices_free)) for each in table] == before
    if change is not None:
        holder = next(each for each in holders if change.command == f"phalanx cancel {each.task}")
        table.give_back(table.rows[holder.node], holder.grant)
        assert holder.node in fits_now(table, asked, closed)


@given(used_tables(), requests(), closed_hosts)
def test_a_verdict_is_what_the_nodes_would_do(used: Used, asked: Request, closed: dict[str, Reason]) -> None:
    table, _ = used
    said = verdict(table, asked, closed)
    assert said.fits == fits_now(table, asked, closed)
    assert said.dominant.text
    if said.fits:
        assert said.dominant == reason.evaluating()
    elif said.dominant.tier == Tier.NEVER:
        assert not table.could_ever(asked)
    else:
        assert said.dominant.tier in (Tier.CAPACITY, Tier.HELD)
    asked_nodes = 1 if asked.target and asked.target.host in table.rows else 0 if asked.target else len(table)
    assert sum(len(names) for _, names in said.groups) + len(said.fits) == asked_nodes


def test_the_smallest_loss_is_suggested_first() -> None:
    table = a_table(n1={"cores": 8}, n2={"cores": 6}, n3={"cores": 2})
    change = nearest_change(table, Request(cores=9), {}, ever=True)
    assert change == Change("it would fit with 8 cores instead of 9", {"cores": 8})


def test_of_several_wishes_the_one_in_the_way_is_changed() -> None:
    table = a_table(n1={"cores": 8, "gpus": 4})
    too_much = nearest_change(table, Request(cores=4, memory_bytes=17 * GIB, gpus=4), {}, ever=True)
    assert too_much is not None
    assert too_much.fields == {"memory": "16GiB"}
    wrong_type = nearest_change(table, Request(gpus=1, gpu_type="b200"), {}, ever=True)
    assert wrong_type is not None
    assert wrong_type.fields == {"gpu_type": None}


def test_nothing_is_suggested_where_nothing_helps() -> None:
    assert nearest_change(a_table(n1={"cores": 8}), Request(cores=0, gpus=1), {}, ever=True) is None
    assert nearest_request(NodeTable(), Request()) == ""


def test_a_target_on_a_closed_node_is_sent_elsewhere() -> None:
    table = a_table(n1={"cores": 4}, n2={"cores": 4})
    closed = {"n1": reason.drained("n1", "new fans")}
    said = verdict(table, Request(target=Target("n1")), closed)
    assert said.dominant.code == "Maintenance"
    change = nearest_change(table, Request(target=Target("n1")), closed, ever=False)
    assert change is not None
    assert change.fields["targets"] == []


def test_a_closed_node_is_no_help_now() -> None:
    table = a_table(n1={"cores": 8}, n2={"cores": 2, "memory": 4 * GIB})
    closed = {"n1": reason.offline("n1")}
    asked = Request(cores=6, memory_bytes=10 * GIB)
    assert nearest_change(table, asked, closed, ever=False) is None, "n2 would need both to be less"
    assert nearest_end(table, asked, closed, [Holder("t1", "n1", Grant(0, 0))]) is None


def test_of_the_same_no_from_many_nodes_the_closest_speaks() -> None:
    table = a_table(n1={"cores": 8}, n2={"cores": 6})
    for row, cores in ((0, 7), (1, 4)):
        table.take(row, Grant(cores, 0))
    said = verdict(table, Request(cores=4), {})
    assert said.dominant.text == "Insufficient available cores on n2: 4 asked, 2 of 6 free"
    assert said.groups == [(said.dominant, ["n1", "n2"])]
