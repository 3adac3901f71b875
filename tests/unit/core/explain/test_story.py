"""Each event as one readable sentence."""

from __future__ import annotations

from typing import get_args

import pytest
from msgspec import structs

from phalanx.core.cluster import change_events as c
from phalanx.core.cluster import dispatch_events as d
from phalanx.core.cluster import events as e
from phalanx.core.cluster import overlay_events as o
from phalanx.core.cluster import workflow_events as w
from phalanx.core.cluster.approval_events import JobApproved, WorkflowApproved
from phalanx.core.cluster.environment_events import EnvironmentKept
from phalanx.core.cluster.events import Event
from phalanx.core.cluster.exclusion_events import NodeExcluded, NodeRecovered
from phalanx.core.cluster.health_events import NodeChecked
from phalanx.core.cluster.image_events import AttemptPrepared, AttemptPreparing
from phalanx.core.cluster.login_events import LoginEnded, LoginOpened, LoginsUsed, LoginTicketMade
from phalanx.core.cluster.number_events import NumbersSkipped
from phalanx.core.cluster.overlay import ReservedAddress
from phalanx.core.explain.story import sentence
from phalanx.core.model.credential import Credential
from phalanx.core.model.dispatch import DispatchNote
from phalanx.core.model.health import DeviceHealth, NodeHealth
from phalanx.core.model.job import Command, IncompleteGang
from phalanx.core.model.login import Login, LoginTicket
from phalanx.core.model.orders import Exit, Status, Why
from phalanx.core.model.resources import Grant
from phalanx.core.model.topology import DEFAULT
from phalanx.core.model.workflow import Stage, Workflow
from tests.support.builders import GIB, a_capacity, a_job

KEY = ("j1", 0, 2)
GRANT = Grant(4, 8 * GIB, (0, 1), 1)
FAILED = Exit(Why.EXITED, 3, message="exited with code 3")
LOST = Exit(Why.LOST, -1, message="Node n1 went offline (heartbeat timeout)")

