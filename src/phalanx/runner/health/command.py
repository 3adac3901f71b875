"""The operator's own check: a program whose exit code decides, and whose last line is the reason.

It has a session of its own. When its time is over it is killed with everything that it started and that is still its
descendant, and so it is when the runner stops.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from phalanx.runner.health.standing import CheckResult

CHECK = "command"
TAIL_BYTES = 4096  # of what it says
OUTPUT_WAIT_S = 0.5  # for output after its end: what it started may hold the pipe open
DESCENDANTS_MAX = 10_000
PROC = Path("/proc")


async def check_command(
    command: Sequence[str], timeout_s: float, environment: Mapping[str, str]
) -> CheckResult:
    """Run it once."""
    program = command[0]
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
        return CheckResult(CHECK, f"{program} cannot be started: {error}")
    assert process.stdout is not None
    reading = asyncio.ensure_future(_tail(process.stdout))
    try:
        async with asyncio.timeout(timeout_s):
            code = await process.wait()
        await asyncio.wait({reading}, timeout=OUTPUT_WAIT_S)
    except TimeoutError:
        return CheckResult(CHECK, f"{program} took longer than {timeout_s:g} s and was killed")
    finally:
        if process.returncode is None:
            _kill_tree(process.pid)
            await process.wait()
        reading.cancel()
    if code == 0:
        return CheckResult(CHECK)
    said = reading.result() if reading.done() and not reading.cancelled() else b""
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
