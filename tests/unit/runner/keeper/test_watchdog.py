"""The watchdog's own rules: when it ends what a dead keeper ran, how often it is started, and how it is found."""

from __future__ import annotations

import errno
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from phalanx.runner.keeper import journal, lookup, system, watchdog
from phalanx.runner.keeper.journal import JournalContents
from phalanx.runner.keeper.recovery import Survivors
from phalanx.runner.keeper.shared_output import SharedOutput
from phalanx.runner.keeper.tree import Mark
from phalanx.runner.keeper.watchdog import NO_LEASE_S, Watchdog
from tests.support.waiting import pause

FOREVER = float("inf")


@pytest.mark.parametrize(
    ("lease_until", "grace_s", "asked_at", "killed_at"),
    [
        (1020.0, 2.0, 1020.0, 1022.0),
        (1600.0, 2.0, 1600.0, 1602.0),  # a runner that stopped has asked for ten minutes
        (1000.8, 0.2, 1000.8, 1001.0),
        (900.0, 2.0, 1000.0, 1000.0),
        (FOREVER, 2.0, 1000.0 + NO_LEASE_S, 1002.0 + NO_LEASE_S),
    ],
)
def test_what_a_dead_keeper_ran_ends_with_its_lease(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    lease_until: float,
    grace_s: float,
    asked_at: float,
    killed_at: float,
):
    now = [1000.0]
    sent: list[tuple[int, float]] = []

    def pause(seconds: float) -> None:
        now[0] += seconds

    def send(signum: int) -> bool:
        sent.append((signum, round(now[0], 6)))
        return False

    monkeypatch.setattr(system, "since_boot", lambda: now[0])
    monkeypatch.setattr(watchdog, "_pause", pause)
    monkeypatch.setattr(SharedOutput, "read_for", lambda _, seconds: pause(seconds))
    monkeypatch.setattr(watchdog._Watch, "_ask", lambda _: send(signal.SIGTERM))
    monkeypatch.setattr(watchdog._Watch, "_try_kill", lambda _: send(signal.SIGKILL))
    page = memoryview(bytearray(80)).cast("B").cast("d")
    page[watchdog._LEASE_UNTIL], page[watchdog._GRACE_S] = lease_until, grace_s
    watchdog._Watch(page, Mark(str(tmp_path)), 4_000_000)._end_for_the_dead()
    assert sent == [(signal.SIGTERM, asked_at), (signal.SIGKILL, killed_at)]


def test_a_watchdog_that_cannot_be_started_is_tried_again_a_moment_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
):
    now, tries = [1000.0], []

    def fork() -> int:
        tries.append(now[0])
        raise BlockingIOError("no room")

    monkeypatch.setattr(system, "since_boot", lambda: now[0])
    monkeypatch.setattr(os, "fork", fork)
    started = Watchdog(Mark(str(tmp_path)))
    for _ in range(1000):
        started.ensure()
        now[0] += 0.01
    assert 9 <= len(tries) <= 11
    assert started.wait_s() is not None
    started._let_go()
    assert capfd.readouterr().err.count("cannot start the watchdog") <= 1


def test_a_watchdog_that_dies_at_once_is_not_started_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(watchdog, "_become_watchdog", lambda *_: os._exit(1))
    started = Watchdog(Mark(str(tmp_path)))
    started.ensure()
    pid = started.pid
    assert started.wait_s() is None
    os.waitpid(pid, 0)
    started.reaped(pid)
    wait_s = started.wait_s()
    started.ensure()
    assert started.pid == 0
    assert wait_s is not None
    pause(wait_s)
    started.ensure()
    assert started.pid not in (0, pid)
    os.waitpid(started.pid, 0)
    started._let_go()


@pytest.fixture
def killing(tmp_path: Path) -> Iterator[Watchdog]:
    """One that reports that it kills, and never that it is done."""
    started = Watchdog(Mark(str(tmp_path)))
    started.ensure()
    started._page[watchdog._KILLING] = system.since_boot()
    yield started
    if started.pid:
        os.kill(started.pid, signal.SIGKILL)
        os.waitpid(started.pid, 0)
    started._let_go()


def test_a_watchdog_that_died_while_it_killed_keeps_nothing_from_starting(killing: Watchdog):
    pid = killing.pid
    assert killing.is_killing()
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    killing.reaped(pid)
    assert not killing.is_killing()


