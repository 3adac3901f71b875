"""Limits that hold, end to end as root: CPUs, memory, processes, devices, scratch folders; and a crash of all of it.

`n1` is this machine as it is; `n2` has simulated devices and NUMA nodes, so its cores are no CPUs of the machine.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from phalanx.errors import PhalanxError
from phalanx.runner import scratch
from phalanx.runner.cgroups import Cgroups
from phalanx.runner.keeper import lookup, service
from tests.support.keeper_node import alive
from tests.support.nvml_stub import NvmlStub
from tests.support.real_cluster import RealCluster
from tests.support.waiting import wait_until

MIB = 1 << 20
PIDS_MAX = 64
PYTHON = [sys.executable, "-I", "-S", "-c"]
ROOT = Path("/sys/fs/cgroup")
REAL: dict[str, object] = {
    "runner.pretend": None,
    "runner.pids_max": PIDS_MAX,
    "runner.scratch_max_bytes": MIB,
}
DEVICES: dict[str, object] = {"runner.device_nodes": "0=/dev/full;1=/dev/zero"}
SIMULATED = "cpus=8,numa=2,gpus=2"
LEASE = 60.0


def why_not() -> str:
    if os.getuid():
        return "limits that hold need root"
    found = Cgroups.find(f"probe-{os.getpid()}", isolate=True)
    missing = {"cpuset", "pids", "cpu"} - {name for each in found.hierarchies for name in each.controllers}
    found.close()
    return f"no cgroups for {sorted(missing)} here" if missing or found.why_not else ""


pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not() or "never")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCluster]:
    folder = tmp_path_factory.mktemp("limits")
    cluster = RealCluster(folder, lost_after_s=LEASE)
    cluster.node_settings = {"n1": REAL, "n2": DEVICES | {"runner.pids_max": PIDS_MAX}}
    with run(cluster, {"n1": "real", "n2": SIMULATED}):
        yield cluster


@contextmanager
def run(cluster: RealCluster, nodes: dict[str, str]) -> Iterator[None]:
    try:
        cluster.start(nodes)
        yield
    finally:
        cluster.stop()
        scratch.unmount(cluster.folder)


def submit(cluster: RealCluster, script: str, target: str = "n1", **more: object) -> str:
    command = [*PYTHON, script]
    return cluster.client.submit(command=command, targets=[target], max_retries=0, **more).task_ids[0]  # type: ignore[arg-type]


SHOW = "import os, json; print(json.dumps(sorted(os.sched_getaffinity(0))), flush=True)"
WIDEN = f"""
import os
try:
    os.sched_setaffinity(0, range(os.cpu_count()))
