"""The acceptance cases of contract/tasks-and-targets.md, section 6, against real processes.

Each test names its case. n1 has 8 cores, NUMA 0 and 1, GPUs 0 and 1, 16 GiB; n2 has 4 cores and 32 GiB.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from phalanx.errors import (
    BadRequest,
    Busy,
    Conflict,
    NeverFits,
    NoRoom,
    NotFound,
    PhalanxError,
    Unprocessable,
)
from tests.support.real_cluster import RealCluster, a_real_cluster
from tests.support.waiting import wait_until

LONG = ["/bin/sleep", "300"]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCluster]:
    with a_real_cluster(tmp_path_factory.mktemp("acceptance")) as cluster:
        yield cluster


@pytest.fixture
def cluster(shared: RealCluster) -> Iterator[RealCluster]:
    """The shared cluster, empty before and after."""
    yield shared
    for job in shared.client.jobs(limit=1000).items:
        if job.status in ("Pending", "Assigned", "Running"):
            shared.client.cancel(job.id)
    wait_until(lambda: all(not node.task_count for node in shared.client.nodes()), what="empty nodes")


def test_case_1_a_targeted_task_runs_and_its_output_is_kept(cluster: RealCluster) -> None:
    reply = cluster.client.submit(targets=["n1"], command=["/bin/echo", "hi"])
    assert reply.task_ids == [reply.batch_id]
    assert reply.assigned_node == "n1"
    task = cluster.wait_task(reply.task_ids[0], "Completed")
    assert (task.exit_code, task.batch_id, task.node) == (0, task.id, "n1")
    assert cluster.output(task.id) == "hi\n"


def test_case_2_a_numa_target_binds_the_process_to_its_cpus(cluster: RealCluster) -> None:
    show = ["/bin/sh", "-c", "grep Cpus_allowed_list /proc/self/status | cut -f2"]
    outputs = []
    for numa in (0, 1):
        id = cluster.client.submit(targets=[f"n1:{numa}"], command=show).task_ids[0]
        task = cluster.wait_task(id, "Completed")
        assert task.target_numa_node_id == numa
        outputs.append(cluster.output(id).strip())
    assert outputs[0] != outputs[1], "each NUMA node has CPUs of its own"


@pytest.mark.parametrize("target", ["n1:-1", "n1:x", "n1:", "n1:0:9", "", ":0", "n1::", "n 1", "n1::0,0"])
def test_case_3_and_4_a_malformed_target_is_a_client_error(cluster: RealCluster, target: str) -> None:
    with pytest.raises(BadRequest, match="invalid target format"):
        cluster.client.submit(targets=[target], command=["/bin/true"])


def test_case_3_a_numa_node_that_does_not_exist_names_the_valid_ones(cluster: RealCluster) -> None:
    with pytest.raises(BadRequest, match=r"\[0, 1\]"):
        cluster.client.submit(targets=["n1:2"], command=["/bin/true"])


@pytest.mark.parametrize("target", ["n1::0,1", "n1:0::0,1"])
def test_case_4_gpus_of_a_target_are_given(cluster: RealCluster, target: str) -> None:
    show = ["/bin/sh", "-c", "echo $PHALANX_DEVICES / $CUDA_VISIBLE_DEVICES"]
    id = cluster.client.submit(targets=[target], command=show).task_ids[0]
    cluster.wait_task(id, "Completed")
    assert cluster.output(id) == "0,1 / 0,1\n"


def test_case_5_gpu_ids_need_a_target_and_a_count_does_not(cluster: RealCluster) -> None:
    with pytest.raises(BadRequest, match="No target node specified"):
        cluster.client.submit(required_gpus=[[0]], command=["/bin/true"])
    id = cluster.client.submit(gpus=2, gpu_type="h100", command=["/bin/true"]).task_ids[0]
    assert cluster.wait_task(id, "Completed").node == "n1"


@pytest.mark.parametrize("target", ["n1::5", "n2::0"])
def test_case_6_gpu_ids_the_node_does_not_have_are_refused(cluster: RealCluster, target: str) -> None:
    with pytest.raises(BadRequest, match="Invalid GPU IDs"):
        cluster.client.submit(targets=[target], command=["/bin/true"])


def test_case_7_a_gpu_in_use_is_refused_or_waited_for(cluster: RealCluster) -> None:
    first = cluster.client.submit(targets=["n1::0"], command=LONG).task_ids[0]
    with pytest.raises(Busy, match="Requested GPUs not available"):
        cluster.client.submit(targets=["n1::0"], command=["/bin/true"], no_queue=True)
    second = cluster.client.submit(targets=["n1::0"], command=["/bin/true"]).task_ids[0]
    assert cluster.client.task(second).status == "Pending"
    cluster.client.cancel(first)
    cluster.wait_task(second, "Completed")


def test_case_8_a_paused_task_keeps_its_gpu(cluster: RealCluster) -> None:
    first = cluster.client.submit(targets=["n1::0"], command=LONG).task_ids[0]
    cluster.wait_task(first, "Running")
    cluster.client.pause(first)
    with pytest.raises(Busy):
        cluster.client.submit(targets=["n1::0"], command=["/bin/true"], no_queue=True)


def test_case_9_cores(cluster: RealCluster) -> None:
    with pytest.raises(NeverFits, match="Insufficient available cores"):
        cluster.client.submit(targets=["n2"], cores=5, command=["/bin/true"])
    free = cluster.client.submit(targets=["n2"], cores=0, command=["/bin/true"]).task_ids[0]
    cluster.wait_task(free, "Completed")
    with pytest.raises(Unprocessable, match="cores"):
        cluster.client.submit(cores=-1, command=["/bin/true"])


def test_case_10_auto_placement_packs_and_looks_at_memory(cluster: RealCluster) -> None:
    """n1 has free GPUs, so a task without any goes to n2; one with a GPU has no choice."""
    plain = cluster.client.submit(command=["/bin/true"]).task_ids[0]
    most_memory = cluster.client.submit(memory="20GiB", command=["/bin/true"]).task_ids[0]
    gpu = cluster.client.submit(gpus=1, command=["/bin/true"]).task_ids[0]
    assert [cluster.wait_task(each, "Completed").node for each in (plain, most_memory, gpu)] == [
        "n2",
        "n2",
        "n1",
    ]


def test_case_10_by_name_the_node_with_the_most_free_cores_is_taken(tmp_path: Path) -> None:
    with a_real_cluster(tmp_path, settings={"scheduler.score": "most-free-cores"}) as cluster:
        most_cores = cluster.client.submit(command=["/bin/true"]).task_ids[0]
        most_memory = cluster.client.submit(memory="20GiB", command=["/bin/true"]).task_ids[0]
        assert [cluster.wait_task(each, "Completed").node for each in (most_cores, most_memory)] == [
            "n1",
            "n2",
        ]


def test_case_11_nobody_fits_now(cluster: RealCluster) -> None:
    cluster.client.submit(targets=["n1", "n2"], cores=4, command=LONG)
    cluster.client.submit(targets=["n1"], cores=4, command=LONG)
    with pytest.raises(NoRoom, match="No suitable node available"):
        cluster.client.submit(command=["/bin/true"], no_queue=True)
    with pytest.raises(BadRequest, match="Node not registered"):
        cluster.client.submit(targets=["bogus"], command=["/bin/true"])


def test_case_12_a_batch_reports_its_failed_targets(cluster: RealCluster) -> None:
    reply = cluster.client.submit(targets=["bogus", "n1", "n2"], command=["/bin/true"])
    assert len(reply.task_ids) == 2
    assert [failed.target for failed in reply.failed_targets] == ["bogus"]
    assert "Node not registered" in reply.failed_targets[0].detail
    tasks = [cluster.wait_task(id, "Completed") for id in reply.task_ids]
    assert {task.batch_id for task in tasks} == {reply.task_ids[0]} == {reply.batch_id}


def test_case_13_all_targets_bad_makes_no_task(cluster: RealCluster) -> None:
    before = cluster.client.cluster().jobs
    with pytest.raises(PhalanxError) as caught:
        cluster.client.submit(targets=["bogus", "n1:7", "n2::3"], command=["/bin/true"])
    for part in ("bogus", "n1:7", "n2::3"):
        assert part in caught.value.detail
    assert cluster.client.cluster().jobs == before


def test_case_14_lengths_must_match_and_a_vps_has_one_target(cluster: RealCluster) -> None:
    with pytest.raises(BadRequest, match=r"\(1\).*\(2\)"):
        cluster.client.submit(targets=["n1", "n2"], required_gpus=[[0]], command=["/bin/true"])
    with pytest.raises(BadRequest, match="multiple targets"):
        cluster.client.submit(kind="vps", targets=["n1", "n2"], command=["/bin/true"])


def test_case_15_kill(cluster: RealCluster) -> None:
    running = cluster.client.submit(command=LONG).task_ids[0]
    cluster.wait_task(running, "Running")
    cluster.client.cancel(running)
    assert cluster.client.task(running).status == "Cancelled"
    with pytest.raises(Conflict):
        cluster.client.cancel(running)
    with pytest.raises(NotFound):
        cluster.client.cancel("0" * 26)


def test_case_15_a_task_cancelled_before_it_starts_never_runs(cluster: RealCluster, tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    blocker = cluster.client.submit(targets=["n2"], cores=4, command=LONG).task_ids[0]
    waiting = cluster.client.submit(targets=["n2"], command=["/bin/touch", str(mark)]).task_ids[0]
    cluster.client.cancel(waiting)
    cluster.client.cancel(blocker)
    after = cluster.client.submit(targets=["n2"], cores=4, command=["/bin/true"]).task_ids[0]
    cluster.wait_task(after, "Completed")
    assert cluster.client.task(waiting).status == "Cancelled"
    assert not mark.exists()


def test_case_16_pause_and_resume(cluster: RealCluster) -> None:
    id = cluster.client.submit(command=LONG).task_ids[0]
    cluster.wait_task(id, "Running")
    assert cluster.client.pause(id).paused
    with pytest.raises(BadRequest):
        cluster.client.pause(id)
    assert not cluster.client.resume(id).paused


def test_case_20_oom_is_told_apart_from_a_plain_sigkill(cluster: RealCluster) -> None:
    hungry = "x = bytearray(400 * 1024 * 1024); print(len(x))"
    greedy = cluster.client.submit(
        targets=["n1"], memory="64MiB", command=["python3", "-c", hungry], max_retries=0
    ).task_ids[0]
    killed = cluster.client.submit(
        targets=["n1"], memory="64MiB", command=["/bin/sh", "-c", "kill -9 $$"], max_retries=0
    ).task_ids[0]
    oom, plain = cluster.wait_task(greedy, "Failed"), cluster.wait_task(killed, "Failed")
    assert (oom.reason, oom.exit_code) == ("oom", -9)
    assert (plain.reason, plain.exit_code) == ("signalled", -9)


def test_case_27_twenty_at_once_for_one_gpu(cluster: RealCluster) -> None:
    def one(_: int) -> bool:
        try:
            cluster.client.submit(targets=["n1::1"], command=LONG, no_queue=True)
        except Busy:
            return False
        return True

    with ThreadPoolExecutor(20) as pool:
        assert sum(pool.map(one, range(20))) == 1


def test_case_29_output(cluster: RealCluster) -> None:
    id = cluster.client.submit(
        command=["/bin/sh", "-c", "seq 1 100; echo no >&2"], split_output=True
    ).task_ids[0]
    cluster.wait_task(id, "Completed")
    assert b"".join(cluster.client.logs(id, lines=3)) == b"98\n99\n100\n"
    assert cluster.output(id, "stderr") == "no\n"
    quiet = cluster.client.submit(command=LONG).task_ids[0]
    cluster.wait_task(quiet, "Running")
    assert cluster.output(quiet) == ""
