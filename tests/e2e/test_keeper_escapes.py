"""Processes that try to get away from their attempt, with a cgroup for each attempt and without.

They leave their session, clear their environment and outlive their parents; none outlives its attempt.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from phalanx.runner.cgroups import Cgroups
from phalanx.runner.processes import KeeperLost
from tests.unit.runner.keeper_node import Node, alive, state_of, tell

FOREVER = "exec sleep 300"
NAP = r"""sh -c "trap '' TERM; echo \$\$ >\$0; sleep 300; sleep 300" "$PWD/child" """
WAIT = "while ! [ -s child ]; do :; done; "
ALONE = f"setsid env -i {NAP} & {WAIT}"
TWICE = f"( ( setsid env -i {NAP} & ) & ); {WAIT}"


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
    assert cgroups.close()
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
