"""A store that does not answer: every coordinator reports it to its clients, and logs it now and then."""

from __future__ import annotations

import logging

import pytest

from phalanx.cli.coordinators import describe_role
from phalanx.coordinator.leadership import Role
from phalanx.coordinator.loop import unavailable
from phalanx.coordinator.outage import TELL_EVERY_S, Outage
from phalanx.errors import NotActive, Unavailable
from phalanx.store.etcd.kv import EtcdUnavailable
from phalanx.store.memory import Memory
from phalanx.store.protocol import Candidate, Fenced, StoreError
from tests.support.candidates import CandidateUnderTest, running
from tests.support.clocks import JumpingClock
from tests.support.waiting import until

pytestmark = pytest.mark.anyio
DEAD = {"renew", "confirm", "append", "elect", "leader", "load", "since"}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_one_that_lost_its_office_with_its_store_says_that_the_store_does_not_answer():
    first = CandidateUnderTest(Memory(), "a")
    async with running(first):
        first.store.broken = DEAD
        await until(lambda: first.leadership.role is Role.STANDBY and first.leadership._outage.error)
        for question in (first.leadership.require_active, lambda: first.leadership.state):
            with pytest.raises(Unavailable, match=r"its store does not answer: .* is out of order"):
                question()
        first.store.broken = set()
        await until(lambda: first.leadership.role is Role.ACTIVE)
        first.leadership.require_active()


async def test_a_standby_without_its_store_does_not_name_a_leader_from_hearsay():
    memory = Memory()
    first, second = CandidateUnderTest(memory, "a"), CandidateUnderTest(memory, "b")
    async with running(first, second):
        second.store.broken = DEAD
        await until(lambda: second.leadership._outage.error)
        with pytest.raises(NotActive, match="its store does not answer") as caught:
            second.leadership.require_active()
        assert caught.value.extra == {"leader": "http://a"}  # it may still be there, so it is worth a try
        assert "its store does not answer" in describe_role(second.leadership.view())
        second.clock.ahead_s += 60.0
        with pytest.raises(Unavailable, match="its store does not answer"):
            await second.leadership.ready()


async def test_why_a_term_ended_is_written_down(caplog: pytest.LogCaptureFixture):
    first = CandidateUnderTest(Memory(), "a")
    async with running(first):
        first.store.broken = DEAD
        with caplog.at_level(logging.WARNING, "phalanx.coordinator"):
            await until(lambda: "no longer active" in caplog.text)
    assert "cannot be confirmed: confirm is out of order" in caplog.text


def test_an_outage_is_told_when_it_begins_each_minute_and_when_it_ends(caplog: pytest.LogCaptureFixture):
    clock = JumpingClock()
    outage = Outage(clock)
    with caplog.at_level(logging.INFO, "phalanx.coordinator"):
        for _ in range(100):
            outage.meet(EtcdUnavailable("etcd at e1 does not answer"))
        assert len(caplog.records) == 1
        assert "majority of etcd" in caplog.text
        clock.ahead_s += TELL_EVERY_S + 1
        outage.meet(StoreError("etcd at e2 does not answer"))
        outage.end()
        outage.end()
    lines = [record.getMessage().partition(" for_s")[0].partition(" after_s")[0] for record in caplog.records]
    assert lines == ["the store does not answer", "the store does not answer", "the store is reachable again"]
    assert outage.error is None


def test_the_advice_is_that_of_the_store():
    assert "etcd" in unavailable(EtcdUnavailable("no leader")).hint
    assert "space" not in unavailable(EtcdUnavailable("no leader")).hint
    assert unavailable(StoreError("?")).hint == "nothing accepted was lost"


async def test_a_store_that_was_moved_says_where_to():
    memory = Memory()
    first = CandidateUnderTest(memory, "a")
    memory.holder, memory.until = Candidate("migrated-to:redis://r1:6379/p2"), float("inf")
    async with running(first):
        with pytest.raises(NotActive, match=r"this store was moved to redis://r1:6379/p2") as caught:
            first.leadership.require_active()
        assert caught.value.extra == {}


def test_a_term_that_ended_without_a_successor_is_not_told_to_be_current():
    assert str(Fenced(17, 17)) == "epoch 17 is over: its lease has ended"
    assert str(Fenced(17, 18)) == "epoch 17 is over: 18 is current"