except OSError as error:
    print(error)
{SHOW}
"""
STAY = "; import time; time.sleep(300)"


def cpus_of(cluster: RealCluster, id: str) -> list[int]:
    wait_until(lambda: cluster.output(id).endswith("]\n"), 20.0, f"{id} says its CPUs")
    return list(json.loads(cluster.output(id).splitlines()[-1]))


def allowed(pid: int, name: str = "Cpus_allowed_list") -> str:
    return Path(f"/proc/{pid}/status").read_text().partition(f"{name}:")[2].split()[0]


def end(cluster: RealCluster, *ids: str) -> None:
    for id in ids:
        cluster.client.cancel(id)
    for id in ids:
        cluster.wait_task(id, "Cancelled")


@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="needs two CPUs")
def test_whole_cores_have_cpus_of_their_own_which_a_task_cannot_widen(cluster: RealCluster):
    first, second = (submit(cluster, WIDEN + STAY.lstrip("; ")) for _ in range(2))
    one, other = cpus_of(cluster, first), cpus_of(cluster, second)
    assert len(one) == len(other) == 1
    assert one != other
    end(cluster, first, second)


@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="needs two CPUs")
def test_parts_of_cores_share_the_rest_and_follow_it(cluster: RealCluster):
    script = "import os; print(os.getpid(), flush=True)" + STAY
    part = submit(cluster, script, cores=0.5)
    wait_until(lambda: cluster.output(part), 20.0, "the part runs")
    pid = int(cluster.output(part))
    every = sorted(os.sched_getaffinity(0))
    assert len(os.sched_getaffinity(pid)) == len(every)
    whole = submit(cluster, SHOW + STAY)
    own = cpus_of(cluster, whole)
    assert sorted(os.sched_getaffinity(pid)) == [cpu for cpu in every if cpu not in own]
    cgroup = next(line for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines() if ":cpu" in line)
    if "/limits-" in cgroup and (quota := ROOT / "cpu" / cgroup.rpartition(":")[2].strip("/")).is_dir():
        time_us, period_us = (int((quota / f"cpu.cfs_{n}_us").read_text()) for n in ("quota", "period"))
        assert time_us * 2 == period_us
    end(cluster, whole)
    wait_until(lambda: sorted(os.sched_getaffinity(pid)) == every, 5.0, "the rest is larger again")
    end(cluster, part)


def test_a_memory_hog_ends_as_oom_with_its_limit_and_its_peak(cluster: RealCluster):
    id = submit(cluster, f"bytearray({256 * MIB})", memory=64 * MIB)
    view = cluster.wait_task(id, "Failed")
    assert view.reason == "oom"
    found = re.search(r"its limit of 64 MiB \(peak ([0-9.]+) MiB\)", view.message)
    assert found is not None and 60 <= float(found[1]) <= 64, view.message


BOMB = """
import os, sys, time
started = 0
for _ in range(300):
    try:
        if os.fork() == 0:
            time.sleep(300)
        started += 1
    except BlockingIOError as error:
        sys.exit(f"{started} started: {error}")
"""


def test_a_fork_bomb_is_contained_and_that_is_said(cluster: RealCluster):
    id = submit(cluster, BOMB)
    view = cluster.wait_task(id, "Failed")
    started = int(cluster.output(id).split()[0])
    assert PIDS_MAX / 2 < started < PIDS_MAX
    assert "could start no more (1 time)" in view.message


STUBBORN = """
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.environ.clear()
        print(os.getpid(), flush=True)
        time.sleep(300)
    os._exit(0)
time.sleep(300)
"""


def test_what_forks_twice_and_ignores_sigterm_is_gone_with_its_tree(cluster: RealCluster):
    id = submit(cluster, STUBBORN, grace=0.5)
    wait_until(lambda: cluster.output(id), 20.0, "the grandchild runs")
    grandchild = int(cluster.output(id))
    end(cluster, id)  # which is said at once
    wait_until(lambda: not alive(grandchild), 10.0, "the grandchild is gone")


OPEN = """
import os
for path in ("/dev/full", "/dev/zero", "/dev/null"):
    try:
        os.close(os.open(path, os.O_RDONLY))
        print("opened")
    except PermissionError:
        print("refused")
