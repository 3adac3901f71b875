"""What a job keeps of its tasks' usage: the newest end of each task, sums over all attempts, in images and history."""

from __future__ import annotations

import pytest
from msgspec import msgpack

from phalanx.core.cluster.image import JobImage, decode_job, encode_job
from phalanx.core.cluster.jobs import JobState
from phalanx.core.cluster.usage_image import past_usage
from phalanx.core.model.job import Job
from phalanx.core.model.orders import Exit, Started, Status, Why
from phalanx.core.model.usage import AttemptUsage, UsageTotals
from tests.support.builders import a_job
from tests.support.core_cluster import CoreCluster

GIB = 1 << 30
USED = AttemptUsage(30.0, GIB, 4096, 8192, 20.0, 15.0, 5.0, 3 * GIB)


def ended(
    cluster: CoreCluster,
    job: Job,
    position: int,
    used: AttemptUsage | None,
    code: int = 0,
    run_s: float = 10.0,
) -> None:
    cluster.place(job, position, "n1")
    cluster.report(job, position, Started)
    why = Why.EXITED if code else Why.NONE
    begun = cluster.now
    cluster.now += run_s
    cluster.report(job, position, Exit(why, code, begun, cluster.now, usage=used))


def test_an_ended_task_has_what_it_used_and_its_job_the_sums():
    cluster = CoreCluster(n1={"gpus": 4})
    job = a_job(array="1-3", cores=2, memory_bytes=2 * GIB, gpus=2)
    state = cluster.submit(job)
    ended(cluster, job, 1, USED)
    assert state.usage.of(1) == USED
    assert state.usage.of(0) is None
    totals = state.usage.totals
    assert (totals.attempts, totals.run_s, totals.core_s, totals.device_s) == (1, 10.0, 20.0, 20.0)
    assert totals.cost > 0


def test_a_retry_replaces_the_summary_of_the_task_and_adds_to_the_sums_of_the_job():
    cluster = CoreCluster(n1={})
    job = a_job(cores=1, max_retries=3)
    state = cluster.submit(job)
    ended(cluster, job, 0, AttemptUsage(1.0, 100), code=1)
    cluster.now += 3600.0
    ended(cluster, job, 0, AttemptUsage(2.0, 50))
    assert state.status[0] == Status.COMPLETED
    assert state.usage.of(0) == AttemptUsage(2.0, 50)
    assert (state.usage.totals.attempts, state.usage.totals.cpu_s) == (2, 3.0)
    assert state.usage.totals.memory_peak_bytes == 100


def test_an_attempt_that_never_ran_is_not_counted():
    cluster = CoreCluster(n1={})
    job = a_job()
    state = cluster.submit(job)
    cluster.place(job, 0, "n1")
    cluster.report(job, 0, Exit(Why.REFUSED, 127, ended_at=cluster.now))
    assert state.usage.totals == UsageTotals()


def test_an_end_that_nobody_saw_counts_until_it_was_told():
    cluster = CoreCluster(n1={})
    job = a_job(cores=1)
    state = cluster.submit(job)
    cluster.place(job, 0, "n1")
    cluster.report(job, 0, Started)
    cluster.now += 5.0
    cluster.report(job, 0, Exit(Why.UNKNOWN))
    assert state.usage.totals.run_s == 5.0
    assert state.usage.of(0) is None


def test_usage_outlives_the_image_and_the_history():
    cluster = CoreCluster(n1={"gpus": 4})
    job = a_job(array="1-3", gpus=1)
    state = cluster.submit(job)
    ended(cluster, job, 2, USED)
    again = decode_job(encode_job(state))
    assert again.usage.of(2) == USED
    assert again.usage.totals == state.usage.totals
    past = past_usage(encode_job(state))
    assert (past.job, past.ended_at, past.totals) == (job, state.ended_at, state.usage.totals)


def test_a_record_of_a_former_version_has_no_usage():
    cluster = CoreCluster(n1={})
    state = cluster.submit(a_job())
    whole = msgpack.decode(encode_job(state))
    former = msgpack.encode(whole[: JobImage.__struct_fields__.index("usage")])
    assert decode_job(former).usage.of(0) is None
    assert past_usage(former).totals == UsageTotals()


@pytest.mark.parametrize("tasks", [1, 1000])
def test_a_task_costs_sixteen_bytes_once_one_was_measured(tasks: int):
    cluster = CoreCluster(n1={})
    job = a_job(array=f"1-{tasks}")
    state = cluster.submit(job)
    assert column_bytes(state) == 0
    ended(cluster, job, 0, AttemptUsage(1.0, 100))
    assert column_bytes(state) == 16 * tasks


def column_bytes(state: JobState) -> int:
    return 0 if state.usage.column is None else len(state.usage.column.tobytes())
