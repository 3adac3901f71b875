"""Cases C31-C43 of the contract with whole coordinators, each asked of every store, and over frames and gRPC. Where
each is tested:

case  here and in test_cases_failover.py (every store)           elsewhere
C31   test_c31_…: an epoch that is over                          unit/core/cluster/test_fences, simulation
C32   test_c32_…: attempt, assignee, lease                       unit/core/cluster/test_fences
C33   test_c33_…: epochs over restarts and leaders               test_leadership (100 alternations), e2e/test_failover
C34   test_c34_…: a silent runner                                unit/core/cluster/test_fences, e2e/test_survival
C35   test_c35_…: retries, and losses apart                      unit/core/cluster/test_reports, test_cluster
C36   test_c36_…: a standby                                      e2e/test_failover, unit/coordinator/test_leadership
C37   test_c37_…: the leader killed at every point of a job      e2e/test_failover (real processes), e2e/test_chaos
C38   no store has a part in it                                  unit/coordinator/test_token_set (every sentence),
                                                                 e2e/test_tokens (under load, without a restart)
C39   test_c39_…: the link port                                  unit/api/server/test_auth (all of REST),
                                                                 e2e/test_secrets (no token in any log),
                                                                 e2e/test_tokens (the start without a token),
                                                                 unit/test_config (where it may listen)
C40   test_c40_…: cancel                                         unit/core/cluster/test_fences, e2e/test_failover
C41   test_c41_…: nodes that rest                                unit/core/cluster/test_breaker
C42   test_reply_sequence.py: one script, by TCP and by pipe     e2e/test_tasks (both, for users)
C43   test_c43_…: drained, then silent                           unit/core/cluster/test_removal
"""

from __future__ import annotations

import pytest

from phalanx.core.cluster.events import AttemptEnded, NodeRemoved, TaskPlaced
from phalanx.core.model.orders import Disposition, Start, Status
from phalanx.errors import Unauthorized
from phalanx.link import wire
from tests.contract.backends import KINDS, WAYS, Backend
from tests.contract.coordinators import (
    NODE_TOKEN,
    CoordinatorGroup,
    Runner,
    StartedCoordinator,
    a_coordinator_group,
    ended,
    kept,
)
from tests.support.waiting import until

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("backend", [*KINDS, *WAYS], indirect=True)]
LOST_AFTER_S = 30.0


async def ends(group: CoordinatorGroup, job: str) -> list[AttemptEnded]:
    return [each for each in await group.log() if isinstance(each, AttemptEnded) and each.key[0] == job]


# C31


async def test_c31_an_end_under_the_epoch_before_is_refused_then_accepted_once(backend: Backend):
    async with a_coordinator_group(backend) as group:
        c1, c2 = await group.coordinator("c1"), await group.coordinator("c2")
        n1 = await group.runner(c1, "n1")
        old = n1.epoch
        key = await n1.started(await c1.submit())
        await n1.begin(key)
        await group.hand_over(c1, c2)
        await group.join(c2, n1)
        before = kept(c2)
        answer = await n1.tell(ended(key), epoch=old)
        assert answer.items == [(key, Disposition.STALE_EPOCH)]
        assert answer.epoch == n1.epoch == c2.state.epoch > old
        assert kept(c2) == before
        assert await n1.end(key) == Disposition.ACCEPTED
        assert await n1.end(key) == Disposition.DUPLICATE
        assert c2.status(key[0]) == Status.COMPLETED
        assert len(await ends(group, key[0])) == 1


# C32


async def test_c32_reports_of_an_old_attempt_of_others_and_under_an_old_lease_change_nothing(
    backend: Backend,
):
    async with a_coordinator_group(backend) as group:
        c1 = await group.coordinator("c1")
        n1, n2 = await group.runner(c1, "n1"), await group.runner(c1, "n2")
        first = await n1.started(await c1.submit("n1"))
        await n1.end(first, code=1)
        await group.pass_time(2.0, n1, n2)
        second = await n1.started(first[0], number=2)
        await n1.begin(second)
        before = kept(c1)
        assert await n1.end(first) == Disposition.STALE_ATTEMPT
        assert await n2.end(second) == Disposition.STALE_ATTEMPT
        for generation in (n1.generation - 1, n1.generation + 1):
            answer = await n1.tell(ended(second), generation=generation)
            assert answer.items == [(second, Disposition.STALE_LEASE)]
            assert answer.generation == n1.generation
        assert kept(c1) == before
        assert await n1.end(second) == Disposition.ACCEPTED


# C34


async def test_c34_what_a_silent_runner_had_is_placed_anew_and_it_is_not_believed_any_more(backend: Backend):
    async with a_coordinator_group(backend) as group:
        c1 = await group.coordinator("c1")
        n1 = await group.runner(c1, "n1", cores=2)
        running, assigned = await n1.started(await c1.submit()), await n1.started(await c1.submit())
        await n1.begin(running)
        n2 = await group.runner(c1, "n2", cores=2)
        await group.pass_time(LOST_AFTER_S + 1.0, n2)
        for lost in (running, assigned):
            await n2.started(lost[0], number=2)
            assert c1.state.jobs[lost[0]].losses == {0: 1}
        before = kept(c1)
        assert await n1.end(running) == Disposition.STALE_LEASE
        answer = await n1.beat()
        assert isinstance(answer, wire.Dispositions)
        assert answer.generation > n1.generation
        await until(lambda: not n1.is_open)
        former = n1.generation
        await group.join(c1, n1)
        assert n1.generation > answer.generation
        assert await n1.end(running, generation=former) == Disposition.STALE_LEASE
        assert await n1.end(running) == Disposition.STALE_ATTEMPT
        assert kept(c1) != before  # it joined, and nothing else
        assert c1.status(running[0]) == c1.status(assigned[0]) == Status.ASSIGNED
        (end,) = await ends(group, running[0])
        assert end.loss


