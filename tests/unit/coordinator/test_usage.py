"""Usage and reports as a coordinator answers them: from the state, from the history, and from runners."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from phalanx.api.schema.usage import ReportQuery
from phalanx.api.server.limits import TimeSlices
from phalanx.clock import SystemClock
from phalanx.coordinator.credentials import Credentials
from phalanx.coordinator.idle_devices import IdleDevices
from phalanx.coordinator.logs import LogLinks
from phalanx.coordinator.metrics.idle import idle_samples
from phalanx.coordinator.usage import NOT_RUN, NOT_SAMPLED, UsageReads
from phalanx.coordinator.usage_report import UsageReports
from phalanx.coordinator.views_cluster import node_view
from phalanx.coordinator.why import why_reply
from phalanx.core.cluster.image import encode_job
from phalanx.core.cluster.inputs import SetQuota
from phalanx.core.model.job import Job
from phalanx.core.model.orders import Exit, Started, Why
from phalanx.core.model.queues import Quota
from phalanx.core.model.usage import AttemptUsage
from phalanx.errors import BadRequest
from phalanx.link import wire
from phalanx.link.usage import AttemptSamples, DeviceSample, IdleDevice, ReadUsage, UsageData, UsagePoint
from phalanx.store.memory import MemoryStore
from phalanx.store.protocol import Batch, History
from tests.support.builders import a_job
from tests.support.core_cluster import CoreCluster

pytestmark = pytest.mark.anyio
GIB = 1 << 30
USED = AttemptUsage(20.0, GIB, 10, 20)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class FixedClock(SystemClock):
    def __init__(self, cluster: CoreCluster) -> None:
        self._cluster = cluster

    def now(self) -> float:
        return self._cluster.now


class RunnerOnLink:
    """A runner's end of the connection for logs: it answers with what the test says, or not at all."""

    def __init__(
        self, links: LogLinks, node: str, samples: list[AttemptSamples] | None, usage: bool = True
    ) -> None:
        self._links = links
        self._samples = samples
        self.asked: list[ReadUsage] = []
        links.opened(self, wire.LogHello(wire.VERSION, "node-token", node, "a", usage=usage))

    def send(self, messages: list[wire.Message]) -> None:
        for message in messages:
            if isinstance(message, ReadUsage):
                self.asked.append(message)
                if self._samples is not None:
                    self._links.arrived(self, UsageData(message.id, 1.0, 5.0, self._samples))

    def close(self) -> None:
        """Nothing is held."""


def log_links() -> LogLinks:
    return LogLinks(Credentials.local("user-token", "node-token"))


def reads(cluster: CoreCluster, links: LogLinks | None = None) -> UsageReads:
    loop: Any = SimpleNamespace(state=cluster.state)
    return UsageReads(loop, MemoryStore(), links or log_links(), FixedClock(cluster))


def run(cluster: CoreCluster, job: Job, run_s: float = 10.0, used: AttemptUsage | None = USED) -> None:
    """The first task of a job, from its submission to its end."""
    cluster.submit(job)
    cluster.place(job, 0, "n1")
    cluster.report(job, 0, Started)
    begun = cluster.now
    cluster.now += run_s
    cluster.report(job, 0, Exit(Why.NONE, 0, begun, cluster.now, usage=used))


async def report(cluster: CoreCluster, store: MemoryStore | None = None, **query: Any) -> Any:
    loop: Any = SimpleNamespace(state=cluster.state)
    clock = FixedClock(cluster)
    return await UsageReports(loop, store or MemoryStore(), clock, TimeSlices(clock)).report(
        ReportQuery(**query)
    )


