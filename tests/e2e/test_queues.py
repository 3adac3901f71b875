"""Queues in a real cluster: who may use them, limits of users, and approvals that outlive a killed coordinator."""

from __future__ import annotations

from pathlib import Path

import pytest

import phalanx
from phalanx import ApprovalSpec, Forbidden, QuotaSpec, TooMany, UserLimitsSpec
from phalanx.api.schema.cluster import TokenRequest
from phalanx.core.model.credential import Role
from tests.support.real_cluster import RealCluster, a_real_cluster
from tests.support.terminal import run_phalanx
from tests.support.waiting import wait_until


def known_as(cluster: RealCluster, name: str, role: Role = "user") -> phalanx.Client:
    token = cluster.client.create_token(TokenRequest(role=role, name=name)).token
    (cluster.folder / name).touch(0o600)
    (cluster.folder / name).write_text(token)  # for the command line
    client = phalanx.Client(cluster.address("coordinator"), token)
    cluster.clients[name] = client  # closed with the cluster
    return client


def test_who_may_limits_and_approvals(tmp_path: Path) -> None:
    with a_real_cluster(tmp_path, nodes={"n1": "cpus=8,ram=4GiB"}) as cluster:
        alice, bob, carol = (known_as(cluster, name) for name in ("alice", "bob", "carol"))
        one_queue_is_for_alice(cluster, alice, bob)
        limits_are_of_each_user(cluster, alice, bob)
        approvals_outlive_a_kill(cluster, bob, carol)


def one_queue_is_for_alice(cluster: RealCluster, alice: phalanx.Client, bob: phalanx.Client) -> None:
    cluster.client.set_quota("hers", QuotaSpec(users=["alice"]))
    with pytest.raises(Forbidden, match="bob may not use queue hers, which is for alice"):
        bob.submit(command=["true"], queue="hers")
    alice.wait(alice.submit(command=["true"], queue="hers").task_ids[0])
    cluster.client.submit(command=["true"], queue="hers")


def limits_are_of_each_user(cluster: RealCluster, alice: phalanx.Client, bob: phalanx.Client) -> None:
    cluster.client.set_quota("lab", QuotaSpec(each_user=UserLimitsSpec(running=1, submitted=3)))
    jobs = [bob.submit(command=["sleep", "300"], queue="lab", cores=1).task_ids[0] for _ in range(3)]
    cluster.wait_task(jobs[0], "Running")
    with pytest.raises(TooMany, match="3 of 3 unfinished tasks, 1 more submitted"):
        bob.submit(command=["true"], queue="lab")
    behind = alice.submit(command=["sleep", "300"], queue="lab", cores=1).task_ids[0]
    cluster.wait_task(behind, "Running")
    assert bob.why(jobs[1]).dominant.code == "UserLimitReached"
    view = cluster.client.queue("lab")
    shown = {user.name: (user.used.tasks, user.submitted) for user in view.users}
    assert shown == {"alice": (1, 1), "bob": (1, 3)}
    cluster.client.cancel(jobs[0])
    cluster.wait_task(jobs[1], "Running")
    for id in (*jobs[1:], behind):
        cluster.client.cancel(id)


def approvals_outlive_a_kill(cluster: RealCluster, bob: phalanx.Client, carol: phalanx.Client) -> None:
    cluster.client.set_quota("big", QuotaSpec(approval=ApprovalSpec(by=["carol"])))
    waits, denied, approved = (
        bob.submit(command=["true"], queue="big", name=name).task_ids[0] for name in ("waits", "no", "yes")
    )
    with pytest.raises(Forbidden, match="bob may not approve"):
        bob.approve(approved)
    carol.approve(approved)
    told = run_phalanx(cluster, "deny", denied, "--reason", "too large", token_file="carol")
    assert (told.returncode, told.stdout.split()[1:]) == (0, [b"denied"]), told
    cluster.kill("coordinator")
    cluster.start_coordinator()
    cluster.wait_online("n1")
    cluster.wait_task(approved, "Completed")
    task = wait_until(lambda: cluster.client.task(denied))
    assert (task.status, task.message) == ("Cancelled", "denied by carol: too large")
    assert bob.why(waits).dominant.code == "WaitingApproval"
    assert cluster.client.queue("big").unapproved == 1
    told = run_phalanx(cluster, "approve", waits, token_file="carol")
    assert (told.returncode, told.stdout.split()[1:]) == (0, [b"approved"]), told
    assert run_phalanx(cluster, "approve", waits, token_file="carol").returncode == 6, "it waits no more"
    cluster.wait_task(waits, "Completed")
    assert any("approved by carol" in line.text for line in bob.story(waits).items)
