"""Processes that try to get away from their attempt, with a cgroup for each attempt and without.

They leave their session, clear their environment and outlive their parents; none outlives its attempt.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from phalanx.runner.cgroups import Cgroups
from phalanx.runner.keeper import cgroup
from phalanx.runner.keeper_messages import KeeperLost
from tests.support.keeper_node import Node, alive, state_of, tell
from tests.support.waiting import wait_until

FOREVER = "exec sleep 300"
NAP = r"""sh -c "trap '' TERM; echo \$\$ >\$0; sleep 300; sleep 300" "$PWD/child" """
WAIT = "while ! [ -s child ]; do :; done; "
ALONE = f"setsid env -i {NAP} & {WAIT}"
TWICE = f"( ( setsid env -i {NAP} & ) & ); {WAIT}"
UNMARKED = f"setsid env -i prlimit --rttime=unlimited {NAP} & {WAIT}"

escapes = pytest.mark.parametrize("script", [ALONE, TWICE], ids=["alone", "twice"])


@pytest.fixture(params=["cgroups", "none"])
def base(request: pytest.FixtureRequest) -> Iterator[str | None]:
    """The folder for the cgroups of attempts, or nothing, as where the runner may make none."""
    if request.param == "none":
        yield None
        return
    cgroups = Cgroups.find(f"escapes-{os.getpid()}")
    assert cgroups.tracking is not None, "these tests need a machine on which cgroups may be made"
    yield cgroups.tracking
    wait_until(
        cgroups.close, 10.0, "the last of them is gone"
    )  # a killed process leaves its cgroup a moment later
    assert not Path(cgroups.tracking).exists()


@escapes
def test_an_attempt_ends_when_its_last_process_has(tmp_path: Path, base: str | None, script: str):
    async def story(node: Node) -> None:
        node.cgroups = base
        node.sh("other/0/1", FOREVER)
        other = await node.started("other/0/1")
        node.sh("j/0/1", script, lane=1)
        node.sh("next/0/1", "kill -0 $(cat child) && echo alive; exit 0", lane=1)
        assert (await node.ended("j/0/1")).code == 0
        assert state_of(node.pid_in("child")) == ""
        await node.ended("next/0/1")
        assert node.out("next/0/1").read_text() == ""
        assert alive(other)

    tell(tmp_path, story)


@escapes
def test_a_stop_ends_them_all(tmp_path: Path, base: str | None, script: str):
    async def story(node: Node) -> None:
        node.cgroups = base
        node.sh("other/0/1", FOREVER)
        other = await node.started("other/0/1")
        node.sh("j/0/1", script + FOREVER)
        await node.until(lambda: node.pid_in("child"))
        node.processes.stop("j/0/1", 0.1)
        await node.ended("j/0/1")
        assert not alive(node.pid_in("child"))
        assert alive(other)

    tell(tmp_path, story)


@escapes
def test_the_next_keeper_ends_them_all(tmp_path: Path, base: str | None, script: str):
    async def story(node: Node) -> None:
        node.cgroups = base
        node.sh("j/0/1", script + FOREVER)
        await node.until(lambda: node.pid_in("child"))
        os.kill(node.keeper_pid(), signal.SIGKILL)
        await node.until(lambda: any(isinstance(event, KeeperLost) for event in node.events))
        assert alive(node.pid_in("child"))
        await node.connect()
        assert not alive(node.pid_in("child"))

    tell(tmp_path, story)


@escapes
def test_the_watchdog_ends_them_all(tmp_path: Path, base: str | None, script: str):
    async def story(node: Node) -> None:
        node.cgroups = base
        node.sh("j/0/1", script + FOREVER)
        await node.until(lambda: node.pid_in("child"))
        node.processes.lease(0.4)
        await node.processes.listing()
        os.kill(node.keeper_pid(), signal.SIGKILL)
        await node.until(lambda: not alive(node.pid_in("child")))

    tell(tmp_path, story)


def remove(journal: Path) -> None:
    journal.unlink()


def damage(journal: Path) -> None:
    """One byte of the line with the boot in which it was written."""
    text = journal.read_bytes()
    journal.write_bytes(text.replace(b"boot", b"coot", 1))


def forge(journal: Path) -> None:
    with journal.open("a") as file:
        file.write('["forget",["j/0/1"]]\n')


harms = pytest.mark.parametrize("harm", [remove, damage, forge])


def hidden(base: str | None) -> tuple[str, tuple[str, ...]]:
    """A script with a child that hides as well as it can while it can still be found, and the keeper's cgroups."""
    return (ALONE, ()) if base is None else (UNMARKED, (base,))


@harms
def test_the_next_keeper_needs_no_journal_to_end_them_all(
    tmp_path: Path, base: str | None, harm: Callable[[Path], None]
):
    script, bases = hidden(base)

    async def story(node: Node) -> None:
        node.cgroups = base
        node.sh("j/0/1", script + "echo ready; sleep 300; sleep 300")
        await node.said("j/0/1", "ready")
        leader = await node.started("j/0/1")
        harm(tmp_path / "keeper.journal")
        os.kill(node.keeper_pid(), signal.SIGKILL)
        await node.until(lambda: any(isinstance(event, KeeperLost) for event in node.events))
        await node.connect()
        assert [alive(leader), alive(node.pid_in("child"))] == [False, False]
        row = await node.row("j/0/1")
        assert row is not None
        assert row.exit is not None
        assert row.exit.reason == "unknown"

    tell(tmp_path, story, bases)


