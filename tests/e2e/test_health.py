"""Health checks of real nodes: the operator's command and failing devices, from the check to the placement and back."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.forked import run_command
from tests.support.nvml_stub import NvmlStub
from tests.support.real_cluster import RealCluster
from tests.support.waiting import wait_until

WELL = (False, 0, 0, 0)
MORE: dict[str, dict[str, object]] = {"n1": {"runner.pretend": None}, "n2": {"runner.health_evict": True}}
SOON: dict[str, object] = {"runner.health_interval_s": 1.0, "runner.health_passes": 2}


@contextmanager
def a_checked_cluster(folder: Path, nvml: NvmlStub) -> Iterator[RealCluster]:
    """n1 has two devices and a command that reads a file; n2 evicts when its own file says so."""
    cluster = RealCluster(folder, heartbeat_s=0.5)
    cluster.environment = nvml.environment
    cluster.node_settings = {
        name: {
            **SOON,
            "runner.health_command": ["sh", "-c", f"cat {folder}/{name}.bad 2>/dev/null && exit 1 || exit 0"],
            **more,
        }
        for name, more in MORE.items()
    }
    try:
        cluster.start({"n1": "real", "n2": "cpus=4,ram=4GiB"})
        yield cluster
    finally:
        cluster.stop()


def phalanx(cluster: RealCluster, *words: str) -> str:
    env = {key: value for key, value in os.environ.items() if not key.startswith("PHALANX_")}
    env |= {
        "PHALANX_ADDRESS": cluster.address("coordinator"),
        "PHALANX_TOKEN": cluster.user_token,
        "XDG_CONFIG_HOME": str(cluster.folder / "none"),
    }
    done = run_command(words, env)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


def test_checks_of_real_nodes(tmp_path: Path) -> None:
    nvml = NvmlStub(tmp_path / "nvml")
    with a_checked_cluster(tmp_path / "cluster", nvml) as cluster:
        _a_device_fails_and_returns(cluster, nvml)
        _a_command_fails_and_passes(cluster)
        _the_doctor_sees_it(cluster)
        _a_failing_node_is_left(cluster)


def _a_device_fails_and_returns(cluster: RealCluster, nvml: NvmlStub) -> None:
    client = cluster.client
    nvml.fails(WELL, (True, 0, 0, 0))
    wait_until(lambda: client.node("n1").devices[1].out_of_service, 15.0, "GPU 1 is out of service")
    node = client.node("n1")
    assert (node.status, node.devices[0].out_of_service) == ("Online", "")
    assert "fell off the bus" in node.note
    one = client.submit(gpus=1, command=["sh", "-c", "echo $CUDA_VISIBLE_DEVICES"]).task_ids[0]
    two = client.submit(gpus=2, command=["true"]).task_ids[0]
    cluster.wait_task(one, "Completed")
    assert cluster.output(one).strip() in ("0", "GPU-stub-0")
    said = client.why(two).dominant
    assert (said.code, "fell off the bus" in said.text) == ("DevicesFailed", True)
    assert "out of service" in phalanx(cluster, "node", "show", "n1")
    nvml.fails(WELL, WELL)
    cluster.wait_task(two, "Completed", within_s=15.0)
    assert "passes its health checks again" in phalanx(cluster, "story", "n1")


def _a_command_fails_and_passes(cluster: RealCluster) -> None:
    client, bad = cluster.client, cluster.folder / "n1.bad"
    bad.write_text("fan 3 stands still\n")
    wait_until(lambda: client.node("n1").status == "Unhealthy", 15.0, "the coordinator knows")
    assert "fan 3 stands still" in client.node("n1").note
    pinned = client.submit(targets=["n1"], command=["true"]).task_ids[0]
    free = client.submit(command=["true"]).task_ids[0]
    assert cluster.wait_task(free, "Completed").node == "n2"
    assert client.why(pinned).dominant.code == "NodeUnhealthy"
    shown = phalanx(cluster, "nodes")
    assert "Unhealthy" in shown
    assert "fan 3" in phalanx(cluster, "node", "show", "n1")
    client.drain("n1", "maintenance")
    bad.unlink()
    wait_until(lambda: client.node("n1").status == "Online", 15.0, "its checks pass")
    assert client.task(pinned).status == "Pending", "what an operator drained stays so"
    client.undrain("n1")
    cluster.wait_task(pinned, "Completed")


def doctor(
    cluster: RealCluster, token: str, address: str = ""
) -> tuple[int, dict[str, list[dict[str, str]]]]:
    """Its exit code, and its lines by check."""
    env = {key: value for key, value in os.environ.items() if not key.startswith("PHALANX_")}
    env |= {
        "PHALANX_ADDRESS": address or cluster.address("coordinator"),
        "PHALANX_TOKEN": token,
        "XDG_CONFIG_HOME": str(cluster.folder / "none"),
        "XDG_STATE_HOME": str(cluster.folder / "none"),
    }
    done = run_command(("doctor", "-o", "json"), env)
    found: dict[str, list[dict[str, str]]] = {}
    for line in json.loads(done.stdout):
        found.setdefault(line["check"], []).append(line)
    return done.returncode, found


def _the_doctor_sees_it(cluster: RealCluster) -> None:
    cluster.client.drain("n1", "maintenance")
    code, lines = doctor(cluster, cluster.user_token)
    assert code == 0
    assert {line["state"] for check in ("cluster", "token", "clock") for line in lines[check]} == {"ok"}
    assert lines["clock"][0]["text"] == "within seconds of the coordinator's"
    assert (lines["nodes"][0]["state"], "maintenance" in lines["nodes"][0]["text"]) == ("warn", True)
    assert "phalanx node resume n1" in lines["nodes"][0]["fix"]
    cluster.client.undrain("n1")
    cluster.client.set_elastic("n1", enabled=False, reason="it is saving power")
    _, lines = doctor(cluster, cluster.user_token)
    assert "saving power" in lines["nodes"][0]["text"]
    assert "phalanx node elastic n1 on" in lines["nodes"][0]["fix"]
    cluster.client.set_elastic("n1", enabled=True)
    code, lines = doctor(cluster, "wrong-token-0123456789")
    assert (code, lines["token"][0]["state"]) == (1, "fail")
    code, lines = doctor(cluster, cluster.user_token, "http://127.0.0.1:9")
    assert (code, lines["cluster"][0]["state"]) == (1, "fail")


def _a_failing_node_is_left(cluster: RealCluster) -> None:
    client = cluster.client
    id = client.submit(targets=["n2"], command=["sleep", "300"]).task_ids[0]
    cluster.wait_task(id, "Running")
    (cluster.folder / "n2.bad").write_text("broken\n")
    wait_until(lambda: client.task(id).status == "Pending", 20.0, "it was evicted")
    assert client.task(id).retries_used == 0
    assert "evicted, a health check of n2 fails: broken" in phalanx(cluster, "story", id)
    client.cancel(id)
