"""Jobs as objects in Python: waited for, read and cancelled, in the client that waits and in the async one."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

import phalanx
from phalanx.api.schema.submission import SubmitRequest
from phalanx.client.submit_names import NAMES

RESULT = 'echo "working"; echo "{\\"loss\\": 0.5}" > $PHALANX_RESULT'
BROKEN = "echo last words; exit 3"
SOME_FAIL = (
    '[ "$PHALANX_PARAM_seed" = 2 ] && echo last words && exit 3; echo "$PHALANX_PARAM_seed" > $PHALANX_RESULT'
)


@pytest.fixture(scope="module")
def cluster() -> Iterator[phalanx.LocalCluster]:
    with phalanx.local(pretend="cpus=8,ram=8GiB") as made:
        yield made


def test_a_job_gives_its_result_and_its_log(cluster: phalanx.LocalCluster) -> None:
    job = cluster.submit(shell=RESULT, retries=0)
    assert isinstance(job, phalanx.SubmitReply)
    assert (job.id, job.task_ids) == (job.batch_id, [job.batch_id])
    assert job.result(timeout=30) == {"loss": 0.5}
    assert (job.status, job.done, job.view().max_retries) == ("Completed", True, 0)
    assert job.logs() == "working\n"
    assert b"".join(job.follow()) == b"working\n"


def test_a_task_runs_in_the_folder_of_the_program(
    cluster: phalanx.LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    here, there = cluster.submit(command=["pwd"]), cluster.submit(command=["pwd"], cwd="/usr")
    assert [job.wait(30, check=True).logs() for job in (here, there)] == [f"{tmp_path}\n", "/usr\n"]


def test_one_that_fails_says_so_only_if_asked(cluster: phalanx.LocalCluster) -> None:
    job = cluster.submit(shell=BROKEN, retries=0, name="broken")
    assert job.wait(30).status == "Failed"
    for ask in (lambda: job.wait(30, check=True), job.result, job.results):
        with pytest.raises(phalanx.JobFailed) as failed:
            ask()
        assert (failed.value.code, failed.value.reason) == (3, "exited")
        assert failed.value.log_tail == "last words"
        assert "broken" in str(failed.value)
        assert "last words" in str(failed.value)


def test_what_wait_returns_still_has_the_log_and_the_result(cluster: phalanx.LocalCluster) -> None:
    waited = cluster.submit(shell=RESULT, retries=0, name="train").wait(30)
    assert isinstance(waited, phalanx.JobView)
    assert (waited.logs(), waited.result(), waited.results()) == ("working\n", {"loss": 0.5}, [{"loss": 0.5}])
    assert repr(waited) == f"WaitedJob(number={waited.number}, name='train', status='Completed', exit_code=0)"


def test_a_job_that_was_submitted_before_has_a_handle(cluster: phalanx.LocalCluster) -> None:
    job = cluster.submit(shell=RESULT, array="1-2", retries=0)
    again = cluster.handle(job.number)
    assert (again.id, again.number, again.job_ids) == (job.id, job.number, job.job_ids)
    assert again.results(30) == [{"loss": 0.5}] * 2
    assert again.logs(1) == "working\n"


def test_a_page_can_be_looped_over(cluster: phalanx.LocalCluster) -> None:
    job = cluster.submit(command=["true"], array="1-3")
    page = cluster.tasks(job.id, limit=2)
    assert ([task.index for task in page], len(page), page.next_cursor is None) == ([1, 2], 2, False)


def test_a_job_comes_after_another_that_is_given_as_a_handle(cluster: phalanx.LocalCluster) -> None:
    first = cluster.submit(command=["true"])
    second = cluster.submit(command=["true"], after=first)
    assert [each.partition(":")[0] for each in second.view().after] == [first.id]
    assert second.wait(30).status == "Completed"


def test_one_that_takes_too_long_and_is_cancelled(cluster: phalanx.LocalCluster) -> None:
    job = cluster.submit(["sleep", "300"])
    assert job.wait(0.1, must_end=False, check=True).status in ("Pending", "Assigned", "Running")
    for ask in (job.wait, job.result, job.results, partial(cluster.wait, job)):
        with pytest.raises(TimeoutError, match=f"{job.number} has not ended"):
            ask(timeout=0.05)
    assert (job.exit_code, job.why().status == job.status) == (None, True)
    [reply] = job.cancel()
    assert reply.cancelled == 1
    with pytest.raises(phalanx.JobFailed) as failed:
        job.wait(30, check=True)
    assert failed.value.job.status == "Cancelled"


def test_arrays_and_gangs_give_the_result_of_each_task(cluster: phalanx.LocalCluster) -> None:
    job = cluster.submit(shell='echo "$PHALANX_ARRAY_INDEX" > $PHALANX_RESULT', array="1-3")
    assert job.results(timeout=30) == [1, 2, 3]
    assert len(list(job.tasks())) == 3
    with pytest.raises(ValueError, match="results"):
        job.result()
    gang = cluster.gang(["sh", "-c", "echo hello"], 2, retries=0)
    gang.wait(30, check=True)
    assert gang.logs(1) == "hello\n"


def test_results_of_a_sweep_with_failures_are_there_without_check(cluster: phalanx.LocalCluster) -> None:
    job = cluster.submit(shell=SOME_FAIL, params={"seed": [1, 2, 3]}, retries=0)
    assert job.results(timeout=30, check=False) == [1, None, 3]
    with pytest.raises(
        phalanx.JobFailed,
        match=r"1 of 3 tasks.*results\(check=False\) gives what the others gave.*\nlast words",
    ):
        job.results(timeout=30)
    again = job.retry()
    assert isinstance(again, phalanx.JobHandle)
    assert (again.wait(30).repeats, again.exit_code, len(list(again.tasks()))) == (job.id, 3, 1)
    assert "exited with code 3" in job.why().dominant.text


def test_results_and_logs_of_a_sweep_have_the_newest_outcome_of_each_task(
    cluster: phalanx.LocalCluster, tmp_path: Path
) -> None:
    mended = tmp_path / "mended"
    shell = f"test -e {mended} || {{ {SOME_FAIL}; }}; echo 7 > $PHALANX_RESULT"
    job = cluster.submit(shell=shell, params={"seed": [1, 2]}, retries=0)
    with pytest.raises(phalanx.JobFailed):
        job.results(timeout=30)
    assert job.logs() == "2| last words\n"
    mended.touch()
    again = job.retry()
    assert cluster.handle(job.number).results(timeout=30) == [7, 7]
    assert again.results(timeout=30) == [7]

    async def use() -> None:
        there = cluster.session_access()
        async with phalanx.AsyncClient(there.address, there.token) as client:
            handle = await client.handle(job.number)
            assert await handle.results(timeout=30) == [7, 7]
            assert await handle.logs() == "2| last words\n"

    asyncio.run(use())


def test_a_view_says_which_call_has_what_it_has_not(cluster: phalanx.LocalCluster) -> None:
    job = cluster.submit(["echo", "hello"])
    view, task = cluster.job(job.number), cluster.task(job.number)
    for name in ("wait", "logs", "result", "cancel", "why", "retry"):
        with pytest.raises(AttributeError, match=rf"client\.handle\({job.number}\)\.{name}\(\)"):
            getattr(view, name)
    with pytest.raises(AttributeError, match=rf"client\.logs\('{job.number}'\)"):
        _ = task.logs  # type: ignore[attr-defined]
    assert not hasattr(view, "anything")


def test_logs_of_a_client_are_pieces_that_say_so_and_can_be_had_as_text(
    cluster: phalanx.LocalCluster,
) -> None:
    job = cluster.submit(["echo", "hello"])
    ended = job.wait(30)
    logs = cluster.logs(job.number)
    assert repr(logs) == f"<the log of {job.number}, in pieces of bytes: loop over it, or take its text()>"
    assert logs.text() == job.logs() == ended.logs() == "hello\n"
    assert b"".join(cluster.logs(job.number)) == b"hello\n"
    assert ended.why().status == "Completed"


def test_a_job_may_be_named_by_its_number(cluster: phalanx.LocalCluster) -> None:
    job = cluster.submit(command=["echo", "hello"])
    assert repr(job) == f"JobHandle({job.number})"
    assert cluster.wait(job.number, 30).id == job.id
    assert cluster.job(job.number).status == cluster.why(job.number).status == "Completed"
    assert b"".join(cluster.logs(job.number)) == b"hello\n"
    assert cluster.story(job.number).items
    with pytest.raises(phalanx.NotFound, match="no job 9999"):
        cluster.cancel(9999)


def test_the_same_in_asyncio(cluster: phalanx.LocalCluster) -> None:
    there = cluster.session_access()

    async def use() -> None:
        async with phalanx.AsyncClient(there.address, there.token) as client:
            job = await client.submit(shell=RESULT)
            assert await job.result(timeout=30) == {"loss": 0.5}
            assert (await job.status(), await job.done()) == ("Completed", True)
            assert await job.logs() == "working\n"
            assert [piece async for piece in job.follow()] == [b"working\n"]
            assert await client.logs(job).text() == "working\n"
            broken = await client.submit(["sh", "-c", BROKEN], retries=0)
            assert await (await broken.wait(30)).logs() == "last words\n"
            assert (await (await client.handle(job.number)).wait()).status == "Completed"
            with pytest.raises(phalanx.JobFailed, match="last words"):
                await broken.wait(30, check=True)
            assert (await broken.exit_code(), (await broken.why()).status) == (3, "Failed")
            assert (await (await broken.retry()).wait(30)).exit_code == 3
            long = await client.gang(["sleep", "300"], 2)
            with pytest.raises(TimeoutError, match="has not ended"):
                await long.wait(0)
            assert (await long.cancel())[0].cancelled == 2
            assert (await long.view()).tasks == 2

    asyncio.run(use())


def test_a_workflow_in_asyncio(cluster: phalanx.LocalCluster) -> None:
    there = cluster.session_access()

    async def use() -> None:
        async with phalanx.AsyncClient(there.address, there.token) as client:
            flow = client.workflow("sums")
            one = flow.stage("one", shell=RESULT)
            flow.stage("two", ["echo", one.result["loss"]])
            run = await flow.submit()
            assert (await run.wait(30, check=True)).status == "Completed"
            assert (await run.status(), await run.done()) == ("Completed", True)
            assert (await run.results(), list(run.jobs)) == ({"one": {"loss": 0.5}}, ["one", "two"])
            assert await (await run.stage("two")).logs() == "0.5\n"
            flow = client.workflow("bad")
            flow.stage("after", ["true"], after=[flow.stage("one", shell=BROKEN, retries=0)])
            run = await flow.submit()
            with pytest.raises(phalanx.JobFailed, match="stage 'one'") as failed:
                await run.wait(30, check=True)
            assert (failed.value.code, failed.value.log_tail) == (3, "last words")
            with pytest.raises(phalanx.NotFound) as missing:
                await run.stage("after")
            assert missing.value.reason == "StageNotBegun"
            assert (await run.retry("one")).jobs.keys() == {"one", "after"}
            assert (await run.wait(30)).status == "Failed"
            with pytest.raises(phalanx.Conflict):
                await run.cancel()

    asyncio.run(use())


def test_names_of_the_command_line_are_understood_and_others_explained(cluster: phalanx.LocalCluster) -> None:
    with pytest.raises(TypeError, match="did you mean 'gpus'"):
        cluster.submit(command=["true"], gpu=1)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="give one of them"):
        cluster.submit(command=["true"], retries=1, max_retries=1)


def test_help_lists_every_field() -> None:
    for client in (phalanx.Client, phalanx.AsyncClient):
        text = inspect.getdoc(client.submit) or ""
        missing = [name for name in (*SubmitRequest.__struct_fields__, *NAMES) if name not in text]
        assert missing == []


def test_a_refused_token_is_explained_to_readers_of_python(cluster: phalanx.LocalCluster) -> None:
    there = cluster.session_access()
    client = phalanx.Client(there.address, "wrong-token-0123456789")
    with client, pytest.raises(phalanx.Unauthorized) as refused:
        client.nodes()
    assert "Authorization" not in refused.value.hint
    assert "PHALANX_TOKEN_FILE" in refused.value.hint
