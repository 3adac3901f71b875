"""The job object of Python: which task is meant, and what its errors call the job."""

from __future__ import annotations

from typing import Any, cast

import pytest

from phalanx.api.schema.jobs import Counts
from phalanx.api.schema.submission import AcceptedTask, SubmitReply
from phalanx.client.job_handles import job_handle
from phalanx.errors import BadRequest, JobFailed
from tests.support.fake_client import ID, FakeClient, a_job, a_task


def a_handle(cluster: FakeClient, tasks: int = 1) -> Any:
    return job_handle(SubmitReply([ID], ID, [AcceptedTask(ID, tasks, number=29)]), cast(Any, cluster))


def test_which_task_of_an_array_is_meant_has_to_be_said():
    handle = a_handle(FakeClient(), tasks=3)
    with pytest.raises(BadRequest, match=r"29 has 3 tasks: give the index of one, such as job\.follow\(1\)"):
        handle.follow()
    assert handle.task_id(2) == f"{ID}.2"
    assert a_handle(FakeClient()).task_id(None) == ID


def test_errors_call_a_job_by_its_number():
    cluster = FakeClient()
    cluster.ends = [a_job(number=29, status="Running")]
    with pytest.raises(TimeoutError, match=r"^29 has not ended: it is Running"):
        a_handle(cluster).wait(0.1, check=True)
    cluster.ends = [a_job(number=29, status="Failed", name="train")]
    cluster.kept_tasks = [a_task(number="29", status="Failed", message="exited with code 3", attempt=0)]
    with pytest.raises(JobFailed, match=r"train \(29\) is Failed: exited with code 3") as failed:
        a_handle(cluster).wait(check=True)
    assert failed.value.hint == "phalanx logs 29 shows all that it wrote"


def test_of_an_array_the_error_counts_the_tasks_and_names_the_first_that_failed():
    cluster = FakeClient()
    cluster.ends = [
        a_job(number=29, status="Failed", name="sweep", tasks=6, counts=Counts(completed=4, failed=2))
    ]
    first = a_task(
        number="29.2", status="Failed", message="exited with code 1", attempt=0, params={"lr": "0.1"}
    )
    cluster.kept_tasks = [a_task(number="29.1", status="Completed"), first]
    with pytest.raises(JobFailed) as failed:
        a_handle(cluster, tasks=6).wait(check=True)
    assert str(failed.value) == (
        "sweep (29) is Failed: 2 of 6 tasks, the first is 29.2 (lr=0.1), exited with code 1"
    )


def test_a_traceback_has_the_hint():
    error = BadRequest("no", hint="write yes")
    assert error.__notes__ == ["hint: write yes"]
    error.hint = "write yes or no"
    assert (error.hint, error.__notes__) == ("write yes or no", ["hint: write yes or no"])
    assert BadRequest("no").__notes__ == []
