"""Addresses of the overlay network: blocks of nodes, addresses of attempts, reservations and their tokens."""

from __future__ import annotations

from hashlib import sha256

import pytest
from msgspec import structs

from phalanx.core.cluster import events as e
from phalanx.core.cluster.decision import Accepted, Answer, Refused, roll
from phalanx.core.cluster.image import decode_state, encode_state
from phalanx.core.cluster.inputs import (
    Cancel,
    Hello,
    ReleaseReservation,
    RemoveNode,
    ReserveAddress,
    Submit,
    Tick,
)
from phalanx.core.cluster.overlay import USER_RESERVATIONS_MAX, ReservedAddress
from phalanx.core.cluster.state import Timers
from phalanx.core.cluster.transitions import apply
from phalanx.core.model.containers import CONTAINERS, MOUNTS, ROOTFS, required_labels
from phalanx.core.model.job import Job
from phalanx.core.model.orders import Roll, Start, Status
from phalanx.core.model.overlay import OverlayRules
from tests.support.builders import Cluster, a_capacity, a_gang, a_group, a_job

RULES = OverlayRules("10.128.0.0/24", 28, quarantine_s=60.0)  # blocks of 12 addresses


class OverlayCluster(Cluster):
    """A cluster with an overlay network, whose runners take part in it."""

    def __init__(self, rules: OverlayRules = RULES) -> None:
        super().__init__(Timers(overlay=rules))

    def join(self, name: str, life: str = "a", *, has_overlay: bool = True) -> None:
        self.give(Hello(name, life, f"origin-{name}", a_capacity(), [], has_overlay=has_overlay))

    def block(self, name: str) -> str:
        return self.state.nodes[name].capacity.block

    def address(self, job: Job, position: int = 0) -> str:
        return self.state.jobs[job.id].live[position].grant.address

    def reserve(
        self, node: str, ip: str = "", token: str = "t", ttl_s: float = 300.0, user: str = ""
    ) -> Answer | None:
        digest = sha256(token.encode()).digest()
        made = ReservedAddress(digest.hex()[:16], digest, node, ip, user, self.now, self.now + ttl_s)
        return self.give(ReserveAddress(made))[0]

    def submit_with(self, job: Job, token: str = "t") -> Answer | None:
        return self.give(Submit(job, ip_digest=sha256(token.encode()).digest()))[0]

    def release(self, token: str = "t", user: str = "", *, is_operator: bool = False) -> Answer | None:
        id = sha256(token.encode()).hexdigest()[:16]
        return self.give(ReleaseReservation(id, user, is_operator))[0]


def an_overlay_cluster(*names: str) -> OverlayCluster:
    cluster = OverlayCluster()
    for name in names:
        cluster.join(name)
    return cluster


def code_of(answer: Answer | None) -> str:
    assert isinstance(answer, Refused), answer
    return answer.reason.code


def test_each_node_gets_a_block_and_keeps_it_by_its_name():
    cluster = an_overlay_cluster("n1", "n2")
    assert [cluster.block(name) for name in ("n1", "n2")] == ["10.128.0.0/28", "10.128.0.16/28"]
    cluster.now += 1
    cluster.join("n2", "b")
    cluster.join("n3")
    assert [cluster.block(name) for name in ("n2", "n3")] == ["10.128.0.16/28", "10.128.0.32/28"]


def test_a_node_that_was_removed_has_its_block_again():
    cluster = an_overlay_cluster("n1", "n2")
    cluster.now += 100
    cluster.give(Tick())
    assert isinstance(cluster.give(RemoveNode("n1"))[0], Accepted)
    cluster.join("n4")
    cluster.join("n1", "b")
    assert (cluster.block("n1"), cluster.block("n4")) == ("10.128.0.0/28", "10.128.0.32/28")


def test_when_blocks_run_out_that_of_a_removed_node_is_taken():
    cluster = OverlayCluster(OverlayRules("10.128.0.0/27", 28))
    for name in ("n1", "n2", "n3"):
        cluster.join(name)
    assert [cluster.block(name) for name in ("n1", "n2", "n3")] == ["10.128.0.0/28", "10.128.0.16/28", ""]
    cluster.now += 100
    cluster.give(Tick())
    cluster.give(RemoveNode("n1"))
    cluster.join("n3", "b")
    assert cluster.block("n3") == "10.128.0.0/28"


def test_a_runner_that_cannot_take_part_has_no_addresses_and_gets_no_such_task():
    cluster = OverlayCluster()
    cluster.join("n1", has_overlay=False)
    assert cluster.block("n1") == ""
    assert code_of(cluster.submit(a_job(addresses=1))) == "OverlayUnavailable"
    cluster.join("n1", "b")
    assert cluster.block("n1") == "10.128.0.0/28"


