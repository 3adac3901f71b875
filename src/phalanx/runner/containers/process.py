"""The process of an attempt that runs in a container: it makes the container, passes its output on, ends with its code.

The keeper starts it as it starts any task, so limits, logs, signals, leases and restarts of the runner are the same. It
has the runner's own account, never the task's, and runs nothing of the user's: that is done by the runtime, in the
container. The first process of the container is made and not yet started when it is put under the limits of this one.

SIGTERM reaches the container's processes by their cgroup, as it does those of other tasks. But the kernel discards a
signal to the first process of a container that has no handler for it; what would have ended any other process is then
ended here.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import threading

from . import joining
from .body import docker_body, podman_body
from .mounts import MountRefused, check_inside, check_nested, check_root, check_source, open_root
from .rights import files_as
from .runtime import DOCKER, PIECE_BYTES, PODMAN, Runtime, RuntimeConnection, RuntimeFailed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

    from .body import ContainerSpec

VARIABLE = "PHALANX_CONTAINER_FILE"
KEEPERS = ("PHALANX_ATTEMPT_KEY", "PHALANX_KEEPER", "PHALANX_DEADLINE")  # variables that the keeper sets
CANNOT_RUN = 127  # with a result that says why, the runner reports a refusal
TERMINATED = 128 + signal.SIGTERM
ENDS_WITHIN_MS = 1000  # the end of its output may come a moment before that of its first process
AGAIN_S = 0.2  # between two requests to a runtime that has gone
ASKED_MAX = 300  # times, for the exit code of a container that has ended
_IGNORED = (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGPIPE)


class Container:
    """One container, from its creation to its removal."""

    def __init__(self, spec: ContainerSpec) -> None:
        self._spec = spec
        self._runtime = Runtime(spec["socket"])
        self._is_podman = spec["kind"] == "podman"
        self._id = ""
        self._pid = 0
        self._pid_fd = -1
        self._began = 0  # in ticks: its pid may be another process's when it has ended
        self._is_stopped = False  # SIGTERM has come
        self._beside: subprocess.Popen[bytes] | None = None
        self._input: ContainerInput | None = None

    def run(self) -> int:
        """Its exit code. Raises RuntimeFailed, MountRefused or CannotJoin if it cannot be run."""
        for number in _IGNORED:
            signal.signal(number, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, self._stop)
        sources = self._open_mounts()
        try:
            output = self._make(sources)
            if output is None:
                return TERMINATED
            self._accompany()
            if self._input is not None:
                self._input.begin()
            self._pass_on(output)
            return self._exit_code()
        finally:
            if self._beside is not None:
                self._beside.kill()
            self._remove()

    def _accompany(self) -> None:
        """Start what belongs to a VPS in a container. When it ends, so does the container."""
        if self._spec["beside"]:
            signal.signal(signal.SIGCHLD, self._left_alone)
            words = [*self._spec["beside"], str(self._pid), str(self._began)]
            self._beside = subprocess.Popen(words, stdin=subprocess.DEVNULL)
            self._left_alone()

    def _left_alone(self, *_: object) -> None:
        if self._beside is not None and self._beside.poll() is not None and self._pid_fd >= 0:
            with contextlib.suppress(OSError):
                signal.pidfd_send_signal(self._pid_fd, signal.SIGKILL)

    def _open_mounts(self) -> list[tuple[str, int]]:
        """The user's mounts, by their real paths; a descriptor of each, to be compared with what is mounted."""
        if not self._is_podman and self._spec["has_network"]:
            raise RuntimeFailed("an address of its own takes podman, and this node has Docker")
        if not self._is_podman and self._spec["account"] is not None and self._spec["mounts"]:
            raise MountRefused("mounts of users with accounts take podman, and this node has Docker")
        found = []
        with files_as(self._spec["account"]):
            for mount in self._spec["mounts"]:
                real, fd = check_source(mount["source"], self._spec["allowed"], self._spec["closed"])
                mount["source"] = real
                found.append((mount["target"], fd))
            every = (*self._spec["own_mounts"], *self._spec["mounts"])
            check_nested([each["target"] for each in every], found)
            if self._spec["rootfs"]:
                fd = open_root(self._spec["rootfs"], self._spec["allowed"], self._spec["closed"])
                self._spec["rootfs"] = f"/proc/{os.getpid()}/fd/{fd}"  # no path, which could be exchanged
        return found

    def _make(self, sources: list[tuple[str, int]]) -> RuntimeConnection | None:
        """Create it and start it under our limits; its output, or None if it was stopped before it began."""
        env = self._spec["env"] | {name: os.environ[name] for name in KEEPERS if name in os.environ}
        if self._is_podman:
            body = podman_body(self._spec, env, os.getpid())
            self._id = self._runtime.call("POST", f"{PODMAN}/containers/create", body)["Id"]
            self._runtime.call("POST", f"{PODMAN}/containers/{self._id}/init")
            output = self._attach()
            self._find()
            joining.join(self._pid)
            joining.close_devices(self._pid)
            joining.check_account(self._pid, self._spec["account"])
            check_root(self._pid, self._spec["rootfs"])
            for target, fd in sources:
                check_inside(self._pid, target, fd)
            self._write_pid()
            if self._was_stopped():
                return None
            self._start()
        else:
            path = f"{DOCKER}/containers/create?name={self._spec['name']}"
            self._id = self._runtime.call("POST", path, docker_body(self._spec, env))["Id"]
            output = self._attach()
            if self._was_stopped():
                return None
            self._start()
            self._find()
            self._join_running()
        if self._was_stopped():  # the signal came when there was nobody to receive it
            self._pass_signal_on()
        return output

    def _attach(self) -> RuntimeConnection:
        if self._spec["stdin"]:
            self._input = ContainerInput(self._runtime.attach(self._id, stdin=True))
        return self._runtime.attach(self._id)

    def _join_running(self) -> None:
        """Docker starts what it makes at once, so the container may end at any moment of this. Raises CannotJoin."""
        if not self._is_running():
            return
        try:
            joining.join_all(self._pid)
            joining.close_devices(self._pid)
            self._write_pid()
        except (joining.CannotJoin, OSError):
            if self._is_running(ENDS_WITHIN_MS):
                raise

    def _was_stopped(self) -> bool:
        return self._is_stopped

    def _start(self) -> None:
        self._runtime.call("POST", f"{DOCKER}/containers/{self._id}/start")

    def _find(self) -> None:
        self._pid = self._runtime.call("GET", f"{DOCKER}/containers/{self._id}/json")["State"]["Pid"]
        if self._pid:
            with contextlib.suppress(OSError):
                self._pid_fd = os.pidfd_open(self._pid)
                self._began = _born(self._pid)

    def _write_pid(self) -> None:
        """Sessions look for the container's first process here."""
        fd = os.open(self._spec["pid_file"], os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            os.write(fd, f"{self._pid} {_born(self._pid)}\n".encode())
        finally:
            os.close(fd)

    def _pass_on(self, output: RuntimeConnection) -> None:
        """Write what the container writes to our own logs, until it has ended; a runtime may restart meanwhile."""
        while True:
            with contextlib.suppress(RuntimeFailed):
                _copy(output)
            output.close()
            was_away = False
            while self._is_running(ENDS_WITHIN_MS):
                try:
                    output = self._runtime.attach(self._id)
                    break
                except RuntimeFailed:
                    was_away = True
                    _pause()
            else:
                return
            if was_away:
                os.write(2, b"phalanx: the container runtime was away; some output is missing here\n")
            if self._input is not None and not self._input.has_ended:
                os.write(
                    2, b"phalanx: its standard input was cut off in the middle, so the container is ended\n"
                )
                signal.pidfd_send_signal(self._pid_fd, signal.SIGKILL)

    def _is_running(self, within_ms: int = 0) -> bool:
        """Whether its first process has not ended within that time."""
        if self._pid_fd < 0:
            return False
        poll = select.poll()
        poll.register(self._pid_fd, select.POLLIN)
        return not poll.poll(within_ms)

    def _exit_code(self) -> int:
        path = f"{DOCKER}/containers/{self._id}/wait"
        for left in range(ASKED_MAX, -1, -1):
            try:
                return int(self._runtime.call("POST", path)["StatusCode"]) & 0xFF
            except RuntimeFailed:
                if not left:
                    raise
                _pause()
        raise AssertionError("the last try raises")

    def _remove(self) -> None:
        """Also kills what is left. If it fails, the runner does it."""
        if self._id:
            with contextlib.suppress(RuntimeFailed):
                self._runtime.call("DELETE", f"{DOCKER}/containers/{self._id}?force=1&v=1")
        with contextlib.suppress(OSError):
            os.unlink(self._spec["pid_file"])  # noqa: PTH108 (no pathlib here)

    def _stop(self, *_: object) -> None:
        self._is_stopped = True
        if self._pid_fd >= 0:
            self._pass_signal_on()

    def _pass_signal_on(self) -> None:
        with contextlib.suppress(OSError):
            if _is_discarded(self._pid, signal.SIGTERM):
                signal.pidfd_send_signal(self._pid_fd, signal.SIGKILL)
            elif not self._spec["is_tracked"]:
                signal.pidfd_send_signal(self._pid_fd, signal.SIGTERM)


class ContainerInput:
    """Passes our own standard input on to a container, in a thread: it waits where the container does not read.

    The connection is used for nothing else. When input cannot be written, because the container reads no more or has
    ended, podman ends the connection with all output that it has not passed on yet. What comes over this one is read
    and left to the other, for a runtime waits for every client that it has output for.
    """

    def __init__(self, connection: RuntimeConnection) -> None:
        self.has_ended = False
        self._connection = connection

    def begin(self) -> None:
        for work in (self._pass_on, self._discard_output):
            threading.Thread(target=work, daemon=True).start()

    def _pass_on(self) -> None:
        with contextlib.suppress(RuntimeFailed):  # nobody reads it any more, or the runtime is away
            while piece := os.read(0, PIECE_BYTES):
                self._connection.send(piece)
            self.has_ended = True
            self._connection.end_sending()

    def _discard_output(self) -> None:
        with contextlib.suppress(RuntimeFailed):
            for _ in self._connection.pieces():
                pass


def _pause() -> None:
    select.select([], [], [], AGAIN_S)


def _copy(output: RuntimeConnection) -> None:
    """Each frame goes to the stream that it is of."""
    rest = b""
    for piece in output.pieces():
        rest += piece
        while len(rest) >= 8 and len(rest) >= (end := 8 + int.from_bytes(rest[4:8], "big")):
            _write_all(2 if rest[0] == 2 else 1, rest[8:end])
            rest = rest[end:]


def _write_all(fd: int, text: bytes) -> None:
    """A log that cannot be written (a full disk) loses a piece; the container goes on, as a process would."""
    with contextlib.suppress(OSError):
        while text:
            text = text[os.write(fd, text) :]


def _is_discarded(pid: int, number: int) -> bool:
    """Whether a signal would end any other process, and is discarded by the kernel because this one is the first."""
    masks = {}
    with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as file:  # noqa: PTH123
        for line in file:
            name, _, value = line.partition(":")
            if name in ("SigCgt", "SigIgn"):
                masks[name] = int(value, 16)
    return not any(mask >> (number - 1) & 1 for mask in masks.values())


def _born(pid: int) -> int:
    with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:  # noqa: PTH123
        return int(file.read().rpartition(")")[2].split()[19])


def _refuse(spec: ContainerSpec, error: Exception) -> NoReturn:
    """Say why there was nothing to run, as the program of a Python function does."""
    with contextlib.suppress(OSError):
        with contextlib.suppress(FileNotFoundError):  # a file of the user's, perhaps a link to another
            os.unlink(spec["result"])  # noqa: PTH108 (no pathlib here)
        fd = os.open(spec["result"], os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW, 0o600)
        if spec["account"] is not None:  # nobody believes a result of another account
            os.fchown(fd, spec["account"][0], spec["account"][1])
        os.write(fd, json.dumps({"phalanx_cannot_run": f"container: {error}"[:2000]}).encode())
        os.close(fd)
    os.write(2, f"phalanx: the container cannot be run: {error}\n".encode())
    sys.exit(CANNOT_RUN)


def main(words: list[str]) -> int:
    """Run the container that a file describes: the one named last, or in a variable that is for this alone."""
    with open(words[-1] if words else os.environ.pop(VARIABLE), encoding="utf-8") as file:  # noqa: PTH123
        spec: ContainerSpec = json.load(file)
    try:
        return Container(spec).run()
    except (RuntimeFailed, MountRefused, joining.CannotJoin, OSError) as error:
        _refuse(spec, error)
