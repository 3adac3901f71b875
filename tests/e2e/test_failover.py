"""Several coordinators on one store: which one leads, which follow, and what survives when the leader does not.

Real processes. A leader is killed, stopped or terminated; the others must continue with everything that was accepted.
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from phalanx.errors import PhalanxError
from tests.support.real_cluster import RealCluster, a_real_cluster
from tests.support.servers import shared_etcd
from tests.support.waiting import wait_until

THREE = ("a", "b", "c")
LEASE_S = 2.0  # etcd knows whole seconds, and none below 2
NODES = {"n1": "cpus=4,ram=8GiB", "n2": "cpus=4,ram=8GiB"}
SETTINGS: dict[str, object] = {"coordinator.lease_s": LEASE_S}
on_both = pytest.mark.parametrize("store", ["sqlite", "etcd"])


def a_trio(
    folder: Path, store: str, nodes: dict[str, str], lease_s: float = LEASE_S
) -> AbstractContextManager[RealCluster]:
    """Three coordinators on one store, SQLite in a shared file or three real members of etcd."""
    url = shared_etcd().url if store == "etcd" else None
    settings: dict[str, object] = {"coordinator.lease_s": lease_s}
    return a_real_cluster(folder, nodes, coordinators=THREE, settings=settings, store=url, lost_after_s=20.0)


@on_both
def test_three_elect_one_and_the_others_follow(tmp_path: Path, store: str) -> None:
    with a_trio(tmp_path, store, {}) as cluster:
        leader = cluster.leader()
        for name in THREE:
            view = cluster.clients[name].cluster()
            assert view.coordinator is not None
            assert view.coordinator.role == ("Active" if name == leader else "Standby")
            assert view.coordinator.leader == leader
            assert cluster.status_of(name, "/livez") == 200
            assert cluster.status_of(name, "/leaderz") == (200 if name == leader else 503)


@on_both
def test_c36_a_standby_refuses_wishes_and_answers_questions(tmp_path: Path, store: str) -> None:
    with a_trio(tmp_path, store, NODES) as cluster:
        standby = cluster.clients[cluster.standbys()[0]]
        address = cluster.address(cluster.leader())
        id = cluster.client.submit(command=["/bin/sleep", "300"]).task_ids[0]
        cluster.wait_task(id, "Running")
        for options in (
            lambda: standby.submit(command=["/bin/true"]),
            lambda: standby.cancel(id),
            lambda: standby.pause(id),
            lambda: standby.drain("n1", "test"),
            lambda: b"".join(standby.logs(id)),
        ):
            with pytest.raises(PhalanxError) as caught:
                options()
            assert caught.value.reason == "NotActive"
            assert caught.value.extra["leader"] == address
        wait_until(lambda: standby.task(id).status == "Running", 5.0, "the standby has heard of it")
        assert standby.job(id).id == id
        assert {node.name for node in standby.nodes()} == set(NODES)
        assert standby.why(id).id == id
        assert standby.story(id).items[0].event == "JobSubmitted"
        assert standby.cluster().revision == cluster.client.cluster().revision


@on_both
def test_a_killed_leader_is_followed_and_running_tasks_keep_their_processes(
    tmp_path: Path, store: str
) -> None:
    with a_trio(tmp_path, store, NODES) as cluster:
        id = cluster.client.submit(shell="echo $$; exec sleep 300").task_ids[0]
        cluster.wait_task(id, "Running")
        pid = int(wait_until(lambda: cluster.output(id).strip()))
        before, first = cluster.client.cluster(), cluster.leader()
        cluster.kill(first)
        began = time.monotonic()
        second = _next_leader(cluster, first)
        took_s = time.monotonic() - began
        assert took_s < LEASE_S + 1.5, f"the next leader was active after {took_s:.2f} s"
        cluster.wait_online("n1", "n2")
        after = cluster.client.cluster()
        assert after.epoch > before.epoch
        assert after.revision > before.revision
        task = cluster.client.task(id)
        assert (task.status, task.attempt, task.losses) == ("Running", 1, 0)
        os.kill(pid, 0)
        cluster.start_coordinator(first)
        cluster.wait_ready(first)
        assert cluster.leader() == second


@on_both
def test_a_leader_that_was_stopped_and_woken_says_nothing_and_follows(tmp_path: Path, store: str) -> None:
    with a_trio(tmp_path, store, NODES) as cluster:
        first = cluster.leader()
        cluster.kill(first, signal.SIGSTOP)
        second = _next_leader(cluster, first)
        id = wait_until(lambda: _submitted(cluster), 15.0, "the new leader takes work")
        cluster.wait_task(id, "Completed")
        cluster.kill(first, signal.SIGCONT)
        wait_until(lambda: _role(cluster, first) == "Standby", 5.0, "it knows that it was replaced")
        wait_until(lambda: _status(cluster, first, id) == "Completed", 5.0, "it follows the new leader")
        assert cluster.leader() == second
        with pytest.raises(PhalanxError) as caught:
            cluster.clients[first].submit(command=["/bin/true"])
        assert caught.value.reason == "NotActive"


@on_both
def test_a_leader_that_is_told_to_end_hands_over_at_once(tmp_path: Path, store: str) -> None:
    with a_trio(tmp_path, store, {}, lease_s=60.0) as cluster:  # never waited for
        first = cluster.leader()
        cluster.kill(first, signal.SIGTERM)
        assert cluster.processes[first].returncode == 0
        began = time.monotonic()
        assert _next_leader(cluster, first) != first
        assert time.monotonic() - began < 2.0


def test_c33_epochs_only_grow_over_restarts_and_failovers(tmp_path: Path) -> None:
    with a_real_cluster(tmp_path, {}, coordinators=("a", "b"), settings=SETTINGS) as cluster:
        epochs = [cluster.client.cluster().epoch]
        for number in (signal.SIGTERM, signal.SIGKILL, signal.SIGTERM, signal.SIGKILL):
            leader = cluster.leader()
            cluster.kill(leader, number)
            _next_leader(cluster, leader)
            epochs.append(wait_until(lambda: _epoch(cluster), 10.0))
            cluster.start_coordinator(leader)
        assert epochs == sorted(set(epochs))


@on_both
@pytest.mark.parametrize("when", ["submitted", "assigned", "running", "completed", "cancelled"])
def test_c37_a_leader_killed_at_any_moment_of_a_job_loses_and_repeats_nothing(
    tmp_path: Path, when: str, store: str
) -> None:
    nodes = {} if when == "submitted" else {"n1": "cpus=4,ram=8GiB"}
    seen, gate, done = tmp_path / "seen", tmp_path / "gate", tmp_path / "done"
    work = f"echo x >> {seen}; until test -e {gate}; do sleep 0.05; done; touch {done}"
    with a_trio(tmp_path / "c", store, nodes) as cluster:
        if when == "assigned":
            cluster.kill("n1", signal.SIGSTOP)  # the order to start is sent, and not received
        id = cluster.client.submit(
            shell=work, max_retries=0, allow_infeasible=True, request_id="once"
        ).task_ids[0]
        _wait_until(cluster, id, when, seen)
        first = cluster.leader()
        if when == "completed":  # its end is sent to a leader that does not receive it
            cluster.kill(first, signal.SIGSTOP)
            gate.touch()
            wait_until(done.exists)
        cluster.kill(first)
        _next_leader(cluster, first)
        if when == "assigned":
            cluster.kill("n1", signal.SIGCONT)
        if when == "submitted":
            cluster.start_runner("n1", "cpus=4,ram=8GiB")
        again = cluster.client.submit(shell=work, max_retries=0, allow_infeasible=True, request_id="once")
        assert again.task_ids == [id], "a request that is sent again is the same job"
        gate.touch()
        if when == "cancelled":
            task = cluster.wait_task(id, "Cancelled")
        else:
            task = cluster.wait_task(id, "Completed", within_s=30.0)
            assert seen.read_text().split() == ["x"], "it ran once"
        assert task.attempt <= 1
        wait_until(lambda: _ends(cluster, id) == task.attempt, 10.0, "it ended once")
        assert len(cluster.client.jobs(limit=10).items) == 1
        wait_until(lambda: cluster.client.node("n1").cores_free == 4, 15.0, "nothing leaks")


def _wait_until(cluster: RealCluster, id: str, when: str, seen: Path) -> None:
    """Bring the job to the moment at which its leader is killed."""
    match when:
        case "submitted":
            assert cluster.client.task(id).status == "Pending"
        case "assigned":
            cluster.wait_task(id, "Assigned")
        case "running" | "completed":
            cluster.wait_task(id, "Running")
            wait_until(seen.exists)
        case "cancelled":
            cluster.wait_task(id, "Running")
            wait_until(seen.exists)
            cluster.client.cancel(id)


def _next_leader(cluster: RealCluster, former: str) -> str:
    others = [name for name in cluster.coordinators if name != former]

    def found() -> str | None:
        return next((name for name in others if cluster.status_of(name, "/leaderz") == 200), None)

    return wait_until(found, 15.0, "another one leads")


def _submitted(cluster: RealCluster) -> str | None:
    try:
        return cluster.client.submit(command=["/bin/true"], request_id="after").task_ids[0]
    except PhalanxError:
        return None


def _ends(cluster: RealCluster, id: str) -> int:
    return [line.event for line in cluster.client.story(id).items].count("AttemptEnded")


def _role(cluster: RealCluster, name: str) -> str | None:
    try:
        view = cluster.clients[name].cluster().coordinator
    except PhalanxError:
        return None
    return view.role if view else None


def _status(cluster: RealCluster, name: str, id: str) -> str | None:
    try:
        return cluster.clients[name].task(id).status
    except PhalanxError:
        return None


def _epoch(cluster: RealCluster) -> int | None:
    try:
        return cluster.client.cluster().epoch
    except PhalanxError:
        return None