def test_a_block_that_a_runner_claims_is_not_believed():
    cluster = OverlayCluster()
    claims = structs.replace(a_capacity(), block="10.0.0.0/16")
    cluster.give(Hello("n1", "a", "o", claims, []))
    assert cluster.block("n1") == ""


def test_members_of_a_gang_are_told_the_addresses_of_all():
    cluster = an_overlay_cluster("n1", "n2")
    gang = a_gang(a_group(3, name="w", addresses=1, cores=4), names=True)
    cluster.submit(gang)
    addresses = [cluster.address(gang, position) for position in range(3)]
    assert len(set(addresses)) == 3
    told: Roll = roll(cluster.state, cluster.state.jobs[gang.id], 1)
    assert told.addresses == tuple(cluster.address(gang, position) for position, _ in told.members)
    assert told.groups == (("w", 0, 3, 3),)


def test_tasks_with_addresses_queue_in_no_lane():
    cluster = an_overlay_cluster("n1")
    sweep = a_job(array="1-20", addresses=1, cores=4)
    cluster.submit(sweep)
    for _ in range(6):
        for key in list(cluster.state.nodes["n1"].attempts):
            cluster.started("n1", key)
            cluster.now += 0.01
            cluster.ended("n1", key)
    lanes = cluster.state.nodes["n1"].lanes.values()
    assert all(len(lane) == 1 for lane in lanes)
    placed = [event for turn in cluster.turns for event in turn.events if isinstance(event, e.TaskPlaced)]
    assert all(event.opens for event in placed)


def test_an_address_is_given_to_nobody_until_its_quarantine_is_over():
    cluster = an_overlay_cluster("n1")
    first = a_job(addresses=1)
    cluster.submit(first)
    assert cluster.address(first) == "10.128.0.2"
    cluster.ended("n1", (first.id, 0, 1))
    cluster.now += 59
    second = a_job(addresses=1)
    cluster.submit(second)
    assert cluster.address(second) == "10.128.0.3"
    cluster.now += 2
    third = a_job(addresses=1)
    cluster.submit(third)
    assert cluster.address(third) == "10.128.0.2"


def test_a_task_waits_for_an_address_to_have_rested_and_then_starts_by_itself():
    cluster = OverlayCluster(OverlayRules("10.128.0.0/27", 29, 60.0))  # four addresses
    cluster.join("n1")
    jobs = [a_job(addresses=1) for _ in range(5)]
    for job in jobs:
        cluster.submit(job)
    assert cluster.status(jobs[4]) == Status.PENDING
    cluster.ended("n1", (jobs[0].id, 0, 1))
    assert cluster.status(jobs[4]) == Status.PENDING
    assert cluster.state.next_due == cluster.now + 60
    cluster.now += 60
    cluster.give()
    assert cluster.address(jobs[4]) == "10.128.0.2"


def test_blocks_reservations_and_rests_survive_an_image_and_a_replay():
    cluster = an_overlay_cluster("n1", "n2")
    done, runs = a_job(addresses=1), a_job(addresses=1)
    for job in (done, runs):
        cluster.submit(job)
    cluster.ended(cluster.state.jobs[done.id].live[0].node, (done.id, 0, 1))
    cluster.reserve("n2", "10.128.0.20")
    restored = decode_state(encode_state(cluster.state), cluster.state.rules)
    assert restored.overlay.image() == cluster.state.overlay.image()
    assert [ledger.free for ledger in restored.table] == [ledger.free for ledger in cluster.state.table]
    replayed = OverlayCluster().state
    for turn in cluster.turns:
        for event in turn.events:
            apply(replayed, event)
    assert replayed.skipped == 0
    assert replayed.overlay.image() == cluster.state.overlay.image()


def test_a_reserved_address_is_had_by_the_task_with_its_token_through_all_its_attempts():
    cluster = an_overlay_cluster("n1")
    assert isinstance(cluster.reserve("n1", "10.128.0.5"), Accepted)
    job = a_job("n1", max_retries=1)
    assert isinstance(cluster.submit_with(job), Accepted)
    assert cluster.address(job) == "10.128.0.5"
    cluster.ended("n1", (job.id, 0, 1), code=1)
    assert cluster.address(job) == "10.128.0.5"
    cluster.now += 600
    cluster.beat("n1", (job.id, 0, 2))
    cluster.give(Tick())
    assert cluster.state.overlay.by_job[job.id].address == "10.128.0.5", "in use, it does not expire"
    cluster.ended("n1", (job.id, 0, 2))
    assert cluster.state.overlay.by_id == {}
    assert code_of(cluster.reserve("n1", "10.128.0.5")) == "AddressUnavailable"
    cluster.now += 61
    assert isinstance(cluster.reserve("n1", "10.128.0.5", "t2"), Accepted)


