"""The files of VPSs that lie on nodes: each heartbeat names them, and the answer says which may be removed.

A VPS that is over in the state is removed there at once. One that is not in memory has ended long ago, or was made
after the backup that this state comes from: the history tells which, and what it does not know is kept.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from phalanx.core.cluster.image import decode_job
from phalanx.core.cluster.state import ClusterState
from phalanx.core.cluster.workflow_image import is_workflow
from phalanx.core.model.job import JobId, is_job_id
from phalanx.core.model.orders import Dismiss
from phalanx.logger import logger, told
from phalanx.store.protocol import Store, StoreError

log = logger("coordinator")
UNKNOWN_MAX = 10_000  # looked up, at one time
LOOK_EVERY_S = 30.0


class ReportedHomes:
    """What runners have named, as far as the state does not know it."""

    def __init__(self) -> None:
        self._asked: set[JobId] = set()
        self._ended: set[JobId] = set()
        self._strange: set[JobId] = set()

    def to_remove(self, state: ClusterState, homes: Sequence[JobId]) -> list[Dismiss]:
        """Orders about those whose VPS is over."""
        found = []
        for id in homes:
            job = state.jobs.get(id)
            if job is None:
                if id in self._ended:
                    found.append(Dismiss(id))
                elif id not in self._strange and len(self._asked) < UNKNOWN_MAX and is_job_id(id):
                    self._asked.add(id)
            elif job.is_over and not job.live:
                found.append(Dismiss(id))
        return found

    async def keep(self, store: Store) -> None:
        """Look up what is not in memory, as long as the process lives."""
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            for id in list(self._asked):
                await self.look_up(store, id)

    async def look_up(self, store: Store, id: JobId) -> None:
        """Whether the history has it, and it was a VPS."""
        try:
            body = await store.history(id)
        except StoreError as error:
            log.warning("the history cannot be asked about files of a VPS", job=id, **told(error))
            return
        self._asked.discard(id)
        is_ended = body is not None and not is_workflow(body) and decode_job(body).job.vps is not None
        (self._ended if is_ended else self._strange).add(id)
        if not is_ended:
            log.warning("a node has files of a VPS that this cluster does not know; they are kept", job=id)