@harms
def test_the_watchdog_needs_no_journal_to_end_them_all(
    tmp_path: Path, base: str | None, harm: Callable[[Path], None]
):
    script, bases = hidden(base)

    async def story(node: Node) -> None:
        node.cgroups = base
        node.sh("j/0/1", script + FOREVER)
        await node.until(lambda: node.pid_in("child"))
        leader = await node.started("j/0/1")
        node.processes.lease(0.4)
        await node.processes.listing()
        harm(tmp_path / "keeper.journal")
        os.kill(node.keeper_pid(), signal.SIGKILL)
        await node.until(lambda: not alive(leader) and not alive(node.pid_in("child")))

    tell(tmp_path, story, bases)


@pytest.fixture
def cgroups() -> Iterator[Cgroups]:
    cgroups = Cgroups.find(f"tracked-{os.getpid()}")
    yield cgroups
    wait_until(cgroups.close, 10.0, "the last of them is gone")


@pytest.fixture
def tracked(cgroups: Cgroups) -> str:
    assert cgroups.tracking is not None, "these tests need a machine on which cgroups may be made"
    return cgroups.tracking


HOPPERS = 8


def test_processes_that_become_others_all_the_time_are_killed_at_once(tmp_path: Path, tracked: str):
    """A listed process has ended when it is signalled; frozen, it cannot fork. The keeper is stopped meanwhile."""

    async def story(node: Node) -> None:
        node.cgroups = tracked
        script, slot = tmp_path / "hop", f"{tracked}/slot-0"
        script.write_text('#!/bin/sh\necho >>hops\nsetsid "$0" & exit 0\n')
        script.chmod(0o700)
        node.sh("j/0/1", f"for _ in $(seq {HOPPERS}); do {script}; done; {FOREVER}")
        await node.until(lambda: (tmp_path / "hops").exists() and (tmp_path / "hops").stat().st_size > 100)
        os.kill(node.keeper_pid(), signal.SIGSTOP)
        try:
            assert cgroup.kill([slot])
            await node.until(lambda: "populated 0" in Path(slot, "cgroup.events").read_text())
        finally:
            os.kill(node.keeper_pid(), signal.SIGCONT)
        await node.ended("j/0/1")

    tell(tmp_path, story)


def test_a_task_that_freezes_its_cgroup_stops_only_itself(tmp_path: Path, tracked: str):
    async def story(node: Node) -> None:
        node.cgroups = tracked
        node.sh("j/0/1", f"echo $$ >child; echo 1 >{tracked}/slot-0/cgroup.freeze; {FOREVER}")
        await node.until(lambda: node.pid_in("child"))
        await node.until(lambda: "frozen 1" in Path(tracked, "slot-0", "cgroup.events").read_text())
        node.processes.stop("j/0/1", 0.1)
        await node.ended("j/0/1")
        node.sh("next/0/1", "exit 0")
        assert (await node.ended("next/0/1")).code == 0
        assert "frozen 0" in Path(tracked, "slot-0", "cgroup.events").read_text()

    tell(tmp_path, story)


THREADS = (
    "import threading, time; [threading.Thread(target=time.sleep, args=(300,)).start() for _ in range(3)]"
)


def test_the_keeper_enters_as_a_thread_and_sees_processes(tmp_path: Path, tracked: str):
    """To move a whole process the kernel would wait for many milliseconds on an idle machine."""

    async def story(node: Node) -> None:
        node.cgroups = tracked
        node.sh("j/0/1", f"exec {sys.executable} -S -c '{THREADS}'")
        pid = await node.started("j/0/1")
        slot = f"{tracked}/slot-0"
        await node.until(lambda: len(Path(slot, "cgroup.threads").read_text().split()) == 4)
        assert cgroup.way_in(slot) == "cgroup.threads"
        assert cgroup.members([slot]) == {pid}

    tell(tmp_path, story)


def test_who_has_a_limit_stays_in_its_own_cgroup_and_the_next_is_in_a_slot(
    tmp_path: Path, cgroups: Cgroups, tracked: str
):
    async def story(node: Node) -> None:
        node.cgroups = tracked
        own = cgroups.create("limited", 64 << 20)
        assert own is not None
        for key, cgroup_of_its_own in (("first/0/1", None), ("limited/0/1", own.folders), ("last/0/1", None)):
            node.sh(key, FOREVER, cgroups=cgroup_of_its_own)
        limited, last = await node.started("limited/0/1"), await node.started("last/0/1")
        assert all(cgroup.members([folder]) == {limited} for folder in own.folders)
        is_apart = any(folder.startswith(cgroup.node_folder(tracked)) for folder in own.folders)
        in_slots = {await node.started("first/0/1"), last} | (set() if is_apart else {limited})
        assert cgroup.members([f"{tracked}/slot-{number}" for number in range(3)]) == in_slots

    tell(tmp_path, story)