def test_a_token_without_a_target_goes_to_its_node():
    cluster = an_overlay_cluster("n1", "n2")
    cluster.reserve("n2")
    job = a_job()
    cluster.submit_with(job)
    assert (cluster.state.jobs[job.id].live[0].node, cluster.address(job)) == ("n2", "10.128.0.18")


@pytest.mark.parametrize("wrong", ["node", "forged", "reused", "expired", "foreign"])
def test_every_bad_token_is_refused_for_one_reason(wrong: str):
    cluster = an_overlay_cluster("n1", "n2")
    cluster.reserve("n1", user="eve" if wrong == "foreign" else "")
    if wrong == "reused":
        cluster.submit_with(a_job("n1"))
    if wrong == "expired":
        cluster.now += 300
    job = a_job("n2" if wrong == "node" else "n1")
    answer = cluster.submit_with(job, "x" if wrong == "forged" else "t")
    assert isinstance(answer, Refused)
    assert (answer.reason.code, answer.kind) == ("ReservationInvalid", "reservation")
    assert answer.reason.text == "Invalid IP reservation token, expired, or node mismatch"
    assert job.id not in cluster.state.jobs


def test_a_reservation_that_nobody_uses_expires_and_its_address_is_free():
    cluster = an_overlay_cluster("n1")
    cluster.reserve("n1", "10.128.0.2", ttl_s=60)
    cluster.now += 60
    cluster.give(Tick())
    assert isinstance(cluster.reserve("n1", "10.128.0.2", "t2"), Accepted)


def test_a_job_that_never_started_gives_its_address_back():
    cluster = an_overlay_cluster("n1")
    cluster.submit(a_job("n1", cores=8))
    cluster.reserve("n1", "10.128.0.5")
    job = a_job("n1")
    cluster.submit_with(job)
    cluster.give(Cancel(job.id))
    assert isinstance(cluster.reserve("n1", "10.128.0.5", "t2"), Accepted)


def test_a_cancelled_task_keeps_its_address_until_its_end_is_confirmed():
    cluster = an_overlay_cluster("n1")
    cluster.reserve("n1", "10.128.0.5")
    job = a_job("n1")
    cluster.submit_with(job)
    cluster.give(Cancel(job.id))
    assert cluster.state.overlay.by_job[job.id].address == "10.128.0.5"
    cluster.ended("n1", (job.id, 0, 1), code=-15)
    assert cluster.state.overlay.by_job == {}
    assert cluster.state.overlay.resting[0][1:] == ("n1", "10.128.0.5")


@pytest.mark.parametrize(
    "ip", ["10.128.0.0", "10.128.0.1", "10.128.0.14", "10.128.0.15", "10.128.0.16", "10.9.9.9"]
)
def test_gateway_broadcast_and_addresses_of_others_cannot_be_reserved(ip: str):
    assert code_of(an_overlay_cluster("n1").reserve("n1", ip)) == "AddressUnavailable"


def test_a_taken_address_and_an_unknown_node_are_refused():
    cluster = an_overlay_cluster("n1")
    cluster.submit(a_job(addresses=1))
    assert code_of(cluster.reserve("n1", "10.128.0.2")) == "AddressUnavailable"
    cluster.reserve("n1", "10.128.0.3")
    assert code_of(cluster.reserve("n1", "10.128.0.3", "t2")) == "AddressUnavailable"
    assert code_of(cluster.reserve("n9")) == "AddressUnavailable"


def test_without_an_overlay_network_nothing_can_be_reserved_or_used():
    cluster = Cluster()
    cluster.add_node("n1")
    made = ReservedAddress("a", b"d", "n1", "", "", 0.0, 1e9)
    assert code_of(cluster.give(ReserveAddress(made))[0]) == "OverlayOff"
    assert code_of(cluster.give(Submit(a_job(), ip_digest=b"d"))[0]) == "OverlayOff"


