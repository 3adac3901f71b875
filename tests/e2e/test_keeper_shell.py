"""A runner's loop with a real keeper: orders about members of gangs in, processes and reports out.

The test is the coordinator and holds the other end of the wire.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar, cast

import pytest
from msgspec.structs import replace

from phalanx.clock import SteadyClock
from phalanx.core.model.job import Command
from phalanx.core.model.orders import (
    Brief,
    Disposition,
    Ended,
    Go,
    Order,
    Phase,
    Ready,
    Report,
    Roll,
    Start,
    Started,
    Stop,
    Why,
)
from phalanx.core.model.parameters import PROGRAM
from phalanx.core.model.resources import Capacity, Grant
from phalanx.link import wire
from phalanx.runner import machine
from phalanx.runner.cgroups import Cgroups
from phalanx.runner.keeper import VERSION, recovery
from phalanx.runner.keeper_messages import Listing
from phalanx.runner.limits import AttemptLimits
from phalanx.runner.link import Wire
from phalanx.runner.loop import RunnerLoop
from phalanx.runner.machine import LocalMachine
from phalanx.runner.processes import Processes
from phalanx.runner.turn import RunnerEngine
from tests.support.keeper_node import Node, alive
from tests.support.waiting import found, until

KEY = ("g1", 1, 1)
ROLL = Roll("g1", 1, (("n1", "10.0.0.1"), ("n2", "10.0.0.2")), ((0, 0), (1, 1)))
START = Start(KEY, 7, Grant(1, 0), None, 0, formation=1)
PATH = {"PATH": "/usr/local/bin:/usr/bin:/bin"}
WITHIN_S, LOOK_S = 20.0, 0.01
Said = TypeVar("Said", Ready, Started, Ended)


class Coordinator:
    """The other end of the wire: what it received, and ways to wait for more."""

    local_address = "10.0.0.2"
    is_behind = False

    def __init__(self, shell: RunnerLoop) -> None:
        self.meet(shell)

    def meet(self, shell: RunnerLoop) -> None:
        self.shell = shell
        self.said: list[wire.Message] = []
        shell.connected(cast(Wire, self))
        self._tell(wire.Welcome(wire.VERSION, 1, 5.0, 60.0))

    def send(self, message: wire.Message) -> None:
        self.said.append(message)

    def close(self) -> None:
        """The loop closes."""

    @property
    def hello(self) -> wire.HelloMessage:
        assert isinstance(self.said[0], wire.HelloMessage)
        return self.said[0]

    def order(self, *orders: Order) -> None:
        self._tell(wire.Orders(1, list(orders)))

    def _tell(self, message: wire.Message) -> None:
        self.shell.received(message)
        self.shell.settled()

    async def hears(self, kind: type[Said]) -> Said:
        """Wait for a report of this kind."""
        return (await found(lambda: [each for each in self.reports() if isinstance(each, kind)] or None))[-1]

    def reports(self) -> list[Report]:
        return [each for said in self.said if isinstance(said, wire.Reports) for each in said.reports]


NO_CGROUPS = Cgroups((), "not in this test", False)


async def a_shell(folder: Path, cgroups: Cgroups = NO_CGROUPS) -> RunnerLoop:
    engine = RunnerEngine("n2", "life", "origin", "token", Capacity(4, 0))
    place, limits = (LocalMachine(folder, cgroups.bases), cgroups), AttemptLimits(cgroups, engine.capacity)
    shell = RunnerLoop(engine, folder, SteadyClock(), PATH, 0, [place], limits)
    await shell.open()
    return shell


def play(
    folder: Path, story: Callable[[Coordinator], Coroutine[Any, Any, None]], cgroups: Cgroups = NO_CGROUPS
) -> None:
    async def whole() -> None:
        coordinator = Coordinator(await a_shell(folder, cgroups))
        try:
            await story(coordinator)
        finally:
            await coordinator.shell.close(stop_tasks=True)

    asyncio.run(whole())


def a_brief(script: str, program: str = "sh") -> Brief:
    command = Command((program, "-c", script))
    return Brief("g1", 0, command, "train", "default", "g1", 2, None, 5.0, None, group_tasks=2)


def printed(folder: Path) -> str:
    return (folder / "logs/g1/g1.1.1.stdout").read_text()


def test_a_member_says_it_is_ready_and_runs_with_its_roll_when_told_to_go(tmp_path: Path) -> None:
    async def story(coordinator: Coordinator) -> None:
        coordinator.order(
            a_brief("echo $PHALANX_RANK of $PHALANX_WORLD_SIZE at $PET_MASTER_ADDR"), ROLL, START
        )
        assert await coordinator.hears(Ready) == Ready(KEY)
        assert coordinator.shell.engine.state.listing() == [(KEY, Phase.READY)]
        assert printed(tmp_path) == ""
        coordinator.order(Go(KEY))
        assert (await coordinator.hears(Ended)).exit.code == 0
        assert printed(tmp_path) == "1 of 2 at 10.0.0.1\n"

    play(tmp_path, story)


def test_a_start_with_the_word_to_go_behind_it_runs_at_once(tmp_path: Path) -> None:
    async def story(coordinator: Coordinator) -> None:
        coordinator.order(a_brief("exit 4"), ROLL, START, Go(KEY))
        assert (await coordinator.hears(Ended)).exit.code == 4

    play(tmp_path, story)


def test_a_member_that_is_recalled_says_so_and_has_printed_nothing(tmp_path: Path) -> None:
    async def story(coordinator: Coordinator) -> None:
        coordinator.order(a_brief("echo ran"), ROLL, START)
        await coordinator.hears(Ready)
        coordinator.order(Stop(KEY, Why.RECALLED, 1.0), Go(KEY))
        exit = (await coordinator.hears(Ended)).exit
        assert (exit.why, exit.started_at) == (Why.RECALLED, None)
        assert printed(tmp_path) == ""

    play(tmp_path, story)


@pytest.mark.parametrize(("program", "code"), [("no-such-program", 127), ("{folder}/plain-file", 126)])
def test_a_member_whose_program_cannot_be_run_is_refused_before_anybody_goes(
    tmp_path: Path, program: str, code: int
) -> None:
    (tmp_path / "plain-file").write_text("true")

    async def story(coordinator: Coordinator) -> None:
        coordinator.order(a_brief("", program=program.format(folder=tmp_path)), ROLL, START)
        exit = (await coordinator.hears(Ended)).exit
        assert (exit.why, exit.code) == (Why.REFUSED, code)
        assert program.format(folder=tmp_path) in exit.message

    play(tmp_path, story)


def test_the_next_life_of_a_runner_lists_a_member_as_ready_and_lets_it_go(tmp_path: Path) -> None:
    async def story(coordinator: Coordinator) -> None:
        coordinator.order(a_brief("exit 5"), ROLL, START)
        await coordinator.hears(Ready)
        await coordinator.shell.close(stop_tasks=False)
        coordinator.meet(await a_shell(tmp_path))
        assert coordinator.hello.held == [(KEY, Phase.READY)]
        coordinator.order(Go(KEY))
        assert (await coordinator.hears(Ended)).exit.code == 5

    play(tmp_path, story)


def test_the_next_keeper_holds_a_member_again(tmp_path: Path) -> None:
    async def story(coordinator: Coordinator) -> None:
        coordinator.order(a_brief("exit 6"), ROLL, START)
        await coordinator.hears(Ready)
        coordinator.said.clear()
        os.kill(Node(tmp_path).keeper_pid(), signal.SIGKILL)
        assert await coordinator.hears(Ready) == Ready(KEY)
        assert printed(tmp_path) == ""
        coordinator.order(Go(KEY))
        assert (await coordinator.hears(Ended)).exit.code == 6

    play(tmp_path, story)


def test_a_runner_tells_where_it_is_reached(tmp_path: Path) -> None:
    async def story(coordinator: Coordinator) -> None:
        assert coordinator.hello.address == "10.0.0.2"
        coordinator.shell.engine.address = "given"
        assert coordinator.shell.engine.hello(0.0).address == "given"

    play(tmp_path, story)


def test_what_happens_while_a_runner_reads_the_listing_is_not_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The listing says ready, and before that is read the lease is over: the keeper's answer came too early."""

    async def story(coordinator: Coordinator) -> None:
        coordinator.order(a_brief("exit 5"), ROLL, START)
        await coordinator.hears(Ready)
        await coordinator.shell.close(stop_tasks=False)
        listing = Processes.listing

        async def slow_listing(processes: Processes) -> Listing:
            found = await listing(processes)
            processes.lease(0.0)
            await listing(processes)  # by then the refusal has been received
            return found

        monkeypatch.setattr(Processes, "listing", slow_listing)
        shell = await a_shell(tmp_path)
        monkeypatch.undo()
        coordinator.meet(shell)
        assert (await coordinator.hears(Ended)).exit.why == Why.FENCED

    play(tmp_path, story)


