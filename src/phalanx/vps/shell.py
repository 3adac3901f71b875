"""One shell or command of an SSH session, with a terminal or with three pipes, as long as its channel is open.

A program that is left behind by its shell keeps neither the channel nor the client waiting. A client that is gone is
told to the program by SIGHUP, as sshd does.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import re
import signal
import struct
import subprocess
import termios
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Self

import asyncssh

PIECE_BYTES = 32 * 1024
QUIET_S = 0.3  # after the end of a program, until output of what it left behind is no longer waited for
NOT_EXECUTABLE, NOT_FOUND = 126, 127  # as a shell
_TAKEN = re.compile(r"LANG|LC_[A-Z]+|TZ|COLORTERM|TERM_PROGRAM")  # what a client may set
ClientProcess = asyncssh.SSHServerProcess[bytes]


async def serve_process(env: dict[str, str], client: ClientProcess) -> None:
    """Run what a client asked for until it has ended, or the client is gone."""
    if client.subsystem is not None:
        client.stderr.write(f"no subsystem {client.subsystem!r}, only sftp\n".encode())
        client.exit(NOT_FOUND)
        return
    try:
        program = await SshProgram.start(client, env)
    except OSError as error:
        client.stderr.write(f"{_shell(env)}: {error.strerror or error}\n".encode())
        client.exit(NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE)
        return
    await program.run()


class SshProgram:
    """A shell or command, and the streams between it and the client."""

    def __init__(self, client: ClientProcess, process: subprocess.Popen[bytes], streams: Streams) -> None:
        self._client = client
        self._process = process
        self._streams = streams
        self._moved = 0  # pieces of output

    @classmethod
    async def start(cls, client: ClientProcess, env: dict[str, str]) -> SshProgram:
        """Raises OSError where it cannot be started."""
        shell = _shell(env)
        words = [f"-{Path(shell).name}"] if client.command is None else [shell, "-c", client.command]
        streams = await (Pipes() if client.term_type is None else Terminal()).opened()
        try:
            streams.resize(*client.term_size[:2])
            process = subprocess.Popen(  # noqa: ASYNC220 - asyncio's waits for the streams, not for the end
                words,
                executable=shell,
                env=_variables(client, env),
                stdin=streams.of_child[0],
                stdout=streams.of_child[1],
                stderr=streams.of_child[2],
                preexec_fn=streams.begin_session,  # noqa: PLW1509 - this process has one thread
            )
        except BaseException:
            streams.close()
            raise
        finally:
            streams.close_child()
        return cls(client, process, streams)

    async def run(self) -> None:
        sinks = (self._client.stdout, self._client.stderr)
        copied = zip(self._streams.outputs, sinks, strict=False)
        outputs = [asyncio.ensure_future(self._copy(*each)) for each in copied]
        feeding = asyncio.ensure_future(self._feed())
        ending = asyncio.ensure_future(self._ended())
        leaving = asyncio.ensure_future(self._client.wait_closed())
        everything = [*outputs, feeding, ending, leaving]
        try:
            await asyncio.wait({ending, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if not ending.done():
                return
            await self._drain(outputs)
            code = ending.result()
            if code < 0:
                name = signal.Signals(-code).name.removeprefix("SIG")
                self._client.exit_with_signal(name)
            else:
                self._client.exit(code)
        finally:
            for task in everything:
                task.cancel()
            await asyncio.gather(*everything, return_exceptions=True)
            if self._process.returncode is None:
                self._signal(signal.SIGHUP)
            self._streams.close()
            await self._ended()

    async def _ended(self) -> int:
        """The exit code, as soon as there is one, whoever still has its streams; −N after signal N."""
        if self._process.returncode is not None:
            return self._process.returncode
        fd, loop, ready = os.pidfd_open(self._process.pid), asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(fd, ready.set)
        try:
            await ready.wait()
        finally:
            loop.remove_reader(fd)
            os.close(fd)
        return self._process.wait()

    async def _copy(self, source: asyncio.StreamReader, sink: Any) -> None:
        with suppress(OSError, asyncssh.Error):  # a terminal ends with EIO; a client may be gone
            while piece := await source.read(PIECE_BYTES):
                self._moved += 1
                sink.write(piece)
                await sink.drain()

    async def _drain(self, outputs: list[asyncio.Task[None]]) -> None:
        """Send the rest of the output; what the program left behind may keep it open, and is not waited for."""
        while not all(each.done() for each in outputs):
            before = self._moved
            await asyncio.wait({*outputs}, timeout=QUIET_S)
            if self._moved == before:
                return

    async def _feed(self) -> None:
        """Pass input on; what else a client may send comes in the same order."""
        sink = self._streams.input
        while True:
            try:
                piece = await self._client.stdin.read(PIECE_BYTES)
                if not piece:
                    break
                sink.write(piece)
                await sink.drain()
            except asyncssh.TerminalSizeChanged as change:
                self._streams.resize(change.width, change.height)
            except asyncssh.SignalReceived as sent:
                with suppress(AttributeError):
                    self._signal(getattr(signal, f"SIG{sent.signal}"))
            except asyncssh.BreakReceived:
                continue
            except (OSError, asyncssh.Error):  # the program reads no more, or the client is gone
                return
        self._streams.end_input()

    def _signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)


class Streams:
    """The descriptors of a program, as streams on our side."""

    input: asyncio.StreamWriter

    def __init__(self, ours: tuple[int, ...], of_child: tuple[int, int, int]) -> None:
        self.of_child = of_child
        self.outputs: list[asyncio.StreamReader] = []
        self._ours = ours  # where its input is written, then where its output is read
        self._transports: list[asyncio.BaseTransport] = []

    async def opened(self) -> Self:
        loop = asyncio.get_running_loop()
        transport, protocol = await loop.connect_write_pipe(
            asyncio.streams.FlowControlMixin, os.fdopen(self._ours[0], "wb", 0)
        )
        self.input = asyncio.StreamWriter(transport, protocol, None, loop)
        self._transports.append(transport)
        for fd in self._ours[1:]:
            reader = asyncio.StreamReader()
            reading, _ = await loop.connect_read_pipe(
                partial(asyncio.StreamReaderProtocol, reader), os.fdopen(fd, "rb", 0)
            )
            self.outputs.append(reader)
            self._transports.append(reading)
        return self

    def begin_session(self) -> None:
        """In the child, before the program: signals for its session reach nothing of ours."""
        os.setsid()

    def resize(self, columns: int, rows: int) -> None:
        """Pipes have no size."""

    def end_input(self) -> None:
        self.input.close()

    def close_child(self) -> None:
        for fd in {*self.of_child}:
            os.close(fd)

    def close(self) -> None:
        for transport in self._transports:
            transport.close()


class Pipes(Streams):
    """Three pipes."""

    def __init__(self) -> None:
        (their_in, our_in), (our_out, their_out), (our_err, their_err) = (os.pipe() for _ in range(3))
        super().__init__((our_in, our_out, our_err), (their_in, their_out, their_err))


class Terminal(Streams):
    """A pseudo-terminal: its own end for the program, the other one for us. Its input has no end of its own."""

    def __init__(self) -> None:
        self._master, slave = os.openpty()
        super().__init__((os.dup(self._master), os.dup(self._master)), (slave, slave, slave))

    def begin_session(self) -> None:
        os.login_tty(os.dup(0))

    def resize(self, columns: int, rows: int) -> None:
        size = struct.pack("HHHH", min(max(rows, 0), 65_535), min(max(columns, 0), 65_535), 0, 0)
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, size)

    def end_input(self) -> None:
        """What is typed may end; the terminal goes on until the program does."""

    def close(self) -> None:
        super().close()
        os.close(self._master)


def _shell(env: dict[str, str]) -> str:
    """The one of the account: as its environment says, or the file of accounts here, which may be a container's.

    The C library is not asked, for in a container it would load parts of that. An account of tasks need not be one that
    people log in to.
    """
    names = [env.get("SHELL", ""), *_of_account(os.geteuid()), "/bin/bash"]
    return next((each for each in names if _is_shell(each)), "/bin/sh")


def _is_shell(path: str) -> bool:
    return path.startswith("/") and Path(path).name not in ("nologin", "false") and os.access(path, os.X_OK)


def _of_account(uid: int) -> list[str]:
    try:
        lines = Path("/etc/passwd").read_text(errors="replace").splitlines()
    except OSError:
        return []
    rows = (line.split(":") for line in lines)
    return [row[6] for row in rows if len(row) == 7 and row[2] == str(uid)][:1]


def _variables(client: ClientProcess, env: dict[str, str]) -> dict[str, str]:
    """Those of the task, and what a client may add."""
    asked = {str(name): str(value) for name, value in client.env.items()}
    found = {**env, **{name: text for name, text in asked.items() if _TAKEN.fullmatch(name)}}
    found["SHELL"] = _shell(env)
    if client.term_type is not None:
        found["TERM"] = client.term_type
    if (agent := client.channel.get_agent_path()) is not None:
        found["SSH_AUTH_SOCK"] = agent
    peer = client.get_extra_info("peername") or ("", 0)
    here = client.get_extra_info("sockname") or ("", 0)
    found["SSH_CONNECTION"] = f"{peer[0]} {peer[1]} {here[0]} {here[1]}"
    return found
