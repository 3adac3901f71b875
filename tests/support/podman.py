"""A podman of a test's own: its service at a socket, with storage of its own, and images made of busybox.

Nothing of the machine's podman is touched. Needs root, podman, runc and busybox-static (`scripts/servers`).
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.waiting import wait_until

CONFIG = """
[containers]
default_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
runtime = "runc"
"""
APPLETS = ("sh", "cat", "echo", "env", "false", "grep", "head", "hostname", "id", "ls", "mknod", "mkdir", "mkfifo",
           "nc", "ping", "ps", "sleep", "stat", "su", "tail", "touch", "true", "wc")  # fmt: skip
IMAGE = "localhost/busybox:1"


def why_not() -> str:
    """Why no containers can be run here."""
    if os.getuid():
        return "podman without a user's own settings needs root"
    missing = [name for name in ("podman", "runc", "busybox") if shutil.which(name) is None]
    return f"{', '.join(missing)} missing; scripts/servers installs them as root" if missing else ""


def busybox_folder(root: Path) -> Path:
    """A folder that a container can have as its root."""
    for name in ("bin", "etc", "proc", "sys", "dev", "tmp", "mnt", "data"):
        (root / name).mkdir(parents=True, exist_ok=True)
    (root / "tmp").chmod(0o1777)
    shutil.copy(str(shutil.which("busybox")), root / "bin/busybox")
    for applet in APPLETS:
        (root / "bin" / applet).symlink_to("busybox")
    return root


class Podman:
    """One service, and what is in its storage."""

    def __init__(self, folder: Path, insecure: str = "", host: str = "") -> None:
        """`insecure` is a registry that is spoken to without TLS, `host` the network namespace that it runs in."""
        self.folder = folder
        self.socket = folder / "podman.sock"
        self.registries = folder / "registries.conf"
        self.environment = {
            **os.environ,
            "CONTAINERS_CONF": str(folder / "containers.conf"),
            "CONTAINERS_REGISTRIES_CONF": str(self.registries),
            "TMPDIR": str(folder),
        }
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "containers.conf").write_text(CONFIG)
        (folder / "policy.json").write_text('{"default": [{"type": "insecureAcceptAnything"}]}')
        plain = f'[[registry]]\nlocation = "{insecure}"\ninsecure = true\n' if insecure else ""
        self.registries.write_text(f"unqualified-search-registries = []\n{plain}")
        self.runroot = Path(
            tempfile.mkdtemp(prefix="phxp")
        )  # of which podman takes no more than 50 characters
        self._seen: set[str] = set()  # ids of containers
        self._enter = ["nsenter", f"--net=/run/netns/{host}"] if host else []
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the service, and wait until it answers."""
        with (self.folder / "podman.log").open("ab") as log:
            words = self._words("system", "service", "--time=0", f"unix://{self.socket}")
            self._process = subprocess.Popen(
                words, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=self.environment
            )
        wait_until(self.socket.exists, 20.0, "podman listens")

    def stop(self) -> None:
        """End the service; containers go on without it."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self.socket.unlink(missing_ok=True)

    def run(self, *words: str) -> str:
        """One command, with this storage."""
        done = subprocess.run(self._words(*words), capture_output=True, env=self.environment, check=False)
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout.decode()

    def containers(self) -> list[str]:
        """The names of all containers, those that have ended among them."""
        found = json.loads(self.run("ps", "--all", "--format", "json") or "[]") or []
        self._seen |= {each["Id"] for each in found}
        return [each["Names"][0] for each in found]

    def held(self) -> list[str]:
        """All that containers have of the machine: themselves, their mounts, monitors and cgroups."""
        names = self.containers()
        mounts = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
        inside = f"{self.folder}/storage/overlay/"
        monitors = [path.parent for path in Path("/proc").glob("[0-9]*/cmdline") if self._is_monitor(path)]
        cgroups = [path for path, _, _ in os.walk("/sys/fs/cgroup") if any(id in path for id in self._seen)]
        return [
            *(f"container {name}" for name in names),
            *(f"mount {path}" for path in mounts if path.startswith(inside)),
            *(f"monitor {path.name}" for path in monitors),
            *(f"cgroup {path}" for path in cgroups),
        ]

    def _is_monitor(self, path: Path) -> bool:
        try:
            words = path.read_bytes()
        except OSError:
            return False
        return b"conmon" in words.split(b"\0")[0] and f"{self.folder}/".encode() in words

    def busybox(self) -> Path:
        """A folder with busybox in it, and its image in the storage."""
        root = busybox_folder(self.folder / "busybox")
        self.import_folder(root, IMAGE)
        return root

    def import_folder(self, root: Path, name: str) -> str:
        """An image with the content of a folder."""
        archive = self.folder / "root.tar"
        subprocess.run(["tar", "-C", str(root), "-cf", str(archive), "."], check=True)
        self.run("import", str(archive), name)
        return name

    @staticmethod
    def mknod(path: Path, kind: str, major: int, minor: int, owner: int) -> None:
        """A device node that its owner may open."""
        subprocess.run(["mknod", str(path), kind, str(major), str(minor)], check=True)
        os.chown(path, owner, owner)

    def _words(self, *words: str) -> list[str]:
        places = ["--root", str(self.folder / "storage"), "--runroot", str(self.runroot)]
        return [*self._enter, "podman", *places, *words]


@contextmanager
def a_podman(folder: Path, insecure: str = "", host: str = "") -> Iterator[Podman]:
    """A podman for one test file; nothing of it is left behind."""
    podman = Podman(folder, insecure, host)
    try:
        podman.start()
        yield podman
    finally:
        podman.run("rm", "--all", "--force", "--time", "0")
        podman.stop()
        subprocess.run(["umount", str(folder / "storage/overlay")], capture_output=True, check=False)
        shutil.rmtree(podman.runroot, ignore_errors=True)
