"""Health checks: a node that fails gets no work, a device that fails is given to nobody, and both come back."""

from __future__ import annotations

from msgspec import structs

from phalanx.core.cluster.decide.closed_nodes import why_closed
from phalanx.core.cluster.decision import Accepted, Refused
from phalanx.core.cluster.health_events import NodeChecked
from phalanx.core.cluster.image import decode_state, encode_state
from phalanx.core.cluster.inputs import Drain, Heartbeat, Hello, Submit, Undrain
from phalanx.core.model.health import FAILED_MAX, REASON_MAX, DeviceHealth, NodeHealth
from phalanx.core.model.job import Restart
from phalanx.core.model.orders import Phase, Status, Stop
from tests.support.builders import Cluster, a_capacity, a_gang, a_group, a_job
from tests.support.core_cluster import CoreCluster

FULL = NodeHealth("disk /var is 99% full")
XID = NodeHealth("", (DeviceHealth(1, "GPU 1 had a critical error: Xid 79"),))


def beat(cluster: CoreCluster, health: NodeHealth | None, node: str = "n1") -> None:
    known = cluster.state.nodes[node]
    held = [(key, Phase.RUNNING) for key in known.attempts]
    cluster.give(Heartbeat(node, known.incarnation, held, known.generation, health=health))


def a_cluster() -> CoreCluster:
    return CoreCluster(n1={"cores": 4, "gpus": 2}, n2={"cores": 4})


def checks(cluster: CoreCluster) -> list[NodeHealth]:
    return [event.health for event in cluster.events if isinstance(event, NodeChecked)]


class TestNode:
    def test_it_gets_no_work_while_a_check_fails_and_what_runs_goes_on(self) -> None:
        cluster = a_cluster()
        job = a_job()
        cluster.submit(job)
        cluster.place(job, 0, "n1")
        cluster.starts(job, 0)
        beat(cluster, FULL)
        assert not cluster.state.table.is_open("n1")
        assert cluster.told(Stop) == []
        said = why_closed(cluster.state.nodes["n1"])
        assert said is not None
        assert (said.code, "disk /var is 99% full" in said.text) == ("NodeUnhealthy", True)
        beat(cluster, None)
        assert cluster.state.table.is_open("n1")

    def test_what_does_not_change_is_written_once(self) -> None:
        cluster = a_cluster()
        for health in (None, FULL, FULL, None, None):
            beat(cluster, health)
        assert checks(cluster) == [FULL, NodeHealth()]

    def test_a_drain_by_an_operator_and_a_failing_check_do_not_end_each_other(self) -> None:
        cluster = a_cluster()
        beat(cluster, FULL)
        cluster.give(Drain("n1", "maintenance"))
        beat(cluster, None)
        assert cluster.state.nodes["n1"].drain_reason == "maintenance"
        assert not cluster.state.table.is_open("n1")
        beat(cluster, FULL)
        cluster.give(Undrain("n1"))
        assert not cluster.state.table.is_open("n1"), "its check fails still"
        beat(cluster, None)
        assert cluster.state.table.is_open("n1")

    def test_a_runner_that_starts_says_it_with_its_hello(self) -> None:
        cluster = a_cluster()
        cluster.give(Hello("n3", "a", "origin-n3", a_capacity(cores=4), [], health=FULL))
        assert not cluster.state.table.is_open("n3")
        cluster.give(Hello("n3", "b", "origin-n3", a_capacity(cores=4), []))
        assert cluster.state.table.is_open("n3"), "a new life begins without what the former said"

    def test_an_image_keeps_it(self) -> None:
        cluster = a_cluster()
        beat(cluster, NodeHealth("memory: 10 MiB available", XID.devices))
        again = decode_state(encode_state(cluster.state), cluster.state.rules)
        assert again.nodes["n1"].health == cluster.state.nodes["n1"].health
        assert list(again.table.ledgers[again.nodes["n1"].row].devices) == [0]

    def test_what_a_runner_says_is_bounded(self) -> None:
        cluster = a_cluster()
        beat(cluster, NodeHealth("x" * 5000, tuple(DeviceHealth(n, "y" * 5000) for n in range(200))))
        health = cluster.state.nodes["n1"].health
        assert (len(health.reason), len(health.devices)) == (REASON_MAX, FAILED_MAX)
        assert len(health.devices[0].reason) == REASON_MAX


