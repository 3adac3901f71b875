"""The operator's command: its code decides, its last line is the reason, and it ends with its time."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from phalanx.runner.health import command
from phalanx.runner.health.command import CommandCheck
from tests.support.waiting import wait_until

PATH = {"PATH": os.environ["PATH"]}


def run(shell: str, timeout_s: float = 10.0) -> str:
    return asyncio.run(CommandCheck(["sh", "-c", shell], timeout_s, PATH).ask()).reason


def test_code_0_passes_and_another_fails_with_the_last_line() -> None:
    assert run("echo all well") == ""
    assert run("echo first; echo 'fan 3 stands still'; exit 1") == "fan 3 stands still"
    assert run("echo 'on stderr' >&2; exit 3") == "on stderr"
    assert "ended with code 3" in run("exit 3")
    assert "SIGKILL" in run("kill -9 $$")


def test_what_it_says_may_be_long() -> None:
    assert run("head -c 3000000 /dev/zero | tr '\\0' x; echo; echo the end; exit 1") == "the end"


def test_one_that_hangs_is_killed_with_all_that_it_started(tmp_path: Path) -> None:
    marks = tmp_path / "pids"
    daemon = f"(setsid sh -c 'echo $$ >> {marks}; exec sleep 302' &)"  # neither its child nor of its session
    found = run(f"sleep 300 & echo $! >> {marks}; setsid sleep 301 & echo $! >> {marks}; {daemon}; wait", 0.7)
    assert "took longer than 0.7 s" in found
    pids = [int(each) for each in marks.read_text().split()]
    assert len(pids) == 3
    wait_until(lambda: not any(_is_alive(pid) for pid in pids), 5.0, "all have ended")


def test_one_that_does_not_die_fails_and_no_other_is_started_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "KILLED_WITHIN_S", 0.05)
    monkeypatch.setattr(command, "_kill_tree", lambda pid: None)  # as if it hung in the kernel
    monkeypatch.setattr(command, "_kill_marked", lambda mark: None)
    marks = tmp_path / "pids"
    check = CommandCheck(["sh", "-c", f"echo $$ >> {marks}; exec sleep 300"], 0.5, PATH)

    async def asked() -> None:
        assert "took longer than 0.5 s" in (await check.ask()).reason
        assert "hangs, and could not be killed" in (await check.ask()).reason
        [pid] = map(int, marks.read_text().split())
        os.kill(pid, signal.SIGKILL)
        assert check._hangs is not None
        await check._hangs.wait()
        monkeypatch.undo()
        assert "took longer than 0.5 s" in (await check.ask()).reason

    asyncio.run(asyncio.wait_for(asked(), 20.0))
    assert len(marks.read_text().split()) == 2


def test_a_program_that_is_not_there_fails() -> None:
    found = asyncio.run(CommandCheck(["/nonexistent/check"], 1.0, PATH).ask())
    assert "/nonexistent/check cannot be started" in found.reason


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
