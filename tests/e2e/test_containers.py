"""Tasks in containers, end to end: a real podman of our own, real runners, images of busybox."""

from __future__ import annotations

import asyncio
import hashlib
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from phalanx.core.model.orders import key_text
from phalanx.errors import PhalanxError
from phalanx.runner.containers.cdi import CdiDevices
from phalanx.runner.containers.found import find_runtime
from phalanx.runner.containers.launching import ATTEMPT_LABEL, NODE_LABEL, ContainerLaunches
from phalanx.runner.keeper import lookup, service
from tests.support.podman import IMAGE, Podman, a_podman, why_not
from tests.support.real_cluster import RealCluster
from tests.support.registry import Registry, a_registry
from tests.support.terminal import run_phalanx
from tests.support.waiting import wait_until

pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not() or "never")
MIB = 1 << 20
SEEDS = Path(__file__).parent / "seeds"
LEASE = 12.0


@pytest.fixture(scope="module")
def registry() -> Iterator[Registry]:
    with a_registry() as registry:
        yield registry


@pytest.fixture(scope="module")
def podman(registry: Registry, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Podman]:
    with a_podman(tmp_path_factory.mktemp("podman"), insecure=registry.host) as podman:
        podman.busybox()
        yield podman


@pytest.fixture(scope="module")
def cluster(podman: Podman, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCluster]:
    folder = tmp_path_factory.mktemp("containers")
    (folder / "data").mkdir()
    (folder / "data/seen").write_text("seen\n")
    (folder / "data/out").symlink_to("/etc")
    cluster = RealCluster(folder, lost_after_s=LEASE, settings={"coordinator.breaker_failures": 0})
    allowed = (folder / "data", podman.folder / "busybox", Path(sys.base_prefix), "/usr", "/lib", "/lib64")
    cluster.node_settings = {
        "n1": {
            "runner.pretend": None,
            "runner.container_socket": str(podman.socket),
            "runner.container_mounts": ";".join(map(str, allowed)),
            "runner.pids_max": 40,
        },
        "n2": {"runner.container_socket": "none"},
    }
    try:
        cluster.start({"n1": "real", "n2": "cpus=4"})
        yield cluster
    finally:
        cluster.stop()


def submit(cluster: RealCluster, script: str, image: str = IMAGE, **more: object) -> str:
    command = ["/bin/sh", "-c", script]
    fields: dict[str, object] = {"cores": 0, "max_retries": 0} | more
    return cluster.client.submit(command=command, image=image, **fields).task_ids[0]  # type: ignore[arg-type]


def ended(cluster: RealCluster, script: str, image: str = IMAGE, **more: object) -> tuple[str, str, str]:
    """How a task ended: its reason, its message, what it wrote."""
    id = submit(cluster, script, image, **more)
    view = cluster.wait_task(id, "Completed", "Failed", within_s=40.0)
    return view.reason, view.message, "" if view.started_at is None else cluster.output(id)


def up(cluster: RealCluster, script: str, image: str = IMAGE, **more: object) -> str:
    """A task that has written `up`."""
    id = submit(cluster, f"echo up; {script}", image, **more)
    wait_until(lambda: cluster.output(id).startswith("up\n"), 30.0, "it runs")
    return id


