"""Python functions on a cluster: `phalanx.Executor` from the call to its result, in one process and in many."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import CancelledError, Future, as_completed, wait
from pathlib import Path

import pytest

import phalanx
from phalanx.api.schema.calls import (
    CALL_BYTES_MAX,
    EXECUTOR_TAG,
    RESULT_BYTES_MAX,
    CallBatch,
    CallsRequest,
    PostedCall,
    TakeRequest,
)
from phalanx.client import executor_calls
from phalanx.clock import SystemClock
from phalanx.coordinator import call_shares
from phalanx.coordinator.call_queue import UNCLAIMED_S
from phalanx.errors import BadRequest
from tests.support import called
from tests.support.called import runs
from tests.support.real_cluster import RealCluster, a_real_cluster
from tests.support.waiting import pause, wait_until
from tests.tidy.source import ROOT

pytestmark = pytest.mark.timeout(120)
ONE_NODE = {"n1": "cpus=4,gpus=2,type=h100,memory=80GiB,ram=16GiB"}


@pytest.fixture(scope="module")
def local() -> Iterator[phalanx.LocalCluster]:
    with phalanx.local(pretend="cpus=4,ram=8GiB") as cluster:
        yield cluster


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCluster]:
    with a_real_cluster(tmp_path_factory.mktemp("executor"), ONE_NODE) as found:
        yield found


@pytest.fixture
def executor(local: phalanx.LocalCluster) -> Iterator[phalanx.Executor]:
    with phalanx.Executor(local, max_workers=2) as found:
        yield found


def jobs_of_executors(client: phalanx.Client) -> list[phalanx.JobView]:
    return client.jobs(selector=EXECUTOR_TAG).items


def running(client: phalanx.Client) -> int:
    return sum(job.counts.running + job.counts.assigned + job.counts.pending for job in client.jobs().items)


def free(folder: Path, file: str = "go") -> None:
    (folder / file).write_text("")


def test_a_map_gives_results_in_order_from_one_array(local):
    known = {job.id for job in jobs_of_executors(local)}
    with phalanx.Executor(local, max_workers=3) as executor:
        assert list(executor.map(called.square, range(2000))) == [n * n for n in range(2000)]
        assert list(executor.map(pow, [2, 3, 4], [5, 2, 1])) == [32, 9, 4]
    (job,) = [job for job in jobs_of_executors(local) if job.id not in known]
    assert (job.tasks, job.counts.completed, job.status) == (3, 3, "Completed")


def test_functions_without_a_name_and_their_variables_travel(executor):
    factor = 3
    assert executor.submit(lambda number, more=0: factor * number + more, 4, more=1).result() == 13


def test_an_exception_has_its_type_its_arguments_and_its_remote_traceback(executor):
    error = executor.submit(called.raises, 7).exception()
    assert isinstance(error, called.Custom)
    assert error.number == 7
    assert isinstance(error.__cause__, phalanx.RemoteTraceback)
    assert 'raise Custom(number, "planted")' in str(error.__cause__)


def test_a_map_raises_what_a_call_raised(executor):
    results = executor.map(lambda n: 1 // n, [1, 0, 1])
    assert next(results) == 1
    with pytest.raises(ZeroDivisionError):
        next(results)


def test_an_exception_that_cannot_be_read_is_told_by_its_text(executor):
    error = executor.submit(called.raises_unreadable).exception()
    assert isinstance(error, phalanx.CallFailed)
    assert error.reason == "ExceptionNotPicklable"
    assert "Unreadable: 1 and 2" in str(error)


@pytest.mark.parametrize(
    ("function", "args", "reason"),
    [
        (called.square, (threading.Lock(),), "ArgumentsNotPicklable"),
        (threading.Lock().acquire, (), "FunctionNotPicklable"),
        (len, (bytes(CALL_BYTES_MAX + 1),), "CallTooLarge"),
        (called.large, (RESULT_BYTES_MAX + 1,), "ResultTooLarge"),
        (threading.Lock, (), "ResultNotPicklable"),
    ],
)
def test_what_cannot_travel_is_an_error_of_its_future_alone(executor, function, args, reason):
    error = executor.submit(function, *args).exception()
    assert isinstance(error, phalanx.CallFailed)
    assert error.reason == reason
    if reason.endswith("TooLarge"):
        assert str(CALL_BYTES_MAX) in str(error)
    assert executor.submit(called.square, 5).result() == 25


def test_arguments_and_results_up_to_the_limit_travel(executor):
    size = RESULT_BYTES_MAX - 1000
    assert all(len(each) == size for each in executor.map(called.large, [size] * 12))
    assert executor.submit(len, bytes(size)).result() == size


def test_a_cancelled_call_that_was_not_begun_never_runs(local, tmp_path):
    with phalanx.Executor(local, max_workers=1) as executor:
        first = executor.submit(called.wait_for, str(tmp_path), 0, "go")
        wait_until(first.running, 30.0, "the first call runs")
        others = [executor.submit(called.note, str(tmp_path), n) for n in (1, 2, 3)]
        assert others[1].cancel()
        assert not first.cancel()
        free(tmp_path)
        assert [first.result(), others[0].result(), others[2].result()] == [0, 1, 3]
        with pytest.raises(CancelledError):
            others[1].result()
    assert not runs(tmp_path, 2)


def test_who_stops_reading_a_map_cancels_the_rest(local, tmp_path):
    with phalanx.Executor(local, max_workers=1) as executor:
        results = executor.map(lambda n: called.wait_for(str(tmp_path), n, f"go{n}"), range(50))
        free(tmp_path, "go0")
        assert next(results) == 0
        free(tmp_path, "go1")  # it may have been begun
        results.close()  # type: ignore[attr-defined]
    assert not runs(tmp_path, 10)


def test_a_map_that_takes_too_long_is_a_timeout(local, tmp_path):
    with phalanx.Executor(local, max_workers=1) as executor:
        results = executor.map(called.wait_for, [str(tmp_path)], [0], ["go"], timeout=0.5)
        with pytest.raises(TimeoutError):
            next(results)
        free(tmp_path)


def test_shutdown_leaves_no_task_and_takes_no_call(local, tmp_path):
    executor = phalanx.Executor(local, max_workers=1)
    first = executor.submit(called.wait_for, str(tmp_path), 0, "go")
    wait_until(first.running, 30.0, "the first call runs")
    second = executor.submit(called.note, str(tmp_path), 1)
    executor.shutdown(wait=False, cancel_futures=True)
    with pytest.raises(RuntimeError, match="after shutdown"):
        executor.submit(called.square, 1)
    free(tmp_path)
    executor.shutdown()
    assert first.result(30.0) == 0
    assert second.cancelled()
    wait_until(lambda: running(local) == 0, 30.0, "no task is left")


def test_an_interrupt_cancels_the_job_at_once(local, tmp_path):
    held: list[Future[int]] = []

    def interrupted() -> None:
        with phalanx.Executor(local, max_workers=1) as executor:
            held.extend(executor.submit(called.wait_for, str(tmp_path), n, "never") for n in range(3))
            wait_until(held[0].running, 30.0, "the first call runs")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    error = held[0].exception(1.0)
    assert isinstance(error, phalanx.CallFailed)
    assert error.reason == "ShutDown"
    assert held[2].cancelled()
    assert running(local) == 0


def test_calls_end_when_somebody_cancels_the_job_of_their_workers(local, tmp_path):
    with phalanx.Executor(local, max_workers=1, name="unwanted") as executor:
        calls = [executor.submit(called.wait_for, str(tmp_path), n, "never") for n in range(2)]
        wait_until(calls[0].running, 30.0, "the first call runs")
        (job,) = [job for job in jobs_of_executors(local) if job.name == "unwanted"]
        local.cancel(job.id)
        errors = [call.exception(30.0) for call in calls]
    assert {error.reason for error in errors if isinstance(error, phalanx.CallFailed)} == {"WorkersCancelled"}


def test_a_call_whose_process_dies_runs_again_alone(local, tmp_path):
    with phalanx.Executor(local, max_workers=2) as executor:
        before = executor.map(called.note, [str(tmp_path)] * 200, range(1000, 1200))
        died = executor.submit(called.die_once, str(tmp_path), 1)
        after = executor.map(called.note, [str(tmp_path)] * 200, range(2000, 2200))
        assert list(before) == list(range(1000, 1200))
        assert list(after) == list(range(2000, 2200))
        assert died.result() == 1
    assert len(runs(tmp_path, 1)) == 2
    assert all(len(runs(tmp_path, n)) == 1 for n in (*range(1000, 1200), *range(2000, 2200)))


def test_a_call_that_always_kills_its_process_fails_and_takes_no_other_with_it(local):
    with phalanx.Executor(local, max_workers=1, lost_retries=1) as executor:
        bad = executor.submit(called.die_always)
        good = executor.map(called.square, range(300))
        error = bad.exception()
        assert isinstance(error, phalanx.CallLost)
        assert re.match(r"phalanx logs \d+\.\d+ has the log of its worker", error.hint)
        assert "SIGKILL" in str(error)
        assert "2 times" in str(error)
        assert list(good) == [n * n for n in range(300)]


def test_a_call_that_raises_is_retried_alone(local, tmp_path):
    folder = str(tmp_path)
    with phalanx.Executor(local, max_workers=2, retries=2) as executor:
        before = executor.map(called.note, [folder] * 50, range(100, 150))
        failing = executor.submit(called.raise_until, folder, 1, 2)
        after = executor.map(called.note, [folder] * 50, range(200, 250))
        assert failing.result() == 1
        assert [*before, *after] == [*range(100, 150), *range(200, 250)]
    assert len(runs(tmp_path, 1)) == 3
    assert all(len(runs(tmp_path, n)) == 1 for n in (*range(100, 150), *range(200, 250)))


def test_the_last_exception_says_how_often_the_call_was_tried(executor, tmp_path):
    error = executor.with_resources(retries=2).submit(called.raise_until, str(tmp_path), 1, 9).exception()
    assert isinstance(error, called.Custom)
    assert error.number == 3
    assert isinstance(error.__cause__, phalanx.RemoteTraceback)
    assert error.__cause__.tries == 3
    assert 'raise Custom(ran, "planted")' in str(error.__cause__)
    assert "3 times" in error.__notes__[0]
    assert len(runs(tmp_path, 1)) == 3


def test_a_call_that_raises_runs_once_unless_retries_are_given(executor, tmp_path):
    error = executor.submit(called.raise_until, str(tmp_path), 1, 1).exception()
    assert isinstance(error.__cause__, phalanx.RemoteTraceback)
    assert (error.__cause__.tries, len(runs(tmp_path, 1))) == (1, 1)
    assert not hasattr(error, "__notes__")


def test_only_the_exceptions_that_are_named_are_retried(local, tmp_path):
    class OfMain(Exception):
        """It travels by value."""

    def raise_once(folder: str, number: int) -> int:
        called.note(folder, number)
        if len(runs(Path(folder), number)) == 1:
            raise OfMain
        return number

    folder = str(tmp_path)
    with phalanx.Executor(local, max_workers=1, retries=3, retry_on=(OfMain, OSError)) as executor:
        assert executor.submit(raise_once, folder, 1).result() == 1
        assert isinstance(executor.submit(called.raise_until, folder, 2, 9).exception(), called.Custom)
        patient = executor.with_resources(retry_on=called.Custom)
        assert patient.submit(called.raise_until, folder, 3, 1).result() == 3
    assert [len(runs(tmp_path, n)) for n in (1, 2, 3)] == [2, 1, 2]


def test_a_result_that_cannot_travel_is_not_retried(local, tmp_path):
    def large(folder: str) -> bytes:
        called.note(folder, 1)
        return bytes(RESULT_BYTES_MAX + 1)

    with phalanx.Executor(local, max_workers=1, retries=3) as executor:
        error = executor.submit(large, str(tmp_path)).exception()
    assert isinstance(error, phalanx.CallFailed)
    assert (error.reason, len(runs(tmp_path, 1))) == ("ResultTooLarge", 1)


def test_a_shutdown_that_cancels_ends_the_retries(local, tmp_path):
    with phalanx.Executor(local, max_workers=1, retries=100) as executor:
        failing = executor.submit(called.raise_until, str(tmp_path), 1, 1000)
        wait_until(lambda: runs(tmp_path, 1), 30.0, "the call has run once")
        executor.shutdown(cancel_futures=True)
        assert isinstance(failing.exception(0.0), called.Custom)
    assert len(runs(tmp_path, 1)) < 100


def test_calls_behind_a_long_one_go_to_other_workers(local, tmp_path):
    with phalanx.Executor(local, max_workers=2) as executor:
        list(executor.map(called.square, range(500)))  # so that calls are asked for in advance
        calls = [executor.submit(called.square, n) for n in range(20)]
        long = executor.submit(called.wait_for, str(tmp_path), 0, "go")
        calls += [executor.submit(called.square, n) for n in range(20, 400)]
        done, _ = wait(calls, timeout=30.0)
        assert len(done) == 400
        assert not long.done()
        free(tmp_path)
        assert long.result() == 0


def test_a_frozen_process_does_not_hang_a_map(local, tmp_path):
    with phalanx.Executor(local, max_workers=1) as executor:
        call = executor.submit(called.wait_for, str(tmp_path), 0, "go")
        (pid,) = wait_until(lambda: runs(tmp_path, 0), 30.0, "the call runs")
        os.kill(pid, signal.SIGSTOP)
        wait_until(lambda: len(runs(tmp_path, 0)) == 2, 30.0, "another process runs it")
        free(tmp_path)
        assert call.result() == 0


def test_calls_over_the_share_of_a_user_wait_in_the_client(local, tmp_path, monkeypatch):
    monkeypatch.setattr(call_shares, "USER_BYTES_MAX", 1 << 20)
    with phalanx.Executor(local, max_workers=1) as executor:
        held = executor.submit(called.wait_for, str(tmp_path), 0, "go")
        wait_until(held.running, 30.0, "the first call runs")
        calls = [executor.submit(len, bytes(100_000)) for _ in range(40)]
        first = calls[0].call  # type: ignore[attr-defined]
        wait_until(lambda: first.is_sent, 30.0, "the first calls are at the coordinator")
        assert not calls[-1].call.is_sent  # type: ignore[attr-defined]
        started = SystemClock().monotonic()
        assert calls[-1].cancel()  # though there is no room for it
        assert SystemClock().monotonic() - started < 5.0
        free(tmp_path)
        assert [call.result(30.0) for call in calls[:-1]] == [100_000] * 39


def test_resources_of_calls_are_those_of_the_job(cluster):
    with phalanx.Executor(cluster.client, max_workers=1, cores=2, name="pair") as executor:
        executor.submit(called.square, 1).result()
        on_gpu = executor.with_resources(gpus=1, memory="1GiB", name="trainer", env={"COLOUR": "green"})
        assert on_gpu.submit(called.environment, "CUDA_VISIBLE_DEVICES").result() in ("0", "1")
        assert on_gpu.submit(called.environment, "COLOUR").result() == "green"
        assert (
            executor.with_resources(target="n1", name="there")
            .submit(called.environment, "PHALANX_NODE")
            .result()
            == "n1"
        )
        requests = {job.name: job.request for job in jobs_of_executors(cluster.client)}
    assert (requests["pair"].cores, requests["trainer"].gpus) == (2, 1)
    assert requests["there"].target == "n1"
    assert requests["trainer"].memory_bytes == 1 << 30


def test_a_call_after_its_workers_have_ended_makes_new_ones(local):
    with phalanx.Executor(local, max_workers=1, name="brief", idle_s=0.2) as executor:
        assert executor.submit(called.square, 2).result() == 4
        (first,) = [job for job in jobs_of_executors(local) if job.name == "brief"]
        wait_until(lambda: local.job(first.id).status == "Completed", 30.0, "the idle worker has ended")
        assert executor.submit(called.square, 3).result(8.0) == 9


def test_idle_workers_make_room_for_calls_with_other_resources(cluster):
    with phalanx.Executor(cluster.client, max_workers=1, cores=4, idle_s=600.0) as executor:
        assert executor.submit(called.square, 2).result() == 4
        assert executor.with_resources(cores=3).submit(called.square, 3).result(30.0) == 9
        assert executor.submit(called.square, 4).result(30.0) == 16


def test_a_worker_that_is_killed_is_replaced_and_no_result_is_wrong(cluster, tmp_path):
    with phalanx.Executor(cluster.client, max_workers=2) as executor:
        calls = [executor.submit(called.wait_for, str(tmp_path), n, "go") for n in range(2)]
        (pid,) = wait_until(lambda: runs(tmp_path, 0), 30.0, "the call runs")
        worker = int(Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[1])
        assert "phalanx.worker" in Path(f"/proc/{worker}/cmdline").read_text()
        os.kill(worker, signal.SIGKILL)
        wait_until(lambda: len(runs(tmp_path, 0)) == 2, 30.0, "another worker runs it")
        free(tmp_path)
        assert [call.result() for call in calls] == [0, 1]
        assert len(runs(tmp_path, 1)) == 1


def test_a_frozen_worker_loses_its_calls_to_others(cluster, tmp_path):
    with phalanx.Executor(cluster.client, max_workers=1) as executor:
        call = executor.submit(called.wait_for, str(tmp_path), 0, "go")
        (pid,) = wait_until(lambda: runs(tmp_path, 0), 30.0, "the call runs")
        worker = int(Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[1])
        os.kill(worker, signal.SIGSTOP)
        wait_until(lambda: len(runs(tmp_path, 0)) == 2, 60.0, "another worker runs it")
        free(tmp_path)
        assert call.result() == 0


def test_workers_that_cannot_start_are_an_error_with_what_they_said(cluster, tmp_path):
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho no phalanx here >&2\nexit 3\n")
    python.chmod(0o755)
    with phalanx.Executor(cluster.client, max_workers=1, python=str(python)) as executor:
        error = executor.submit(called.square, 1).exception(60.0)
    assert isinstance(error, phalanx.CallFailed)
    assert error.reason == "WorkersFailed"
    assert "no phalanx here" in str(error)


def test_another_version_of_python_is_refused_by_name(cluster, tmp_path):
    python = tmp_path / "python"
    program = (
        "from phalanx.client import executor_calls as calls; calls.python_version = lambda: 'cpython 2.7';"
    )
    program += "from phalanx.worker.__main__ import main; raise SystemExit(main())"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -c "{program}"\n')
    python.chmod(0o755)
    with phalanx.Executor(cluster.client, max_workers=1, python=str(python)) as executor:
        error = executor.submit(called.square, 1).exception(60.0)
    assert isinstance(error, phalanx.CallFailed)
    assert error.reason == "PythonMismatch"
    assert "cpython 2.7" in str(error)


def test_no_user_and_no_task_reaches_the_calls_of_another(cluster):
    token = cluster.client.create_token(phalanx.TokenRequest(role="user", name="bob")).token
    name = "e0123456789abcdef"
    request = CallsRequest(python="x", batches=[CallBatch("d", [PostedCall(0, b"secret")], b"f")])
    with phalanx.Client(cluster.address("coordinator"), token) as bob:
        mine = executor_calls.ask(cluster.client, executor_calls.post(name, request))
        for queue in ("", mine.queue):
            seen = executor_calls.ask(bob, executor_calls.results(name, queue, 0, 0.0))
            assert (seen.queue, seen.results, seen.taken) == ("", [], [])
        executor_calls.ask(bob, executor_calls.close(name))
        his = bob.submit(shell="echo $PHALANX_TASK_TOKEN; exec sleep 300", tags={EXECUTOR_TAG: name}).batch_id
        ours = cluster.client.submit(command=["sleep", "300"], tags={EXECUTOR_TAG: name}).batch_id
        shown = wait_until(lambda: b"".join(bob.logs(his)).decode().strip(), 30.0, "the task has its token")
        take = TakeRequest(task=his, attempt=1, python="x", number=1, timeout_s=0.0)
        with phalanx.Client(cluster.address("coordinator"), shown) as task:
            assert executor_calls.ask(task, executor_calls.take(his, take)).state == "closed"
            with pytest.raises(phalanx.Forbidden):
                executor_calls.ask(task, executor_calls.take(ours, take))
            with pytest.raises(phalanx.Forbidden):
                executor_calls.ask(task, executor_calls.post(name, request))
        with pytest.raises(phalanx.Forbidden):
            executor_calls.ask(cluster.client, executor_calls.take(ours, take))
        still = executor_calls.ask(cluster.client, executor_calls.results(name, mine.queue, 0, 0.0))
        assert still.queue == mine.queue
        for id in (his, ours):
            cluster.client.cancel(id)


def test_what_never_fits_is_an_error_of_the_calls(cluster):
    with phalanx.Executor(cluster.client, gpus=64) as executor:
        assert isinstance(executor.submit(called.square, 1).exception(30.0), phalanx.NeverFits)


def test_wrong_settings_are_named(local):
    with pytest.raises(BadRequest, match="max_workers = 0"):
        phalanx.Executor(local, max_workers=0)
    with pytest.raises(TypeError, match="did you mean 'gpus'"):
        phalanx.Executor(local, gpu=1)  # type: ignore[call-arg]
    with phalanx.Executor(local) as executor, pytest.raises(TypeError, match="did you mean 'gpus'"):
        executor.with_resources(gpu=1)  # type: ignore[call-arg]
    with pytest.raises(BadRequest, match="retries = -1"):
        phalanx.Executor(local, retries=-1)
    with pytest.raises(BadRequest, match="retry_on = OSError"):
        phalanx.Executor(local, retry_on="OSError")  # type: ignore[arg-type]


def test_a_coordinator_that_is_killed_in_the_middle_loses_no_call(tmp_path):
    with a_real_cluster(tmp_path / "cluster", ONE_NODE) as cluster:
        folder = tmp_path / "runs"
        folder.mkdir()
        with phalanx.Executor(cluster.client, max_workers=2) as executor:
            held = executor.submit(called.wait_for, str(folder), 0, "go")
            wait_until(lambda: runs(folder, 0), 30.0, "the call runs")
            calls = [executor.submit(called.square, n) for n in range(3000)]
            wait_until(lambda: any(call.done() for call in calls), 30.0, "results come")
            cluster.kill("coordinator")
            cluster.start_coordinator()
            more = executor.map(called.square, range(100))
            assert [call.result(60.0) for call in as_completed(calls, 60.0)] != []
            assert [call.result() for call in calls] == [n * n for n in range(3000)]
            assert list(more) == [n * n for n in range(100)]
            free(folder)
            assert held.result(30.0) == 0
            assert len(runs(folder, 0)) == 1  # its worker has lived on, and has said so
        wait_until(lambda: running(cluster.client) == 0, 30.0, "no task is left")


def test_a_call_that_runs_while_the_coordinator_restarts_stays_with_its_worker(tmp_path):
    with (
        a_real_cluster(tmp_path / "cluster", ONE_NODE) as cluster,
        phalanx.Executor(cluster.client, max_workers=2, idle_s=60.0) as executor,
    ):
        held = executor.submit(called.wait_for, str(tmp_path), 0, "go")
        other = executor.submit(called.wait_for, str(tmp_path), 1, "first")
        wait_until(lambda: runs(tmp_path, 0) and runs(tmp_path, 1), 30.0, "both calls run")
        free(tmp_path, "first")
        assert other.result(10.0) == 1
        cluster.kill("coordinator")
        cluster.start_coordinator()
        cluster.wait_ready("coordinator")
        pause(UNCLAIMED_S + 3.0)  # the other worker would have it by then
        free(tmp_path)
        assert held.result(20.0) == 0
    assert len(runs(tmp_path, 0)) == 1


def test_a_retry_that_runs_while_the_coordinator_restarts_stays_with_its_worker(tmp_path):
    with (
        a_real_cluster(tmp_path / "cluster", ONE_NODE) as cluster,
        phalanx.Executor(cluster.client, max_workers=2, idle_s=60.0, retries=1) as executor,
    ):
        retried = executor.submit(called.raise_then_wait, str(tmp_path), 0, "go")
        wait_until(lambda: len(runs(tmp_path, 0)) == 2, 30.0, "it runs once more")
        wait_until(lambda: retried.call.has_begun, 30.0, "the client knows")  # type: ignore[attr-defined]
        cluster.kill("coordinator")
        cluster.start_coordinator()
        cluster.wait_ready("coordinator")
        assert executor.submit(called.square, 3).result(30.0) == 9  # the queue is there again
        free(tmp_path)
        assert retried.result(20.0) == 0
    assert len(runs(tmp_path, 0)) == 2


def test_calls_go_on_with_the_next_coordinator(tmp_path):
    names = ("c1", "c2")
    with a_real_cluster(tmp_path / "cluster", ONE_NODE, coordinators=names) as cluster:
        with phalanx.Executor(cluster.client, max_workers=2) as executor:
            results = executor.map(called.square, range(4000))
            assert next(results) == 0
            cluster.kill(cluster.leader())
            assert list(results) == [n * n for n in range(1, 4000)]
        wait_until(lambda: running(cluster.client) == 0, 30.0, "no task is left")


def test_the_example_of_the_guide_runs(tmp_path):
    page = (ROOT / "docs/guides/executor.md").read_text(encoding="utf-8")
    program = page.partition("```python\n")[2].partition("```")[0]
    (tmp_path / "example.py").write_text(program)
    run = subprocess.run(
        [sys.executable, "example.py"], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    many = sum(n * n for n in range(10_000))
    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines() == [
        "one: 1024",
        f"many: {many}",
        "failed: invalid literal for int() with base 10: 'seven'",
        "elsewhere: 144",
        "retried: 3 times",
    ]


def test_a_program_that_ends_without_a_shutdown_leaves_no_worker_behind(cluster, tmp_path):
    program = (
        "import sys, phalanx\n"
        "client = phalanx.Client(sys.argv[1], sys.argv[2])\n"
        "executor = phalanx.Executor(client, max_workers=1, name='left')\n"
        "print(executor.submit(abs, -3).result())\n"
    )
    words = [sys.executable, "-c", program, cluster.address("coordinator"), cluster.user_token]
    run = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert (run.returncode, run.stdout) == (0, "3\n"), run.stderr
    (job,) = [job for job in jobs_of_executors(cluster.client) if job.name == "left"]
    assert job.counts.running + job.counts.assigned + job.counts.pending == 0
