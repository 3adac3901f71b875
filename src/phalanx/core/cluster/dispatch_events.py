"""Events about how stages are given their nodes: one waits for the node of its weights, several have run as one."""

from __future__ import annotations

from msgspec import Struct

from phalanx.core.cluster.event_kinds import ClusterEvent, JobEvent
from phalanx.core.model.job import JobId, NodeName
from phalanx.core.model.orders import AttemptKey, Exit, Status


class MergedEnd(Struct, frozen=True, array_like=True):
    """How a job ended that ran as a part of another."""

    job: JobId
    status: Status
    exit: Exit


class MergedEnded(ClusterEvent, frozen=True):
    """The attempt has ended that these jobs were a part of. Those in `alone` run by themselves after all."""

    key: AttemptKey
    ends: tuple[MergedEnd, ...] = ()
    alone: tuple[JobId, ...] = ()

    @property
    def jobs(self) -> tuple[JobId, ...]:
        return self.key[0], *(end.job for end in self.ends), *self.alone


class TaskDeferred(JobEvent, frozen=True):
    """A stage begins to wait for the node on which the weights were made that it continues from."""

    node: NodeName