def test_a_release_ends_an_unused_reservation_once_and_only_its_users():
    cluster = an_overlay_cluster("n1")
    cluster.reserve("n1", user="ada")
    assert code_of(cluster.release(user="eve")) == "ReservationNotFound"
    assert isinstance(cluster.release(user="ada"), Accepted)
    assert code_of(cluster.release(user="ada")) == "ReservationNotFound"
    cluster.reserve("n1", token="t2", user="ada")
    assert isinstance(cluster.release("t2", "root", is_operator=True), Accepted)
    cluster.reserve("n1", token="t3")
    cluster.submit_with(a_job("n1"), "t3")
    assert code_of(cluster.release("t3")) == "ReservationNotFound", "it is in use"


def test_nobody_reserves_without_end():
    cluster = OverlayCluster(OverlayRules("10.128.0.0/12", 22))
    cluster.join("n1")
    for number in range(USER_RESERVATIONS_MAX):
        cluster.reserve("n1", token=str(number))
    assert code_of(cluster.reserve("n1", token="more")) == "TooManyReservations"


def test_a_start_carries_the_address():
    cluster = an_overlay_cluster("n1")
    cluster.submit(a_job(addresses=1))
    (order,) = [order for _, order in cluster.orders if isinstance(order, Start)]
    assert order.grant.address == "10.128.0.2"


KEY = "5U31RfkgfGhJLrMyPgTBwvbV1d9MOguGn6g9X9i60jY="


def test_where_packets_are_encrypted_only_nodes_with_a_key_have_a_block():
    cluster = OverlayCluster(structs.replace(RULES, encrypted=True))
    cluster.join("n1")
    with_key = structs.replace(a_capacity(), wireguard=KEY)
    cluster.give(Hello("n2", "a", "origin-n2", with_key, [], has_overlay=True))
    assert [cluster.block(name) for name in ("n1", "n2")] == ["", "10.128.0.0/28"]
    cluster.now += 1
    cluster.give(Hello("n2", "b", "origin-n2", a_capacity(), [], has_overlay=True))
    assert cluster.block("n2") == "", "nothing is sent in clear when it has lost its key"


def test_a_node_knows_the_addresses_of_those_who_have_tasks_there_with_and_without_an_address():
    cluster = an_overlay_cluster("n1", "n2")
    overlay = cluster.state.overlay
    first, other = (
        a_job(user="ada", addresses=1, target="n1"),
        a_job(user="ada", target="n2"),
    )
    cluster.submit(first)
    version = overlay.version
    cluster.submit(a_job(user="eve", target="n2"))
    assert (overlay.version, overlay.known_at("n2")) == (version, []), "eve has no address to be known there"
    cluster.submit(other)
    assert overlay.version > version
    assert overlay.known_at("n2") == [(cluster.address(first), "ada")]
    restored = decode_state(encode_state(cluster.state), cluster.state.rules)
    assert restored.overlay.known_at("n2") == overlay.known_at("n2")
    cluster.ended("n2", (other.id, 0, 1))
    assert overlay.known_at("n2") == [], "ada has nothing there any more"


def a_docker_and_a_podman_node() -> OverlayCluster:
    cluster = OverlayCluster()
    for name, labels, cores in (("n1", [CONTAINERS, MOUNTS], 2), ("n2", [CONTAINERS, ROOTFS, MOUNTS], 8)):
        has = structs.replace(a_capacity(cores=cores), labels=dict(labels), containers=f"the one of {name}")
        cluster.give(Hello(name, "a", f"origin-{name}", has, [], has_overlay=True))
    return cluster


def an_image_job(**fields: object) -> Job:
    job = a_job(labels=required_labels("python", has_address=bool(fields.get("addresses"))), **fields)  # type: ignore[arg-type]
    command = structs.replace(job.groups[0].command, image="python")
    return structs.replace(job, groups=(structs.replace(job.groups[0], command=command),))


def test_a_container_with_an_address_goes_to_a_node_with_podman():
    cluster = a_docker_and_a_podman_node()
    plain, with_address = an_image_job(), an_image_job(addresses=1)
    for job in (plain, with_address):
        assert isinstance(cluster.submit(job), Accepted)
    nodes = [cluster.state.jobs[job.id].live[0].node for job in (plain, with_address)]
    assert nodes == ["n1", "n2"], "the smaller node is taken where nothing speaks against it"


def test_a_container_with_a_reserved_address_of_a_node_without_podman_is_refused_by_name():
    cluster = a_docker_and_a_podman_node()
    for node, token in (("n1", "t"), ("n2", "u")):
        assert isinstance(cluster.reserve(node, token=token), Accepted)
    refused = cluster.submit_with(an_image_job())
    assert code_of(refused) == "NoContainers"
    assert isinstance(refused, Refused) and "only podman gives a container an address" in refused.reason.text
    assert isinstance(cluster.submit_with(an_image_job(), "u"), Accepted)
