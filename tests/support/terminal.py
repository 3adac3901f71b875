"""The command line of a cluster for tests: with pipes, or in a terminal of its own as a user has one."""

from __future__ import annotations

import fcntl
import os
import re
import select
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager

from tests.support.forked import run_command
from tests.support.real_cluster import RealCluster
from tests.support.waiting import wait_until


def phalanx_words(cluster: RealCluster, *words: str, token_file: str = "token") -> list[str]:
    """The words of a command that asks this cluster."""
    address = ",".join(cluster.address(name) for name in cluster.coordinators)
    token = str(cluster.folder / token_file)
    return [sys.executable, "-m", "phalanx", "--address", address, "--token-file", token, *words]


def command_environment(cluster: RealCluster) -> dict[str, str]:
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("PHALANX_", "KRISHIV_"))
    }
    return kept | {
        "XDG_CONFIG_HOME": str(cluster.folder / "none"),
        "XDG_STATE_HOME": str(cluster.folder / "none"),
        "TERM": "xterm-256color",
    }


def run_phalanx(
    cluster: RealCluster,
    *words: str,
    stdin: bytes = b"",
    token_file: str = "token",
    within_s: float = 60,
) -> subprocess.CompletedProcess[bytes]:
    """Run a command to its end, with pipes."""
    _, _, _, *spoken = phalanx_words(cluster, *words, token_file=token_file)
    return run_command(spoken, command_environment(cluster), stdin=stdin, within_s=within_s)


class UserTerminal:
    """A terminal with one program in it: what it shows, and what is typed."""

    def __init__(self, process: subprocess.Popen[bytes], master: int) -> None:
        self.process = process
        self._master = master
        self.shown = b""

    def type(self, text: str | bytes) -> None:
        os.write(self._master, text.encode() if isinstance(text, str) else text)

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def is_raw(self) -> bool:
        """Whether keys go through uninterpreted."""
        return not termios.tcgetattr(self._master)[3] & (termios.ICANON | termios.ISIG | termios.ECHO)

    def expect(self, pattern: str, within_s: float = 30.0) -> re.Match[bytes]:
        """What matches, as soon as it is shown; what was shown up to there is not looked at again."""

        def look() -> re.Match[bytes] | None:
            self._read()
            return re.search(pattern.encode(), self.shown)

        try:
            found = wait_until(look, within_s, f"{pattern!r} in the terminal")
        except TimeoutError:
            raise AssertionError(f"no {pattern!r} in {self.shown!r}") from None
        self.shown = self.shown[found.end() :]
        return found

    @property
    def is_open(self) -> bool:
        return self._master >= 0

    def close(self) -> None:
        """Close it, as a window or a connection is closed."""
        os.close(self._master)
        self._master = -1

    def exit_code(self, within_s: float = 30.0) -> int:
        def ended() -> bool:
            self._read()
            return self.process.poll() is not None

        wait_until(ended, within_s, "the program in the terminal has ended")
        self._read()
        return self.process.returncode

    def _read(self) -> None:
        while self.is_open and select.select([self._master], [], [], 0)[0]:
            try:
                piece = os.read(self._master, 65_536)
            except OSError:  # the last program in it has ended
                return
            if not piece:
                return
            self.shown += piece


def _take_terminal() -> None:
    """In the new process: the terminal is its own, and ends it when it is closed, also under `nohup make test`."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)


@contextmanager
def a_terminal(
    cluster: RealCluster, *words: str, rows: int = 24, columns: int = 80
) -> Iterator[UserTerminal]:
    """A command in a terminal of its own."""
    master, slave = os.openpty()
    fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    process = subprocess.Popen(
        phalanx_words(cluster, *words),
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env=command_environment(cluster),
        start_new_session=True,
        preexec_fn=_take_terminal,  # noqa: PLW1509 - no other way to have one
    )
    os.close(slave)
    try:
        yield (terminal := UserTerminal(process, master))
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(10)
        if terminal.is_open:
            terminal.close()
