"""The end of a lease with a keeper that cannot act: killed or frozen for good, and no other is started."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from phalanx.clock import SystemClock
from phalanx.runner.keeper import lookup
from phalanx.runner.keeper_messages import KeeperLost
from tests.support.keeper_node import Node, alive, escape, pipes_of, tell

FOREVER = "exec sleep 300"
DEAF = "trap '' TERM; echo ready; sleep 300; sleep 300"


async def two_attempts(node: Node) -> list[int]:
    """One with a child in its own session, and one that ignores SIGTERM; returns the pids of all."""
    node.sh(
        "j/0/1", escape("child", "sleep 300") + "trap 'echo bye; exit 0' TERM; echo ready; sleep 300 & wait"
    )
    node.sh("deaf/0/1", DEAF)
    await node.said("j/0/1", "ready")
    await node.said("deaf/0/1", "ready")
    return [await node.started("j/0/1"), await node.started("deaf/0/1"), node.pid_in("child")]


def test_with_keeper_and_runner_killed_for_good_the_tasks_end_with_the_lease(tmp_path: Path):
    async def story(node: Node) -> None:
        lease_s = 8.0  # so that the grace is two seconds, enough for a shell on a busy machine
        pids = await two_attempts(node)
        (watchdog,) = node.watchdog_pids()
        await node.until(lambda: pipes_of(watchdog))  # so that it reads their last words
        node.processes.lease(lease_s)
        await node.processes.listing()
        began = SystemClock().monotonic()
        os.kill(node.keeper_pid(), signal.SIGKILL)
        await node.until(lambda: not any(map(alive, pids)))
        assert (
            SystemClock().monotonic() - began < lease_s * 3 / 2
        )  # when the coordinator counts the node as lost
        assert "bye" in node.out("j/0/1").read_text()  # it got SIGTERM first
        await node.until(lambda: not node.watchdog_pids())

    tell(tmp_path, story)


def test_a_watchdog_outlives_signals_to_stop(tmp_path: Path):
    async def story(node: Node) -> None:
        node.sh("j/0/1", DEAF)
        pid = await node.started("j/0/1")
        node.processes.lease(0.8)
        await node.processes.listing()
        (watchdog,) = node.watchdog_pids()
        for signum in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            os.kill(watchdog, signum)
        os.kill(node.keeper_pid(), signal.SIGKILL)
        await node.until(lambda: not alive(pid))

    tell(tmp_path, story)


def test_what_a_frozen_keeper_runs_ends_with_the_lease_and_is_told_as_fenced(tmp_path: Path):
    async def story(node: Node) -> None:
        lease_s, keeper = 6.0, node.keeper_pid()
        node.sh("own/0/1", "exit 3", lane=1)
        await node.ended("own/0/1")
        pids = await two_attempts(node)
        node.sh("lane/0/1", FOREVER, lane=1)
        node.sh("lane/1/1", FOREVER, lane=1)
        pids.append(await node.started("lane/0/1"))
        node.processes.lease(lease_s)
        await node.processes.listing()
        began = SystemClock().monotonic()
        os.kill(keeper, signal.SIGSTOP)
        try:
            await node.until(lambda: not any(map(alive, pids)))
            assert SystemClock().monotonic() - began < lease_s * 3 / 2
        finally:
            os.kill(keeper, signal.SIGCONT)
        ends = [await node.ended(key) for key in ("j/0/1", "deaf/0/1", "lane/0/1")]
        assert [(end.signal, end.reason) for end in ends] == [(signal.SIGKILL, "fenced")] * 3
        assert (await node.refused("lane/1/1")).code == "fenced"
        node.processes.lease(60.0)
        number = 0  # the watchdog may still be at work: then nothing is started
        while not number or node.was_refused(f"later/0/{number}", "fenced"):
            number += 1
            node.sh(f"later/0/{number}", "kill -KILL $$")
            await node.over(f"later/0/{number}")
        assert (await node.ended(f"later/0/{number}")).reason is None

    tell(tmp_path, story)


def test_a_lease_that_ends_soon_after_another_is_kept_as_well(tmp_path: Path):
    async def story(node: Node) -> None:
        clock, lease_s, keeper = SystemClock(), 6.0, node.keeper_pid()
        node.sh("first/0/1", DEAF)
        first = await node.started("first/0/1")
        node.processes.lease(0.8)
        await node.processes.listing()
        os.kill(keeper, signal.SIGSTOP)
        await node.until(lambda: not alive(first))
        looked_at = clock.monotonic() + 0.5
        await node.until(lambda: clock.monotonic() > looked_at)  # it has seen that no process is left
        os.kill(keeper, signal.SIGCONT)
        await node.ended("first/0/1")
        node.processes.lease(lease_s)
        node.sh("second/0/1", DEAF)
        second = await node.started("second/0/1")
        node.processes.lease(lease_s)
        await node.processes.listing()
        began = clock.monotonic()
        os.kill(keeper, signal.SIGSTOP)
        try:
            await node.until(lambda: not alive(second))
            assert clock.monotonic() - began < lease_s * 3 / 2
        finally:
            os.kill(keeper, signal.SIGCONT)

    tell(tmp_path, story)


def test_a_start_that_waited_in_a_frozen_keepers_socket_is_refused(tmp_path: Path):
    async def story(node: Node) -> None:
        clock, keeper = SystemClock(), node.keeper_pid()
        node.processes.lease(60.0)
        await node.processes.listing()
        os.kill(keeper, signal.SIGSTOP)
        not_after = clock.monotonic() + 0.2
        node.start("late/0/1", "true", not_after=not_after)
        node.start("early/0/1", "true", not_after=not_after + 60)
        await node.until(lambda: clock.monotonic() > not_after)
        os.kill(keeper, signal.SIGCONT)
        assert (await node.refused("late/0/1")).code == "late"
        assert (await node.ended("early/0/1")).code == 0

    tell(tmp_path, story)


def test_a_keeper_whose_watchdog_died_has_another(tmp_path: Path):
    async def story(node: Node) -> None:
        (first,) = node.watchdog_pids()
        assert os.sched_getscheduler(first) == os.sched_getscheduler(node.keeper_pid()), (
            "neither waits behind the tasks it bounds"
        )
        os.kill(first, signal.SIGKILL)
        await node.until(lambda: node.watchdog_pids() not in ([], [first]))
        (second,) = node.watchdog_pids()
        assert os.sched_getscheduler(second) == os.sched_getscheduler(node.keeper_pid())
        pids = await two_attempts(node)
        node.processes.lease(0.8)
        await node.processes.listing()
        os.kill(node.keeper_pid(), signal.SIGKILL)
        await node.until(lambda: not any(map(alive, pids)))

    tell(tmp_path, story)


def test_the_watchdog_of_a_dead_keeper_leaves_its_successor_alone(tmp_path: Path):
    async def story(node: Node) -> None:
        node.sh("old/0/1", FOREVER)
        old, (watchdog,) = await node.started("old/0/1"), node.watchdog_pids()
        node.processes.lease(0.8)
        await node.processes.listing()
        os.kill(node.keeper_pid(), signal.SIGKILL)
        await node.until(lambda: any(isinstance(event, KeeperLost) for event in node.events))
        await node.connect()
        assert not alive(old)
        node.processes.lease(60.0)
        node.sh("new/0/1", FOREVER)
        new = await node.started("new/0/1")
        await node.until(lambda: not alive(watchdog))
        assert alive(new)
        assert len(node.watchdog_pids()) == 1

    tell(tmp_path, story)


def test_nothing_is_left_of_a_keeper_that_was_shut_down(tmp_path: Path):
    async def story(node: Node) -> None:
        (watchdog,) = node.watchdog_pids()
        await node.processes.shutdown(0.0)
        await node.until(lambda: not alive(watchdog))
        assert node.watchdog_pids() == []

    tell(tmp_path, story)


def test_the_watchdog_of_a_dead_keeper_is_found_though_its_title_is_cut(tmp_path: Path):
    """The keeper was started with a short name of its folder, and there is no space for the long one."""
    folder, other = tmp_path / ("x" * 200), tmp_path / ("x" * 200 + "y")
    folder.mkdir()
    (tmp_path / "link").symlink_to(folder)

    async def story(node: Node) -> None:
        (first,) = lookup._watchdogs(str(folder))
        assert node.watchdog_pids() == []  # its title is cut
        assert lookup._watchdogs(str(other)) == set()
        os.kill(node.keeper_pid(), signal.SIGKILL)
        await node.until(lambda: any(isinstance(event, KeeperLost) for event in node.events))
        await node.connect()
        assert not alive(first)
        assert len(lookup._watchdogs(str(folder))) == 1

    tell(tmp_path / "link", story)
