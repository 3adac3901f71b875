"""Containers of users with accounts: an image gives no rights that the account does not have. Shown by trying."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import phalanx
from phalanx.api.schema.cluster import TokenRequest
from tests.support.podman import IMAGE, Podman, a_podman, why_not
from tests.support.real_cluster import RealCluster
from tests.support.waiting import wait_until

pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not() or "never")
KIND = "phalanx.test/gpu"
DAEMON = 1  # the account of alice, which every Debian has


@pytest.fixture(scope="module")
def podman(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Podman]:
    with a_podman(tmp_path_factory.mktemp("podman")) as podman:
        podman.busybox()
        yield podman


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """A folder that other accounts can reach, unlike those of pytest."""
    path = Path(tempfile.mkdtemp(prefix="phalanx-containers-"))
    path.chmod(0o711)
    for name, mode in (("data", 0o755), ("data/closed", 0o700), ("data/closed/in", 0o755)):
        (path / name).mkdir(mode=mode)
    (path / "data/closed/in/secret").write_text("secret\n")
    (path / "data/open").write_text("open\n")
    yield path
    shutil.rmtree(path)


@pytest.fixture(scope="module")
def specification(folder: Path) -> Iterator[None]:
    """Of device 1: its node and a library, as the tool of a vendor would write it, where runtimes look for it."""
    (folder / "data/library").write_text("of the driver\n")
    edits = {
        "deviceNodes": [{"path": "/dev/fuse"}],
        "env": ["DRIVER=7"],
        "mounts": [
            {"hostPath": f"{folder}/data/library", "containerPath": "/usr/library", "options": ["ro", "bind"]}
        ],
    }
    spec = {
        "cdiVersion": "0.3.0",
        "kind": KIND,
        "devices": [{"name": "1", "containerEdits": edits}],
        "containerEdits": {},
    }
    place = Path("/var/run/cdi")
    was_there = place.exists()
    place.mkdir(exist_ok=True)
    path = place / f"{KIND.replace('/', '-')}.json"
    path.write_text(json.dumps(spec))
    yield
    path.unlink()
    if not was_there:
        place.rmdir()


@pytest.fixture(scope="module")
def cluster(podman: Podman, folder: Path, specification: None) -> Iterator[RealCluster]:
    cluster = RealCluster(folder / "cluster", settings={"coordinator.breaker_failures": 0})
    (folder / "cluster").chmod(0o711)
    cluster.node_settings["n1"] = {
        "runner.accounts": "alice=daemon",
        "runner.container_socket": str(podman.socket),
        "runner.container_mounts": str(folder / "data"),
        "runner.device_nodes": "0=/dev/kmsg;1=/dev/fuse",
        "runner.cdi_kind": KIND,
    }
    try:
        cluster.start({"n1": "cpus=4,ram=4GiB,gpus=2"})
        yield cluster
    finally:
        cluster.stop()


@pytest.fixture(scope="module")
def alice(cluster: RealCluster) -> Iterator[phalanx.Client]:
    made = cluster.client.create_token(TokenRequest(role="user", name="alice"))
    with phalanx.Client(cluster.address("coordinator"), made.token) as client:
        yield client


def run(client: phalanx.Client, script: str, image: str = IMAGE, **more: object) -> tuple[str, str, str]:
    """The reason and message of a task's end, and what it wrote."""
    command = ["/bin/sh", "-c", f"({script}) 2>&1"]
    id = client.submit(command=command, image=image, max_retries=0, **more).task_ids[0]  # type: ignore[arg-type]
    client.wait(id, timeout=40.0)
    view = client.task(id)
    assert "phalanx: " not in view.stderr_tail or view.reason == "refused", "it is not the task's own"
    return view.reason, view.message, "" if view.started_at is None else b"".join(client.logs(id)).decode()


def test_the_process_is_the_accounts_and_has_no_rights(alice: phalanx.Client):
    script = (
        "id -u; id -g; grep -E 'CapPrm|CapEff|CapBnd|NoNewPrivs' /proc/self/status | grep -v 0000000000000000;"
        " touch /bin/planted || echo no; su -c id || echo no su; echo 1 > $PHALANX_RESULT;"
        " echo mine > $PHALANX_ARTIFACTS/a && stat -c %u $PHALANX_ARTIFACTS/a;"
        " touch $PHALANX_SCRATCH_DIR/b && echo made"
    )
    reason, message, text = run(alice, script)
    lines = text.splitlines()
    assert reason == "", message
    assert lines[:3] == [str(DAEMON), str(DAEMON), "NoNewPrivs:\t1"]
    assert lines[4] == "no"
    assert lines[-2:] == [str(DAEMON), "made"]
    assert "uid=0" not in text


