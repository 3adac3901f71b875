"""A whole cluster of an ordinary account: tasks are bound by affinity, and the node says what it does not hold."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import phalanx

NOBODY = 65534
STORY = """
import json, sys, time, phalanx
from pathlib import Path
from tests.support.real_cluster import RealCluster
from tests.support.waiting import wait_until

folder = Path(sys.argv[1])
cluster = RealCluster(folder, lost_after_s=60.0)
more = {"runner.watch_memory": True, "runner.usage_interval_s": 1.0}
cluster.node_settings = {"n1": {"runner.pretend": None, "runner.scratch_max_bytes": 65536} | more}
said = {}
try:
    cluster.start({"n1": "real"})
    (node,) = cluster.client.nodes()
    isolation, said["account"] = node.isolation, [node.accounts.shared, node.accounts.mapped, node.accounts.root]
    said["cpus"], said["scratch"] = isolation.cpus, isolation.scratch
    said["lacking"], said["memory"], said["processes"] = isolation.lacking, isolation.memory, isolation.processes
    show = "import os, json, resource; most = resource.getrlimit(resource.RLIMIT_NPROC)[0];"
    show += "print(json.dumps([os.getuid(), sorted(os.sched_getaffinity(0)), most]), flush=True)"
    grow = "; open(os.environ['PHALANX_SCRATCH_DIR'] + '/x', 'wb').write(bytes(1 << 20))"
    def submit(script, **more):
        command = [sys.executable, "-I", "-S", "-c", script]
        return cluster.client.submit(command=command, max_retries=0, **more).task_ids[0]
    hog = submit("held = bytearray(128 << 20); import time; time.sleep(300)", memory=64 << 20, cores=0)
    fits = submit("held = bytearray(32 << 20); import time; time.sleep(300)", memory=64 << 20, cores=0)
    view = cluster.wait_task(hog, "Failed")
    said["hog"] = [view.reason, view.message]
    said["fits"] = cluster.client.task(fits).status
    cluster.client.cancel(fits)
    id = submit(show + grow)
    view = cluster.wait_task(id, "Completed")
    said["shown"], said["message"] = json.loads(cluster.output(id)), view.message
    child = "if not os.fork(): os.setsid(); print(os.getpid(), flush=True)"
    bound = submit("import os, time\\n" + child + "\\ntime.sleep(300)")
    wait_until(lambda: cluster.output(bound), 20.0)
    pid = int(cluster.output(bound))
    cluster.client.cancel(bound)
    wait_until(lambda: not Path(f"/proc/{pid}/cmdline").exists(), 10.0)
    try:
        cluster.client.submit(command=["/bin/true"], require_isolation=True)
    except phalanx.PhalanxError as error:
        said["refused"] = error.reason
finally:
    cluster.stop()
print(json.dumps(said))
"""


def _python() -> str | None:
    """A Python of this version that everybody may run: ours may be in a folder of root's."""
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for path in (sys.executable, f"/usr/bin/{name}", f"/usr/local/bin/{name}"):
        check = [
            *_as_nobody(),
            "/bin/sh",
            "-c",
            'exec "$0" -c ""',
            path,
        ]  # setpriv itself may still enter all folders
        if Path(path).exists() and subprocess.run(check, check=False, capture_output=True).returncode == 0:
            return path
    return None


def _as_nobody() -> list[str]:
    return ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--"]


@pytest.fixture
def folder() -> Iterator[Path]:
    """Everybody may enter it, unlike what pytest makes."""
    made = Path(tempfile.mkdtemp(prefix="phalanx-nobody-"))
    os.chown(made, NOBODY, NOBODY)
    yield made
    shutil.rmtree(made, ignore_errors=True)


@pytest.mark.skipif(os.getuid() != 0 or not shutil.which("setpriv"), reason="needs root, to be nobody")
def test_an_ordinary_account_binds_by_affinity_watches_and_says_what_it_does_not_hold(folder: Path):
    python = _python()
    if python is None:
        pytest.skip("no Python here that an ordinary account may run")
    root = Path(phalanx.__file__).parents[2]
    paths = (root, root / "src", sysconfig.get_path("purelib"))
    env = {
        "PATH": "/usr/bin:/bin",
        "HOME": str(folder),
        "PYTHONPATH": ":".join(map(str, paths)),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    command = [*_as_nobody(), python, "-c", STORY, str(folder / "c")]
    done = subprocess.run(
        command, capture_output=True, text=True, env=env, timeout=100, cwd=folder, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    said = json.loads(done.stdout.splitlines()[-1])
    assert (said["cpus"], said["scratch"], said["refused"]) == ("affinity", "watched", "NotIsolated")
    assert said["lacking"][0] == "CPUs"
    assert said["account"] == ["nobody", False, False]
    assert said["shown"][0] == NOBODY
    assert len(said["shown"][1]) == 1
    assert (said["memory"], said["processes"]) == ("watched", "account")
    assert 0 < said["shown"][2] < int(Path("/proc/sys/kernel/pid_max").read_text())
    assert said["hog"][0] == "oom"
    assert "killed by its node for using more than its limit of 64 MiB (peak 1" in said["hog"][1]
    assert said["fits"] == "Running"
    assert "its scratch folder had 1 MiB, more than the 64 KiB it may have" in said["message"]