TOLD: list[tuple[Event, str]] = [
    (
        w.WorkflowSubmitted(at=1.0, content=Workflow("w1", (Stage("a", a_job()),), 0.0, "fine-tune")),
        "submitted: workflow fine-tune of 1 stage",
    ),
    (
        w.StagesEnded(
            at=1.0,
            workflow="w1",
            ends=(
                w.StageEnd(0, "a", Status.FAILED),
                w.StageEnd(1, "b", Status.FAILED, 0, "it depends on stage a, which failed"),
                w.StageEnd(2, "c", Status.COMPLETED, text="so it is", skipped=True),
            ),
        ),
        "stage a failed; stage b failed: it depends on stage a, which failed; stage c skipped: so it is",
    ),
    (
        w.StagesEnded(
            at=1.0, workflow="w1", ends=tuple(w.StageEnd(n, f"{n}", Status.COMPLETED) for n in range(7))
        ),
        "stage 0 completed; stage 1 completed; stage 2 completed; stage 3 completed; stage 4 completed; and 2 more",
    ),
    (w.WorkflowCancelled(at=1.0, workflow="w1"), "the workflow is cancelled"),
    (
        w.WorkflowStopped(at=1.0, workflow="w1", text="the deadline has passed"),
        "stopped: the deadline has passed",
    ),
    (w.WorkflowRetried(at=1.0, workflow="w1", stages=(0, 1)), "2 stages run again"),
    (w.WorkflowForgotten(at=1.0, workflow="w1"), "moved to the history"),
    (e.TermOpened(at=1.0, epoch=7), "a coordinator opened epoch 7"),
    (e.JobSubmitted(at=1.0, job=a_job("n1::0", array="1-3")), "submitted: /bin/true × 3 on n1::0"),
    (
        e.AttemptEnded(
            at=1.0,
            key=KEY,
            exit=Exit(Why.NONE, 0),
            status=Status.PENDING,
            then="all tasks start anew, 1 of 3",
        ),
        "attempt 2 ended: exit code 0; all tasks start anew, 1 of 3",
    ),
    (
        e.JobAmended(at=1.0, job=a_job(draft=IncompleteGang("it lacks one"))),
        "members added: /bin/true; it lacks one",
    ),
    (
        e.TaskPlaced(at=1.0, key=KEY, node="n1", lane=1, grant=GRANT),
        "attempt 2 placed on n1 with 4 cores, 8 GiB, devices 0,1, NUMA 1",
    ),
    (
        e.TaskPlaced(at=1.0, key=KEY, node="n1", lane=1, grant=Grant(1, 0), opens=False),
        "attempt 2 queued in a lane on n1 with 1 core",
    ),
    (
        e.TaskPlaced(at=1.0, key=KEY, node="n1", lane=1, grant=Grant(1, 0), formation=3),
        "attempt 2 placed with its gang (formation 3) on n1 with 1 core",
    ),
    (e.AttemptReady(at=1.0, key=KEY), "attempt 2 is ready and waits for the rest of the gang"),
    (e.GangReleased(at=1.0, job="j1", formation=3), "all members of formation 3 are ready and start"),
    (
        e.GangRecalled(at=1.0, job="j1", formation=3, retry_at=1.0, text="j1.2 was lost"),
        "formation 3 gave its places back before anything ran: j1.2 was lost",
    ),
    (
        e.RoomPromised(
            at=1.0,
            job="j1",
            members=((0, "n1", GRANT), (1, "n2", GRANT)),
            victims=(KEY,),
            displaced=(),
            trigger=0,
            until=9.0,
        ),
        "1 task preempted to make room for 2 tasks of j1 on n1, n2",
    ),
    (
        e.RoomPromised(
            at=1.0,
            job="j1",
            members=((0, "n1", GRANT),),
            victims=(KEY,),
            displaced=(),
            trigger=0,
            until=9.0,
            preemptor="urgent (job 2 of bob, priority 10)",
        ),
        "1 task preempted to make room for 1 task of urgent (job 2 of bob, priority 10) on n1",
    ),
    (
        e.PromiseWithdrawn(at=1.0, cause="a promised node closed", job="j1"),
        "promised places given up: a promised node closed",
    ),
    (e.TasksEvicted(at=1.0, keys=(KEY,), text="spot"), "1 attempt evicted: spot"),
    (e.JobRestarted(at=1.0, job="j1", counted=True, retry_at=1.0), "job restarted"),
    (
        e.JobRestarted(at=1.0, job="j1", counted=False, retry_at=1.0, positions=(0, 1)),
        "2 tasks of one replica restarted (not counted against its limit)",
    ),
    (
        e.JobSettled(at=1.0, job="j1", status=Status.FAILED, text="j1.2 failed"),
        "the job is Failed: j1.2 failed",
    ),
    (c.JobReleased(at=1.0, job="j1"), "released"),
    (c.JobHeld(at=1.0, job="j1", because="by ada", user="ada"), "held: by ada"),
    (
        c.JobUpdated(
            at=1.0, cause="user ada", job="j1", priority=5, time_limit_s=0.0, queue="b", begin_at=3600.0
        ),
        "changed: priority 5, time limit none, queue b, begins at 1970-01-01T01:00:00Z (user ada)",
    ),
    (
        c.JobUpdated(at=1.0, cause="user ada", job="j1", time_limit_s=90.0, begin_at=0.0),
        "changed: time limit 1m30s, begins at once (user ada)",
    ),
    (JobApproved(at=1.0, job="j1", by="carol"), "approved by carol"),
    (WorkflowApproved(at=1.0, workflow="w1", by="carol"), "approved by carol"),
    (e.LogSettled(at=1.0, after=7), "the store can be written again"),
    (
        e.LogRepaired(at=1.0, after=7, choice="hold", jobs=("j1",)),
        "the log after revision 7 is partly damaged; the job is held until it is resumed or cancelled",
    ),
    (
        e.TopologySet(at=1.0, topology=DEFAULT),
        "network layers: cluster > spine > block > rack > node",
    ),
    (e.QuotaSet(at=1.0, queue="q", quota=None), "queue q was removed"),
    (
        e.AttemptEnded(at=1.0, key=KEY, exit=Exit(Why.NONE, 0), status=Status.RUNNING),
        "attempt 2 exited with code 0; waiting for the rest of the job",
    ),
    (e.AttemptStarted(at=1.0, key=KEY, started_at=1.0), "attempt 2 is running"),
    (
        AttemptPreparing(at=1.0, key=KEY),
        "attempt 2 waits for its image, which its node gets ready",
    ),
    (AttemptPrepared(at=1.0, key=KEY), "the image of attempt 2 is ready"),
    (e.AttemptSuspected(at=1.0, key=KEY), "attempt 2 is missing from its runner's report"),
    (
        e.AttemptEnded(at=1.0, key=KEY, exit=Exit(Why.NONE, 0), status=Status.COMPLETED),
        "attempt 2 completed",
    ),
    (
        e.AttemptEnded(at=1.0, key=KEY, exit=FAILED, status=Status.FAILED, charged=True),
        "attempt 2 ended: exited with code 3",
    ),
    (
        e.AttemptEnded(at=1.0, key=KEY, exit=FAILED, status=Status.PENDING, retry_at=5.0, charged=True),
        "attempt 2 ended: exited with code 3; retried in 4 s",
    ),
    (
        e.AttemptEnded(at=1.0, key=KEY, exit=LOST, status=Status.PENDING, retry_at=1.0, loss=True),
        (
            "attempt 2 ended: Node n1 went offline (heartbeat timeout); waits to be placed again"
            " (not counted against its retries)"
        ),
    ),
    (e.TasksCancelled(at=1.0, job="j1"), "cancelled"),
    (e.TasksCancelled(at=1.0, job="j1", positions=(3,)), "1 task cancelled"),
    (
        e.TasksAbandoned(
            at=1.0,
            job="j1",
            other="j0",
            ranges=((0, 1), (3, 3)),
            status=Status.CANCELLED,
            text="failed, and that has completed",
        ),
        "3 tasks cancelled: to start after the task of the same index of j0 failed, and that has completed",
    ),
    (e.TaskPaused(at=1.0, key=KEY), "paused; its resources stay allocated"),
    (e.TaskResumed(at=1.0, key=KEY), "resumed"),
    (e.JobForgotten(at=1.0, job="j1"), "moved to the history"),
    (
        e.NodeJoined(at=1.0, node="n1", incarnation="a", origin="o", capacity=a_capacity(gpus=2)),
        "n1 joined with 8 cores, 16 GiB, 2 devices",
    ),
    (
        e.NodeJoined(
            at=1.0, node="n1", incarnation="a", origin="o", capacity=a_capacity(cores=1), leftovers=(KEY,)
        ),
        "n1 joined with 1 core, 16 GiB, 1 older attempt still to be stopped",
    ),
    (e.NodeConnected(at=1.0, node="n1"), "n1 reconnected"),
    (e.NodeDisconnected(at=1.0, node="n1"), "n1 lost its connection; its tasks keep running under its lease"),
    (e.NodeLost(at=1.0, node="n1"), "n1 is lost: its lease expired"),
    (e.NodeCleared(at=1.0, node="n1", key=KEY), "n1 confirmed the end of an older attempt"),
    (
        e.NodeQuarantined(at=1.0, node="n1", key=KEY),
        "n1 did not start attempt 2 of j1; it gets no work until it confirms the end of it",
    ),
    (
        e.NodeHealthChanged(at=1.0, node="n1", trouble="its keeper does not answer"),
        "n1 cannot start tasks and gets no work: its keeper does not answer",
    ),
    (
        NodeChecked(at=1.0, node="n1", health=NodeHealth("disk /var is 99% full")),
        "n1 takes no new work, a health check fails: disk /var is 99% full",
    ),
    (
        NodeChecked(
            at=1.0, node="n1", health=NodeHealth("", (DeviceHealth(1, "Xid 79"), DeviceHealth(2, "Xid 79")))
        ),
        "n1 goes on without some devices: GPU 1 is out of service: Xid 79 (out of service, too: 2)",
    ),
    (NodeChecked(at=1.0, node="n1", health=NodeHealth()), "n1 passes its health checks again"),
    (e.NodeHealthChanged(at=1.0, node="n1", trouble=""), "n1 can start tasks again"),
    (
        e.NodeLeaving(at=1.0, node="n1"),
        "the runner of n1 was stopped; its tasks keep running under its lease",
    ),
    (
        e.NodeLeaving(at=1.0, node="n1", keep_s=600.0),
        "the runner of n1 was stopped; its tasks keep running under its lease, for 600 s longer than usual",
    ),
    (
        d.MergedEnded(
            at=1.0,
            key=("j1", 0, 1),
            ends=(d.MergedEnd("j2", Status.COMPLETED, Exit(Why.NONE, 0)),),
            alone=("j3",),
        ),
        "as a part of j1: j2 completed, j3 runs by itself, because the result has no part for it",
    ),
    (
        d.TaskDeferred(at=1.0, job="j1", node="n1"),
        "waits for n1, where the weights were made that it continues from",
    ),
    (
        e.TaskPlaced(
            at=1.0,
            key=("j1", 0, 1),
            node="n2",
            lane=1,
            grant=Grant(1, 0),
            note=DispatchNote("best_fit", 3, 1, 0.4, 0.25, (("n1", -0.05),)),
        ),
        (
            "attempt 1 placed on n2 with 1 core; chosen from 3 nodes with room (best_fit), 1 of its models and"
            " datasets loaded there already, λ 0.4, score 0.25; next n1 -0.05"
        ),
    ),
    (e.NodeDrained(at=1.0, node="n1", reason="new fans"), "n1 is drained: new fans"),
    (e.NodeResumed(at=1.0, node="n1"), "n1 is schedulable again"),
    (e.NodeDisabled(at=1.0, node="n1", reason="by ann: loud"), "n1 is disabled by ann: loud"),
    (e.NodeEnabled(at=1.0, node="n1", reason="by ann"), "n1 is enabled by ann"),
    (
        e.NodeNeeded(at=1.0, node="", first_job="j1", tasks=2, reason="2 tasks wait for a place"),
        "a node is needed: 2 tasks wait for a place",
    ),
    (e.NodeLost(at=1.0, node="n1", text="it burnt"), "n1 is lost: it burnt"),
    (
        NodeExcluded(at=1.0, node="n1", failures=5, until=61.0),
        "n1 is excluded for 60 s, unless no other node takes work: 5 consecutive task failures",
    ),
    (NodeRecovered(at=1.0, node="n1"), "n1 may take work again: its exclusion is over"),
    (e.NodeRemoved(at=1.0, cause="user ann", node="n1"), "n1 is removed: user ann"),
    (
        e.BrakeSet(at=1.0, silent=6, nodes=10),
        "6 of 10 nodes are silent at once, so none is declared lost; check whether the coordinator is cut off",
    ),
    (
        e.BrakeReleased(at=1.0, silent=2, nodes=10),
        "2 of 10 nodes are silent; silent nodes are declared lost again",
    ),
    (
        e.CredentialCreated(at=1.0, credential=Credential("c1", "user", b"", 1.0, name="ann")),
        "user credential c1 created for ann",
    ),
    (e.CredentialEnds(at=1.0, id="c1", ends_at=1.0, revoked=True), "credential c1 was revoked"),
    (e.CredentialUsed(at=1.0, id="c1"), "credential c1 was used"),
    (
        LoginTicketMade(at=1.0, ticket=LoginTicket(b"t", "ada", "user", "c1", 61.0)),
        "a ticket for ada to open the dashboard",
    ),
    (
        LoginOpened(at=1.0, login=Login("l1", b"a", b"b", "ada", "user", "c1", 1.0, 2.0, 1.0)),
        "ada (user) logged in with a browser: l1",
    ),
    (LoginsUsed(at=1.0, ids=("l1", "l2")), "logins were used: l1, l2"),
    (LoginEnded(at=1.0, id="l1"), "login l1 has ended"),
    (e.CredentialForgotten(at=1.0, id="c1"), "credential c1 ended long ago and was deleted"),
    (
        e.JoinRedeemed(at=1.0, id="c1", node="n1", origin="o"),
        "n1 exchanged join token c1 for its own credential",
    ),
    (o.BlockAssigned(at=1.0, node="n1", block="10.128.0.0/22"), "has the addresses 10.128.0.0/22"),
    (o.BlockAssigned(at=1.0, node="n1", block=""), "has no addresses any more"),
    (
        o.AddressReserved(
            at=1.0,
            node="n1",
            reservation=ReservedAddress("a", b"a", "n1", "10.128.0.5", "ada", 1.0, 301.0),
        ),
        "address 10.128.0.5 reserved by ada for 300 s",
    ),
    (
        o.ReservationEnded(at=1.0, node="n1", id="a", address="10.128.0.5"),
        "reservation of 10.128.0.5 expired",
    ),
    (
        o.ReservationEnded(at=1.0, node="n1", id="a", address="10.128.0.5", released=True),
        "reservation of 10.128.0.5 released",
    ),
    (
        EnvironmentKept(at=1.0, digest="d", user="ada", sealed=b"s"),
        "an environment of ada was kept",
    ),
    (
        NumbersSkipped(at=1.0, upto=100_000),
        "a backup was restored: numbers up to 100000 are not given again",
    ),
    (e.SecretKnown(at=1.0, fingerprint="ab"), "fingerprint of the cluster's secret recorded"),
]


@pytest.mark.parametrize(("event", "told"), TOLD, ids=lambda each: each if isinstance(each, str) else "")
def test_an_event_is_told_in_words(event: Event, told: str) -> None:
    assert sentence(event, inspects=True) == told


def test_why_a_stage_ended_is_for_those_who_may_inspect_it() -> None:
    end = w.StageEnd(2, "c", Status.COMPLETED, text="verdict is planted", skipped=True)
    assert sentence(w.StagesEnded(at=1.0, workflow="w1", ends=(end,))) == "stage c skipped"


def test_every_event_that_is_kept_is_told_here() -> None:
    assert {type(event) for event, _ in TOLD} == set(get_args(Event)) - set(e.VOLATILE)


def test_a_long_command_is_told_in_short() -> None:
    long = structs.replace(a_job().groups[0], command=Command(("x" * 1000,)))
    job = structs.replace(a_job(), groups=(long,))
    assert len(sentence(e.JobSubmitted(at=1.0, job=job))) < 300
