"""A modest log of a real cluster, for tests of damage: jobs that completed, failed, were retried, cancelled, wait.

It is decided by the real engine and kept in a real store, with an image in the middle.
"""

from __future__ import annotations

from phalanx.coordinator.turn import Engine
from phalanx.core.cluster.events import TaskPlaced
from phalanx.core.cluster.image import encode_state
from phalanx.core.cluster.inputs import Cancel, Hello, Input, Tick
from phalanx.core.cluster.state import ClusterState, Timers
from phalanx.core.model.job import Job
from phalanx.store.protocol import Batch, Store
from tests.support.builders import Cluster, a_capacity, a_gang, a_group, a_job

IMAGE_AFTER = 5  # jobs


class Lived:
    """The batches of one cluster, where its image is, and which jobs had ended for good."""

    def __init__(self) -> None:
        # Few stay in memory, so that the log also tells of jobs that moved to the history.
        self.cluster = Cluster(Timers(ended_jobs_max=4))
        self.jobs: list[Job] = []
        self.image = (0, b"")
        self._live()

    @property
    def state(self) -> ClusterState:
        return self.cluster.state

    @property
    def ended(self) -> set[str]:
        """Jobs that are over, in memory or in the history."""
        kept = {record.job for turn in self.cluster.turns for record in turn.history}
        return kept | {id for id, job in self.state.jobs.items() if job.is_over}

    def batches(self) -> list[Batch]:
        return [batch for turn in self.cluster.turns if (batch := turn.batch()) is not None]

    async def keep(self, store: Store) -> int:
        """Write all of it; returns the epoch it was written under."""
        epoch = await store.open_term()
        for turn in self.cluster.turns:
            if (batch := turn.batch()) is not None:
                await store.append(epoch, batch, turn.history)
        await store.save_image(epoch, *self.image)
        return epoch

    def _live(self) -> None:
        cluster = self.cluster
        cluster.add_node("n1", cores=4, gpus=2)
        cluster.add_node("n2", cores=4)
        for number in range(12):
            self._run(
                a_job(name=f"job-{number}", max_retries=1), codes=(3, 0) if number % 4 == 1 else (number % 5,)
            )
            if number == IMAGE_AFTER:
                self.image = (self.state.revision, encode_state(self.state))
        self._run(a_gang(a_group(2), name="gang"), codes=(0,))
        unwanted, waiting = a_job(name="unwanted", cores=4), a_job(name="waiting", cores=1000)
        for job in (unwanted, waiting):
            self.jobs.append(job)
            cluster.submit(job, allow_infeasible=True)
        cluster.give(Cancel(unwanted.id))

    def _run(self, job: Job, codes: tuple[int, ...]) -> None:
        cluster = self.cluster
        self.jobs.append(job)
        cluster.submit(job)
        for code in codes:
            attempts = list(self.state.jobs[job.id].live.values())
            for attempt in attempts:
                if attempt.formation:
                    cluster.ready(attempt.node, attempt.key)
            for attempt in attempts:
                cluster.started(attempt.node, attempt.key)
            for attempt in attempts:
                cluster.now += 0.5
                cluster.ended(attempt.node, attempt.key, code)
            cluster.now += 40.0
            cluster.beat("n1")
            cluster.beat("n2")
            cluster.give(Tick())


def placed_afterwards(state: ClusterState, now: float) -> set[str]:
    """The jobs that a cluster with room for everything starts in the minutes after it began with this state."""
    engine, found = Engine(state), set[str]()
    for second in range(0, 300, 5):
        inputs: list[Input] = [Tick()]
        if second == 0:
            inputs = [Hello(f"new-{at}", "z", f"origin-{at}", a_capacity(64, gpus=8), []) for at in range(3)]
        for event in engine.turn([*inputs], now + second).events:
            if isinstance(event, TaskPlaced):
                found.add(event.key[0])
    return found