def processes(word: str) -> list[int]:
    """The processes of this machine with a word in their command line."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if word.encode() in entry.read_bytes().split(b"\0"):
                found.append(int(entry.parent.name))
        except OSError:
            continue
    return found


def test_output_exit_code_and_environment(cluster: RealCluster, podman: Podman):
    script = "echo out; echo err >&2; echo $PHALANX_NODE $GREETING; pwd; exit 7"
    id = submit(cluster, script, env={"GREETING": "hello"}, cwd="/data", split_output=True)
    view = cluster.wait_task(id, "Completed", "Failed")
    assert (view.status, view.reason, view.exit_code, view.node) == ("Failed", "exited", 7, "n1"), (
        view.message
    )
    assert cluster.output(id) == "out\nn1 hello\n/data\n"
    assert cluster.output(id, "stderr") == "err\n"
    assert podman.containers() == []


def test_standard_input_reaches_a_container_and_ends(cluster: RealCluster):
    data = os.urandom(MIB) * 4
    run = ("run", "-c", "0", "--image", IMAGE, "--", "/bin/sh", "-c", "cat | sha256sum")
    done = run_phalanx(cluster, *run, stdin=data)
    assert done.stdout.split()[:1] == [hashlib.sha256(data).hexdigest().encode()], done.stderr
    for script, output in (
        ("echo unread", b"unread\n"),
        ("exec 0<&-; sleep 0.3; echo closed", b"closed\n"),
        ("seq 1 200000", b"".join(b"%d\n" % number for number in range(1, 200_001))),
    ):
        for _ in range(2):  # where input and output share a connection, podman cuts output off in most runs
            run = ("run", "-c", "0", "--image", IMAGE, "--", "/bin/sh", "-c", script)
            done = run_phalanx(cluster, *run, stdin=data)
            assert (done.returncode, done.stdout, done.stderr) == (0, output, b""), script


def test_it_has_few_rights_and_no_devices(cluster: RealCluster):
    script = (
        "grep -E 'CapBnd|NoNewPrivs' /proc/self/status; mknod /tmp/d b 1 0 2>/dev/null || echo no node;"
        " ping -c 1 127.0.0.1 >/dev/null 2>&1 || echo no packets; ls /dev/kmsg /dev/mem 2>/dev/null; ls /dev/full"
    )
    reason, _, text = ended(cluster, script)
    assert reason == ""
    assert text.splitlines() == [
        "CapBnd:\t00000000000004fb",
        "NoNewPrivs:\t1",
        "no node",
        "no packets",
        "/dev/full",
    ]


def test_what_a_job_says_to_loaders_is_heard_in_its_container_only(cluster: RealCluster, tmp_path: Path):
    """LD_PRELOAD would do worse: outside there is a process of the runner's account that makes the container."""
    env = {"LD_DEBUG": "files", "LD_DEBUG_OUTPUT": f"{tmp_path}/by"}
    assert ended(cluster, "echo $LD_DEBUG; env | grep -c LATER", env=env)[2] == "files\n0\n"
    assert [*tmp_path.iterdir()] == []


def test_result_and_artifacts_come_back(cluster: RealCluster):
    id = submit(
        cluster, "echo 42 > $PHALANX_RESULT; echo kept > $PHALANX_ARTIFACTS/a; touch $PHALANX_SCRATCH_DIR/b"
    )
    assert cluster.wait_task(id, "Completed", "Failed").status == "Completed", cluster.output(id)
    assert cluster.client.task(id).result == 42


def test_cancel_ends_a_first_process_that_has_no_handler(cluster: RealCluster, podman: Podman):
    id = up(cluster, "exec sleep 1000", grace="30s")
    cluster.client.cancel(id)
    assert cluster.wait_task(id, "Cancelled").reason == "cancelled"
    wait_until(lambda: podman.containers() == [], 10.0, "the container is removed")


def test_what_ignores_sigterm_and_leaves_its_group_is_gone_with_its_tree(
    cluster: RealCluster, podman: Podman
):
    script = "trap '' TERM; (trap '' TERM; sleep 98761 & sleep 98762) & while true; do sleep 98763; done"
    id = up(cluster, script, grace="1s")
    wait_until(lambda: processes("98761") and processes("98763"), 10.0, "its tree is there")
    cluster.client.cancel(id)
    cluster.wait_task(id, "Cancelled")
    wait_until(lambda: not any(map(processes, ("98761", "98762", "98763"))), 10.0, "its tree is gone")
    wait_until(lambda: podman.containers() == [], 10.0, "the container is removed")


def test_memory_beyond_the_limit_is_reported_with_limit_and_peak(cluster: RealCluster):
    reason, message, _ = ended(cluster, "x=a; while true; do x=$x$x; done", memory=16 * MIB)
    assert reason == "oom"
    assert "its limit of 16 MiB" in message
    assert "(peak " in message


def test_a_fork_bomb_stays_within_its_limit(cluster: RealCluster):
    reason, message, _ = ended(cluster, "f() { f | f & }; f; sleep 0.3; exit 3", time_limit="20s")
    assert reason in ("exited", "timeout"), message
    assert "it had as many processes as it may" in message


def test_exec_is_inside_the_container(cluster: RealCluster):
    id = up(cluster, "exec sleep 1000")
    script = "cat /proc/1/cmdline; echo; ls /bin/busybox; echo $PHALANX_NODE; cat /proc/self/cgroup; id -u"
    done = cluster.client.exec(id, ["/bin/sh", "-c", script])
    lines = done.stdout.decode().splitlines()
    assert lines[0].split("\0")[:2] == ["sleep", "1000"], done.stderr
    assert lines[1:3] == ["/bin/busybox", "n1"]
    # A command that waits for its input has begun all the same.
    assert cluster.client.exec(id, ["cat"], input=b"passed on\n").stdout == b"passed on\n"
    cluster.client.cancel(id)


