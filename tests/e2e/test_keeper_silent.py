"""A runner and a keeper that does not answer: at its start, while it stops, and when it is ended."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from msgspec.structs import replace

from phalanx.clock import SteadyClock
from phalanx.core.model.orders import Disposition, Ended, Phase, Started, Why
from phalanx.core.model.resources import Capacity
from phalanx.link import wire
from phalanx.runner import loop, machine
from phalanx.runner.keepers import NodeKeeper
from phalanx.runner.limits import AttemptLimits
from phalanx.runner.loop import RunnerLoop
from phalanx.runner.machine import LocalMachine
from phalanx.runner.stopping import StopRequest
from phalanx.runner.turn import RunnerEngine
from tests.e2e.test_keeper_shell import KEY, NO_CGROUPS, PATH, START, Coordinator, a_brief, play
from tests.support.keeper_node import Node, alive, tell

ALONE = replace(START, formation=0)
WITHIN_S, LOOK_S = 20.0, 0.01


@contextmanager
def frozen(pid: int) -> Iterator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


async def a_running_task(coordinator: Coordinator) -> None:
    coordinator.order(a_brief("exec sleep 300"), ALONE)
    await coordinator.hears(Started)


def the_keeper(runner: RunnerLoop) -> NodeKeeper:
    (keeper,) = runner._keepers
    return keeper


def another_shell(folder: Path, lease_s: float) -> RunnerLoop:
    engine = RunnerEngine("n2", "next life", "origin", "token", Capacity(4, 0))
    engine.self_fence_s = lease_s
    place, limits = (LocalMachine(folder), NO_CGROUPS), AttemptLimits(NO_CGROUPS, engine.capacity)
    return RunnerLoop(engine, folder, SteadyClock(), PATH, 0, [place], limits)


def test_a_runner_that_starts_replaces_a_keeper_that_is_frozen_for_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "FIRST_WITHIN_S", 4.0)

    async def story(coordinator: Coordinator) -> None:
        await a_running_task(coordinator)
        await coordinator.shell.close(stop_tasks=False)
        keeper = Node(tmp_path).keeper_pid()
        with frozen(keeper):
            later = another_shell(tmp_path, lease_s=0.0)
            await asyncio.wait_for(later.open(), WITHIN_S)
            coordinator.meet(later)
            assert not alive(keeper)
            assert (await coordinator.hears(Ended)).exit.why == Why.UNKNOWN

    play(tmp_path, story)


def test_a_keeper_that_goes_on_within_a_lease_keeps_what_it_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "FIRST_WITHIN_S", 0.2)

    async def story(coordinator: Coordinator) -> None:
        await a_running_task(coordinator)
        await coordinator.shell.close(stop_tasks=False)
        later = another_shell(tmp_path, lease_s=60.0)
        keeper = Node(tmp_path).keeper_pid()
        with frozen(keeper):
            opening = asyncio.ensure_future(later.open())
            async with asyncio.timeout(WITHIN_S):
                while the_keeper(later).health._unreached_s < 0.4:
                    await asyncio.wait({opening}, timeout=LOOK_S)
            assert not opening.done()
        monkeypatch.setattr(machine, "FIRST_WITHIN_S", 10.0)
        await asyncio.wait_for(opening, WITHIN_S)
        coordinator.meet(later)
        assert coordinator.hello.held == [(KEY, Phase.RUNNING)]
        assert Node(tmp_path).keeper_pid() == keeper

    play(tmp_path, story)


def test_a_keeper_is_found_to_be_ended_however_its_folder_is_spelt(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "link").symlink_to("state")

    async def story(node: Node) -> None:
        keeper = node.keeper_pid()
        assert LocalMachine(tmp_path / "link").end_keeper()
        await node.until(lambda: not alive(keeper))
        assert not LocalMachine(tmp_path / "state").end_keeper()

    tell(tmp_path / "state", story)


def test_a_runner_hangs_up_on_a_silent_keeper_that_cannot_be_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is gone, and another process holds its end of the connection; here it only cannot be found."""
    monkeypatch.setattr(machine, "SILENT_AFTER", 2)
    monkeypatch.setattr(machine, "ENDS_S", 1.0)
    monkeypatch.setattr(LocalMachine, "end_keeper", lambda _: False)

    async def story(coordinator: Coordinator) -> None:
        runner = coordinator.shell
        runner.engine.self_fence_s = 0.0
        silent = the_keeper(runner).connection
        ticking = asyncio.ensure_future(runner.tick())
        try:
            async with asyncio.timeout(WITHIN_S):
                with frozen(Node(tmp_path).keeper_pid()):
                    while the_keeper(runner).connection is silent:
                        await asyncio.wait({ticking}, timeout=LOOK_S)
                while the_keeper(runner).connection in {None, silent}:
                    await asyncio.wait({ticking}, timeout=LOOK_S)
        finally:
            ticking.cancel()

    play(tmp_path, story)