async def test_an_ended_task_has_its_summary_against_what_it_asked_for():
    cluster = CoreCluster(n1={})
    job = a_job(cores=4, memory_bytes=2 * GIB)
    run(cluster, job)
    reply = await reads(cluster).usage(job.id, points=60, cursor=None, limit=100)
    [task] = reply.tasks
    assert (task.status, task.node, task.run_s, task.now) == ("Completed", "n1", 10.0, None)
    assert task.summary is not None
    assert (task.summary.cpu_efficiency, task.summary.memory_share) == (0.5, 0.5)
    assert reply.totals.core_hours == pytest.approx(40 / 3600)
    assert reply.totals.cpu_efficiency == 0.5


async def test_a_running_task_is_asked_of_its_runner():
    cluster = CoreCluster(n1={"gpus": 2})
    job = a_job(cores=2, gpus=1)
    cluster.submit(job)
    cluster.place(job, 0, "n1")
    cluster.report(job, 0, Started)
    cluster.now += 10.0
    point = UsagePoint(5.0, 5.0, 1.5, 3.0, 1.0, 2.0, 4, 0.5, 6.0)
    stranger = AttemptSamples(("other", 0, 1), USED, ())
    found = AttemptSamples((job.id, 0, 1), USED, (point,), (DeviceSample(1, 0.5, 7),), point, "processes")
    links = log_links()
    runner = RunnerOnLink(links, "n1", [found, stranger])
    reply = await reads(cluster, links).usage(job.id, points=33, cursor=None, limit=100)
    [task] = reply.tasks
    assert runner.asked[0].points == 33
    assert runner.asked[0].keys == [(job.id, 0, 1)]
    assert task.now is not None
    assert (task.now.cores, task.now.processes, task.now.device_use) == (1.5, 4, 0.5)
    assert [device.index for device in task.devices] == [1]
    assert task.summary is not None
    assert task.summary.cpu_efficiency == 1.0
    assert reply.totals.device_hours == pytest.approx(10 / 3600)
    assert reply.interval_s == 5.0