"""


@pytest.mark.parametrize(
    ("target", "gpus", "seen"), [("n2::0", "0", "opened refused"), ("n2::1", "1", "refused opened")]
)
def test_only_the_allocated_device_can_be_opened(cluster: RealCluster, target: str, gpus: str, seen: str):
    id = submit(cluster, OPEN, target)
    cluster.wait_task(id, "Completed")
    assert cluster.output(id).split() == [*seen.split(), "opened"]


def test_without_a_device_none_can_be_opened_nor_made_anew(cluster: RealCluster, tmp_path: Path):
    again = f"os.mknod('{tmp_path}/mine', 0o20600, os.makedev(1, 7))"
    id = submit(cluster, OPEN + f"\ntry:\n    {again}\nexcept PermissionError:\n    print('refused')\n", "n2")
    cluster.wait_task(id, "Completed")
    assert cluster.output(id).split() == ["refused", "refused", "opened", "refused"]


def test_a_task_knows_its_device_by_uuid_and_cannot_open_that_of_another(tmp_path: Path):
    """Devices as NVML tells of them, by a stub of its library behind the real binding."""
    cluster = RealCluster(tmp_path / "c", lost_after_s=LEASE)
    cluster.environment = NvmlStub(tmp_path / "nvml").environment
    cluster.node_settings = {"n1": DEVICES | {"runner.pretend": None}}
    show = "import os; print(os.environ['CUDA_VISIBLE_DEVICES'], os.environ['PHALANX_DEVICES'], flush=True)\n"
    with run(cluster, {"n1": "real"}):
        stay = "import sys, time; sys.stdout.flush(); time.sleep(300)"
        ids = [submit(cluster, show + OPEN + stay, gpus=1, cores=0.1) for _ in range(2)]
        for id in ids:
            wait_until(lambda id=id: len(cluster.output(id).split()) == 5, 20.0, f"{id} has looked")  # type: ignore[misc]
        seen = {index: (uuid, opened) for uuid, index, *opened in (cluster.output(id).split() for id in ids)}
        assert seen == {
            "0": ("GPU-stub-0", ["opened", "refused", "opened"]),
            "1": ("GPU-stub-1", ["refused", "opened", "opened"]),
        }
        none = submit(cluster, show.replace("'],", "'] or 'none',") + OPEN, cores=0.1)
        cluster.wait_task(none, "Completed")
        assert cluster.output(none).split() == ["none", "none", "refused", "refused", "opened"]
        end(cluster, *ids)


def test_a_numa_target_has_the_cpus_of_that_node(cluster: RealCluster):
    """The host has one memory node; `tests/unit/runner/test_limits.py` has two."""
    id = submit(cluster, WIDEN, "n2:1")
    cluster.wait_task(id, "Completed")
    every = sorted(os.sched_getaffinity(0))
    assert cpus_of(cluster, id) == every[(len(every) + 1) // 2 :] or len(every) == 1


SCRATCH = f"""
import os
folder = os.environ["PHALANX_SCRATCH_DIR"]
print(folder, flush=True)
try:
    with open(folder + "/large", "wb") as file:
        file.write(bytes({2 * MIB}))
except OSError as error:
    print(error.strerror)
"""


def test_a_scratch_folder_has_its_size_and_is_gone_at_the_end(cluster: RealCluster):
    id = submit(cluster, SCRATCH)
    cluster.wait_task(id, "Completed")
    folder, *said = cluster.output(id).splitlines()
    assert said == ["No space left on device"]
    wait_until(lambda: not os.path.lexists(folder), 5.0, "the folder is removed")
    assert not scratch.mounted_below(Path(folder))


def test_nodes_say_what_they_hold_and_a_job_that_requires_it_goes_nowhere_else(cluster: RealCluster):
    n1, n2 = sorted(cluster.client.nodes(), key=lambda node: node.name)
    assert n1.isolation is not None
    assert n2.isolation is not None
    assert n1.isolation.lacking == []
    assert (n1.isolation.cpus, n1.isolation.memory, n1.isolation.scratch) == ("cpuset", "limit", "tmpfs")
    assert n2.isolation.lacking == ["CPUs"]
    assert n2.isolation.devices == "filter"
    ids = [cluster.client.submit(command=["/bin/true"], require_isolation=True).task_ids[0] for _ in range(6)]
    assert {cluster.wait_task(id, "Completed").node for id in ids} == {"n1"}
    with pytest.raises(PhalanxError) as refused:
        cluster.client.submit(command=["/bin/true"], targets=["n2"], require_isolation=True)
    assert refused.value.reason == "NotIsolated"


@pytest.mark.parametrize("keepers", [1, 2])
def test_a_restarted_runner_knows_whose_cpus_are_whose(tmp_path: Path, keepers: int):
    cluster = RealCluster(tmp_path / "c", lost_after_s=LEASE)
    cluster.node_settings = {"n1": REAL | {"runner.keepers": keepers}}
    with run(cluster, {"n1": "real"}):
        every = sorted(os.sched_getaffinity(0))
        old = [submit(cluster, SHOW + STAY) for _ in every[1:]]
        taken = [cpu for id in old for cpu in cpus_of(cluster, id)]
        cluster.kill("n1")
        cluster.start_runner("n1")
        new = submit(cluster, SHOW + STAY)
        assert sorted([*taken, *cpus_of(cluster, new)]) == every
        assert set(cpus_of(cluster, new)).isdisjoint(taken)
        end(cluster, *old)
        again = submit(cluster, SHOW)
        assert set(cpus_of(cluster, again)).isdisjoint(cpus_of(cluster, new))
        end(cluster, new)


def bases_of(folder: Path) -> list[str]:
    """The folders of a node in all hierarchies; those of others come and go meanwhile."""
    name = f"phalanx-n1-{(folder / 'n1' / 'origin').read_text()[:8]}"
    return [path for path, _, _ in os.walk(ROOT) if path.endswith(f"/{name}")]


def ours(folder: Path) -> list[str]:
    """What is left of a node: its cgroups but the keeper's leaf, its scratch folders, and mounts."""
    inner = [path for base in bases_of(folder) for path, _, _ in os.walk(base) if path != base]
    cgroups = [
        path for path in inner if not path.endswith(("/keeper", "phalanx-slots")) and "/slot-" not in path
    ]
    mounts = scratch.mounted_below(folder / "n1")
    return [*cgroups, *mounts, *map(str, (folder / "n1" / "scratch").glob("*"))]


