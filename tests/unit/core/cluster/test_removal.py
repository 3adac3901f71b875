"""Nodes that are forgotten: drained and silent (C43), lost for long, or by an operator; and their rows."""

from __future__ import annotations

from msgspec import msgpack

from phalanx.coordinator.views import task_view
from phalanx.core.cluster.decision import Accepted, Refused
from phalanx.core.cluster.image import decode_job, decode_state, encode_job, encode_state
from phalanx.core.cluster.inputs import Drain, RemoveNode, Tick
from phalanx.core.cluster.state import Timers
from phalanx.core.model.orders import Disposition, Ended, Exit, Status, Why
from phalanx.core.model.resources import Grant, Request
from phalanx.core.model.table import NodeTable
from phalanx.core.model.tenants import Tenant, Tenants
from tests.support.builders import Cluster, a_capacity, a_cluster, a_gang, a_group, a_job


def pass_time(cluster: Cluster, seconds: int, *alive: str) -> None:
    for _ in range(seconds):
        cluster.now += 1.0
        for name in alive:
            cluster.beat(name, *cluster.state.nodes[name].attempts)
        cluster.give(Tick())


def test_a_draining_node_finishes_its_work_gets_none_and_is_removed_when_silent() -> None:
    cluster = a_cluster(n1={}, n2={"cores": 16})
    running, later = a_job("n1"), a_job("n1")
    cluster.submit(running)
    cluster.started("n1", (running.id, 0, 1))
    cluster.give(Drain("n1", "new fans"))
    cluster.submit(later)
    pass_time(cluster, 40, "n1", "n2")
    cluster.ended("n1", (running.id, 0, 1))
    assert (cluster.status(running), cluster.status(later)) == (Status.COMPLETED, Status.PENDING)
    pass_time(cluster, 30, "n2")
    assert "n1" in cluster.state.nodes, "its lease is not over"
    pass_time(cluster, 2, "n2")
    assert list(cluster.state.nodes) == ["n2"]


def test_what_a_drained_node_still_ran_is_lost_before_the_node_is_removed() -> None:
    cluster = a_cluster(n1={}, n2={"cores": 16})
    job = a_job(cores=1)
    cluster.submit(job)
    cluster.give(Drain("n1", "new fans"))
    pass_time(cluster, 33, "n2")
    assert list(cluster.state.nodes) == ["n2"]
    assert cluster.state.jobs[job.id].losses == {0: 1}
    assert cluster.state.jobs[job.id].live[0].node == "n2"


def test_a_lost_node_is_kept_for_a_day() -> None:
    cluster = Cluster(Timers(forget_after_s=100.0))
    cluster.add_node("n1")
    pass_time(cluster, 131)
    assert cluster.state.nodes["n1"].lost
    pass_time(cluster, 2)
    assert cluster.state.nodes == {}
    assert Timers().forget_after_s == 24 * 3600


def test_an_operator_may_remove_a_lost_node_at_once() -> None:
    cluster = a_cluster(n1={})
    pass_time(cluster, 31)
    assert cluster.give(RemoveNode("n1", "ann")) == [Accepted()]
    assert cluster.state.nodes == {}


def test_a_node_that_is_alive_is_not_removed() -> None:
    cluster = a_cluster(n1={})
    (answer,) = cluster.give(RemoveNode("n1"))
    assert isinstance(answer, Refused)
    assert answer.reason.code == "NodeAlive"
    assert "n1" in cluster.state.nodes


def test_a_node_that_holds_something_is_not_removed() -> None:
    cluster = Cluster()
    for name in ("n1", "n2", "n3", "n4", "n5"):  # so many that the brake keeps them
        cluster.add_node(name)
    cluster.submit(a_job("n1"))
    pass_time(cluster, 40)
    (answer,) = cluster.give(RemoveNode("n1"))
    assert isinstance(answer, Refused)
    assert answer.reason.code == "NodeHolds"


def test_removing_what_is_not_there_is_refused() -> None:
    (answer,) = Cluster().give(RemoveNode("n9"))
    assert isinstance(answer, Refused)
    assert answer.kind == "not_found"


def test_a_removed_node_that_comes_back_has_a_higher_generation() -> None:
    """Otherwise a report from before could equal one of its new incarnation."""
    cluster = a_cluster(n1={})
    job = a_job()
    cluster.submit(job)
    pass_time(cluster, 31)
    cluster.give(RemoveNode("n1"))
    cluster.add_node("n1")
    assert cluster.lease("n1") == 3
    answer = cluster.tell("n1", Ended((job.id, 0, 1), Exit(Why.NONE, 0)), generation=1)
    assert answer.disposition == Disposition.STALE_LEASE  # type: ignore[union-attr]