# C35


async def test_c35_a_task_that_fails_runs_four_times_with_three_retries(backend: Backend):
    async with a_coordinator_group(backend) as group:
        c1 = await group.coordinator("c1")
        n1 = await group.runner(c1, "n1")
        job = await c1.submit()
        for number in range(1, 5):
            key = await n1.started(job, number)
            assert await n1.end(key, code=7) == Disposition.ACCEPTED
            await group.pass_time(31.0, n1)  # longer than any pause between two tries
        assert c1.status(job) == Status.FAILED
        assert n1.told_to(Start) == [(job, 0, number) for number in range(1, 5)]
        assert len(await ends(group, job)) == 4


async def test_c35_losing_its_runner_costs_no_retry_and_has_a_limit_of_its_own(backend: Backend):
    async with a_coordinator_group(backend) as group:
        c1 = await group.coordinator("c1")
        n1 = await group.runner(c1, "n1", life="0")
        job = await c1.submit(max_retries=0)
        for number in range(1, 7):
            await n1.started(job, number)
            n1 = await group.runner(c1, "n1", life=str(number))  # a new incarnation that knows nothing of it
        assert c1.status(job) == Status.FAILED
        task = await c1.commands.task(job)
        assert (task.losses, task.retries_used, task.reason) == (6, 0, "lost")
        assert [each.loss for each in await ends(group, job)] == [True] * 6


# C39


async def test_c39_whoever_dials_without_a_token_of_ours_is_nobody(
    backend: Backend, caplog: pytest.LogCaptureFixture
):
    caplog.set_level("DEBUG")
    async with a_coordinator_group(backend) as group:
        c1 = await group.coordinator("c1")
        before = kept(c1)
        for token in ("", "planted-stranger", "a-token-of-users"):
            stranger = Runner("n1", token=token)
            c1.connect(stranger)
            answer = await stranger.hello()
            assert isinstance(answer, wire.Rejected)
            assert (answer.code, answer.retry) == (Unauthorized.__name__, False)
            await until(lambda gone=stranger: not gone.is_open)  # type: ignore[misc]
        assert kept(c1) == before
        await group.runner(c1, "n1")
        for secret in ("planted-stranger", "a-token-of-users", NODE_TOKEN):
            assert secret not in caplog.text


# C41


async def fail(coordinator: StartedCoordinator, runner: Runner, times: int) -> None:
    """Tasks that are meant for this node fail there, one after another, of two users in turn."""
    for number in range(times):
        user = "bob" if number % 2 else "ada"
        key = await runner.started(await coordinator.submit(runner.node, user, max_retries=0))
        assert await runner.end(key, code=1) == Disposition.ACCEPTED


async def test_c41_after_five_failures_in_a_row_a_node_gets_nothing_for_a_minute(backend: Backend):
    async with a_coordinator_group(backend) as group:
        c1, c2 = await group.coordinator("c1"), await group.coordinator("c2")
        n1, n2 = await group.runner(c1, "n1"), await group.runner(c1, "n2", cores=1)
        await fail(c1, n1, 5)
        elsewhere = await n2.started(await c1.submit())
        waits = await c1.submit("n1")
        await group.pass_time(30.0, n1, n2)
        assert c1.status(waits) == Status.PENDING, "half of its rest is over"
        await group.hand_over(c1, c2)
        for runner in (n2, n1):  # alone, n1 would be the only one that could work
            await group.join(c2, runner)
        await group.pass_time(28.0, n1, n2)
        assert c2.status(waits) == Status.PENDING
        await group.pass_time(3.0, n1, n2)
        await n1.started(waits)
        placed = [each for each in await group.log() if isinstance(each, TaskPlaced)]
        assert [each.node for each in placed] == ["n1"] * 5 + ["n2", "n1"]
        assert await n2.end(elsewhere) == Disposition.ACCEPTED


async def test_c41_the_only_node_still_gets_work(backend: Backend):
    async with a_coordinator_group(backend) as group:
        c1 = await group.coordinator("c1")
        n1 = await group.runner(c1, "n1")
        await fail(c1, n1, 6)
        assert c1.state.nodes["n1"].excluded_until is not None
        key = await n1.started(await c1.submit())
        assert await n1.end(key) == Disposition.ACCEPTED


# C43


async def test_c43_a_drained_node_finishes_gets_nothing_new_and_is_removed_when_silent(backend: Backend):
    async with a_coordinator_group(backend) as group:
        c1 = await group.coordinator("c1")
        n1, n2 = await group.runner(c1, "n1"), await group.runner(c1, "n2", cores=1)
        key = await n1.started(await c1.submit("n1"))
        await n1.begin(key)
        await c1.commands.drain("n1", "new fans")
        later, anywhere = await c1.submit("n1"), await c1.submit()
        await n2.started(anywhere)
        await group.pass_time(LOST_AFTER_S + 10.0, n1, n2)
        assert c1.status(later) == Status.PENDING
        assert await n1.end(key) == Disposition.ACCEPTED
        assert c1.status(key[0]) == Status.COMPLETED
        await group.pass_time(LOST_AFTER_S - 1.0, n2)
        assert set(c1.state.nodes) == {"n1", "n2"}, "its lease is not over"
        await group.pass_time(2.0, n2)
        assert set(c1.state.nodes) == {"n2"}
        assert n1.told_to(Start) == [key]
        assert [each.node for each in await group.log() if isinstance(each, NodeRemoved)] == ["n1"]
