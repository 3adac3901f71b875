"""What all events have in common, and their kinds: of the cluster, a node, a job, an attempt, a workflow."""

from __future__ import annotations

from msgspec import Struct

from phalanx.core.model.job import JobId, NodeName
from phalanx.core.model.orders import AttemptKey


class Recorded(Struct, frozen=True, array_like=True, kw_only=True, tag=True, gc=False):
    """In the log an event is an array: its own fields, then these, then what later versions added (kw_only as well).

    So a field is added in a subclass that is kw_only, with a default, and old logs are read as before. Each event is of
    one of the kinds below. They have no cycles, so the garbage collector need not look at them.
    """

    at: float
    cause: str = ""

    @property
    def own_job(self) -> JobId | None:
        """The job it is about, if it is about one."""
        raise NotImplementedError(f"{type(self).__name__} is of none of the kinds below")

    @property
    def jobs(self) -> tuple[JobId, ...]:
        """Every job whose story it belongs to; an eviction belongs to the victims' as well."""
        return () if self.own_job is None else (self.own_job,)

    @property
    def on_node(self) -> NodeName | None:
        return getattr(self, "node", None)


class ClusterEvent(Recorded, frozen=True):
    own_job = None


class NodeEvent(Recorded, frozen=True):
    node: NodeName
    own_job = None


class JobEvent(Recorded, frozen=True):
    job: JobId

    @property
    def own_job(self) -> JobId:
        return self.job


class AttemptEvent(Recorded, frozen=True):
    key: AttemptKey

    @property
    def own_job(self) -> JobId:
        return self.key[0]


class WorkflowEvent(Recorded, frozen=True):
    """Of a workflow as a whole; its story has the events of its stages' jobs as well."""

    workflow: JobId
    own_job = None

    @property
    def jobs(self) -> tuple[JobId, ...]:
        return (self.workflow,)
