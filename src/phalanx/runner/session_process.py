"""One command beside a running attempt, with its three streams or a terminal; or a connection into the attempt.

`session_child.py` is started here and becomes the command. Descriptors are read and written without blocking, a piece
at a time and only when the last one was taken, so that nothing is held however fast the command writes. What is sent
to whom is decided in `sessions.py`.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import termios
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct, structs

from phalanx.api.schema.session_frames import PIECE_BYTES
from phalanx.errors import Conflict, PhalanxError, TooMany, Unavailable
from phalanx.link.session_messages import SessionSpec
from phalanx.runner.session_environment import Surroundings, task_ended

CHILD = Path(__file__).parent / "session_child.py"
BEGIN_WITHIN_S = 20.0
KILL_ROUNDS = 5


class BeginFailure(Struct, frozen=True):
    """What the child says if it does not become the command."""

    reason: str
    message: str
    code: int = 1


class SessionProcess:
    """A command, from its start until nothing of its session is left or wanted."""

    def __init__(self, process: subprocess.Popen[bytes], fds: tuple[int, int, int], master: int) -> None:
        self._process = process
        self._fds = fds  # for its input, of its output, of its errors; −1: none
        self._master = master  # of its terminal; −1: none
        self._pidfd = os.pidfd_open(process.pid)
        self.pid = process.pid

    @classmethod
    async def start(cls, spec: SessionSpec, there: Surroundings) -> SessionProcess | BeginFailure:
        """Start the command there; a failure if it could not be found or executed. Raises PhalanxError otherwise."""
        ours, theirs, master = _descriptors(spec)
        try:
            process, status = _spawn(spec, there, theirs)
        except OSError as error:
            for fd in {*ours, master} - {-1}:
                os.close(fd)
            raise TooMany(
                f"the node has no room for another process: {error.strerror}", reason="NodeFull"
            ) from None
        finally:
            for fd in set(theirs):
                os.close(fd)
        made = cls(process, ours, master)
        failure = await _outcome(status)
        if failure is None:
            return made
        made.kill()
        await made.ended()
        made.close()
        if failure.reason in ("CommandNotFound", "NotExecutable"):
            return failure
        raise _error(failure)

    async def read(self, number: int) -> bytes:
        """A piece of what it wrote to this descriptor, 1 or 2; none at the end."""
        fd = self._fds[number]
        while fd >= 0:
            try:
                return os.read(fd, PIECE_BYTES)
            except BlockingIOError:
                await _ready(fd, write=False)
            except OSError:  # a terminal whose last user is gone
                return b""
        return b""

    async def write(self, data: bytes) -> bool:
        """Give it input; False if it does not read any more."""
        fd, view = self._fds[0], memoryview(data)
        while view:
            if fd < 0:
                return False
            try:
                view = view[os.write(fd, view) :]
            except BlockingIOError:
                await _ready(fd, write=True)
            except OSError:
                return False
        return True

    def end_input(self) -> None:
        """There is no more input. A terminal is left open: its user ends the input with a character."""
        fd, out, err = self._fds
        if fd >= 0 and fd != self._master:
            os.close(fd)
            self._fds = (-1, out, err)

    def resize(self, rows: int, columns: int) -> None:
        if self._master >= 0:
            with suppress(OSError):
                set_size(self._master, rows, columns)

    def signal(self, number: int) -> None:
        """Signal the command and its process group; in a terminal the one in the foreground."""
        with suppress(OSError):
            group = os.tcgetpgrp(self._master) if self._master >= 0 else self.pid
            os.killpg(group or self.pid, number)

    async def ended(self) -> int:
        """Wait for its end: the exit code, or the number of a signal as a negative one."""
        await _ready(self._pidfd, write=False)
        return self._process.wait()

    def hang_up(self) -> None:
        """The user is gone: what a terminal tells its programs when it is closed."""
        for number in (signal.SIGHUP, signal.SIGCONT):
            self.signal(number)

    def kill(self) -> None:
        """Kill all processes of its session."""
        for _ in range(KILL_ROUNDS):
            found = _of_session(self.pid)
            for pid in found:
                with suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
            if not found:
                return

    def close(self) -> None:
        for fd in {*self._fds, self._master, self._pidfd} - {-1}:
            os.close(fd)
        self._fds, self._master, self._pidfd = (-1, -1, -1), -1, -1


async def connect(port: int, there: Surroundings) -> socket.socket:
    """A connection to a port of an attempt, made in its surroundings. Raises PhalanxError."""
    way, other = socket.socketpair()
    with way, other:
        null = os.open(os.devnull, os.O_RDWR)
        try:
            process, status = _spawn(SessionSpec(port=port), there, (null, null, null), other.fileno())
        finally:
            os.close(null)
        pidfd = os.pidfd_open(process.pid)
        try:
            failure = await _outcome(status)
            await _ready(pidfd, write=False)
        finally:
            os.close(pidfd)
            process.kill()
            process.wait()
        if failure is not None:
            raise _error(failure)
        way.setblocking(False)
        try:
            _, fds, _, _ = socket.recv_fds(way, 1, 1)
        except OSError:
            fds = []
        if not fds:
            raise Unavailable(f"port {port} of the task could not be reached", reason="PortRefused")
        return socket.socket(fileno=fds[0])


def set_size(fd: int, rows: int, columns: int) -> None:
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


def _descriptors(spec: SessionSpec) -> tuple[tuple[int, int, int], tuple[int, int, int], int]:
    """Our ends of the command's input, output and errors, its ends of them, and the master of its terminal."""
    if spec.tty:
        master, terminal = os.openpty()
        os.set_blocking(master, False)
        if spec.rows and spec.columns:
            set_size(master, spec.rows, spec.columns)
        return (master, master, -1), (terminal, terminal, terminal), master
    out, err = os.pipe(), os.pipe()
    if spec.stdin:
        read, write = os.pipe()
        os.set_blocking(write, False)
    else:
        read, write = os.open(os.devnull, os.O_RDONLY), -1
    os.set_blocking(out[0], False)
    os.set_blocking(err[0], False)
    return (write, out[0], err[0]), (read, out[1], err[1]), -1


