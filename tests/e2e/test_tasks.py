"""Tasks on real processes: their environment, their output, and what can be done to them."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

import phalanx
from phalanx.errors import Unauthorized
from tests.support.real_cluster import RealCluster, a_real_cluster
from tests.support.waiting import wait_until

LONG = ["/bin/sleep", "300"]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCluster]:
    with a_real_cluster(tmp_path_factory.mktemp("tasks"), lost_after_s=20.0) as cluster:
        yield cluster


def test_a_task_finds_its_environment(cluster: RealCluster) -> None:
    reply = cluster.client.submit(
        command=["/usr/bin/env"], array="5-6", gpus=1, name="probe", env={"MINE": "1"}, time_limit=60
    )
    cluster.wait_task(f"{reply.batch_id}.6", "Completed")
    env = dict(
        line.split("=", 1) for line in cluster.output(f"{reply.batch_id}.6").splitlines() if "=" in line
    )
    expected = {
        "MINE": "1",
        "PHALANX_JOB_ID": reply.batch_id,
        "PHALANX_JOB_NUMBER": str(cluster.client.job(reply.batch_id).number),
        "PHALANX_TASK_ID": f"{reply.batch_id}.6",
        "PHALANX_ARRAY_INDEX": "6",
        "PHALANX_ARRAY_COUNT": "2",
        "PHALANX_ATTEMPT": "1",
        "PHALANX_RESTART_COUNT": "0",
        "JOB_COMPLETION_INDEX": "1",
        "REPLICATED_JOB_NAME": "probe",
        "PET_NNODES": "1",
        "WORLD_SIZE": "1",
        "LOCAL_RANK": "0",
        "CUDA_VISIBLE_DEVICES": env["PHALANX_DEVICES"],
    }
    assert {name: env.get(name) for name in expected} == expected
    assert float(env["PHALANX_DEADLINE"]) > 0
    assert not [name for name in env if name.startswith("SLURM_")]


def test_the_folder_for_checkpoints_is_there_and_goes_with_the_job_if_it_is_empty(
    cluster: RealCluster,
) -> None:
    script = 'cd "$PHALANX_CHECKPOINT_DIR" && pwd && if [ "$PHALANX_JOB_NAME" = full ]; then touch step; fi'
    folders = {}
    for name in ("empty", "full"):
        id = cluster.client.submit(shell=script, name=name, max_retries=0).task_ids[0]
        cluster.wait_task(id, "Completed")
        folders[name] = Path(cluster.output(id).strip())
    wait_until(lambda: not folders["empty"].exists(), 20.0, "the empty folder is removed")
    assert [path.name for path in folders["full"].iterdir()] == ["step"]


def test_what_a_task_writes_as_its_result_is_kept(cluster: RealCluster) -> None:
    script = 'echo "{\\"lr\\": 0.$PHALANX_ARRAY_INDEX}" > "$PHALANX_RESULT"'
    array = cluster.client.submit(shell=script, array="1-2").batch_id
    cluster.wait_task(f"{array}.2", "Completed")
    assert cluster.client.task(f"{array}.2").result == {"lr": 0.2}
    bad = cluster.client.submit(shell='echo nothing > "$PHALANX_RESULT"', max_retries=0).task_ids[0]
    failed = cluster.wait_task(bad, "Failed")
    assert (failed.reason, failed.exit_code, failed.result) == ("bad_result", 0, None)


def test_ranks_are_set_as_a_full_set_or_not_at_all(cluster: RealCluster) -> None:
    id = cluster.client.submit(command=["/usr/bin/env"]).task_ids[0]
    cluster.wait_task(id, "Completed")
    names = {line.split("=", 1)[0] for line in cluster.output(id).splitlines()}
    assert names.isdisjoint({"RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR"})


def test_a_time_limit_ends_a_task_and_survives_a_restart_of_its_runner(cluster: RealCluster) -> None:
    id = cluster.client.submit(command=LONG, targets=["n2"], time_limit=2.0).task_ids[0]
    cluster.wait_task(id, "Running")
    cluster.kill("n2")
    cluster.start_runner("n2")
    task = cluster.wait_task(id, "Failed")
    assert (task.reason, task.attempt) == ("timeout", 1)


def test_a_process_killed_from_outside_is_retried(cluster: RealCluster) -> None:
    id = cluster.client.submit(shell="echo $$; exec sleep 300", targets=["n1"]).task_ids[0]
    pid = int(wait_until(lambda: cluster.output(id).strip()))
    cluster.wait_task(id, "Running")
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: cluster.client.task(id).attempt == 2)
    task = cluster.wait_task(id, "Running")
    assert task.retries_used == 1
    cluster.client.cancel(id)


def test_the_whole_tree_ends_with_its_task(cluster: RealCluster) -> None:
    id = cluster.client.submit(shell="setsid sleep 300 & echo $!; sleep 300", grace=0.2).task_ids[0]
    pid = int(wait_until(lambda: cluster.output(id).strip()))
    cluster.client.cancel(id)
    wait_until(lambda: not Path(f"/proc/{pid}").exists(), what="the escaped child is gone")


def test_logs_can_be_followed_from_before_the_start_to_the_end(cluster: RealCluster) -> None:
    id = cluster.client.submit(shell="for i in 1 2 3; do echo line $i; sleep 0.1; done").task_ids[0]
    assert b"".join(cluster.client.logs(id, follow=True)) == b"line 1\nline 2\nline 3\n"


def test_a_watch_resumes_without_gap_or_repetition(cluster: RealCluster) -> None:
    start = cluster.client.cluster().revision
    id = cluster.client.submit(command=["/bin/true"], array="1-30").task_ids[0]
    cluster.client.wait(id)
    seen: list[int] = []
    for _ in range(3):  # disconnect and come back twice
        for number, event in enumerate(cluster.client.watch(after=seen[-1] if seen else start, job=id)):
            seen.append(event.revision)
            if number == 9:
                break
    everything = [line.revision for line in cluster.client.story(id).items]
    assert seen == everything[:30]


def test_the_same_request_id_makes_one_job(cluster: RealCluster) -> None:
    first = cluster.client.submit(command=["/bin/true"], request_id="once")
    again = cluster.client.submit(command=["/bin/true"], request_id="once")
    assert (again.task_ids, again.replayed) == (first.task_ids, True)


def test_the_async_client_has_the_same_calls(cluster: RealCluster) -> None:
    async def tour() -> tuple[str, bytes]:
        async with phalanx.AsyncClient(f"http://127.0.0.1:{cluster.port}", cluster.user_token) as client:
            id = (await client.submit(command=["/bin/echo", "hi"])).task_ids[0]
            ended = await client.wait(id)
            return ended.status, b"".join([piece async for piece in client.logs(id)])

    assert asyncio.run(tour()) == ("Completed", b"hi\n")


def test_a_stranger_is_refused(cluster: RealCluster) -> None:
    with (
        phalanx.Client(f"http://127.0.0.1:{cluster.port}", "phx_wrong") as stranger,
        pytest.raises(Unauthorized),
    ):
        stranger.jobs()


def test_a_cluster_inside_this_process() -> None:
    with phalanx.local(nodes=2, pretend="cpus=4,ram=4GiB") as cluster:
        id = cluster.submit(shell="echo $PHALANX_ARRAY_INDEX", array="1-20").batch_id
        cluster.wait(id)
        assert cluster.job(id).counts.completed == 20
        assert b"".join(cluster.logs(f"{id}.7")) == b"7\n"


def test_hardware_that_cannot_be_meant_is_refused_as_other_wrong_values_are() -> None:
    with pytest.raises(phalanx.BadRequest, match="did you mean 'gpus'"):
        phalanx.local(pretend="gpu=2")