@pytest.mark.parametrize("memory_bytes", [0, 64 << 20])
def test_a_runner_that_was_stopped_leaves_no_cgroup_behind(tmp_path: Path, memory_bytes: int) -> None:
    cgroups = Cgroups.find(f"shell-{os.getpid()}")
    folders = [Path(folder).parent for folder in cgroups.named("any").folders]
    assert all(folder.exists() for folder in folders)

    async def story(coordinator: Coordinator) -> None:
        start = replace(START, grant=Grant(1, memory_bytes), formation=0)
        coordinator.order(a_brief("grep -c phalanx-shell /proc/self/cgroup"), start)
        assert (await coordinator.hears(Ended)).exit.code == 0
        inside = len(folders) if memory_bytes else 1
        assert printed(tmp_path) == f"{inside}\n"

    play(tmp_path, story, cgroups)
    assert not any(folder.exists() for folder in folders)


# What tasks and damaged files contain is not trusted


def test_a_task_that_forges_a_key_and_kills_its_keeper_harms_no_runner(tmp_path: Path) -> None:
    child = tmp_path / "child"
    forged = f"PHALANX_ATTEMPT_KEY=x setsid sh -c 'echo $$ >{child}; exec sleep 300'"
    script = f"( {forged} & ); while ! [ -s {child} ]; do :; done; kill -9 $PPID; exec sleep 300"

    async def story(coordinator: Coordinator) -> None:
        coordinator.order(a_brief(script), replace(START, formation=0))
        assert (await coordinator.hears(Ended)).exit.why == Why.UNKNOWN
        assert not alive(int(child.read_text()))
        coordinator.order(a_brief("exit 4"), replace(START, key=("g1", 1, 2), formation=0))
        await until(
            lambda: any(isinstance(each, Ended) and each.exit.code == 4 for each in coordinator.reports())
        )
        await coordinator.shell.close(stop_tasks=False)
        coordinator.meet(await a_shell(tmp_path))  # the runner starts again
        assert {key for key, _ in coordinator.shell.engine.state.listing()} == {("g1", 1, 1), ("g1", 1, 2)}
        assert "skipped" in (tmp_path / "keeper.log").read_text()

    play(tmp_path, story)


