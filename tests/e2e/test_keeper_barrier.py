"""The keeper and members of gangs, with real processes: prepared, held, and started by go.

A file that an attempt would have written first of all shows that a held one has not run.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from phalanx.runner.cgroups import Cgroups
from phalanx.runner.keeper_messages import KeeperLost
from tests.support.keeper_node import Node, alive, tell

FOREVER = "exec sleep 300"
MIB = 1 << 20


def hold(node: Node, key: str = "g/0/1", then: str = "exit 3", **launch: Any) -> None:
    """Prepare a member that makes a file when it runs."""
    node.sh(key, f"touch ran; {then}", held=True, **launch)


async def state_in_listing(node: Node, key: str = "g/0/1") -> str:
    row = await node.row(key)
    return row.state if row is not None else "unknown"


def test_a_member_runs_when_it_is_told_to_go_and_not_before(tmp_path: Path):
    async def story(node: Node) -> None:
        hold(node)
        await node.ready("g/0/1")
        assert await state_in_listing(node) == "ready"
        assert not (tmp_path / "ran").exists()
        node.processes.go("g/0/1")
        assert (await node.ended("g/0/1")).code == 3
        assert (tmp_path / "ran").exists()

    tell(tmp_path, story)


def test_the_word_to_go_may_come_twice_or_to_the_wrong_one(tmp_path: Path):
    async def story(node: Node) -> None:
        node.processes.go("nobody/0/1")
        hold(node, then=FOREVER)
        hold(node, then=FOREVER)
        await node.ready("g/0/1")
        node.processes.go("g/0/1")
        node.processes.go("g/0/1")
        pid = await node.started("g/0/1")
        node.processes.go("g/0/1")
        hold(node, then=FOREVER)
        assert await state_in_listing(node) == "running"
        assert await node.started("g/0/1") == pid

    tell(tmp_path, story)


def test_a_start_that_need_not_wait_lets_a_held_one_go(tmp_path: Path):
    async def story(node: Node) -> None:
        hold(node)
        await node.ready("g/0/1")
        node.sh("g/0/1", "exit 3")
        assert (await node.ended("g/0/1")).code == 3

    tell(tmp_path, story)


@pytest.mark.parametrize(
    ("argv", "how", "code", "words"),
    [
        (("no-such-program",), {}, "not_found", "no-such-program"),
        (("/no/such/program",), {}, "not_found", "/no/such/program"),
        (("./no-such-script",), {"cwd": "/usr"}, "not_found", "./no-such-script"),
        (("/etc/passwd",), {}, "not_executable", "Permission denied"),
        (("/usr/bin",), {}, "not_executable", "Permission denied"),
        (("true",), {"env": {"PATH": "/no/such/folder"}}, "not_found", "no program 'true' in its PATH"),
        (("true",), {"cwd": "/no/such/folder"}, "no_cwd", "/no/such/folder"),
        (("true",), {"cwd": "/etc/passwd"}, "no_cwd", "Not a directory"),
        (("true",), {"out": "/no/such/folder/out"}, "no_log", "No such file or directory"),
        (("true",), {"err": "/dev/null/err"}, "no_log", "Not a directory"),
        (("true",), {"cpus": [4000]}, "spawn_failed", "4000"),
        (("true",), {"cgroups": ["/no/such/cgroup"]}, "spawn_failed", "/no/such/cgroup"),
    ],
)
def test_what_could_not_start_is_refused_before_anybody_goes(
    tmp_path: Path, argv: tuple[str, ...], how: dict[str, Any], code: str, words: str
):
    async def story(node: Node) -> None:
        node.start("g/0/1", *argv, held=True, lane=1, **how)
        refusal = await node.refused("g/0/1")
        assert refusal.code == code
        assert words in refusal.message
        node.start("g/1/1", "true", lane=1)  # the keeper is back in its own folder, and the lane is free
        assert (await node.ended("g/1/1")).code == 0

    tell(tmp_path, story)


@pytest.mark.parametrize(
    ("first_line", "is_ready"), [("#!/no/such/interpreter", False), ("#! /bin/sh -e", True)]
)
def test_a_script_is_ready_if_its_interpreter_is_there(tmp_path: Path, first_line: str, is_ready: bool):
    script = tmp_path / "script"
    script.write_text(f"{first_line}\nexit 4\n")
    script.chmod(0o700)

    async def story(node: Node) -> None:
        node.start("g/0/1", "./script", cwd=str(tmp_path), held=True)
        if is_ready:
            await node.ready("g/0/1")
            node.processes.go("g/0/1")
            assert (await node.ended("g/0/1")).code == 4
        else:
            refusal = await node.refused("g/0/1")
            assert (refusal.code, "interpreter" in refusal.message) == ("not_executable", True)

    tell(tmp_path, story)


def test_what_vanished_since_is_refused_and_its_lane_goes_on(tmp_path: Path):
    script = tmp_path / "script"
    script.write_text("#!/bin/sh\n")
    script.chmod(0o700)

    async def story(node: Node) -> None:
        node.start("g/0/1", str(script), held=True, lane=1)
        node.start("j/0/1", "true", lane=1)
        await node.ready("g/0/1")
        script.unlink()
        node.processes.go("g/0/1")
        assert (await node.refused("g/0/1")).code == "not_found"
        assert (await node.ended("j/0/1")).code == 0

    tell(tmp_path, story)


def test_a_member_that_is_stopped_never_runs(tmp_path: Path):
    async def story(node: Node) -> None:
        hold(node, lane=1)
        node.start("j/0/1", "true", lane=1)
        await node.ready("g/0/1")
        node.processes.stop("g/0/1", 5.0)
        assert (await node.refused("g/0/1")).code == "stopped"
        node.processes.go("g/0/1")
        assert (await node.ended("j/0/1")).code == 0
        node.events.clear()
        hold(node)
        assert (await node.refused("g/0/1")).code == "stopped"
        assert not (tmp_path / "ran").exists()

    tell(tmp_path, story)


def test_a_member_waits_for_its_lane_before_it_is_ready(tmp_path: Path):
    async def story(node: Node) -> None:
        os.mkfifo(tmp_path / "gate")
        node.sh("j/0/1", "read line <gate", lane=1)
        await node.started("j/0/1")
        hold(node, lane=1)
        node.processes.retract("g/0/1")
        node.processes.go("g/0/1")
        assert await state_in_listing(node) == "waiting"
        (tmp_path / "gate").write_text("\n")
        await node.ready("g/0/1")
        node.processes.go("g/0/1")
        assert (await node.ended("g/0/1")).code == 3

    tell(tmp_path, story)


def test_a_member_keeps_its_lane_while_it_is_held(tmp_path: Path):
    async def story(node: Node) -> None:
        hold(node, lane=1)
        await node.ready("g/0/1")
        node.start("j/0/1", "true", lane=1)
        assert await state_in_listing(node, "j/0/1") == "waiting"

    tell(tmp_path, story)


def test_a_killed_runner_loses_no_member_and_the_next_one_lets_it_go(tmp_path: Path):
    runner = f"""
