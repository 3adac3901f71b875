"""One coordinator among several: following, winning, serving, and being silent when it may have been replaced."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from phalanx.coordinator.leadership import Role
from phalanx.coordinator.loop import Retention
from phalanx.core.cluster.inputs import Heartbeat, Hello, Submit
from phalanx.errors import ConfigError, NotActive, Unavailable
from phalanx.store.memory import Memory, MemoryStore
from phalanx.store.protocol import Candidate
from tests.support.builders import a_capacity, a_job
from tests.support.candidates import LEASE_S, CandidateUnderTest, running
from tests.support.waiting import until

pytestmark = pytest.mark.anyio
OTHER = Candidate("other", "http://other", "other:1")


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_the_first_one_is_active_at_once_and_the_second_follows():
    memory = Memory()
    first, second = CandidateUnderTest(memory, "a"), CandidateUnderTest(memory, "b")
    async with running(first, second):
        assert (first.leadership.role, second.leadership.role) == (Role.ACTIVE, Role.STANDBY)
        job = a_job()
        await first.leadership.ask([Submit(job, "", True)])
        await until(lambda: job.id in second.leadership.state.jobs)
        assert second.leadership.state.revision == first.leadership.state.revision
        watched = [[each async for each in _watched(one)] for one in (first, second)]
        assert watched[0] == watched[1]


async def test_a_standby_refuses_wishes_and_says_who_takes_them():
    memory = Memory()
    first, second = CandidateUnderTest(memory, "a"), CandidateUnderTest(memory, "b")
    async with running(first, second):
        with pytest.raises(NotActive) as caught:
            await second.leadership.ask([Submit(a_job(), "", True)])
        assert caught.value.extra == {"leader": "http://a"}
        assert not second.leadership.post(([Heartbeat("n1", "life", [], 1)], lambda _: None))


async def test_a_standby_asked_for_what_it_does_not_know_reads_on_first():
    memory = Memory()
    first, second = CandidateUnderTest(memory, "a"), CandidateUnderTest(memory, "b")
    await first.leadership.open()
    await second.leadership.open()
    first.start()
    job = a_job()
    await first.leadership.ask([Submit(job, "", True)])
    assert job.id not in second.leadership.state.jobs
    assert await second.leadership.catch_up()
    assert job.id in second.leadership.state.jobs
    await first.end()


async def test_one_that_stops_resigns_and_the_next_is_active_before_the_lease_is_over():
    memory = Memory()
    first, second = (
        CandidateUnderTest(memory, "a", lease_s=60.0),
        CandidateUnderTest(memory, "b", lease_s=60.0),
    )
    async with running(first, second):
        epoch = first.leadership.state.epoch
        first.leadership.stop()
        await until(lambda: first.leadership.role is Role.STOPPED)
        await until(lambda: second.leadership.role is Role.ACTIVE, 2.0)
        assert second.leadership.state.epoch > epoch


async def test_one_that_was_paused_after_it_wrote_says_nothing_and_follows():
    memory = Memory()
    first = CandidateUnderTest(memory, "a")

    def paused() -> None:
        first.clock.ahead_s += 2 * LEASE_S
        memory.holder, memory.until, memory.epoch = OTHER, first.clock.monotonic() + 60, memory.epoch + 1

    async with running(first):
        told = len(first.listener.turns)
        first.store.after["append"] = paused
        with pytest.raises(Unavailable) as caught:
            await first.leadership.ask([Submit(a_job(), "", True)])
        assert caught.value.reason == "StoreUnavailable", "whether it was kept is for the next leader to say"
        await until(lambda: first.leadership.role is Role.STANDBY)
        assert not any(turn.events for turn in first.listener.turns[told:])
        assert not first.listener.is_open
        await until(
            lambda: first.leadership.leader is not None and first.leadership.leader.candidate == OTHER
        )


async def test_one_that_was_paused_and_not_replaced_goes_on():
    first = CandidateUnderTest(Memory(), "a")
    async with running(first):
        first.clock.ahead_s += 10 * LEASE_S
        job = a_job()
        await first.leadership.ask([Submit(job, "", True)])
        assert job.id in first.leadership.state.jobs
        assert first.leadership.role is Role.ACTIVE


async def test_a_lease_that_can_be_neither_renewed_nor_confirmed_ends_the_term():
    first = CandidateUnderTest(Memory(), "a")
    async with running(first):
        first.store.broken = {"renew", "confirm", "append", "elect", "leader"}
        await until(lambda: first.leadership.role is Role.STANDBY)
        assert not first.listener.is_open
        first.store.broken = set()
        await until(lambda: first.leadership.role is Role.ACTIVE)


async def test_a_term_given_up_and_then_prolonged_by_a_late_renewal_is_taken_again_at_once():
    memory = Memory()
    first = CandidateUnderTest(memory, "a")
    async with running(first):
        first.store.broken = {"renew", "confirm", "append", "elect", "leader"}
        await until(lambda: first.leadership.role is Role.STANDBY)
        memory.until = first.clock.monotonic() + 60.0
        epoch = memory.epoch
        first.store.broken = set()
        await until(lambda: first.leadership.role is Role.ACTIVE)
        assert memory.epoch > epoch


async def test_a_full_disk_keeps_the_office_and_the_leases_of_runners():
    first = CandidateUnderTest(Memory(), "a")
    async with running(first):
        await first.leadership.ask([Hello("n1", "life", "origin", a_capacity(), [])])
        generation = first.leadership.state.nodes["n1"].generation
        first.store.broken = {"renew", "append"}
        with pytest.raises(Unavailable):
            await first.leadership.ask([Submit(a_job(), "", True)])
        first.clock.ahead_s += 10 * LEASE_S
        answered: asyncio.Future[list[object]] = asyncio.get_running_loop().create_future()
        assert first.leadership.post(
            ([Heartbeat("n1", "life", [], generation)], lambda answers: answered.set_result(list(answers)))
        )
        assert await asyncio.wait_for(answered, 5.0), "a heartbeat needs no disk"
        with pytest.raises(NotActive):
            first.leadership.require_lease()
        first.store.broken = set()
        await until(lambda: first.leadership.loop is not None and first.leadership.loop.trouble is None)
        await first.leadership.ask([Submit(a_job(), "", True)])


@pytest.mark.parametrize("broken", [{"append", "confirm"}, {"append", "confirm", "load"}])
async def test_no_lease_of_a_runner_is_renewed_when_the_office_cannot_be_confirmed(broken: set[str]):
    first = CandidateUnderTest(Memory(), "a", lease_s=60.0)
    async with running(first):
        await first.leadership.ask([Hello("n1", "life", "origin", a_capacity(), [])])
        generation = first.leadership.state.nodes["n1"].generation
        first.store.broken = broken
        with pytest.raises(Unavailable):
            await first.leadership.ask([Submit(a_job(), "", True)])
        answered: asyncio.Future[list[object]] = asyncio.get_running_loop().create_future()
        first.leadership.post(
            ([Heartbeat("n1", "life", [], generation)], lambda answers: answered.set_result(list(answers)))
        )
        assert await asyncio.wait_for(answered, 5.0) == []


async def test_a_failed_promotion_leaves_the_office_vacant():
    memory = Memory()
    first = CandidateUnderTest(memory, "a", lease_s=60.0)
    first.store.broken = {"append"}
    with pytest.raises(Exception, match="append is out of order"):
        await first.leadership.open()
    assert memory.holder is None
    assert first.leadership.role is Role.STANDBY


async def test_a_twin_with_our_name_is_not_fought():
    memory = Memory()
    first, twin = CandidateUnderTest(memory, "a", lease_s=60.0), CandidateUnderTest(memory, "a", lease_s=60.0)
    async with running(first):
        await twin.leadership.open()  # a restart takes its own office at once
        assert twin.leadership.role is Role.ACTIVE
        first.clock.ahead_s += 30.0
        await until(lambda: first.leadership.role is Role.STANDBY)
        epoch = memory.epoch
        await first.leadership.catch_up()
        assert not await first.leadership._won()
        assert memory.epoch == epoch


async def test_a_namesake_at_another_address_does_not_unseat_who_leads(caplog: pytest.LogCaptureFixture):
    memory = Memory()
    first, namesake = (
        CandidateUnderTest(memory, "a", lease_s=60.0),
        CandidateUnderTest(memory, "a", lease_s=60.0),
    )
    namesake.leadership.candidate = Candidate("a", "http://elsewhere", "elsewhere:1")
    async with running(first, namesake):
        assert (first.leadership.role, namesake.leadership.role) == (Role.ACTIVE, Role.STANDBY)
        assert memory.epoch == 1
        with pytest.raises(NotActive) as caught:
            namesake.leadership.require_active()
        assert caught.value.extra == {"leader": "http://a"}
    assert "another --name" in caplog.text


async def test_what_waits_in_the_mailbox_when_the_term_ends_was_surely_not_done():
    memory = Memory()
    first = CandidateUnderTest(memory, "a")
    async with running(first):
        gate = asyncio.Event()
        loop = first.leadership.loop
        assert loop is not None

        async def slow(*_given: object) -> None:
            await gate.wait()

        first.store.append = slow  # type: ignore[attr-defined]
        in_hand = asyncio.create_task(first.leadership.ask([Submit(a_job(), "", True)]))
        await until(lambda: loop._in_hand)
        waiting = asyncio.create_task(first.leadership.ask([Submit(a_job(), "", True)]))
        await until(lambda: len(loop.mailbox))
        memory.epoch += 1
        memory.holder, memory.until = OTHER, first.clock.monotonic() + 60
        with pytest.raises(NotActive):
            await asyncio.wait_for(waiting, 5.0)
        with pytest.raises(Unavailable) as caught:
            await asyncio.wait_for(in_hand, 5.0)
        assert caught.value.reason == "StoreUnavailable"


async def test_nobody_goes_on_over_a_log_that_was_put_back(tmp_path: Path):
    """An older copy of the store took its place: neither the leader nor the follower writes anything there."""
    memory = Memory()
    first, second = (
        CandidateUnderTest(memory, "a", seen_in=tmp_path / "a"),
        CandidateUnderTest(memory, "b", seen_in=tmp_path / "b"),
    )
    async with running(first, second):
        await first.leadership.ask([Submit(a_job(), "", True)])
        older = list(memory.batches)
        last = a_job()
        await first.leadership.ask([Submit(last, "", True)])
        await until(lambda: last.id in second.leadership.state.jobs)
        memory.batches = older
        with pytest.raises(Unavailable, match="stopped before it answered"):
            await first.leadership.ask([Submit(a_job(), "", True)])
        for each in (first, second):
            assert each.task is not None
            with pytest.raises(ConfigError, match="has lost what it acknowledged"):
                await asyncio.wait_for(asyncio.shield(each.task), 10)
        assert (memory.batches, memory.epoch) == (older, 1)


async def test_a_standby_whose_place_in_the_log_was_pruned_reads_the_image():
    memory = Memory()
    first = CandidateUnderTest(memory, "a", keep=Retention(events=0, jobs=10, every=5))
    second = CandidateUnderTest(memory, "b")
    await second.leadership._read()  # it has seen an empty log, and then looks away
    async with running(first):
        for _ in range(12):
            await first.leadership.ask([Submit(a_job(), "", True)])
        await until(lambda: memory.pruned > 0)
        await second.leadership.catch_up()
        assert second.leadership.state.revision == first.leadership.state.revision
        assert len(second.leadership.state.jobs) == 12


async def test_a_term_that_ends_by_a_lost_answer_tells_watchers_what_was_kept_after_all():
    memory = Memory()
    first = CandidateUnderTest(memory, "a")

    def lost() -> None:
        first.store.after.clear()
        raise _lost()

    async with running(first):
        job = a_job()
        first.store.after["append"] = lost
        with pytest.raises(Unavailable):
            await first.leadership.ask([Submit(job, "", True)])
        await until(lambda: first.leadership.loop is not None and first.leadership.loop.trouble is None)
        assert job.id in first.leadership.state.jobs
        seen = [each async for each in _watched(first)]
        assert "JobSubmitted" in [event for _, event in seen]


def _lost() -> Exception:
    from phalanx.store.protocol import StoreError

    return StoreError("the answer was lost")


async def _watched(one: CandidateUnderTest):
    """Every event that a watcher from the beginning has received by now."""
    last = one.listener.feed._last
    at = 0
    watching = one.listener.feed.watch(0, None, lambda: one.leadership.state)
    while at < last and one.listener.feed._events and one.listener.feed._events[-1][0] > at:
        event = await asyncio.wait_for(anext(watching), 2.0)
        at = event.revision
        yield event.revision, event.event


async def test_the_store_of_an_old_term_can_write_nothing():
    memory = Memory()
    first = CandidateUnderTest(memory, "a")
    async with running(first):
        await MemoryStore(memory).open_term()
        with pytest.raises(Unavailable):
            await first.leadership.ask([Submit(a_job(), "", True)])
        former = first.leadership.loop
        await until(lambda: first.leadership.loop not in (None, former))
        assert first.leadership.state.epoch == memory.epoch > 2


async def test_a_standby_that_wins_reads_only_what_it_has_not_read_yet():
    memory = Memory()
    first, second = (
        CandidateUnderTest(memory, "a", lease_s=60.0),
        CandidateUnderTest(memory, "b", lease_s=60.0),
    )
    async with running(first, second):
        await first.leadership.ask([Submit(a_job(), "", True)])
        loads: list[str] = []
        second.store.before["load"] = lambda: loads.append("load")
        first.leadership.stop()
        await until(lambda: second.leadership.role is Role.ACTIVE)
        assert loads == []


async def test_images_are_taken_and_the_log_before_them_is_dropped():
    memory = Memory()
    first = CandidateUnderTest(memory, "a", keep=Retention(events=4, jobs=10, every=5))
    async with running(first):
        for _ in range(20):
            await first.leadership.ask([Submit(a_job(), "", True)])
        await until(lambda: memory.image is not None and memory.image[0] >= 15 and memory.pruned >= 11)
        assert memory.image is not None and memory.pruned <= memory.image[0] - 4, (
            "so many events stay for stories"
        )
    again = CandidateUnderTest(memory, "a")
    await again.leadership.open()
    assert len(again.leadership.state.jobs) == 20


async def test_an_image_that_cannot_be_written_costs_nothing_but_a_longer_log():
    memory = Memory()
    first = CandidateUnderTest(memory, "a", keep=Retention(events=4, jobs=10, every=10))
    async with running(first):
        first.store.broken = {"save_image"}
        for _ in range(30):
            await first.leadership.ask([Submit(a_job(), "", True)])
        assert memory.image is None
        first.store.broken = set()
        await first.leadership.ask([Submit(a_job(), "", True)])
        await until(lambda: memory.image is not None)


async def test_one_that_was_paused_answers_no_read_as_leader_once_another_leads():
    memory = Memory()
    first = CandidateUnderTest(memory, "a")
    async with running(first):
        await first.leadership.require_leader()
        first.clock.ahead_s += 10 * LEASE_S
        assert "another may lead" in first.leadership.view().trouble
        await (
            first.leadership.require_leader()
        )  # the store knows no other: a full disk keeps nobody from reading
        memory.holder, memory.until, memory.epoch = OTHER, first.clock.monotonic() + 60, memory.epoch + 1
        first.leadership.require_active()  # it does not know yet
        with pytest.raises(NotActive):
            await first.leadership.require_leader()


async def test_one_whose_lease_is_over_answers_no_read_as_leader_while_the_store_is_away():
    first = CandidateUnderTest(Memory(), "a")
    async with running(first):
        first.clock.ahead_s += 10 * LEASE_S
        first.store.broken = {"confirm", "renew"}
        with pytest.raises(NotActive):
            await first.leadership.require_leader()