def test_a_watchdog_that_was_stopped_while_it_killed_is_replaced_at_once(killing: Watchdog):
    pid = killing.pid
    os.kill(pid, signal.SIGSTOP)
    assert os.WIFSTOPPED(os.waitpid(pid, os.WUNTRACED)[1])
    assert killing.wait_s() == 0.0
    killing.ensure()
    assert killing.is_killing()  # until it is seen to be dead
    assert os.waitpid(pid, 0)[1] == signal.SIGKILL
    killing.reaped(pid)
    assert not killing.is_killing()


def test_a_watchdog_that_hangs_while_it_kills_is_replaced(killing: Watchdog):
    pid = killing.pid
    killing.ensure()
    assert not select.select([os.pidfd_open(pid)], [], [], 0)[0]  # it may be killing still
    wait_s = killing.wait_s()
    assert wait_s is not None
    assert 0 < wait_s <= watchdog.STUCK_S
    killing._page[watchdog._KILLING] -= watchdog.STUCK_S
    killing.ensure()
    assert killing.is_killing()  # until it is seen to be dead
    assert os.waitpid(pid, 0)[1] == signal.SIGKILL
    killing.reaped(pid)
    assert not killing.is_killing()


def test_a_watchdog_that_is_half_born_is_no_keeper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """It has the keeper's command line and descriptors: the next keeper ends it by its mark."""
    mark = Mark(str(tmp_path))
    monkeypatch.setattr(watchdog, "_become_watchdog", lambda *_: pause(60.0))
    monkeypatch.setattr(watchdog, "READY_S_MAX", 0.01)
    started = Watchdog(mark)
    started.ensure()
    try:
        assert Survivors(JournalContents(), mark, spared=()).find() == {started.pid}
        assert mark.number_of(os.getpid()) is None
    finally:
        os.kill(started.pid, signal.SIGKILL)
        os.waitpid(started.pid, 0)
        started._let_go()


def test_a_watchdog_carries_no_mark(tmp_path: Path):
    mark = Mark(str(tmp_path))
    started = Watchdog(mark)
    started.ensure()
    try:
        assert lookup.is_watchdog(started.pid, str(tmp_path))
        assert Survivors(JournalContents(), mark).find() == set()
    finally:
        os.kill(started.pid, signal.SIGKILL)
        os.waitpid(started.pid, 0)
        started._let_go()


def _a_watch(folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[watchdog._Watch, list[str]]:
    """A watch of no processes, and what it does."""
    done: list[str] = []

    def find(_: object) -> set[int]:
        done.append("find")
        return {4_000_000}

    def read(_: str) -> JournalContents:
        done.append("read")
        return JournalContents()

    monkeypatch.setattr(Survivors, "in_cgroups", lambda _: {4_000_000})
    monkeypatch.setattr(Survivors, "find", find)
    monkeypatch.setattr(Survivors, "kill_cgroups", lambda _: done.append("kill cgroups"))
    monkeypatch.setattr(Survivors, "kill", lambda _: done.append("kill"))
    monkeypatch.setattr(journal, "read", read)
    page = memoryview(bytearray(80)).cast("B").cast("d")
    return watchdog._Watch(page, Mark(str(folder)), 4_000_000), done


def test_what_takes_long_is_done_after_the_killing_that_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    watch, done = _a_watch(tmp_path, monkeypatch)
    assert watch._try_kill()
    assert done == ["kill cgroups", "find", "kill"]
    done.clear()
    assert watch._try_kill()
    assert done == ["kill cgroups", "read", "find", "kill"]


def test_who_cannot_be_looked_for_is_looked_for_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def no_room(_: object) -> set[int]:
        raise OSError(errno.EMFILE, "no descriptors")

    watch, _ = _a_watch(tmp_path, monkeypatch)
    monkeypatch.setattr(Survivors, "find", no_room)
    assert watch._try_kill()


SERVE = """
import sys
from phalanx.runner.keeper import lookup, service
lookup.WAIT_S_MAX = 0.1
lookup.signal_each = lambda *_: None
sys.exit(service.main(sys.argv[1:]))
"""


def test_no_keeper_starts_beside_a_watchdog_that_does_not_end(tmp_path: Path):
    title = lookup.WATCHDOG + str(tmp_path)
    with subprocess.Popen([title], executable="/bin/cat", stdin=subprocess.PIPE) as stuck:
        command = [sys.executable, "-c", SERVE, str(tmp_path), "1"]
        started = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        assert started.returncode == 1
        assert f"watchdogs of an earlier keeper were killed and did not end: [{stuck.pid}]" in started.stderr
        assert lookup.end_watchdogs(str(tmp_path)) == set()