def _spawn(
    spec: SessionSpec, there: Surroundings, standard: tuple[int, int, int], hand_over_fd: int = -1
) -> tuple[subprocess.Popen[bytes], int]:
    """Start the child. Returned is also the descriptor at which it says why it failed, or nothing."""
    env = there.env | ({"TERM": spec.term} if spec.tty and spec.term else {})
    content = structs.asdict(there) | {
        "argv": spec.command,
        "env": env,
        "tty": spec.tty,
        "port": spec.port,
        "parent": os.getpid(),
        "hand_over_fd": hand_over_fd,
    }
    told = os.memfd_create("session")
    os.write(told, json.dumps(content).encode())
    os.lseek(told, 0, os.SEEK_SET)
    status, status_out = os.pipe()
    try:
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-X", "utf8", str(CHILD), str(told), str(status_out)],
            stdin=standard[0],
            stdout=standard[1],
            stderr=standard[2],
            env={},
            cwd="/",
            start_new_session=True,
            pass_fds=[fd for fd in (told, status_out, there.leader_fd, hand_over_fd) if fd >= 0],
        )
    except OSError:
        os.close(status)
        raise
    finally:
        os.close(told)
        os.close(status_out)
    return process, status


async def _outcome(status: int) -> BeginFailure | None:
    """Wait until the child has become the command, or has failed."""
    said = b""
    os.set_blocking(status, False)
    try:
        async with asyncio.timeout(BEGIN_WITHIN_S):
            while True:
                try:
                    piece = os.read(status, 4096)
                except BlockingIOError:
                    await _ready(status, write=False)
                    continue
                if not piece:
                    break
                said += piece
        return msgspec.json.decode(said, type=BeginFailure) if said else None
    except TimeoutError:
        return BeginFailure("CannotEnter", f"the command did not begin within {BEGIN_WITHIN_S:.0f} s")
    except msgspec.MsgspecError:
        return BeginFailure("CannotEnter", "the command did not begin")
    finally:
        os.close(status)


def _error(failure: BeginFailure) -> PhalanxError:
    if failure.reason == "TaskEnded":
        return task_ended()
    if failure.reason == "PortRefused":
        return Conflict(
            failure.message,
            reason="PortRefused",
            hint="does the task listen on this port, at 127.0.0.1 or at all addresses? `phalanx logs` may say",
        )
    return Unavailable(failure.message, reason=failure.reason)


def _of_session(leader: int) -> list[int]:
    """The live processes of a session."""
    found = []
    for entry in os.scandir("/proc"):
        if entry.name.isdecimal():
            with suppress(OSError, IndexError, ValueError):
                fields = Path(entry.path, "stat").read_bytes().rpartition(b")")[2].split()
                if int(fields[3]) == leader and fields[0] not in (b"Z", b"X"):
                    found.append(int(entry.name))
    return found


async def _ready(fd: int, *, write: bool) -> None:
    """Wait until a descriptor can be read or written."""
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    add: Callable[..., Any] = loop.add_writer if write else loop.add_reader
    add(fd, _set, ready)
    try:
        await ready
    finally:
        remove = loop.remove_writer if write else loop.remove_reader
        remove(fd)


def _set(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)