def test_what_stands_on_the_node_that_takes_the_row_moves_with_it() -> None:
    cluster = a_cluster(n1={"cores": 2}, n2={"cores": 4}, n3={"cores": 8, "gpus": 2})
    job = a_job("n3", cores=3, gpus=1, time_limit_s=50.0)
    cluster.submit(job)
    cluster.started("n3", (job.id, 0, 1))
    pass_time(cluster, 31, "n2", "n3")
    cluster.give(RemoveNode("n1"))
    table = cluster.state.table
    assert (table.names, table.rows) == (["n3", "n2"], {"n3": 0, "n2": 1})
    assert (table.columns.free[0] // 1000).tolist() == [5, 4]
    cluster.ended("n3", (job.id, 0, 1))
    assert (table.columns.free[0] // 1000).tolist() == [8, 4]
    assert table.ledger("n3").is_empty


def test_placement_sees_the_nodes_that_are_left_and_those_that_come_later() -> None:
    cluster = a_cluster(n1={"cores": 2}, n2={"cores": 2})
    warm = a_job(array="1-4")  # the columns of its class are kept up to date from now on
    cluster.submit(warm)
    pass_time(cluster, 31, "n2")
    cluster.give(RemoveNode("n1"))
    assert {each.node for each in cluster.state.jobs[warm.id].live.values()} == {"n2"}
    cluster.add_node("n3", cores=1)
    assert sorted(each.node for each in cluster.state.jobs[warm.id].live.values()) == ["n2", "n2", "n3"]
    gang = a_gang(a_group(2, cores=1))
    cluster.submit(gang)
    assert cluster.status(gang) == Status.PENDING
    cluster.add_node("n4", cores=3)
    assert cluster.status(gang) == Status.ASSIGNED


def test_an_ended_task_still_names_the_node_that_ran_it() -> None:
    """Its row may be another node's by now, in memory, in the image and in the history."""
    cluster = a_cluster(n1={}, n2={})
    job = a_job("n1")
    cluster.submit(job)
    cluster.ended("n1", (job.id, 0, 1))
    pass_time(cluster, 31, "n2")
    cluster.give(RemoveNode("n1"))
    cluster.add_node("n3")
    cluster.add_node("n1")
    later = a_job("n3")
    cluster.submit(later)
    cluster.ended("n3", (later.id, 0, 1))
    state = cluster.state
    assert task_view(state, state.jobs[later.id], 0).node == "n3"
    kept = decode_job(encode_job(state.jobs[job.id]))
    again = decode_state(encode_state(state), state.rules)
    assert task_view(state, kept, 0).node == "n1"
    assert task_view(again, again.jobs[job.id], 0).node == "n1"


def test_an_image_from_before_node_numbers_counts_them_by_place() -> None:
    cluster = a_cluster(n1={}, n2={})
    job = a_job("n2")
    cluster.submit(job)
    cluster.ended("n2", (job.id, 0, 1))
    image = msgpack.decode(encode_state(cluster.state))
    image[3] = [node[:10] for node in image[3]]
    again = decode_state(msgpack.encode(image[:9]), cluster.state.rules)
    assert [node.number for node in again.nodes.values()] == [0, 1]
    assert task_view(again, again.jobs[job.id], 0).node == "n2"


def test_a_row_that_was_given_back_starts_closed_and_empty() -> None:
    table = NodeTable()
    for name in ("n1", "n2"):
        table.put(name, a_capacity(cores=4, gpus=2))
        table.set_open(name, True)
    assert table.slots(Request(gpus=1)).column.tolist() == [2, 2]
    assert table.remove("n2") is None
    table.put("n3", a_capacity(cores=1, gpus=1))
    assert (table.is_open("n1"), table.is_open("n3")) == (True, False)
    assert table.slots(Request(gpus=1)).column.tolist() == [2, 0]
    assert list(table.tree.nodes) == ["n1", "n3"]
    assert table.remove("n1") == "n3"
    assert table.ever(Request(gpus=1))[0].tolist() == [1]
    assert list(table.tree.nodes) == ["n3"]


def test_tenants_follow_the_node_whose_row_has_changed() -> None:
    tenants = Tenants()
    for lane, row in enumerate((0, 2, 2), start=1):
        tenants.add(
            Tenant((f"n{row}", lane), "j", "q", 0, row, Grant(1, 0), 0, 0.0, 0.0, 0.0, affinity="near")
        )
    tenants.move_node(2, 0)
    assert tenants.node[tenants.used].tolist() == [0, 0, 0]
    assert dict(tenants.near["near"]) == {0: 3}
    assert {tenant.node_row for tenant in tenants.of_job["j"].values()} == {0}
