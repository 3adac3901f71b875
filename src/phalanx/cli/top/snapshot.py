"""ClusterSnapshot: what `phalanx top` knows of the cluster at one moment, read in a bounded number of calls."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from phalanx.api.schema.cluster import ClusterView, NodeView
from phalanx.api.schema.jobs import JobView, StatusWord
from phalanx.cli.labels import label

if TYPE_CHECKING:
    from phalanx.client.async_client import AsyncClient

LIVE: tuple[StatusWord, ...] = ("Running", "Assigned", "Pending")
ENDED: tuple[StatusWord, ...] = ("Failed", "Completed", "Cancelled")
ENDED_MAX = 100  # the newest of each status
PAGE = 1000
JOBS_MAX = 10_000  # of each status; more than a person can scroll through
PACE_S = 1.0  # between two readings, however much changes
CALM_S = 5.0  # between two readings when nothing changes: running times and idle devices
SHARE = 10.0  # a reading that took a second is followed by a pause of so many


class ClusterSnapshot(Struct, frozen=True):
    """The cluster, its nodes and the jobs that have not ended. `jobs_left_out`: there are more than were read.

    `ended` has the newest jobs that have ended, if they were asked for.
    """

    at: float
    cluster: ClusterView
    nodes: list[NodeView]
    jobs: list[JobView]
    jobs_left_out: bool = False
    ended: list[JobView] | None = None

    def by_number(self) -> dict[str, JobView]:
        """Jobs by the number that devices name them with."""
        return {label(job): job for job in self.jobs}


async def read_snapshot(
    client: AsyncClient, now: float, jobs_max: int = JOBS_MAX, *, with_ended: bool = False
) -> ClusterSnapshot:
    """Read everything once. A job that changes its status between two pages is listed once."""
    cluster, nodes = await client.cluster(), await client.nodes()
    jobs: dict[str, JobView] = {}
    left_out = False
    for status in LIVE:
        cursor: str | None = None
        count = 0
        while True:
            page = await client.jobs(status=status, cursor=cursor, limit=min(PAGE, jobs_max))
            jobs |= {job.id: job for job in page.items}
            count, cursor = count + len(page.items), page.next_cursor
            if cursor is None or count >= jobs_max:
                break
        left_out |= cursor is not None
    found = sorted(jobs.values(), key=lambda job: job.id, reverse=True)
    ended = await _read_ended(client) if with_ended else None
    return ClusterSnapshot(now, cluster, nodes, found, left_out, ended)


async def _read_ended(client: AsyncClient) -> list[JobView]:
    pages = [await client.jobs(status=status, limit=ENDED_MAX) for status in ENDED]
    return [job for page in pages for job in page.items]


def pause_s(took_s: float, has_changed: bool) -> float:
    """How long to wait before the next reading, so that a large cluster is not asked all the time."""
    return max(PACE_S if has_changed else CALM_S, SHARE * took_s)
