"""Processes of Phalanx for tests, forked from one that has loaded the code: loading takes longer than most tests do.

They are real processes, with a session's environment, log and exit code of their own. What differs from a process that
was started by name is its command line; tests that set environment variables or run code before ours start one by name.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

PRELOADED = ("phalanx.coordinator.main", "phalanx.runner.main")
_SERVE = "from tests.support.forked import serve; serve()"


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
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class ForkServer:
    """The process that forks; it lives as long as the one that runs the tests."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _SERVE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=Path(__file__).resolve().parents[2],
            start_new_session=True,
        )
        self._changed = threading.Condition()
        self._born: list[int] = []
        self._exits: dict[int, int] = {}
        self._asking = threading.Lock()
        threading.Thread(target=self._listen, daemon=True).start()

    def start(self, code: str, argument: str, env: Mapping[str, str], log: Path) -> ForkedProcess:
        """Run code in a new process, with one argument."""
        request = {
            "code": code,
            "argument": argument,
            "env": dict(env),
            "log": str(log),
            "cwd": str(Path.cwd()),
        }
        with self._asking:
            assert self._process.stdin is not None
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
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


_servers: dict[int, ForkServer] = {}


def start_forked(code: str, argument: str, env: Mapping[str, str], log: Path) -> ForkedProcess:
    """Start a process from this one's own server."""
    if os.getpid() not in _servers:
        _servers[os.getpid()] = ForkServer()
    return _servers[os.getpid()].start(code, argument, env, log)


def serve() -> None:
    """The server: fork as asked, and tell of every start and end."""
    for module in PRELOADED:
        __import__(module)
    wake, woken = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(woken)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    unread = b""
    while True:
        ready, _, _ = select.select([0, wake], [], [])
        if wake in ready:
            os.read(wake, 4096)
            _reap()
        if 0 not in ready:
            continue
        part = os.read(0, 65536)
        if not part:
            return
        *lines, unread = (unread + part).split(b"\n")
        for line in lines:
            _fork(json.loads(line))


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


def _fork(request: dict[str, Any]) -> None:
    pid = os.fork()
    if pid:
        _tell("born", pid)
        return
    code = 1
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        log = os.open(request["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        null = os.open("/dev/null", os.O_RDONLY)
        for descriptor, target in ((null, 0), (log, 1), (log, 2)):
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
