"""What tasks write reaches their logs, however they open their standard output and whoever dies."""

from __future__ import annotations

import os
import resource
import signal
from pathlib import Path

import pytest

from tests.support.keeper_node import Node, alive, pipes_of, tell

ONE_LOG = """
echo one
echo two > /dev/stderr
echo three > /dev/stdout
echo four | tee /dev/stderr
(echo five; echo six > /dev/fd/1) >> /dev/stderr
echo seven
"""


def test_what_opens_its_output_once_more_writes_behind_what_is_there(tmp_path: Path):
    async def story(node: Node) -> None:
        log = str(node.out("one/0/1"))
        node.sh("one/0/1", ONE_LOG, err=log)
        node.sh("two/0/1", ONE_LOG)
        await node.ended("one/0/1")
        await node.ended("two/0/1")
        words = ["one", "two", "three", "four", "four", "five", "six", "seven"]
        assert Path(log).read_text().split() == words
        assert node.out("two/0/1").read_text().split() == ["one", "three", "four", "seven"]
        assert node.err("two/0/1").read_text().split() == ["two", "four", "five", "six"]

    tell(tmp_path, story)


def test_more_than_a_pipe_holds_arrives_whole_also_from_what_ends_at_once(tmp_path: Path):
    async def story(node: Node) -> None:
        node.sh("fast/0/1", "seq 1 2000000")
        node.sh("last/0/1", "sleep 0.5; seq 1 9000; kill -9 $$")
        await node.ended("fast/0/1")
        await node.ended("last/0/1")
        assert node.out("fast/0/1").read_text().split() == [*map(str, range(1, 2_000_001))]
        assert node.out("last/0/1").read_text().split() == [*map(str, range(1, 9001))]

    tell(tmp_path, story)


def test_a_task_that_closed_its_output_goes_on_and_costs_nothing(tmp_path: Path):
    async def story(node: Node) -> None:
        node.sh(
            "j/0/1", "echo said; exec >&- 2>&-; echo $$ > closed; until test -e gate; do sleep 0.05; done"
        )
        await node.until(lambda: bool(node.pid_in("closed")))
        keeper = node.keeper_pid()
        await node.until(lambda: pipes_of(keeper) == 2)  # its own, for signals
        (tmp_path / "gate").touch()
        assert (await node.ended("j/0/1")).code == 0
        assert node.out("j/0/1").read_text() == "said\n"

    tell(tmp_path, story)


@pytest.mark.parametrize("restarted", [False, True])
def test_with_its_keeper_killed_a_task_can_still_write_and_save_its_work(tmp_path: Path, restarted: bool):
    """It would be ended by its first line (SIGPIPE) if nobody could read it."""

    async def story(node: Node) -> None:
        save = "echo saving; for i in 1 2 3; do echo line $i; done; echo done > saved; exit 0"
        node.sh("j/0/1", f"trap '{save}' TERM; echo ready; while :; do echo on; sleep 0.1; done")
        pid = await node.started("j/0/1")
        await node.said("j/0/1", "ready")
        (watchdog,) = node.watchdog_pids()
        await node.until(lambda: pipes_of(watchdog))
        if restarted:
            os.kill(watchdog, signal.SIGKILL)
            await node.until(lambda: any(pipes_of(pid) for pid in node.watchdog_pids()))
        node.processes.lease(4.0)
        await node.processes.listing()
        os.kill(node.keeper_pid(), signal.SIGKILL)
        await node.until(lambda: not alive(pid))
        assert (tmp_path / "saved").exists()
        await node.until(lambda: "saving\nline 1\nline 2\nline 3\n" in node.out("j/0/1").read_text())

    tell(tmp_path, story)


def test_more_tasks_run_than_the_keeper_may_open_files_and_have_the_usual_limit(tmp_path: Path):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)

    async def story(node: Node) -> None:
        keys = [f"j/{number}/1" for number in range(100)]
        for key in keys:
            node.sh(key, "ulimit -n; until test -e gate; do sleep 0.5; done", err=str(node.out(key)))
        for key in keys:
            await node.started(key)
        (tmp_path / "gate").touch()
        for key in keys:
            assert (await node.ended(key)).code == 0
        assert {node.out(key).read_text() for key in keys} == {"64\n"}

    resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
    try:
        tell(tmp_path, story)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