def test_what_cannot_be_run_is_named_and_nothing_is_left(
    cluster: RealCluster, podman: Podman, registry: Registry
):
    broken = cluster.folder / "broken.tar"
    broken.write_bytes(b"no archive" * 100)
    cases = {
        f"{registry.host}/nothing:1": "nothing:1",
        str(broken): "it cannot be read",
        "/nowhere.tar": "No such file",
        "rootfs:/etc": "runner.container_mounts",
        "127.0.0.1:1/refused": "refused",
    }
    for image, said in cases.items():
        reason, message, _ = ended(cluster, "true", image)
        assert (reason, said in message) == ("refused", True), message
    reason, message, _ = ended(cluster, "true", mounts=["/etc:/mnt"])
    assert (reason, "runner.container_mounts" in message) == ("refused", True), message
    reason, message, _ = ended(cluster, "true", mounts=[f"{cluster.folder}/data/out:/mnt"])
    assert (reason, "(which is /etc)" in message) == ("refused", True), message
    assert podman.containers() == []
    assert not list((cluster.folder / "n1/containers").glob("*.pid"))


def test_a_node_without_a_runtime_is_no_candidate(cluster: RealCluster):
    with pytest.raises(PhalanxError) as refused:
        submit(cluster, "true", targets=["n2"])
    assert refused.value.reason == "NoContainers"
    assert cluster.client.node("n1").containers.startswith("podman ")
    assert "none" in cluster.client.node("n2").containers


def test_archives_and_folders_are_images(cluster: RealCluster, podman: Podman):
    archive = cluster.folder / "image.tar"
    podman.run("save", "--output", str(archive), IMAGE)
    mount = f"{cluster.folder}/data:/mnt:ro"
    assert (
        ended(cluster, "cat /mnt/seen; touch /mnt/new 2>/dev/null || echo ro", str(archive), mounts=[mount])[
            2
        ]
        == "seen\nro\n"
    )
    again = submit(cluster, "echo again", str(archive))
    assert cluster.wait_task(again, "Completed", "Failed").status == "Completed"
    assert podman.run("images", "--format", "{{.Repository}}").split().count("localhost/phalanx-archive") == 1
    folder = f"rootfs:{podman.folder}/busybox"
    assert ended(cluster, "touch /new && echo made", folder)[2] == "made\n"
    assert not (podman.folder / "busybox/new").exists(), "what it writes stays in the container"


def test_a_pull_is_shown_and_can_be_cancelled(cluster: RealCluster, podman: Podman, registry: Registry):
    image = registry.add("slow", podman.folder / "busybox")
    registry.may_go_on.clear()
    id = submit(cluster, "echo pulled", image)
    wait_until(lambda: cluster.client.task(id).preparing, 20.0, "it is preparing")
    view = cluster.client.task(id)
    assert (view.status, view.node) == ("Assigned", "n1")
    wait_until(lambda: "pulling" in cluster.client.task(id).preparing, 20.0, "how far it is is told")
    why = cluster.client.why(id).dominant
    assert why.code == "Preparing"
    cluster.client.cancel(id)
    assert cluster.wait_task(id, "Cancelled").reason == "cancelled"
    registry.may_go_on.set()
    again = submit(cluster, "echo pulled", image)
    assert cluster.wait_task(again, "Completed", "Failed", within_s=40.0).status == "Completed"
    assert cluster.output(again) == "pulled\n"


def test_members_know_each_other_by_name_as_seed_002_does(cluster: RealCluster):
    places = {sys.base_prefix, "/usr", "/lib", "/lib64"}
    script = SEEDS / "002-decentralized.txt"
    (cluster.folder / "data/script.py").write_text(script.read_text())
    mounts = [f"{path}:{path}:ro" for path in sorted(places) if Path(path).exists()]
    spec = {
        "name": "exp",
        "gang": True,
        "groups": [
            {
                "name": "worker",
                "tasks": 2,
                "replicas": 2,
                "cores": 0,
                "image": IMAGE,
                "mounts": [*mounts, f"{cluster.folder}/data:/data:ro"],
                "command": [sys.base_prefix + "/bin/python3", "/data/script.py"],
            }
        ],
    }
    id = cluster.client.apply(spec).jobs[0].id
    wait_until(lambda: cluster.client.job(id).status in ("Completed", "Failed"), 60.0, "the job has ended")
    written = [cluster.output(f"{id}.{position}") for position in range(2)]
    said = [(task.reason, task.message, task.stderr_tail) for task in cluster.client.tasks(id).items]
    assert cluster.client.job(id).status == "Completed", (written, said)
    assert "[peers] exp-worker-1-0.exp ready" in written[0]


