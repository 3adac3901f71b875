"""What watchers receive: every event once and in order, across gaps in the numbers and readings of the log."""

from __future__ import annotations

import asyncio

import pytest

from phalanx.coordinator.feed import Feed
from phalanx.coordinator.turn import Turn
from phalanx.core.cluster.events import Event, NodeDrained, encode
from phalanx.core.cluster.jobs import JobState
from phalanx.core.cluster.state import ClusterState
from phalanx.errors import Gone
from phalanx.store.protocol import Batch, Loaded
from tests.support.builders import a_job

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def an_event(number: int) -> Event:
    return NodeDrained(at=1.0, node=f"n{number}", reason="test")


def a_turn(last: int, count: int = 1) -> Turn:
    return Turn([an_event(last - count + 1 + at) for at in range(count)], [], [], [], last)


def a_state(revision: int) -> ClusterState:
    state = ClusterState()
    state.revision = revision
    return state


async def told(feed: Feed, after: int, count: int) -> list[int]:
    """The numbers of the next events after a revision; each event has its own number."""
    watching = feed.watch(after, None, ClusterState)
    found = [await asyncio.wait_for(anext(watching), 2.0) for _ in range(count)]
    assert [f"n{each.revision}" for each in found] == [each.node for each in found]
    return [each.revision for each in found]


async def test_a_number_that_belongs_to_no_event_moves_nothing():
    feed = Feed()
    feed.publish(a_turn(3, 3))
    feed.publish(a_turn(6, 2))  # 4 was given to an empty record, after a time without a store
    assert await told(feed, 0, 5) == [1, 2, 3, 5, 6]
    assert await told(feed, 4, 2) == [5, 6]


async def test_what_was_kept_after_all_is_told_when_the_log_is_read_again():
    feed = Feed()
    feed.publish(a_turn(2, 2))
    log = [Batch(2, encode([an_event(1), an_event(2)])), Batch(4, encode([an_event(3), an_event(4)]))]
    feed.resume(Loaded(None, 0, log), a_state(4))
    feed.publish(a_turn(5))
    assert await told(feed, 0, 5) == [1, 2, 3, 4, 5]


async def test_one_that_has_just_started_tells_what_the_log_still_holds():
    feed = Feed()
    log = [Batch(8, encode([an_event(8)])), Batch(9, encode([an_event(9)]))]
    feed.resume(Loaded(b"", 7, log), a_state(9))
    assert await told(feed, 7, 2) == [8, 9]
    with pytest.raises(Gone):
        await told(feed, 6, 1)


async def test_a_log_that_begins_after_what_was_told_says_so():
    feed = Feed()
    feed.publish(a_turn(2, 2))
    feed.resume(Loaded(b"", 10, [Batch(11, encode([an_event(11)]))]), a_state(11))
    with pytest.raises(Gone):
        await told(feed, 2, 1)
    assert await told(feed, 10, 1) == [11]


@pytest.mark.parametrize("position", [None, 1])
async def test_one_who_waits_for_what_is_not_there_any_more_is_answered(position: int | None):
    """A job that ended while no client waited; a task that its gang does not have since it was amended."""
    feed, job, state = Feed(), a_job(), a_state(0)
    if position is not None:
        state.add_job(JobState(job, 1, state.counts, state.incomplete, state.rules.aging_s))
    waiting = asyncio.create_task(feed.settled(job.id, position, 60.0))
    ready = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_soon(ready.set_result, None)
    await ready
    feed.resume(Loaded(None, 0, []), state)
    await asyncio.wait_for(waiting, 2.0)
