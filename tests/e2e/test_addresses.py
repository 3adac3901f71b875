"""The acceptance cases 22 to 24 of contract/tasks-and-targets.md: reserved addresses, against real processes.

Nodes are simulated, so their addresses are numbers that tasks are told; the network itself is tested elsewhere.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import phalanx
from phalanx.api.schema.cluster import TokenRequest
from phalanx.core.model.credential import Role
from phalanx.errors import BadRequest, Conflict, Forbidden, NotFound, Unprocessable
from tests.e2e.test_gangs_cli import phalanx as run_cli
from tests.support.real_cluster import RealCluster, a_real_cluster
from tests.support.waiting import wait_until

ON = {"overlay.mode": "enabled", "overlay.quarantine_s": 1.0}
HAS = "cpus=8,ram=16GiB"
SHOW = ["/bin/sh", "-c", "echo $PHALANX_IP"]
LONG = ["/bin/sleep", "300"]
BAD_TOKEN = "Invalid IP reservation token, expired, or node mismatch"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCluster]:
    with two_nodes(tmp_path_factory.mktemp("addresses")) as started:
        yield started


@contextmanager
def two_nodes(folder: Path) -> Iterator[RealCluster]:
    """One after the other, so that n1 has the first block."""
    with a_real_cluster(folder, {"n1": HAS}, settings=ON) as started:
        started.start_runner("n2", HAS)
        started.wait_online("n2")
        yield started


@contextmanager
def a_client(cluster: RealCluster, name: str, role: Role = "user") -> Iterator[phalanx.Client]:
    made = cluster.client.create_token(TokenRequest("user", name, role))
    with phalanx.Client(cluster.address("coordinator"), made.token) as client:
        yield client


def test_case_22_a_reserved_address_is_in_the_block_of_its_node(cluster: RealCluster) -> None:
    made = cluster.client.reserve_address("n1")
    assert made.ip.startswith("10.128.0.")
    assert (made.ttl, made.reservation.node) == (300, "n1")
    assert made.token.startswith("phx_ip_")
    assert made.reservation.expires_at is not None
    assert cluster.client.reserve_address("n2").ip.startswith("10.128.4.")


@pytest.mark.parametrize("ttl", [59, 1801, -1, 0])
def test_case_22_a_ttl_out_of_range_is_unprocessable(cluster: RealCluster, ttl: int) -> None:
    with pytest.raises(Unprocessable, match="60 to 1800"):
        cluster.client.reserve_address("n1", ttl=ttl)


@pytest.mark.parametrize("ttl", [60, 1800])
def test_case_22_the_ends_of_the_range_are_taken(cluster: RealCluster, ttl: int) -> None:
    assert cluster.client.reserve_address("n1", ttl=ttl).ttl == ttl


@pytest.mark.parametrize(
    ("node", "ip"),
    [
        ("n1", "10.128.0.1"),  # gateway
        ("n1", "10.128.3.254"),  # the last but one of the block
        ("n1", "10.128.3.255"),  # broadcast
        ("n1", "10.128.4.9"),  # of n2
        ("n1", "192.168.1.1"),
        ("n9", None),
        ("n9", "10.128.0.9"),
    ],
)
def test_case_22_addresses_that_nobody_can_have_conflict(
    cluster: RealCluster, node: str, ip: str | None
) -> None:
    with pytest.raises(Conflict, match="IP unavailable"):
        cluster.client.reserve_address(node, ip=ip)


def test_case_22_a_taken_address_conflicts(cluster: RealCluster) -> None:
    cluster.client.reserve_address("n1", ip="10.128.0.77")
    with pytest.raises(Conflict, match="IP unavailable"):
        cluster.client.reserve_address("n1", ip="10.128.0.77")


def test_case_22_what_is_no_address_is_a_client_error(cluster: RealCluster) -> None:
    with pytest.raises(BadRequest, match="is not an IPv4 address"):
        cluster.client.reserve_address("n1", ip="10.128.0")


def test_case_23_the_task_with_the_token_gets_exactly_that_address(cluster: RealCluster) -> None:
    made = cluster.client.reserve_address("n1", ip="10.128.0.50")
    reply = cluster.client.submit(targets=["n1"], ip_token=made.token, command=SHOW)
    cluster.wait_task(reply.task_ids[0], "Completed")
    assert cluster.output(reply.task_ids[0]) == "10.128.0.50\n"


def test_case_23_the_address_is_free_again_when_the_task_has_ended(cluster: RealCluster) -> None:
    made = cluster.client.reserve_address("n1", ip="10.128.0.51")
    id = cluster.client.submit(targets=["n1"], ip_token=made.token, command=LONG).task_ids[0]
    cluster.wait_task(id, "Running")
    with pytest.raises(Conflict):
        cluster.client.reserve_address("n1", ip="10.128.0.51")
    cluster.client.cancel(id)

    def is_free() -> bool:
        try:
            return cluster.client.reserve_address("n1", ip="10.128.0.51").ip == "10.128.0.51"
        except Conflict:
            return False

    wait_until(is_free, 20.0, "the address has rested and can be reserved")


@pytest.mark.parametrize("wrong", ["node", "forged", "reused", "foreign"])
def test_case_23_a_bad_token_is_refused_for_one_uniform_reason(cluster: RealCluster, wrong: str) -> None:
    made = cluster.client.reserve_address("n1")
    token, target = made.token, "n2" if wrong == "node" else "n1"
    if wrong == "forged":
        token = token[:-1] + ("a" if token[-1] != "a" else "b")
    if wrong == "reused":
        cluster.client.submit(targets=["n1"], ip_token=token, command=LONG)
    with a_client(cluster, "eve") as eve:
        client = eve if wrong == "foreign" else cluster.client
        with pytest.raises(BadRequest) as refused:
            client.submit(targets=[target], ip_token=token, command=["/bin/true"])
    assert (refused.value.reason, refused.value.detail) == ("ReservationInvalid", BAD_TOKEN)


def test_case_23_a_token_is_for_one_task(cluster: RealCluster) -> None:
    made = cluster.client.reserve_address("n1")
    for fields in ({"tasks": 2}, {"array": "1-2"}, {"targets": ["n1", "n2"]}):
        with pytest.raises(BadRequest, match="ip_token: it is for one task"):
            cluster.client.submit(ip_token=made.token, command=["/bin/true"], **fields)


def test_case_24_an_unused_token_is_released_once(cluster: RealCluster) -> None:
    made = cluster.client.reserve_address("n1")
    assert cluster.client.release_reservation(made.token).ip == made.ip
    with pytest.raises(NotFound, match="Reservation not found, expired, or in use"):
        cluster.client.release_reservation(made.token)


def test_case_24_a_token_in_use_cannot_be_released(cluster: RealCluster) -> None:
    made = cluster.client.reserve_address("n1")
    cluster.client.submit(targets=["n1"], ip_token=made.token, command=LONG)
    with pytest.raises(NotFound, match="Reservation not found, expired, or in use"):
        cluster.client.release_reservation(made.token)


def test_users_see_and_release_their_own_reservations_and_viewers_make_none(cluster: RealCluster) -> None:
    with a_client(cluster, "ada") as ada, a_client(cluster, "eve") as eve:
        made = ada.reserve_address("n1")
        assert made.reservation.id in [each.id for each in ada.reservations()]
        assert [each.user for each in eve.reservations()] == []
        with pytest.raises(NotFound):
            eve.release_reservation(made.token)
    with a_client(cluster, "vic", "viewer") as vic, pytest.raises(Forbidden):
        vic.reserve_address("n1")
    assert made.reservation.id in [each.id for each in cluster.client.reservations()]
    assert cluster.client.release_reservation(made.reservation.id).user == "ada"


def test_the_walk_through_of_the_seed_by_its_commands(cluster: RealCluster) -> None:
    made = json.loads(run_cli(cluster, "node", "ip-reserve", "n1", "--ttl", "300", "-o", "json"))
    id = run_cli(
        cluster, "task", "submit", "-t", "n1", "--ip-token", made["token"], "--", "/bin/sh", "-c",
        f"test $PHALANX_IP = {made['ip']}",
    ).strip()  # fmt: skip
    cluster.wait_task(id, "Completed")
    listed = json.loads(run_cli(cluster, "node", "ip-list", "-o", "json"))
    assert made["reservation"]["id"] not in [each["id"] for each in listed], "it ended with its task"
    assert "10.128.0.0/22" in run_cli(cluster, "node", "ip-info", "n1")
    assert run_cli(cluster, "node", "ip-available", "n2", "-l", "2", "-o", "name").startswith("10.128.4.")
    other = json.loads(run_cli(cluster, "node", "ip-reserve", "n2", "-o", "json"))
    assert "released" in run_cli(cluster, "node", "ip-release", other["token"])


def test_a_gang_finds_the_addresses_of_all_members_before_the_first_starts(cluster: RealCluster) -> None:
    show = ["/bin/sh", "-c", "echo $PHALANX_IP $MASTER_ADDR $PHALANX_PEERS"]
    reply = cluster.client.gang(show, 3, network="overlay", cores=4, name="ring")
    wait_until(lambda: cluster.client.job(reply.task_ids[0]).status == "Completed", 30.0, "the gang is done")
    told = [cluster.output(f"{reply.task_ids[0]}.{position}").split() for position in range(3)]
    own = [words[0] for words in told]
    assert len(set(own)) == 3
    assert {words[1] for words in told} == {own[0]}, "MASTER_ADDR is the address of rank 0"
    peers = ",".join(f"ring-ring-0-{position}={own[position]}" for position in range(3))
    assert {words[2] for words in told} == {peers}


def test_case_23_reservations_survive_a_restart_of_the_coordinator(tmp_path: Path) -> None:
    with two_nodes(tmp_path) as cluster:
        example = cluster.client.reserve_address("n1", ip="10.128.0.5")
        assert example.ip == "10.128.0.5", "the seed's example can be had"
        cluster.client.release_reservation(example.token)
        made = cluster.client.reserve_address("n2", ip="10.128.4.9")
        cluster.kill("coordinator")
        cluster.start_coordinator()
        wait_until(cluster.is_ready, 30.0, "the coordinator is back")
        cluster.wait_online("n1", "n2")
        assert [each.ip for each in cluster.client.reservations()] == ["10.128.4.9"]
        id = cluster.client.submit(targets=["n2"], ip_token=made.token, command=SHOW).task_ids[0]
        cluster.wait_task(id, "Completed")
        assert cluster.output(id) == "10.128.4.9\n"


def test_case_23_reservations_and_blocks_survive_a_failover(tmp_path: Path) -> None:
    with a_real_cluster(tmp_path, {"n1": HAS}, coordinators=("c1", "c2"), settings=ON) as cluster:
        leader = cluster.leader()
        made = cluster.client.reserve_address("n1", ip="10.128.0.5")
        cluster.kill(leader)
        cluster.leader(within_s=40.0)
        cluster.wait_online("n1")
        assert cluster.client.node_addresses("n1").block == "10.128.0.0/22"
        id = cluster.client.submit(targets=["n1"], ip_token=made.token, command=SHOW).task_ids[0]
        cluster.wait_task(id, "Completed")
        assert cluster.output(id) == "10.128.0.5\n"
        with pytest.raises(BadRequest, match=BAD_TOKEN):
            cluster.client.submit(targets=["n1"], ip_token=made.token, command=SHOW)


def test_without_an_overlay_network_there_is_a_clear_error(tmp_path: Path) -> None:
    with a_real_cluster(tmp_path, {"n1": "cpus=2"}) as cluster:
        for ask in (cluster.client.reservations, lambda: cluster.client.reserve_address("n1")):
            with pytest.raises(BadRequest, match="requires overlay network to be enabled"):
                ask()
        with pytest.raises(BadRequest, match="requires overlay network to be enabled"):
            cluster.client.submit(targets=["n1"], ip_token="phx_ip_x", command=["/bin/true"])
