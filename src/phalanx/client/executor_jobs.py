"""The jobs of an executor's workers: arrays that are submitted as calls wait, watched, and ended with the executor.

An array has as many tasks as there are calls that no worker would have, up to a limit. A task whose worker ended is
started again by the scheduler; an array that has ended is replaced while there are calls. If none of its workers ever
came, that is an error of all calls, with what the task said.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from os import PathLike
from typing import TypedDict

from msgspec import structs

from phalanx.api.schema.calls import EXECUTOR_TAG
from phalanx.api.schema.jobs import JobView
from phalanx.api.schema.submission import SubmitRequest
from phalanx.api.schema.submit_fields import Word
from phalanx.client.calls import FINAL
from phalanx.client.client import Client
from phalanx.core.model.resources import Cores
from phalanx.errors import CallFailed, Conflict, NotFound, PhalanxError

WORKERS_MAX = 1000
ENDED_MAX = 3  # arrays that ended one after another without a result
END_S = 5.0  # for workers to end by themselves
RETRIES = 2  # of a worker's task


class CallFields(TypedDict, total=False):
    """What each call is given: fields of `SubmitRequest`, and `target` for one node."""

    cores: Cores
    memory: int | str
    gpus: int
    gpu_type: str | None
    gpu_memory: int | str
    target: str
    labels: dict[str, str]
    require_isolation: bool
    priority: int
    queue: str
    name: str
    env: Mapping[str, Word]
    cwd: str | PathLike[str] | None


class WorkerJobs:
    """The arrays of one kind of worker."""

    def __init__(
        self,
        client: Client,
        executor: str,
        fields: CallFields,
        *,
        max_workers: int | None,
        python: str | None,
        reach: dict[str, str],
    ) -> None:
        """`reach` are the variables that say where the coordinators are."""
        self._client = client
        self._request = _request(executor, fields, python, reach)
        self._max_workers = max_workers
        self._jobs: dict[str, int] = {}  # tasks that have not ended, when last looked
        self._ended = 0  # arrays that failed since the last result
        self.has_served = False  # a worker has come once

    @property
    def workers(self) -> int:
        """How many workers there are, or will be when there is room."""
        return sum(self._jobs.values())

    def ensure(self, calls: int) -> None:
        """Submit an array if there are fewer workers than calls, up to the limit."""
        missing = min(self._most(), calls) - self.workers
        if missing > 0:
            request = structs.replace(self._request, array=f"1-{missing}")
            reply = self._client.submit(request)
            self._jobs[reply.batch_id] = missing

    def review(self) -> None:
        """Count the tasks that have not ended; raise CallFailed if workers cannot run."""
        for id in list(self._jobs):
            view = self._client.job(id)
            if view.status not in FINAL:
                counts = view.counts
                self._jobs[id] = counts.pending + counts.assigned + counts.running
                continue
            del self._jobs[id]
            if view.status == "Failed":
                self._ended += 1
                if not self.has_served or self._ended > ENDED_MAX:
                    raise self._failed(view)
            elif view.status == "Cancelled":
                raise CallFailed(
                    f"job {view.number or id} of the workers was cancelled", reason="WorkersCancelled"
                )

    def progressed(self) -> None:
        """A result has come."""
        self._ended = 0

    def evict(self, task: str) -> None:
        """A worker is silent: its task has to start anew, elsewhere if need be."""
        with suppress(PhalanxError):
            self._client.evict(task)

    def end(self, *, at_once: bool) -> None:
        """Return when all workers have ended. Those that do not end by themselves are cancelled."""
        for id in self._jobs:
            with suppress(Conflict, NotFound):
                if at_once or self._client.job(id).counts.pending or not self._ends(id):
                    self._client.cancel(id)
        for id in self._jobs:
            with suppress(NotFound):
                self._ends(id)
        self._jobs.clear()

    def _ends(self, id: str) -> bool:
        return self._client.wait(id, END_S, must_end=False).status in FINAL

    def _most(self) -> int:
        """The limit: as given, or as many as all nodes could hold."""
        if self._max_workers is None:
            cluster = self._client.cluster()
            request = self._request
            most = int(float(cluster.cores) / max(0.001, float(request.cores)))
            if request.gpus:
                most = min(most, cluster.devices // request.gpus)
            self._max_workers = min(WORKERS_MAX, max(1, most))
        return self._max_workers

    def _failed(self, view: JobView) -> CallFailed:
        """Why workers did not come, as one of their tasks says it."""
        called = view.number or view.id
        said = ""
        for task in self._client.tasks(view.id, status="Failed", limit=1).items:
            said = (self._client.task(task.id).stderr_tail or task.message).strip()
        return CallFailed(
            f"the workers of the executor could not run: job {called} failed{': ' if said else ''}{said[-2000:]}",
            reason="WorkersFailed",
            hint=f"phalanx why {called} says more; python= names the program that workers run",
        )


def _request(executor: str, fields: CallFields, python: str | None, reach: dict[str, str]) -> SubmitRequest:
    given = dict(fields)
    target = given.pop("target", None)
    path = "" if python else os.pathsep.join(each for each in sys.path if each)
    env = {**fields.get("env", {}), **reach, "PHALANX_EXECUTOR_PATH": path}
    known = {"name": "executor", **given, "env": env}
    return SubmitRequest(
        command=[python or sys.executable, "-m", "phalanx.worker"],
        targets=[target] if target else [],  # type: ignore[list-item]
        tags={EXECUTOR_TAG: executor},
        max_retries=RETRIES,
        **known,  # type: ignore[arg-type]
    )
