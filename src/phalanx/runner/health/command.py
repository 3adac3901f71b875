"""The operator's own check: a program whose exit code decides, and whose last line is the reason.

It has a session of its own. When its time is over it is killed with everything that it started, and so it is when the
runner stops: what left its session and its parents is known by a variable of its environment. One that hangs in the
kernel, on a dead disk or NFS, dies of nothing: it counts as failed without its end, so that the other checks go on, and
no further one is started beside it.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from phalanx.runner.health.standing import CheckResult

CHECK = "command"
TAIL_BYTES = 4096  # of what it says
KILLED_WITHIN_S = 5.0
OUTPUT_WAIT_S = 0.5  # for output after its end: what it started may hold the pipe open
DESCENDANTS_MAX = 10_000
PROC = Path("/proc")
MARK = "HEALTH_CHECK_RUN"  # in the environment of a run and of all that it starts


class CommandCheck:
    """The command of one node."""

    def __init__(self, command: Sequence[str], timeout_s: float, environment: Mapping[str, str]) -> None:
        self._given = command, timeout_s, environment
        self._hangs: asyncio.subprocess.Process | None = None  # it did not die when it was killed

    async def ask(self) -> CheckResult:
        """Run it once, unless the last one hangs still."""
        if self._hangs is not None and self._hangs.returncode is None:
            return CheckResult(CHECK, f"{self._given[0][0]} hangs, and could not be killed")
        self._hangs = None
        return await self._run(*self._given)

    async def _run(
        self, command: Sequence[str], timeout_s: float, environment: Mapping[str, str]
    ) -> CheckResult:
        mark = f"{os.getpid()}-{secrets.token_hex(8)}"
        process, trouble = await _started(command, {**environment, MARK: mark})
        if process is None:
            return CheckResult(CHECK, trouble)
        assert process.stdout is not None
        reading = asyncio.ensure_future(_tail(process.stdout))
        try:
            async with asyncio.timeout(timeout_s):
                code = await process.wait()
            await asyncio.wait({reading}, timeout=OUTPUT_WAIT_S)
        except TimeoutError:
            return CheckResult(CHECK, f"{command[0]} took longer than {timeout_s:g} s and was killed")
        finally:
            if process.returncode is None:
                _kill_tree(process.pid)
                _kill_marked(mark)
                await self._wait_for(process)
            reading.cancel()
        said = reading.result() if reading.done() and not reading.cancelled() else b""
        return _result(command[0], code, said)

    async def _wait_for(self, killed: asyncio.subprocess.Process) -> None:
        self._hangs = killed
        with suppress(TimeoutError):
            async with asyncio.timeout(KILLED_WITHIN_S):
                await killed.wait()


async def _started(
    command: Sequence[str], environment: Mapping[str, str]
) -> tuple[asyncio.subprocess.Process | None, str]:
    """The process, or why there is none."""
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env=dict(environment),
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        return None, f"{command[0]} cannot be started: {error}"
    return process, ""


def _result(program: str, code: int, said: bytes) -> CheckResult:
    if code == 0:
        return CheckResult(CHECK)
    lines = [line for line in said.decode("utf-8", "replace").splitlines() if line.strip()]
    ended = f"ended with code {code}" if code > 0 else f"was killed by {_name(-code)}"
    return CheckResult(CHECK, lines[-1] if lines else f"{program} {ended} and said nothing")


async def _tail(stream: asyncio.StreamReader) -> bytes:
    kept = b""
    while chunk := await stream.read(1 << 16):
        kept = (kept + chunk)[-TAIL_BYTES:]
    return kept


def _kill_tree(pid: int) -> None:
    """Its process group, and descendants that have left it."""
    children = _children()
    found, waiting = [pid], [pid]
    while waiting and len(found) < DESCENDANTS_MAX:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += below
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
    for each in found:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(each, signal.SIGKILL)


def _kill_marked(mark: str) -> None:
    """What has another parent and another session by now."""
    variable = f"{MARK}={mark}".encode()
    for folder in PROC.iterdir():
        if folder.name.isdecimal():
            with suppress(OSError):
                if variable in (folder / "environ").read_bytes().split(b"\0"):
                    os.kill(int(folder.name), signal.SIGKILL)


def _children() -> dict[int, list[int]]:
    """Which processes each process of this machine has started, of those that are there."""
    found: dict[int, list[int]] = {}
    for folder in PROC.iterdir():
        if folder.name.isdecimal():
            with suppress(OSError, ValueError, IndexError):
                after_name = (folder / "stat").read_bytes().rpartition(b")")[2].split()
                found.setdefault(int(after_name[1]), []).append(int(folder.name))
    return found


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