def test_after_a_crash_what_is_ours_is_removed_and_nothing_else(tmp_path: Path):
    cluster = RealCluster(tmp_path / "c", lost_after_s=LEASE)
    cluster.node_settings = {"n1": REAL}
    foreign = ROOT / "pids" / "limits-0"
    foreign.mkdir(exist_ok=True)
    mounted = tmp_path / "foreign"
    mounted.mkdir()
    scratch.mount_tmpfs(mounted, MIB)
    try:
        with run(cluster, {"n1": "real"}):
            whole = submit(cluster, SHOW + STAY, memory=64 * MIB)
            cpus_of(cluster, whole)
            assert len([each for each in ours(cluster.folder) if "limits-" in each]) >= 2
            assert scratch.mounted_below(cluster.folder / "n1")
            folder = os.path.realpath(cluster.folder / "n1")
            cluster.kill("n1")
            for pid in lookup.keepers(folder, service.LOCK):
                os.kill(pid, signal.SIGKILL)
            assert ours(cluster.folder)
            cluster.client.cancel(whole)  # or it would run again
            cluster.start_runner("n1")
            wait_until(lambda: not ours(cluster.folder), 20.0, "nothing is left")
        assert foreign.is_dir()
        assert scratch.mounted_below(mounted)
    finally:
        foreign.rmdir()
        scratch.unmount(mounted)


KILLS = int(os.environ.get("RUNNER_KILLS", "3"))  # 30 to see what the issue asks for


def test_runners_that_are_killed_again_and_again_leave_nothing_behind(tmp_path: Path):
    cluster = RealCluster(tmp_path / "c", lost_after_s=LEASE)
    cluster.node_settings = {"n1": DEVICES | {"runner.scratch_max_bytes": MIB}}
    with run(cluster, {"n1": "cpus=64,gpus=2"}):
        script = "import os, time; print(os.getpid(), flush=True); time.sleep(300)"
        ids = [
            submit(cluster, script, memory=32 * MIB if at % 2 else 0, cores=at % 3 / 2) for at in range(20)
        ]
        for id in ids:
            wait_until(lambda id=id: cluster.output(id), 20.0, f"{id} runs")  # type: ignore[misc]
        pids = {id: cluster.output(id) for id in ids}
        for _ in range(KILLS):
            cluster.kill("n1")
            cluster.start_runner("n1")
            cluster.wait_online("n1")
        assert {id: cluster.output(id) for id in ids} == pids
        assert all(alive(int(pid)) for pid in pids.values())
        end(cluster, *ids)
        wait_until(lambda: not ours(cluster.folder), 20.0, "nothing is left")
        cluster.kill("n1", signal.SIGTERM)
        assert bases_of(cluster.folder) == []