def test_a_runner_that_is_killed_finds_its_container_again(cluster: RealCluster, podman: Podman):
    id = up(cluster, "sleep 4; echo down; exit 9")
    cluster.kill("n1")
    cluster.start_runner("n1")
    view = cluster.wait_task(id, "Completed", "Failed", within_s=30.0)
    assert (view.exit_code, view.attempt, cluster.output(id)) == (9, 1, "up\ndown\n")
    wait_until(lambda: podman.containers() == [], 10.0, "the container is removed")


def test_a_runner_that_is_killed_while_it_pulls_neither_loses_nor_doubles_the_task(
    cluster: RealCluster, podman: Podman, registry: Registry
):
    image = registry.add("lost", podman.folder / "busybox")
    registry.may_go_on.clear()
    id = submit(cluster, "echo ran", image)
    wait_until(lambda: cluster.client.task(id).preparing, 20.0, "it is preparing")
    cluster.kill("n1")
    registry.may_go_on.set()
    cluster.start_runner("n1")
    view = cluster.wait_task(id, "Completed", "Failed", within_s=60.0)
    assert view.status == "Completed", view.message
    assert (view.status, view.attempt, cluster.output(id)) == ("Completed", 2, "ran\n")


def test_without_runner_and_keeper_the_container_ends_with_the_lease(cluster: RealCluster, podman: Podman):
    id = up(cluster, "trap '' TERM; while true; do sleep 87654; done", grace="1s")
    [running] = podman.containers()
    keepers = lookup.keepers(str(cluster.folder / "n1"), service.LOCK)
    cluster.kill("n1")
    for pid in keepers:
        os.kill(pid, signal.SIGKILL)
    assert keepers
    wait_until(lambda: not processes("87654"), LEASE + 10.0, "what it ran is gone")
    assert podman.containers() == [running], "nobody is there to remove it"
    cluster.start_runner("n1")
    wait_until(lambda: running not in podman.containers(), 20.0, "the next runner removes it")
    cluster.client.cancel(id)  # a loss is not charged: it runs again
    cluster.wait_task(id, "Cancelled")
    wait_until(lambda: podman.containers() == [], 20.0, "nothing is left")


def test_a_runtime_that_goes_is_said_and_one_that_comes_is_found(cluster: RealCluster, podman: Podman):
    id = up(cluster, "sleep 5; echo down")
    podman.stop()
    wait_until(lambda: cluster.client.node("n1").containers.startswith("none: no cont"), 20.0, "it is said")
    with pytest.raises(PhalanxError) as refused:
        submit(cluster, "true")
    assert refused.value.reason == "NoContainers"
    podman.start()
    wait_until(lambda: cluster.client.node("n1").containers.startswith("podman "), 20.0, "it is found")
    assert ended(cluster, "echo here")[2] == "here\n"
    view = cluster.wait_task(id, "Completed", "Failed", within_s=30.0)
    assert (view.status, view.attempt) == ("Completed", 1), view.message
    wait_until(lambda: not podman.containers(), 10.0, "nothing is left")


def test_containers_of_attempts_that_begin_meanwhile_are_kept(podman: Podman, tmp_path: Path):
    """A runner looks for leftovers again when its runtime has come back, while it starts tasks."""
    found = find_runtime(str(podman.socket))
    launches = ContainerLaunches(found, "a" * 16, tmp_path, (), 60.0, CdiDevices("nvidia.com/gpu", ()))
    old, begun = ("01kx", 0, 1), ("01kx", 0, 2)
    for key in (old, begun):
        labels = f"--label={NODE_LABEL}={'a' * 16}", f"--label={ATTEMPT_LABEL}={key_text(key)}"
        podman.run("create", "--name", launches.name_of(key), *labels, IMAGE, "/bin/true")
    answers = iter([set(), {begun}])
    asyncio.run(launches.sweep(lambda: next(answers)))
    assert [name for name in podman.containers() if "01kx" in name] == [launches.name_of(begun)]
    podman.run("rm", launches.name_of(begun))
    launches.close()