def test_a_runner_leaves_a_frozen_keeper_that_does_not_read_its_last_words(tmp_path: Path) -> None:
    async def story(node: Node) -> None:
        with frozen(node.keeper_pid()):
            node.processes.forget(["x" * 1000] * 10_000)
            await asyncio.wait_for(node.processes.close(), WITHIN_S)

    tell(tmp_path, story)


@pytest.mark.parametrize("is_there", [True, False])
def test_tasks_that_could_not_be_ended_do_not_count_as_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_there: bool
) -> None:
    monkeypatch.setattr(loop, "DRAIN_GRACE_S", 0.1)
    monkeypatch.setattr("phalanx.runner.leaving.GOODBYE_WITHIN_S", 0.1)
    monkeypatch.setattr("phalanx.runner.leaving.REPORT_WITHIN_S", 0.1)

    async def story(coordinator: Coordinator) -> None:
        await a_running_task(coordinator)
        only = the_keeper(coordinator.shell)
        keeper = only.connection
        only.connection = keeper if is_there else None
        with frozen(Node(tmp_path).keeper_pid()):
            word = await coordinator.shell.leave(StopRequest(drain=True))
        only.connection = keeper
        assert (word.tasks, word.drained) == (1, False)

    play(tmp_path, story)


def test_tasks_that_ended_are_counted_as_such(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("phalanx.runner.leaving.GOODBYE_WITHIN_S", 0.1)
    monkeypatch.setattr("phalanx.runner.leaving.REPORT_WITHIN_S", 0.1)

    async def story(coordinator: Coordinator) -> None:
        await a_running_task(coordinator)
        word = await coordinator.shell.leave(StopRequest(drain=True))
        assert (word.tasks, word.drained, word.unreported) == (1, True, 1)

    play(tmp_path, story)


def test_a_node_without_room_for_a_folder_refuses_the_attempt_and_starts_the_next(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.write_text("a folder cannot be made here")

    async def story(coordinator: Coordinator) -> None:
        coordinator.order(a_brief("exit 4"), ALONE)
        exit = (await coordinator.hears(Ended)).exit
        assert (exit.why, exit.of_node, "folder for its logs" in exit.message) == (Why.EXHAUSTED, True, True)
        coordinator.said.clear()
        logs.unlink()
        coordinator.order(replace(ALONE, key=("g1", 1, 2)))
        assert (await coordinator.hears(Ended)).exit.code == 4

    play(tmp_path, story)


def test_what_a_task_puts_in_place_of_its_jobs_log_folder_is_set_aside(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    os.mkfifo(tmp_path / "logs/g1")

    async def story(coordinator: Coordinator) -> None:
        coordinator.order(a_brief("exit 4"), ALONE)
        assert (await coordinator.hears(Ended)).exit.code == 4

    play(tmp_path, story)


def test_an_end_that_is_disposed_of_without_a_keeper_leaves_no_name_behind(tmp_path: Path) -> None:
    async def story(coordinator: Coordinator) -> None:
        coordinator.order(a_brief("exit 4"), ALONE)
        await coordinator.hears(Ended)
        runner = coordinator.shell
        only = the_keeper(runner)
        keeper, only.connection = only.connection, None
        runner.received(wire.Dispositions(1, [(KEY, Disposition.ACCEPTED)]))
        assert runner._launches.names == {}
        only.connection = keeper

    play(tmp_path, story)
