"""A cluster in which FlowMesh's modes choose the nodes of stages, with the test as every runner."""

from __future__ import annotations

import json

from phalanx.core.cluster.inputs import Hello, SetQuota, SubmitWorkflow
from phalanx.core.cluster.state import Timers
from phalanx.core.cluster.units import Attempt
from phalanx.core.model.dispatch import DispatchMode, DispatchNote, DispatchPolicy
from phalanx.core.model.job import Job, JobId
from phalanx.core.model.orders import Ended, Exit, Started, Status, Why
from phalanx.core.model.queues import Quota
from phalanx.core.model.resources import Capacity, Device
from tests.support.builders import Cluster, a_job
from tests.support.workflow_cluster import a_workflow

GIB = 1 << 30


def a_machine(
    cores: int = 16,
    *,
    ram: int = 64,
    gpus: int = 0,
    vram: int = 0,
    cost: float | None = None,
    kinds: str = "",
) -> Capacity:
    """Hardware: `vram` GiB in all, spread evenly over the GPUs; or the kind of each GPU, with `vram` each."""
    names = kinds.split() or ["a100"] * gpus
    each = vram * GIB if kinds else vram * GIB // max(1, gpus)
    devices = tuple(Device(number, name, each) for number, name in enumerate(names))
    return Capacity(cores, ram * GIB, devices=devices, cost_per_hour=cost)


# The three of contract/workflows-and-dispatch.md, A2.
SMALL = a_machine(16, ram=64, gpus=1, vram=24, cost=0.4)
MID = a_machine(64, ram=512, gpus=4, vram=320, cost=8)
BIG = a_machine(128, ram=1024, gpus=8, vram=640, cost=20)


def a_task(task_type: str, **spec: object) -> str:
    """A file with one task of this type."""
    return f"apiVersion: flowmesh/v1\nspec: {json.dumps({'taskType': task_type, **spec})}\n"


def a_flow(*nodes: dict[str, object]) -> str:
    """A file with a graph."""
    return f"apiVersion: flowmesh/v1\nspec: {json.dumps({'graph': {'nodes': list(nodes)}})}\n"


class DispatchCluster(Cluster):
    """Nodes join in the order in which they are given."""

    def __init__(
        self, policy: DispatchPolicy | None = None, nodes: dict[str, Capacity] | None = None
    ) -> None:
        self.flow: JobId = ""
        super().__init__(Timers(dispatch=policy or DispatchPolicy(), backoff_s=0.0))
        for name, capacity in (nodes or {}).items():
            self.join(name, capacity)

    def join(self, name: str, capacity: Capacity) -> None:
        self.give(Hello(name, "a", f"origin-{name}", capacity, []))

    def queue(self, name: str, mode: DispatchMode, **more: str) -> None:
        self.give(SetQuota(name, Quota(dispatch_mode=mode, **more)))  # type: ignore[arg-type]

    def run(self, text: str, user: str = "ada") -> JobId:
        """Submit a workflow; its id."""
        flow = a_workflow(text, user)
        self.give(SubmitWorkflow(flow))
        return flow.id

    def run_job(self, id: str, queue: str, **fields: object) -> Job:
        job = a_job(id=id, queue=queue, **fields)  # type: ignore[arg-type]
        self.submit(job)
        return job

    def stage(self, flow: JobId, name: str = "") -> JobId:
        """The job of a stage; of the only one without a name."""
        known = self.state.workflows[flow]
        return known.job_id(known.numbers[name] if name else 0)

    def attempt(self, job: JobId) -> Attempt | None:
        return self.state.jobs[job].live.get(0)

    def where(self, job: JobId) -> str:
        """The node that it was given; empty if it waits."""
        attempt = self.attempt(job)
        return "" if attempt is None else attempt.node

    def note(self, job: JobId) -> DispatchNote:
        attempt = self.attempt(job)
        assert attempt is not None and attempt.note is not None
        return attempt.note

    def finish(self, job: JobId, result: str = "", code: int = 0) -> str:
        """It runs and ends so; the node on which it did."""
        attempt = self.attempt(job)
        assert attempt is not None, f"{job} has no place"
        self.tell(attempt.node, Started(attempt.key, self.now))
        why = Why.EXITED if code else Why.NONE
        self.tell(attempt.node, Ended(attempt.key, Exit(why, code, self.now, self.now, result=result)))
        return attempt.node

    def at_once(self, text: str, result: str = "") -> str:
        """Submit a workflow of one task and let it end; the node that it had."""
        return self.finish(self.stage(self.run(text)), result)

    def overall(self, job: JobId) -> Status:
        return self.state.jobs[job].overall_status