class TestDevice:
    def test_it_is_given_to_nobody_and_the_others_are(self) -> None:
        cluster = a_cluster()
        beat(cluster, XID)
        assert cluster.state.table.is_open("n1")
        first, second = a_job(id="j1", gpus=1), a_job(id="j2", gpus=1)
        cluster.submit(first)
        cluster.place(first, 0, "n1")
        [lane] = cluster.state.nodes["n1"].lanes.values()
        assert lane.grant.devices == (0,)
        cluster.submit(second)
        ledger = cluster.state.table.ledgers[cluster.state.nodes["n1"].row]
        assert ledger.slots(second.groups[0].request) == 0
        beat(cluster, None)
        ledger = cluster.state.table.ledgers[cluster.state.nodes["n1"].row]
        assert ledger.devices_free == {1}

    def test_whoever_holds_it_keeps_it_and_nobody_queues_behind(self) -> None:
        cluster = a_cluster()
        job = a_job(gpus=2)
        cluster.submit(job)
        cluster.place(job, 0, "n1")
        cluster.starts(job, 0)
        beat(cluster, XID)
        [lane] = cluster.state.nodes["n1"].lanes.values()
        assert lane.grant.devices == (0, 1)
        assert lane.is_slow
        again = decode_state(encode_state(cluster.state), cluster.state.rules)
        assert again.nodes["n1"].lanes[lane.id].is_slow
        cluster.ends(job, 0)
        ledger = cluster.state.table.ledgers[cluster.state.nodes["n1"].row]
        assert (ledger.devices_free, ledger.devices_held) == ({0}, set())

    def test_a_job_that_needs_it_waits_and_is_not_refused(self) -> None:
        cluster = a_cluster()
        beat(cluster, XID)
        assert isinstance(cluster.give(Submit(a_job(id="j1", gpus=2))), Accepted)
        assert isinstance(cluster.give(Submit(a_job(id="j2", gpus=3))), Refused)

    def test_so_does_a_gang_unless_it_could_never_start(self) -> None:
        cluster = Cluster()
        cluster.add_node("n2", cores=4)
        cluster.give(Hello("n1", "a", "origin-n1", a_capacity(cores=4, gpus=2), [], health=XID))
        assert isinstance(cluster.submit(a_gang(a_group(2, gpus=1), id="j1")), Accepted)
        assert isinstance(cluster.submit(a_gang(a_group(3, gpus=1), id="j2")), Refused)


class TestEviction:
    def test_everything_on_the_node_leaves_gangs_as_a_whole(self) -> None:
        cluster = a_cluster()
        gang = a_gang(a_group(2))
        job = cluster.submit(gang)
        cluster.gang_placement(gang, {0: "n1", 1: "n2"})
        cluster.starts(gang, 0, 1)
        beat(cluster, NodeHealth("disk /var is 99% full", evict=True))
        assert {key[1] for key in cluster.told(Stop)} == {0, 1}
        assert "a health check of n1 fails: disk /var is 99% full" in job.conditions[1].message
        cluster.confirm_stops()
        assert cluster.statuses(gang) == [Status.PENDING] * 2
        assert job.charged == {}

    def test_of_a_failed_device_only_its_holder_leaves(self) -> None:
        cluster = a_cluster()
        holder, other = a_job(id="j1", gpus=1), a_job(id="j2", gpus=1)
        for job in (other, holder):
            cluster.submit(job)
            cluster.place(job, 0, "n1")
            cluster.starts(job, 0)
        beat(cluster, NodeHealth("", XID.devices, evict=True))
        assert [key[0] for key in cluster.told(Stop)] == ["j1"]
        beat(cluster, NodeHealth("", XID.devices, evict=True))
        assert {key[0] for key in cluster.told(Stop)} == {"j1"}, "the other one stays"

    def test_it_counts_for_those_of_whom_evictions_count(self) -> None:
        """A `backoffLimit` of 1 is used up by two failing checks, and by nothing that waits in between."""
        cluster = a_cluster()
        restart = Restart(fails_job=True, shared=True, counts_evictions=True)
        counts = structs.replace(a_job(id="j1"), max_retries=1, restart=restart)
        plain = structs.replace(a_job(id="j2"), max_retries=1)
        states = [cluster.submit(job) for job in (counts, plain)]
        for expected in ((Status.PENDING, 1), (Status.FAILED, 2)):
            for job in (counts, plain):
                cluster.place(job, 0, "n1")
                cluster.starts(job, 0)
            beat(cluster, NodeHealth("disk /var is 99% full", evict=True))
            cluster.confirm_stops()
            assert (cluster.statuses(counts)[0], states[0].charged.get(0)) == expected
            assert (cluster.statuses(plain)[0], states[1].charged) == (Status.PENDING, {})
            beat(cluster, NodeHealth(""))