def test_what_the_job_says_to_loaders_acts_on_nothing_outside(alice: phalanx.Client):
    """The container's process is root's: a library of the user's that it loads would be root."""
    env = {"LD_PRELOAD": "/nowhere.so", "PATH": "/bin:/x", "PHALANX_CONTAINER_FILE": "/etc/passwd"}
    reason, message, text = run(alice, "echo $LD_PRELOAD $PATH", env=env)
    assert (reason, text) == ("", "/nowhere.so /bin:/x\n"), message


def test_setuid_programs_and_device_nodes_of_an_image_are_without_effect(
    alice: phalanx.Client, podman: Podman
):
    root = podman.folder / "hostile"
    shutil.copytree(podman.folder / "busybox", root, symlinks=True)
    shutil.copy(root / "bin/busybox", root / "bin/busybox-root")
    (root / "bin/busybox-root").chmod(0o4755)
    podman.mknod(root / "memory", "c", 1, 1, DAEMON)
    podman.mknod(root / "full", "c", 1, 7, DAEMON)
    image = podman.import_folder(root, "localhost/hostile:1")
    reason, _, text = run(alice, "/bin/busybox-root id -u; head -c 1 /memory; head -c 1 /full; true", image)
    assert reason == ""
    assert text.splitlines()[0] == str(DAEMON)
    assert text.count("Operation not permitted") + text.count("Permission denied") == 2, text


def test_an_image_cannot_call_a_group_by_the_number_of_another(alice: phalanx.Client, podman: Podman):
    """The runtime looks the account's groups up in the image, where the name of root's may be 1."""
    root = podman.folder / "groups"
    shutil.copytree(podman.folder / "busybox", root, symlinks=True)
    (root / "etc/group").write_text(f"{DAEMON}:x:0:\n")
    reason, message, text = run(alice, "id", podman.import_folder(root, "localhost/groups:1"))
    assert (reason, "other groups" in message, "uid=" in text) == ("refused", True, False), message


def test_only_granted_devices_are_there(alice: phalanx.Client):
    nodes = "ls /dev/kmsg /dev/fuse 2>/dev/null; true"
    assert run(alice, nodes, targets=["n1::0"])[2] == "/dev/kmsg\n"
    assert run(alice, nodes)[2] == ""


def test_a_device_with_a_cdi_name_brings_its_libraries(alice: phalanx.Client):
    reason, message, text = run(
        alice, "ls /dev/kmsg /dev/fuse 2>/dev/null; cat /usr/library; echo $DRIVER", targets=["n1::1"]
    )
    assert (reason, text) == ("", "/dev/fuse\nof the driver\n7\n"), message
    _, _, both = run(alice, "ls /dev/kmsg /dev/fuse; echo $DRIVER", targets=["n1::0,1"])
    assert both == "/dev/fuse\n/dev/kmsg\n7\n"
    assert run(alice, "cat /usr/library || echo none; echo $DRIVER", targets=["n1::0"])[2].endswith(
        "none\n\n"
    )


def test_a_mount_shows_nothing_that_the_account_cannot_reach(alice: phalanx.Client, folder: Path):
    reason, _, text = run(alice, "cat /mnt/open; cat /mnt/closed/in/secret", mounts=[f"{folder}/data:/mnt"])
    assert (reason, text.splitlines()[0], "secret\n" in text) == ("exited", "open", False)
    reason, message, _ = run(alice, "true", mounts=[f"{folder}/data/closed/in:/mnt"])
    assert (reason, "Permission denied" in message) == ("refused", True), message
    reason, message, _ = run(alice, "true", mounts=[f"{folder}/cluster:/mnt"])
    assert reason == "refused", message
    archive = folder / "data/closed/image.tar"
    archive.write_bytes(b"")
    reason, message, _ = run(alice, "true", str(archive))
    assert (reason, "Permission denied" in message) == ("refused", True), message


def test_a_session_is_the_accounts_and_inside(alice: phalanx.Client):
    id = alice.submit(command=["/bin/sleep", "1000"], image=IMAGE).task_ids[0]

    def inside() -> bytes:
        try:
            return alice.exec(
                id, ["/bin/sh", "-c", "id -u; ls /bin/busybox; grep CapEff /proc/self/status"]
            ).stdout
        except phalanx.PhalanxError:
            return b""

    said = wait_until(inside, 20.0, "it can be entered").decode().splitlines()
    alice.cancel(id)
    assert said == [str(DAEMON), "/bin/busybox", "CapEff:\t0000000000000000"]
