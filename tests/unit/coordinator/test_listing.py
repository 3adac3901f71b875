"""The list of jobs: memory and history as one, newest first, every job once."""

from __future__ import annotations

import asyncio
from time import thread_time
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import structs

from phalanx.api.schema.queries import JobsQuery
from phalanx.api.server.limits import TimeSlices
from phalanx.clock import SystemClock
from phalanx.coordinator.questions import StateReads
from phalanx.core.cluster.events import JobSubmitted
from phalanx.core.cluster.image import encode_job
from phalanx.core.cluster.inputs import Drain
from phalanx.core.cluster.state import ClusterState, Timers
from phalanx.core.cluster.transitions import apply
from phalanx.core.model.orders import Started
from phalanx.store.memory import MemoryStore
from phalanx.store.protocol import Batch, History
from tests.support.builders import a_cluster, a_job
from tests.support.core_cluster import CoreCluster

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def an_id(number: int) -> str:
    return f"01hzx5k3m9qwertyasdfgh{number:04}"


def a_state(*numbers: int) -> ClusterState:
    state = ClusterState(Timers())
    for number in numbers:
        apply(state, JobSubmitted(at=1.0, cause="test", job=a_job(id=an_id(number))))
    return state


async def a_round() -> None:
    """Let the loop turn once."""
    over = asyncio.Event()
    asyncio.get_running_loop().call_soon(over.set)
    await over.wait()


async def listed(memory: list[int], history: list[int], **asked: Any) -> list[int]:
    """The numbers of the jobs of all pages, in the order they are listed."""
    store, past = MemoryStore(), a_state(*history)
    records = [History(id, encode_job(job)) for id, job in past.jobs.items()]
    await store.append(await store.open_term(), Batch(1, b""), records)
    loop: Any = SimpleNamespace(state=a_state(*memory))
    questions = StateReads(loop, store, SystemClock())
    found: list[int] = []
    cursor = None
    while True:
        page = await questions.jobs(JobsQuery(**{"cursor": cursor, "limit": 3} | asked), "ada")
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


async def test_many_lists_at_once_leave_the_loop_to_others_after_every_piece():
    state = a_state(*range(9_000))
    store = MemoryStore()
    await store.append(await store.open_term(), Batch(1, b""), [])
    loop: Any = SimpleNamespace(state=state)
    questions = StateReads(loop, store, SystemClock())
    asked = JobsQuery(status="Failed", name="zzz")
    lists = [asyncio.create_task(questions.jobs(asked, "ada")) for _ in range(20)]
    longest = 0.0
    while not all(each.done() for each in lists):
        began = thread_time()
        await a_round()
        longest = max(longest, thread_time() - began)
    assert [each.result().items for each in lists] == [[]] * 20
    assert longest < 0.02  # 20 lists in one round took 0.1 s and more


async def test_a_page_of_large_jobs_ends_before_it_is_too_long():
    state = ClusterState(Timers())
    for number in range(8):
        job = a_job(id=an_id(number))
        command = structs.replace(job.groups[0].command, env={"DATA": "x" * 900_000})
        job = structs.replace(job, groups=(structs.replace(job.groups[0], command=command),))
        apply(state, JobSubmitted(at=1.0, cause="test", job=job))
    store = MemoryStore()
    await store.append(await store.open_term(), Batch(1, b""), [])
    loop: Any = SimpleNamespace(state=state)
    page = await StateReads(loop, store, SystemClock()).jobs(JobsQuery(), "ada")
    assert (len(page.items), page.next_cursor) == (1, an_id(7))


async def test_a_job_that_leaves_memory_while_a_list_is_made_is_listed():
    state, store = a_state(*range(200)), MemoryStore()
    epoch = await store.open_term()
    await store.append(epoch, Batch(1, b""), [])
    loop: Any = SimpleNamespace(state=state)
    questions = StateReads(loop, store, SystemClock())
    questions.slices = TimeSlices(SystemClock(), piece_s=0.0)  # a piece is over as soon as it begins
    listing = asyncio.create_task(questions.jobs(JobsQuery(limit=1000), "ada"))
    await a_round()
    await a_round()
    body = encode_job(state.jobs[an_id(3)])
    await store.append(epoch, Batch(2, b""), [History(an_id(3), body)])
    del state.jobs[an_id(3)]
    page = await listing
    assert an_id(3) in [view.id for view in page.items]
    assert len(page.items) == 200


async def test_a_node_that_takes_no_work_has_nothing_free():
    cluster = a_cluster(n1={"cores": 8, "gpus": 2}, n2={"cores": 4})
    cluster.give(Drain("n1", "disk"))
    loop: Any = SimpleNamespace(state=cluster.state, view=lambda: None)
    view = await StateReads(loop, MemoryStore(), SystemClock()).cluster()
    assert (view.nodes_online, view.nodes) == (1, 2)
    assert (view.cores_free, view.cores, view.devices_free, view.devices) == (4, 4, 0, 0)


async def test_lists_are_of_one_user_and_of_what_came_since():
    loop: Any = SimpleNamespace(state=ClusterState(Timers()))
    for number, user in enumerate(("ada", "bob", "ada")):
        job = structs.replace(a_job(id=an_id(number), user=user), submitted_at=float(100 * number))
        apply(loop.state, JobSubmitted(at=1.0, cause="test", job=job))
    reads = StateReads(loop, MemoryStore(), SystemClock())

    async def numbers(**asked: Any) -> list[int]:
        return [view.number for view in (await reads.jobs(JobsQuery(**asked), "ada")).items]

    assert await numbers(mine=True) == [3, 1]
    assert await numbers(user="bob") == [2]
    assert await numbers(since=100.0) == [3, 2]
    assert await numbers(since=100.5, mine=True) == [3]
    assert await numbers(until=200.0, since=100.0) == [2]


async def test_a_name_may_be_a_pattern():
    loop: Any = SimpleNamespace(state=ClusterState(Timers()))
    for number, name in enumerate(("exp-1", "other", "exp-2", "Exp-3")):
        job = structs.replace(a_job(id=an_id(number)), name=name)
        apply(loop.state, JobSubmitted(at=1.0, cause="test", job=job))
    reads = StateReads(loop, MemoryStore(), SystemClock())
    patterns = {
        "exp-1": ["exp-1"],
        "exp*": ["exp-2", "exp-1"],
        "*-2": ["exp-2"],
        "E*": ["Exp-3"],
        "EXP-*1": [],
        "x*": [],
    }
    for pattern, expected in patterns.items():
        found = (await reads.jobs(JobsQuery(name=pattern), "ada")).items
        assert [view.name for view in found] == expected, pattern


async def test_jobs_of_a_node_are_those_that_are_there_and_those_that_ended_there():
    cluster = CoreCluster(n1={"cores": 8}, n2={"cores": 8})
    jobs = [a_job(id=an_id(number)) for number in range(4)]
    for job, node in zip(jobs, ("n1", "n2", "n1", ""), strict=True):
        cluster.submit(job)
        if node:
            cluster.place(job, 0, node)
    cluster.report(jobs[0], 0, Started)
    cluster.ends(jobs[0], 0)
    loop: Any = SimpleNamespace(state=cluster.state)
    reads = StateReads(loop, MemoryStore(), SystemClock())

    async def on(node: str) -> list[tuple[str, list[str]]]:
        items = (await reads.jobs(JobsQuery(node=node), "ada")).items
        return [(view.id[-1], view.nodes) for view in items]

    assert await on("n1") == [("2", ["n1"]), ("0", ["n1"])]
    assert await on("n2") == [("1", ["n2"])]
    assert await on("n9") == []
