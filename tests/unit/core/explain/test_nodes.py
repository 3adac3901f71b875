"""Explanations are tried before they are offered: whatever is suggested would really help."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from phalanx.core.explain.nodes import verdict
from phalanx.core.explain.smaller import smaller_requests
from phalanx.core.model import reason
from phalanx.core.model.amounts import parse_bytes
from phalanx.core.model.reason import Reason, Tier
from phalanx.core.model.resources import Grant, Request, Target
from phalanx.core.model.table import NodeTable
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


Smaller = tuple[dict[str, object], Request]


def smaller(table: NodeTable, asked: Request, closed: dict[str, Reason], *, ever: bool) -> Smaller | None:
    """The first request that asks for less and fits: on some empty node (`ever`), or now."""
    for _, fields, request in smaller_requests(table, asked, closed, ever=ever):
        if table.could_ever(request) if ever else fits_now(table, request, closed):
            return fields, request
    return None


def changed(asked: Request, fields: dict[str, object]) -> Request:
    """The request after the change, read from its fields as the command line would give them."""
    fields = dict(fields)
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


@given(used_tables(), requests(), closed_hosts, st.booleans())
def test_the_fields_of_a_smaller_request_say_what_was_tried(
    used: Used, asked: Request, closed: dict[str, Reason], ever: bool
) -> None:
    table, _ = used
    for _, fields, request in smaller_requests(table, asked, closed, ever=ever):
        if (
            asked.target is None or request.target is not None
        ):  # without a target the devices it names go, too
            assert changed(asked, fields) == request


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
    assert smaller(table, Request(cores=9), {}, ever=True) == ({"cores": 8}, Request(cores=8))


def test_of_several_amounts_the_one_in_the_way_is_changed() -> None:
    table = a_table(n1={"cores": 8, "gpus": 4})
    too_much = smaller(table, Request(cores=4, memory_bytes=17 * GIB, gpus=4), {}, ever=True)
    assert too_much is not None and too_much[0] == {"memory": "16GiB"}
    wrong_type = smaller(table, Request(gpus=1, gpu_type="b200"), {}, ever=True)
    assert wrong_type is not None and wrong_type[0] == {"gpu_type": None}


def test_nothing_is_suggested_where_nothing_helps() -> None:
    assert smaller(a_table(n1={"cores": 8}), Request(cores=0, gpus=1), {}, ever=True) is None
    assert smaller(NodeTable(), Request(), {}, ever=True) is None


def test_a_target_on_a_closed_node_is_sent_elsewhere() -> None:
    table = a_table(n1={"cores": 4}, n2={"cores": 4})
    closed = {"n1": reason.drained("n1", "new fans")}
    said = verdict(table, Request(target=Target("n1")), closed)
    assert said.dominant.code == "Maintenance"
    change = smaller(table, Request(target=Target("n1")), closed, ever=False)
    assert change is not None and change[0]["targets"] == []


def test_a_closed_node_is_no_help_now() -> None:
    table = a_table(n1={"cores": 8}, n2={"cores": 2, "memory": 4 * GIB})
    asked, closed = Request(cores=6, memory_bytes=10 * GIB), {"n1": reason.offline("n1")}
    assert smaller(table, asked, closed, ever=False) is None, "n2 would need both to be less"


def test_of_the_same_no_from_many_nodes_the_closest_speaks() -> None:
    table = a_table(n1={"cores": 8}, n2={"cores": 6})
    for row, cores in ((0, 7), (1, 4)):
        table.take(row, Grant(cores, 0))
    said = verdict(table, Request(cores=4), {})
    assert (said.dominant.code, said.dominant.numbers) == (
        "WaitingCapacity",
        {"wanted": 4, "free": 2, "total": 6},
    )
    ((of_both, names),) = said.groups
    assert names == ["n1", "n2"]
    assert of_both.text == f"closest: {said.dominant.text}", "n1 has fewer free"


def test_the_closest_is_a_node_that_takes_work() -> None:
    table = a_table(n1={"cores": 8}, n2={"cores": 6})
    said = verdict(table, Request(cores=9), {"n1": reason.offline("n1")})
    assert "on n2" in said.dominant.text


def test_the_closest_has_the_largest_part_of_what_is_wanted_whatever_that_is() -> None:
    table = a_table(n1={"cores": 8}, n2={"cores": 32, "memory": 15 * GIB})
    said = verdict(table, Request(cores=16, memory_bytes=16 * GIB), {})
    assert said.dominant.numbers["total"] == 15 * GIB, "n1 has half of the cores"


def test_of_closed_nodes_one_that_is_there_and_has_room_is_named_first() -> None:
    table = a_table(n1={"cores": 8}, n2={"cores": 8}, n3={"cores": 8})
    table.take(1, Grant(8, 0))
    closed = {
        "n1": reason.offline("n1"),
        "n2": reason.unhealthy_node("n2", "full"),
        "n3": reason.unhealthy_node("n3", "disk"),
    }
    said = verdict(table, Request(cores=1), closed)
    assert (said.dominant.code, said.dominant.numbers["host"]) == ("NodeUnhealthy", "n3")
    full = verdict(table, Request(cores=1), {**closed, "n3": reason.offline("n3")})
    assert full.dominant.code == "NodeOffline", "n2 has no room, repaired or not"


def test_what_one_of_several_nodes_says_is_not_told_as_if_all_said_it() -> None:
    table = a_table(n1={"cores": 4}, n2={"cores": 4}, n3={"cores": 2})
    closed = {name: reason.drained(name, f"work on {name}") for name in ("n1", "n2")}
    told = {no.code: no.text for no, _ in verdict(table, Request(cores=3), closed).groups}
    assert told == {
        "Maintenance": "for example: n1 is drained: work on n1",
        "ExceedsLargestNode": "Insufficient available cores on n3: 3 requested, 2 of 2 free",
    }


def test_what_is_promised_twice_over_reads_as_nothing_free():
    assert "1 requested, 0 of 300 free" in reason.not_enough_cores("n1", 1, -23.873, 300).text
    assert "0 of 8 GPUs free" in reason.not_enough_gpus("n1", 1, -2, 8, "GPUs").text
    assert reason.not_enough_memory("n1", 1, -5, 300).numbers["free"] == 0
