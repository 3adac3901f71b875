"""The processes of a cluster, one `Part` each: started, killed, paused, and started again on their data."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from phalanx.runner.keeper.lookup import is_keeper
from tests.chaos.network import Network

END_S = 15.0
LIVES = "lives"  # the file of a rig's tasks, which is in the command line of each


class Part:
    """One process, by the name of its location."""

    def __init__(
        self, name: str, folder: Path, network: Network, words: list[str], env: Mapping[str, str]
    ) -> None:
        self.name = name
        self.folder = folder
        self.words = words
        self.env = env
        self._network = network
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def log_path(self) -> Path:
        return self.folder.parent / f"{self.name}.log"

    @property
    def pid(self) -> int:
        assert self._process is not None, f"{self.name} was never started"
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        # The kernel ends it with the thread that starts it, however that one ends: parts start in the main thread.
        leash = ["setpriv", "--pdeathsig", "KILL", "--"] if shutil.which("setpriv") else []
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                [*self._network.enter(self.name), *leash, *self.words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self.env,
                cwd=self.folder,
            )
        self._network.settled(self.name, self._process.pid)

    def kill(self) -> None:
        """As by `kill -9`, or when the machine loses its power."""
        if self._process is not None and self.is_running:
            self._process.kill()
            self._process.wait()

    def pause(self) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGCONT)

    def stop(self) -> None:
        """Ask it to end; kill it after a while."""
        if self._process is None or not self.is_running:
            return
        self.resume()
        self._process.terminate()
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self.kill()


class Node(Part):
    """A runner, and what lives on beside it: its keeper and its tasks."""

    _stopped: frozenset[int] = frozenset()  # what was stopped as its keeper

    def keepers(self) -> list[int]:
        """Its keeper, if it lives; two only while one takes over from another."""
        return [pid for pid, _ in _commands() if is_keeper(pid, str(self.folder))]

    def watchdogs(self) -> list[int]:
        """Of its keeper, and of keepers that died, while their lease lasts."""
        title = b"phalanx-watchdog of " + os.fsencode(self.folder)
        return [pid for pid, words in _commands() if words == [title]]

    def tasks(self) -> list[int]:
        mark = f"PHALANX_NODE={self.name}".encode()
        ours = living(str(self.folder.parent / LIVES))  # another rig may have a node of this name, too
        return [pid for pid in ours if mark in _environment(pid)]

    def abandon(self) -> bool:
        """Runner and keeper are gone at the same moment; their watchdog and their tasks live on."""
        self.pause()  # so that it starts no other keeper meanwhile
        had_keeper = self.signal_keeper(signal.SIGKILL)
        self.kill()
        return had_keeper

    def crash(self) -> bool:
        """As when the machine loses its power: nothing of it lives on."""
        for pid in self.watchdogs():
            _signal(pid, signal.SIGKILL)
        had_keeper = self.abandon()
        for pid in [*self.watchdogs(), *self.tasks()]:
            _signal(pid, signal.SIGKILL)
        return had_keeper

    def signal_watchdogs(self, number: int) -> None:
        for pid in self.watchdogs():
            _signal(pid, number)

    def signal_tasks(self, number: int) -> None:
        for pid in self.tasks():
            _signal(pid, number)

    def end_keeper(self) -> None:
        self.signal_keeper(signal.SIGCONT)
        self.signal_keeper(signal.SIGTERM)

    def signal_keeper(self, number: int) -> bool:
        """Whether there was one."""
        keepers = self.keepers()
        # A process that the keeper is about to start looks like the keeper for a moment: it has to be resumed, too.
        for pid in {*keepers, *(self._stopped if number == signal.SIGCONT else ())}:
            _signal(pid, number)
        self._stopped = frozenset(keepers) if number == signal.SIGSTOP else frozenset()
        return bool(keepers)


def living(mark: str) -> list[int]:
    """Tasks that live, of the rig whose file of lives is `mark`."""
    return [pid for pid, words in _commands() if mark.encode() in words and _is_task(words)]


def _is_task(words: list[bytes]) -> bool:
    return any(word.endswith(b"/life.py") for word in words)


def _signal(pid: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def _environment(pid: int) -> list[bytes]:
    with suppress(OSError):
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return []


def _commands() -> Iterator[tuple[int, list[bytes]]]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with suppress(OSError):
                words = (entry / "cmdline").read_bytes().rstrip(b"\0").split(b"\0")
                if words != [b""]:
                    yield int(entry.name), words
