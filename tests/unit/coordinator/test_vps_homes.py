"""Which files of VPSs runners are told to remove: those of VPSs that are over, and none that nobody knows."""

from __future__ import annotations

import pytest

from phalanx.coordinator.vps_homes import ReportedHomes
from phalanx.core.cluster.image import encode_job
from phalanx.core.cluster.inputs import Cancel
from phalanx.core.model.job import Vps, ulid
from phalanx.core.model.orders import Dismiss, Started
from phalanx.store.memory import MemoryStore
from phalanx.store.protocol import StoreError
from tests.support.builders import a_job
from tests.support.core_cluster import CoreCluster

pytestmark = pytest.mark.anyio
GONE = ulid(1, 99)


class Past(MemoryStore):
    """A store whose history is given."""

    def __init__(self, bodies: dict[str, bytes]) -> None:
        super().__init__()
        self.bodies = bodies
        self.is_down = False

    async def history(self, job: str) -> bytes | None:
        if self.is_down:
            raise StoreError("the disk is full")
        return self.bodies.get(job)


def test_files_are_kept_until_the_last_process_has_ended():
    cluster, homes = CoreCluster(n1={}), ReportedHomes()
    job = a_job(vps=Vps("disabled"))
    cluster.submit(job)
    cluster.place(job, 0, "n1")
    cluster.report(job, 0, Started)
    assert homes.to_remove(cluster.state, [job.id]) == []
    cluster.give(Cancel(job.id))
    assert homes.to_remove(cluster.state, [job.id]) == []
    cluster.confirm_stops()
    assert homes.to_remove(cluster.state, [job.id]) == [Dismiss(job.id)]


async def test_what_left_the_memory_is_looked_up_and_what_nobody_knows_is_kept():
    cluster, homes = CoreCluster(n1={}), ReportedHomes()
    job = a_job(vps=Vps("disabled"))
    ended = cluster.submit(job)
    store = Past({job.id: encode_job(ended)})
    del cluster.state.jobs[job.id]
    assert homes.to_remove(cluster.state, [job.id, GONE]) == []
    store.is_down = True
    await homes.look_up(store, job.id)
    assert homes.to_remove(cluster.state, [job.id]) == []
    store.is_down = False
    for id in (job.id, GONE):
        await homes.look_up(store, id)
    assert homes.to_remove(cluster.state, [job.id, GONE, "../etc"]) == [Dismiss(job.id)]