def test_a_runner_starts_on_a_damaged_journal(tmp_path: Path) -> None:
    lines = [
        json.dumps(["boot", recovery.boot_id()]),
        '["started","x",4194303,12.5,[0,0],[]]',
        '["ended","x",{"code":null}]',
        '["started","j/0/1/0",4194303,12.5,[0,0],["/no/such/cgroup"]]',
        '["started","k/0/1/0",4194303,12.5,[0,0],[]]',
        '["ended","k/0/1/0",{"code":"none","oom":7}]',
        "\0\0\0",
    ]
    (tmp_path / "keeper.journal").write_text("\n".join(lines))

    async def story(coordinator: Coordinator) -> None:
        listed = {key for key, _ in coordinator.shell.engine.state.listing()}
        assert listed == {("j", 0, 1), ("k", 0, 1)}
        coordinator.order(a_brief("exit 4"), replace(START, formation=0))
        await until(
            lambda: any(isinstance(each, Ended) and each.exit.code == 4 for each in coordinator.reports())
        )
        told = (tmp_path / "keeper.log").read_text()
        assert all(f"line {number}" in told for number in (2, 3, 6, 7))

    play(tmp_path, story)


def test_an_end_that_nobody_knows_of_is_forgotten(tmp_path: Path) -> None:
    journal = tmp_path / "keeper.journal"

    async def story(coordinator: Coordinator) -> None:
        with journal.open("a") as lines:
            lines.write('["started","stranger/0/1/0",4194303,12.5,[0,0],[]]\n')
        os.kill(Node(tmp_path).keeper_pid(), signal.SIGKILL)
        await until(lambda: '["forget", ["stranger/0/1/0"]]' in journal.read_text())

    play(tmp_path, story)


@pytest.fixture
def older_keeper(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The program of a keeper that says it is of version 6, and takes no commands with its starts, as that one did."""
    copy = tmp_path_factory.mktemp("older") / "keeper"
    shutil.copytree(machine.KEEPER.parent, copy)
    for name, now, then in (
        ("__init__.py", f"VERSION = {VERSION}", "VERSION = 6"),
        ("spawn.py", 'options.get("argv") or ', ""),
    ):
        text = (copy / name).read_text()
        assert now in text
        (copy / name).write_text(text.replace(now, then))
    monkeypatch.setattr(machine, "KEEPER", copy / machine.KEEPER.name)
    return copy


@pytest.mark.usefixtures("older_keeper")
def test_a_sweep_is_refused_by_an_older_keeper_and_may_run_elsewhere(tmp_path: Path) -> None:
    sweep = replace(a_brief(""), command=Command((PROGRAM, "echo", "{lr}")))

    async def story(coordinator: Coordinator) -> None:
        coordinator.order(sweep, replace(START, formation=0, params='{"lr":"0.1"}'))
        exit = (await coordinator.hears(Ended)).exit
        assert (exit.why, exit.of_node) == (Why.EXHAUSTED, True)
        assert "older version" in exit.message

    play(tmp_path, story)


def test_an_older_keeper_that_has_nothing_to_do_is_replaced(
    tmp_path: Path, older_keeper: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(coordinator: Coordinator) -> None:
        (keeper,) = coordinator.shell._keepers
        coordinator.order(a_brief("read x; exit 3"), replace(START, formation=0))
        await coordinator.hears(Ended)
        monkeypatch.undo()
        ticking = asyncio.ensure_future(coordinator.shell.tick())
        await until(lambda: keeper.health._looks > 0)
        assert keeper.connection is not None and keeper.connection.version == 6  # its end has not been taken
        coordinator.shell.received(wire.Dispositions(1, [(KEY, Disposition.ACCEPTED)]))
        await until(lambda: keeper.connection is not None and keeper.connection.version == VERSION)
        ticking.cancel()
        again = (KEY[0], KEY[1], 2)
        coordinator.order(a_brief("exit 4"), replace(START, key=again, formation=0))
        await until(
            lambda: any(isinstance(each, Ended) and each.key == again for each in coordinator.reports())
        )

    play(tmp_path, story)
