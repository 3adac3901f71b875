"""The list of jobs: memory and history as one, newest first, every job once."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from phalanx.clock import SystemClock
from phalanx.coordinator.questions import Questions
from phalanx.core.cluster.apply import apply
from phalanx.core.cluster.events import JobSubmitted
from phalanx.core.cluster.image import encode_job
from phalanx.core.cluster.state import ClusterState, Rules
from phalanx.store.memory import MemoryStore
from phalanx.store.protocol import Batch, History
from tests.builders import a_job

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def an_id(number: int) -> str:
    return f"01hzx5k3m9qwertyasdfgh{number:04}"


def a_state(*numbers: int) -> ClusterState:
    state = ClusterState(Rules())
    for number in numbers:
        apply(state, JobSubmitted(at=1.0, cause="test", job=a_job(id=an_id(number))))
    return state


async def listed(memory: list[int], history: list[int], **asked: Any) -> list[int]:
    """The numbers of the jobs of all pages, in the order they are listed."""
    store, past = MemoryStore(), a_state(*history)
    records = [History(id, encode_job(job)) for id, job in past.jobs.items()]
    await store.append(await store.open_term(), Batch(1, b""), records)
    loop: Any = SimpleNamespace(state=a_state(*memory))
    questions = Questions(loop, store, SystemClock())
    found: list[int] = []
    cursor = None
    while True:
        page = await questions.jobs(
            **{"status": None, "queue": None, "name": None, "cursor": cursor, "limit": 3} | asked
        )
        found += [int(job.id[-4:]) for job in page.items]
        cursor = page.next_cursor
        if cursor is None:
            return found


async def test_jobs_that_ended_after_one_that_still_runs_are_listed():
    assert await listed([1, 5], [2, 3, 4, 6]) == [6, 5, 4, 3, 2, 1]


async def test_a_job_that_stands_in_both_is_listed_once():
    assert await listed([2, 3, 4], [1, 2, 3]) == [4, 3, 2, 1]


async def test_an_empty_memory_lists_the_history_and_the_other_way_round():
    assert await listed([], [1, 2]) == [2, 1]
    assert await listed([1, 2], []) == [2, 1]


async def test_many_pages_of_history_are_listed_whole():
    assert await listed([70], list(range(1, 150, 2))) == sorted([70, *range(1, 150, 2)], reverse=True)


async def test_what_waits_or_runs_is_not_looked_for_in_the_history():
    assert await listed([2], [1, 3], status="Pending") == [2]
