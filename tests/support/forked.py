"""Processes of Phalanx for tests, forked from one that has loaded the code: loading takes longer than most tests do.

They are real processes, with a session's environment, log and exit code of their own. What differs from a process that
was started by name is its command line; tests that set environment variables or run code before ours start one by name.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

DAEMONS = ("phalanx.coordinator.main", "phalanx.runner.main")
COMMANDS = (
    "phalanx.cli.main",
    "phalanx.cli.exec",
    "phalanx.cli.job",
    "phalanx.cli.plan",
    "phalanx.cli.ps",
    "phalanx.cli.run",
    "phalanx.cli.why",
    "phalanx.cli.workflow",
    "phalanx.client.client",
    "phalanx.client.session_connection",
    "phalanx.client.sessions",
)
REQUEST_BYTES_MAX = 1 << 20
_SERVE = "import sys; from tests.support.forked import serve; serve(sys.argv[1:])"
_COMMAND = (
    "import sys, json; from phalanx.cli.main import main; sys.argv[1:] = json.loads(sys.argv[1]); main()"
)


class ForkedProcess:
    """Like `subprocess.Popen`, as far as tests need it."""

    def __init__(self, server: ForkServer, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._server = server

    def poll(self) -> int | None:
        if self.returncode is None:
            self.returncode = self._server.exit_code(self.pid)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if not self._server.wait(self.pid, timeout):
            raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0)
        code = self.poll()
        assert code is not None
        return code

    def send_signal(self, number: int) -> None:
        # It may have ended, and be reaped by the process that forked it, before we hear of it.
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class ForkServer:
    """The process that forks; it lives as long as the one that runs the tests."""

    def __init__(self, preloaded: Sequence[str]) -> None:
        self._socket, theirs = socket.socketpair(type=socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _SERVE, *preloaded],
                stdin=theirs.fileno(),
                stdout=subprocess.PIPE,
                cwd=Path(__file__).resolve().parents[2],
                start_new_session=True,
            )
        self._changed = threading.Condition()
        self._born: list[int] = []
        self._exits: dict[int, int] = {}
        self._asking = threading.Lock()
        threading.Thread(target=self._listen, daemon=True).start()

    def start(
        self, code: str, argument: str, env: Mapping[str, str], cwd: Path, streams: Sequence[int]
    ) -> ForkedProcess:
        """Run code in a new process, with one argument and these standard streams."""
        request = {"code": code, "argument": argument, "env": dict(env), "cwd": str(cwd)}
        with self._asking:
            socket.send_fds(self._socket, [json.dumps(request).encode()], streams)
            with self._changed:
                if not self._changed.wait_for(lambda: self._born, 60.0):
                    raise TimeoutError("the process that forks does not answer")
                return ForkedProcess(self, self._born.pop())

    def exit_code(self, pid: int) -> int | None:
        return self._exits.get(pid)

    def wait(self, pid: int, timeout: float | None) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: pid in self._exits, timeout)

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            kind, pid, *code = json.loads(line)
            with self._changed:
                if kind == "born":
                    self._exits.pop(pid, None)  # an earlier one had the same pid
                    self._born.append(pid)
                else:
                    self._exits[pid] = code[0]
                self._changed.notify_all()


_servers: dict[tuple[int, Sequence[str]], ForkServer] = {}


def start_forked(code: str, argument: str, env: Mapping[str, str], log: Path) -> ForkedProcess:
    """Start a daemon."""
    with Path(os.devnull).open("rb") as null, log.open("ab") as words:
        streams = (null.fileno(), words.fileno(), words.fileno())
        return _server(DAEMONS).start(code, argument, env, Path.cwd(), streams)


def run_command(
    words: Sequence[str],
    env: Mapping[str, str],
    *,
    stdin: bytes = b"",
    cwd: Path | None = None,
    within_s: float = 60.0,
) -> subprocess.CompletedProcess[bytes]:
    """Run `phalanx` with these words to its end, with pipes."""
    reader, writer = os.pipe()
    try:
        command = ForkedCommand(words, env, reader, cwd)
    finally:
        os.close(reader)
    try:
        out, err = command.communicate(within_s, stdin, writer)
    finally:
        command.process.kill()
    return subprocess.CompletedProcess(list(words), command.process.wait(), out, err)


class ForkedCommand:
    """`phalanx` with these words, while it runs; its output is not read before `communicate`."""

    def __init__(
        self, words: Sequence[str], env: Mapping[str, str], stdin: int, cwd: Path | None = None
    ) -> None:
        out, err = os.pipe(), os.pipe()
        try:
            streams = (stdin, out[1], err[1])
            self.process = _server(COMMANDS).start(
                _COMMAND, json.dumps(words), env, cwd or Path.cwd(), streams
            )
        finally:
            os.close(out[1])
            os.close(err[1])
        self._ends = out[0], err[0]

    def communicate(
        self, within_s: float, given: bytes = b"", into: int | None = None
    ) -> tuple[bytes, bytes]:
        """Give it this input, and read what it writes until it has ended."""
        with (
            ThreadPoolExecutor(2) as readers,
            os.fdopen(self._ends[0], "rb") as out,
            os.fdopen(self._ends[1], "rb") as err,
        ):
            found = [readers.submit(each.read) for each in (out, err)]
            if into is not None:
                with suppress(BrokenPipeError), os.fdopen(into, "wb") as pipe:
                    pipe.write(given)
            try:
                self.process.wait(within_s)
            finally:
                self.process.kill()
            return found[0].result(), found[1].result()


def _server(preloaded: Sequence[str]) -> ForkServer:
    """This process's own."""
    key = os.getpid(), preloaded
    if key not in _servers:
        _servers[key] = ForkServer(preloaded)
    return _servers[key]


def serve(preloaded: Sequence[str]) -> None:
    """The server: fork as asked, and tell of every start and end."""
    for module in preloaded:
        __import__(module)
    wake, woken = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(woken)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    with socket.socket(fileno=0) as requests:
        while True:
            ready, _, _ = select.select([0, wake], [], [])
            if wake in ready:
                os.read(wake, 4096)
                _reap()
            if 0 not in ready:
                continue
            request, streams, _, _ = socket.recv_fds(requests, REQUEST_BYTES_MAX, 3)
            if not request:
                return
            _fork(json.loads(request), streams)
            for each in streams:
                os.close(each)


def _reap() -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not pid:
            return
        _tell("exit", pid, os.waitstatus_to_exitcode(status))


def _tell(*words: object) -> None:
    os.write(1, json.dumps(words).encode() + b"\n")


def _fork(request: dict[str, Any], streams: Sequence[int]) -> None:
    pid = os.fork()
    if pid:
        _tell("born", pid)
        return
    code = 1
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for target, descriptor in enumerate(streams):
            os.dup2(descriptor, target)
        os.closerange(3, 256)
        os.chdir(request["cwd"])
        os.environ.clear()
        os.environ.update(request["env"])
        sys.argv = ["-c", request["argument"]]
        exec(request["code"], {"__name__": "__main__"})  # as `python -c` would
        code = 0
    except SystemExit as exit:
        code = exit.code if isinstance(exit.code, int) else int(exit.code is not None)
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