@pytest.mark.parametrize("kind", ["away", "older", "mute"])
async def test_a_runner_that_cannot_be_asked_costs_only_its_own_numbers(
    kind: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("phalanx.coordinator.logs.ANSWER_WITHIN_S", 0.01)
    cluster = CoreCluster(n1={})
    job = a_job(array="1-2")
    cluster.submit(job)
    cluster.place(job, 0, "n1")
    cluster.report(job, 0, Started)
    links = log_links()
    if kind != "away":
        RunnerOnLink(links, "n1", None, usage=kind == "mute")
    reply = await reads(cluster, links).usage(job.id, points=60, cursor=None, limit=100)
    assert [task.note for task in reply.tasks] == [NOT_SAMPLED, NOT_RUN]
    assert reply.interval_s is None


async def test_tasks_of_an_array_come_in_pages_without_curves():
    cluster = CoreCluster(n1={})
    job = a_job(array="1-5")
    cluster.submit(job)
    reply = await reads(cluster).usage(job.id, points=60, cursor="3", limit=2)
    assert [task.id for task in reply.tasks] == [f"{job.id}.4", f"{job.id}.5"]
    assert reply.next_cursor is None
    with pytest.raises(BadRequest, match="not a cursor"):
        await reads(cluster).usage(job.id, points=60, cursor="x", limit=2)


async def test_a_report_adds_up_users_of_memory_and_history_each_job_once():
    cluster = CoreCluster(n1={})
    jobs = [a_job(user=user, cores=1) for user in ("ada", "bob", "ada")]
    for job in jobs:
        run(cluster, job)
    store = MemoryStore()
    past = CoreCluster(n1={})
    old = a_job(user="ada", cores=2)
    run(past, old)
    records = [History(old.id, encode_job(past.state.jobs[old.id]))]
    records.append(History(jobs[0].id, encode_job(cluster.state.jobs[jobs[0].id])))  # also in memory
    await store.append(await store.open_term(), Batch(1, b""), records)
    found = await report(cluster, store)
    rows = {row.key: row for row in found.rows}
    assert {key: (row.jobs, row.usage.core_hours * 3600) for key, row in rows.items()} == {
        "ada": (3, pytest.approx(40.0)),
        "bob": (1, pytest.approx(10.0)),
    }
    assert found.total.jobs == 4
    assert found.total.usage.core_hours_used == pytest.approx(80 / 3600)
    assert found.others is None
    only = await report(cluster, store, by="job", user="ada", limit=1)
    assert (len(only.rows), only.others.jobs, only.total.jobs) == (1, 2, 3)
    numbers = [row.number for row in (await report(cluster, store, by="job")).rows]
    assert sorted(numbers) == [1, 1, 2, 3]  # one is of another cluster


async def test_a_job_counts_where_it_ended_and_one_that_runs_counts_now():
    cluster = CoreCluster(n1={})
    first = a_job(user="ada", cores=1)
    run(cluster, first)
    ended_at = cluster.now
    cluster.now += 100.0
    second = a_job(user="ada", cores=1)
    cluster.submit(second)
    cluster.place(second, 0, "n1")
    cluster.report(second, 0, Started)
    cluster.now += 50.0
    before = await report(cluster, until=ended_at)
    until_then = await report(cluster, until=ended_at + 1)
    after = await report(cluster, since=ended_at + 1)
    both = await report(cluster, since=0.0, until=cluster.now)
    assert [each.total.jobs for each in (before, until_then, after, both)] == [0, 1, 1, 2]
    assert after.total.usage.core_hours == pytest.approx(50 / 3600)
    with pytest.raises(BadRequest, match="is not after"):
        await report(cluster, since=10.0, until=5.0)


def held(cluster: CoreCluster, queue: str = "default") -> Job:
    job = a_job(gpus=2, queue=queue)
    cluster.submit(job)
    cluster.place(job, 0, "n1")
    cluster.report(job, 0, Started)
    return job


def test_idle_devices_are_told_by_their_node_and_by_why_of_their_holder():
    cluster = CoreCluster(n1={"gpus": 4})
    job = held(cluster)
    idle = IdleDevices()
    idle.told(cluster.state, "n1", [IdleDevice(1, 1200.0, 0.01), IdleDevice(3, 900.0, 0.0)], 100.0)
    view = idle.noted(node_view(cluster.state, cluster.state.nodes["n1"]))
    assert view.numbers == ["1"]
    assert [device.idle_s for device in view.devices] == [0.0, 1200.0, 0.0, 0.0]  # nobody holds the last
    assert view.note == "1 GPU held and idle for 20m or more: 1"
    reply = idle.explained(
        cluster.state, why_reply(cluster.state, cluster.state.jobs[job.id], 0, cluster.now)
    )
    [reason] = reply.others
    assert (reason.code, reason.numbers) == ("DevicesIdle", {"host": "n1", "devices": [1], "idle_s": 1200})
    idle.told(cluster.state, "n1", [], 105.0)
    assert idle.noted(node_view(cluster.state, cluster.state.nodes["n1"])).note == ""


def test_time_of_idle_devices_is_counted_by_queue_and_a_queue_of_no_name_is_another():
    cluster = CoreCluster(n1={"gpus": 4})
    cluster.give(SetQuota("lab", Quota()))
    held(cluster, "lab")
    idle = IdleDevices()
    for at in (100.0, 105.0, 110.0, 1e6):
        idle.told(cluster.state, "n1", [IdleDevice(0, 900.0, 0.0), IdleDevice(1, 900.0, 0.0)], at)
    assert idle.seconds == {"lab": 2 * (5.0 + 5.0 + 120.0)}  # a long silence is not counted whole
    found = idle_samples(idle, cluster.state)
    assert found.by_node == {"n1": 2}
    assert found.seconds == {"default": 0.0, "lab": 260.0}
    idle.seconds["made-up"] = 7.0
    assert idle_samples(idle, cluster.state).seconds["other"] == 7.0
    idle.gone("n1")
    assert idle_samples(idle, cluster.state).by_node == {}
