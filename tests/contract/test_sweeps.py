"""Sweeps in every store: rows travel with their job through the log, images, the history and a copy."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from msgspec import structs

from phalanx.core.cluster.events import JobSubmitted, encode
from phalanx.core.cluster.image import decode_job, encode_job, encode_state
from phalanx.core.cluster.state import ClusterState
from phalanx.core.cluster.transitions import apply
from phalanx.core.model.array import Array
from phalanx.core.model.job import Job
from phalanx.core.model.parameters import Axis, Params, RowPacker
from phalanx.store.archive import Archive, write_archive
from phalanx.store.check import replayed
from phalanx.store.contents import StoreContents
from phalanx.store.copy import fill
from phalanx.store.memory import MemoryStore
from phalanx.store.protocol import Batch, History, Store
from tests.support.builders import a_job

pytestmark = pytest.mark.anyio
COUNT = 30_000


def a_sweep() -> Job:
    """Rows that hardly compress, so that the event is larger than what etcd takes in one request."""
    dice, packer = Random(1), RowPacker()
    packer.add([[f"{dice.getrandbits(500):x}", str(number)] for number in range(COUNT)])
    job = a_job(array=f"1-{2 * COUNT}")
    params = Params((Axis("lr", ("a", "b")),), packer.rows(("key", "number")))
    return structs.replace(job, params=params)


def a_retry(first: Job) -> Job:
    assert first.params is not None
    indexes = (3, 4, COUNT)
    group = structs.replace(first.groups[0], tasks=3)
    return structs.replace(
        first,
        id="0" * 25 + "9",
        groups=(group,),
        array=Array.of(indexes),
        params=first.params.only(indexes),
        repeats=first.id,
    )


async def state_of(store: Store) -> ClusterState:
    state, broken = replayed(await store.load())
    assert broken == []
    return state


async def test_rows_are_where_their_job_is(store: Store, tmp_path: Path):
    sweep = a_sweep()
    retry, state = a_retry(sweep), ClusterState()
    events = [
        JobSubmitted(at=1.0, cause="user ada", job=job, request_id=f"r{at}", number=at)
        for at, job in enumerate((sweep, retry), start=1)
    ]
    epoch = await store.open_term()
    for revision, event in enumerate(events, start=1):
        apply(state, event)
        body = encode([event])
        assert revision == 2 or len(body) > 1_500_000
        await store.append(epoch, Batch(revision, body, (event.job.id,)), [])
    known = await state_of(store)
    assert {id: job.job for id, job in known.jobs.items()} == {sweep.id: sweep, retry.id: retry}
    assert known.repeated == {sweep.id: [retry.id]}

    await store.save_image(epoch, 2, encode_state(known))
    record = History(sweep.id, encode_job(known.jobs[sweep.id]), 1)
    await store.append(epoch, Batch(3, encode([]), ()), [record])
    found = await store.history(sweep.id)
    assert found is not None
    assert decode_job(found).job.params_at(2 * COUNT - 1)["number"] == str(COUNT - 1)
    assert (await state_of(store)).jobs[retry.id].job.params_at(2)["lr"] == "b"

    contents = await StoreContents.read(store, "here")
    await write_archive(tmp_path / "backup", contents, 0.0, "test", lambda *_: None, force=False)
    copy = MemoryStore()
    await fill(copy, Archive(tmp_path / "backup"), 100, lambda *_: None)
    assert (await state_of(copy)).jobs[sweep.id].job == sweep
