"""A Docker of a test's own: a daemon at a socket, with storage, containers and cgroups of its own.

It makes no network and no rule of a firewall, and nothing of the machine's Docker is touched. Needs root, dockerd, runc
and busybox-static (`scripts/servers`).
"""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from phalanx.runner.containers.runtime import DOCKER, Runtime, RuntimeFailed
from tests.support.podman import IMAGE, busybox_folder
from tests.support.waiting import wait_until

SERVERS = Path(__file__).parents[2] / ".venv/servers/bin"
SEARCHED = f"{os.environ.get('PATH', '')}:{SERVERS}:/usr/sbin"
CGROUPS = Path("/sys/fs/cgroup")


def why_not() -> str:
    """Why no Docker can be run here."""
    if os.getuid():
        return "dockerd needs root"
    needed = ("dockerd", "containerd", "runc", "busybox")
    missing = [name for name in needed if shutil.which(name, path=SEARCHED) is None]
    return f"{', '.join(missing)} missing; scripts/servers gets them as root" if missing else ""


class Docker:
    """One daemon, and what is in its storage."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.socket = folder / "docker.sock"
        self.runtime = Runtime(str(self.socket))
        self.cgroup = f"phxdocker{os.getpid()}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the daemon, and wait until it answers."""
        folder = self.folder
        words = [
            "dockerd",
            "-H",
            f"unix://{self.socket}",
            "--pidfile",
            f"{folder}/pid",
            "--config-file",
            f"{folder}/none",
        ]
        words += ["--data-root", f"{folder}/data", "--exec-root", f"{folder}/run", "--storage-driver", "vfs"]
        words += ["--bridge", "none", "--iptables=false", "--ip6tables=false", "--group", "root"]
        words += ["--cgroup-parent", f"/{self.cgroup}", "--exec-opt", "native.cgroupdriver=cgroupfs"]
        (folder / "none").write_text("{}")
        with (folder / "docker.log").open("ab") as log:
            self._process = subprocess.Popen(
                [str(shutil.which("dockerd", path=SEARCHED)), *words[1:]],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                env={**os.environ, "PATH": SEARCHED},
            )
        wait_until(self._answers, 40.0, "dockerd answers")

    def stop(self) -> None:
        """End the daemon, which ends its containers, and remove the mount and the cgroups that it leaves."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait(30)
        subprocess.run(["umount", str(self.folder / "run/netns/default")], capture_output=True, check=False)
        for path in sorted(CGROUPS.glob(f"*/{self.cgroup}"), reverse=True):
            with suppress(OSError):
                path.rmdir()

    def containers(self) -> list[str]:
        """The names of all containers, those that have ended among them."""
        listed = self.runtime.call("GET", f"{DOCKER}/containers/json?all=1")["list"]
        return [each["Names"][0].lstrip("/") for each in listed]

    def remove_all(self) -> None:
        for name in self.containers():
            with suppress(RuntimeFailed):
                self.runtime.call("DELETE", f"{DOCKER}/containers/{name}?force=1")

    def busybox(self) -> Path:
        """A folder with busybox in it, and its image in the storage."""
        root = busybox_folder(self.folder / "busybox")
        archive = io.BytesIO()
        with tarfile.open(fileobj=archive, mode="w") as made:
            made.add(root, ".")
        name, _, tag = IMAGE.rpartition(":")
        path = f"{DOCKER}/images/create?fromSrc=-&repo={name}&tag={tag}"
        said = [*self.runtime.lines(path, lambda _: None, iter([archive.getvalue()]))]
        assert not any("error" in line for line in said), said
        return root

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self.folder / "docker.log").read_text()[-2000:]
        try:
            self.runtime.call("GET", f"{DOCKER}/version")
        except RuntimeFailed:
            return False
        return True


@contextmanager
def a_docker(folder: Path) -> Iterator[Docker]:
    """A Docker for one test file; nothing of it is left behind."""
    docker = Docker(folder)
    try:
        docker.start()
        yield docker
    finally:
        docker.stop()