import asyncio, os, pathlib, signal, sys
sys.path[:0] = {sys.path!r}
from tests.support.keeper_node import Node
async def main():
    node = Node(pathlib.Path({str(tmp_path)!r}))
    await node.connect()
    node.sh("g/0/1", "touch ran; exit 3", held=True)
    await node.ready("g/0/1")
    os.kill(os.getpid(), signal.SIGKILL)
asyncio.run(main())
"""
    killed = subprocess.run([sys.executable, "-c", runner], check=False, capture_output=True, text=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr

    async def story(node: Node) -> None:
        assert await state_in_listing(node) == "ready"
        assert not (tmp_path / "ran").exists()
        node.processes.go("g/0/1")
        assert (await node.ended("g/0/1")).code == 3

    tell(tmp_path, story)


def test_the_lease_runs_out_at_the_barrier(tmp_path: Path):
    async def story(node: Node) -> None:
        node.processes.lease(60.0)
        hold(node)
        await node.ready("g/0/1")
        node.processes.lease(0.2)
        assert (await node.refused("g/0/1")).code == "fenced"
        node.processes.lease(60.0)
        node.processes.go("g/0/1")
        assert await state_in_listing(node) == "unknown"
        assert not (tmp_path / "ran").exists()

    tell(tmp_path, story)


def test_the_lease_runs_out_at_the_barrier_while_nobody_is_connected(tmp_path: Path):
    async def story(node: Node) -> None:
        node.processes.lease(0.3)
        node.sh("j/0/1", FOREVER)
        hold(node)
        pid = await node.started("j/0/1")
        await node.ready("g/0/1")
        await node.processes.close()
        await node.until(lambda: not alive(pid))
        await node.connect()
        assert await state_in_listing(node) == "unknown"

    tell(tmp_path, story)


def test_without_a_lease_nobody_gets_ready(tmp_path: Path):
    async def story(node: Node) -> None:
        node.processes.lease(0.0)
        hold(node)
        assert (await node.refused("g/0/1")).code == "fenced"

    tell(tmp_path, story)


def test_a_shutdown_refuses_who_is_held(tmp_path: Path):
    async def story(node: Node) -> None:
        hold(node)
        await node.ready("g/0/1")
        keeper = node.keeper_pid()
        os.kill(keeper, signal.SIGTERM)
        assert (await node.refused("g/0/1")).code == "stopped"
        await node.until(lambda: not alive(keeper))
        assert not (tmp_path / "ran").exists()

    tell(tmp_path, story)


def test_a_keeper_that_dies_forgets_who_was_held(tmp_path: Path):
    async def story(node: Node) -> None:
        hold(node)
        await node.ready("g/0/1")
        os.kill(node.keeper_pid(), signal.SIGKILL)
        await node.until(lambda: any(isinstance(event, KeeperLost) for event in node.events))
        await node.connect()
        assert await state_in_listing(node) == "unknown"
        node.events.clear()
        hold(node)
        await node.ready("g/0/1")
        assert not node.has_started("g/0/1")

    tell(tmp_path, story)


def test_the_deadline_in_its_environment_counts_from_the_start(tmp_path: Path):
    async def story(node: Node) -> None:
        node.start("g/0/1", "printenv", "PHALANX_DEADLINE", held=True, limit_s=100.0)
        await node.ready("g/0/1")
        node.processes.go("g/0/1")
        end = await node.ended("g/0/1")
        assert end.started_at is not None
        assert float(node.out("g/0/1").read_text()) == pytest.approx(end.started_at + 100.0, abs=0.001)

    tell(tmp_path, story)


@pytest.fixture
def cgroups() -> Iterator[Cgroups]:
    found = Cgroups.find(f"barrier-{os.getpid()}")
    if found.why_not is not None:
        pytest.skip(f"memory cannot be limited here: {found.why_not}")
    yield found
    found.close()


def test_an_empty_cgroup_waits_for_its_member(tmp_path: Path, cgroups: Cgroups):
    async def story(node: Node) -> None:
        kept, left = cgroups.create("kept", 64 * MIB), cgroups.create("left", 64 * MIB)
        assert kept is not None
        assert left is not None
        hold(node, cgroups=kept.folders)
        await node.ready("g/0/1")
        cgroups.sweep({"kept"})
        assert not any(Path(folder).exists() for folder in left.folders)
        node.processes.go("g/0/1")
        assert (await node.ended("g/0/1")).code == 3

    tell(tmp_path, story)
