"""Results of tasks: kept with the end of the attempt that gave them, within limits."""

from __future__ import annotations

import pytest
from msgspec import structs

from phalanx.core.cluster import jobs
from phalanx.core.cluster.events import JobForgotten
from phalanx.core.cluster.image import decode_job, decode_state, encode_job, encode_state
from phalanx.core.cluster.inputs import Tick
from phalanx.core.model.job import Job, job_bytes
from phalanx.core.model.orders import Exit, Status, Why
from tests.support.builders import a_job
from tests.support.core_cluster import CoreCluster


def gives(cluster: CoreCluster, job: Job, position: int, result: str, code: int = 0) -> None:
    cluster.place(job, position, "n1")
    why = Why.EXITED if code else Why.NONE
    cluster.report(job, position, Exit(why, code, cluster.now, cluster.now, result=result))


def an_array(size: int) -> tuple[CoreCluster, Job]:
    cluster = CoreCluster(n1={"cores": 8})
    job = a_job(array=f"1-{size}", max_retries=3)
    cluster.submit(job)
    return cluster, job


def test_it_is_that_of_the_newest_attempt():
    cluster, job = an_array(2)
    gives(cluster, job, 0, '{"try":1}', code=1)
    assert cluster.state.jobs[job.id].results == {0: '{"try":1}'}
    cluster.place(job, 0, "n1")
    assert cluster.state.jobs[job.id].results == {}
    cluster.ends(job, 0, code=1)
    cluster.now += 10.0  # its backoff
    gives(cluster, job, 0, "2")
    assert cluster.state.jobs[job.id].results == {0: "2"}
    assert cluster.state.jobs[job.id].result_bytes == 1


def test_images_and_the_history_keep_it():
    cluster, job = an_array(1)
    gives(cluster, job, 0, "[1]")
    again = decode_state(encode_state(cluster.state), cluster.state.rules)
    assert (again.jobs[job.id].results, again.ended_bytes) == ({0: "[1]"}, 3 + job_bytes(job))
    past = decode_job(encode_job(cluster.state.jobs[job.id]))
    assert (past.results, past.result_bytes) == ({0: "[1]"}, 3)


def test_one_that_is_too_much_for_its_job_is_told_to_be_missing(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(jobs, "RESULTS_BYTES_MAX", 10)
    cluster, job = an_array(3)
    for position in range(3):
        gives(cluster, job, position, "12345")
    state = cluster.state.jobs[job.id]
    assert (list(state.results), state.result_bytes) == ([0, 1], 10)
    assert "not kept" in state.details[2][0]
    assert state.overall_status == Status.COMPLETED


def test_ended_jobs_leave_memory_when_their_results_are_many():
    cluster = CoreCluster(n1={"cores": 8})
    ended = [a_job() for _ in range(4)]
    size = job_bytes(ended[0])
    cluster.state.rules = structs.replace(cluster.state.rules, results_bytes_max=12 + 2 * size)
    for job in ended:
        cluster.submit(job)
        gives(cluster, job, 0, "12345")
    assert cluster.state.ended_bytes == 20 + 4 * size
    cluster.give(Tick())
    gone = [event.job for event in cluster.events if isinstance(event, JobForgotten)]
    assert gone == [job.id for job in ended[:2]]
    assert cluster.state.ended_bytes == 10 + 2 * size


def test_a_result_in_the_place_for_files_is_known_by_size_and_digest():
    cluster, job = an_array(2)
    cluster.place(job, 0, "n1")
    digest = "a" * 64
    kept = Exit(Why.EXITED, 1, cluster.now, cluster.now, result_bytes=5000, result_sha256=digest)
    cluster.report(job, 0, kept)
    state = cluster.state.jobs[job.id]
    assert (state.kept_results, state.result_bytes) == ({0: (5000, digest)}, jobs.KEPT_RESULT_BYTES)
    again = decode_state(encode_state(cluster.state), cluster.state.rules).jobs[job.id]
    assert (again.kept_results, again.result_bytes) == (state.kept_results, state.result_bytes)
    cluster.place(job, 0, "n1")
    assert (state.kept_results, state.result_bytes) == ({}, 0)
